"""Episodes that can be restored: what happened since the reset, to be replayed or loaded.

The seed of its reset and its actions decide an episode. Replaying them restores any deterministic
environment in a new process; robots of ours load their state instead. What lasts longer than an
episode is restored in two ways: calls of user code are made again, and a user's environment or
wrapper with `state_dict()` and `load_state_dict(state)` gets its state from before the reset. One
without them that counts episodes starts from zero in a new process. Replaying the running episode
need not show that; the counter itself does.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.envs.calls import Call, CallRecord
from rlzoo_plus.envs.seeding import seed_generators
from rlzoo_plus.envs.user_code import user_code, user_models
from rlzoo_plus.envs.wrappers import MaskObservation
from robots.quiet import native_output_hidden

# Below the seeds of evaluation episodes, see `rlzoo_plus.envs.seeding`.
_TRAINING_SEEDS = 2**29
_BLOCK = 4096
# Packages whose attributes do not matter, or are restored elsewhere.
_KNOWN = {"gymnasium", "robots", "rlzoo_plus", "pybullet_envs_gymnasium", "panda_gym"}
# Why an episode of an evaluation ended that `eval.max_episode_steps` has cut.
CUT = "max_episode_steps"
_MOST_VALUES, _LARGEST_ARRAY, _LONGEST = 1000, 1000, 40


class ReproducibleResets(gym.Wrapper):
    """Pass a fresh seed at each reset, drawn from a generator seeded by the first.

    Some environments draw a new generator from the system at each unseeded reset; behind this
    wrapper a run depends on its seed alone. An evaluation can also name the episodes' seeds.

    Attributes:
        episode_seed: The seed of the running episode, None before the first.
        has_own_process: Whether nothing else draws from the global generators of this process;
            they are seeded with each episode then.
    """

    has_own_process = False

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._seeds = np.random.default_rng()
        self._next_seeds: list[int] = []
        self.episode_seed: int | None = None

    def set_episode_seeds(self, seeds: Sequence[int]) -> None:
        """Use these seeds for the resets that follow, in this order."""
        self._next_seeds = [int(seed) for seed in seeds]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset with a seed, whether one is given or not."""
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        elif self._next_seeds:
            seed = self._next_seeds.pop(0)
        else:
            seed = int(self._seeds.integers(_TRAINING_SEEDS))
        self.episode_seed = seed
        if self.has_own_process:
            seed_generators(seed)
        return self.env.reset(seed=seed, options=options)

    def accounts(self) -> dict[str, Any]:
        """Return a copy of the state of every part of the chain that has a `state_dict`."""
        return {place: copy.deepcopy(part.state_dict()) for place, part in _stateful(self.env)}

    def load_accounts(self, remembered: Mapping[str, Any]) -> str | None:
        """Load the state of every part; return why one refuses it, or None."""
        for place, part in _stateful(self.env):
            if place not in remembered:
                continue
            try:
                part.load_state_dict(copy.deepcopy(remembered[place]))
            # User code can raise anything.
            except Exception as error:
                what = f"{type(part).__name__} refuses its state"
                return printable(f"{what}: {type(error).__name__}: {error}")
        return None


class WarmupResets(gym.Wrapper):
    """Reset a few times before the first real reset.

    Several PyBullet environments load their robot at the first reset, and only the later ones
    depend on the seed alone.
    """

    def __init__(self, env: gym.Env, count: int) -> None:
        super().__init__(env)
        self._left = count

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset, after the warm-up if this is the first."""
        while self._left:
            self._left -= 1
            with native_output_hidden():
                self.env.reset(seed=kwargs.get("seed"))
        return self.env.reset(**kwargs)


class EpisodeLimit(gym.Wrapper):
    """Truncate an episode of an evaluation after `most_steps` steps; `end_reason` is `CUT` then."""

    def __init__(self, env: gym.Env, most_steps: int) -> None:
        super().__init__(env)
        self._most, self._taken = most_steps, 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._taken = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act; the last step that is allowed ends the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._taken += 1
        if self._taken < self._most or terminated or truncated:
            return observation, reward, terminated, truncated, info
        return observation, reward, False, True, {**info, "end_reason": CUT}


# What these wrappers know of an episode; any other wrapper may know more, so it is replayed.
_WRAPPER_STATE: dict[type, tuple[str, ...]] = {
    TimeLimit: ("_elapsed_steps",),
    OrderEnforcing: ("_has_reset",),
    WarmupResets: ("_left",),
    MaskObservation: (),
}


class RecordedEpisodes(ReproducibleResets):
    """Records the running episode, for `restore_episode` in another process.

    Attributes:
        has_state: Whether the environment gives its state; otherwise its actions are kept here.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.has_state = has_exact_state(env)
        self._episode: dict[str, Any] | None = None
        self._actions: list[np.ndarray] = []
        self._blocks: list[np.ndarray] = []
        self._remembered: dict[str, Any] = {}
        self._calls, self._observation, self._steps = CallRecord(), None, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and its record."""
        self._remembered = {} if self.has_state else self.accounts()
        self._calls.begin_episode()
        self._observation, info = super().reset(seed=seed, options=options)
        self._episode = {"seed": self.episode_seed, "options": options}
        self._actions, self._blocks, self._steps = [], [], 0
        return self._observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and keep the action."""
        if not self.has_state:
            # A copy: an environment may change its argument.
            self._keep(np.array(action))
        self._steps += 1
        result = self.env.step(action)
        self._observation = result[0]
        return result

    def note_step(self, action: np.ndarray, observation: Any) -> None:
        """Record a step that was taken without this wrapper, by an environment without a state.

        Args:
            action: Nobody else changes it.
            observation: What came of it.
        """
        self._keep(action)
        self._steps += 1
        self._observation = observation

    def _keep(self, action: np.ndarray) -> None:
        self._actions.append(action)
        if len(self._actions) == _BLOCK:
            self._blocks.append(np.stack(self._actions))
            self._actions = []

    def note_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a call that user code makes to the environment."""
        self._calls.note((name, args, kwargs), self._steps)

    def episode_state(self) -> dict[str, Any]:
        """Return the running episode and the generator of seeds, as plain data with arrays."""
        state: dict[str, Any] = {
            "seeds": self._seeds.bit_generator.state,
            "next_seeds": list(self._next_seeds),
            "episode": None,
            "calls": self._calls.state(),
            "remembered": self._remembered,
            "attributes": self._attributes(),
        }
        if self._episode is None:
            return state
        blocks = [*self._blocks, np.stack(self._actions)] if self._actions else self._blocks
        inner = None
        if self.has_state:
            wrappers = [
                {name: getattr(layer, name) for name in _WRAPPER_STATE[type(layer)]}
                for layer in layers_of(self.env)
            ]
            inner = {"wrappers": wrappers, "env": self.unwrapped.state_dict()}  # type: ignore[attr-defined]
        state["episode"] = {
            **self._episode,
            "actions": np.concatenate(blocks) if blocks else None,
            "observation": None if self.has_state else _digest(self._observation),
            "state": inner,
        }
        return state

    def restore_episode(self, state: dict[str, Any], rewards: np.ndarray) -> str | None:
        """Restore an episode, by its state if the environment has one, else by its actions.

        Args:
            state: From `episode_state`, perhaps of another process.
            rewards: The rewards of its steps so far, to compare with, shape (n_steps,).

        Returns:
            None if all that can be compared is the same bit for bit, otherwise what differs.
        """
        episode = state["episode"]
        calls = CallRecord.from_state(state.get("calls", CallRecord().state()))
        problem = self._call_again(calls.to_come(self._calls))
        if calls.dropped:
            problem = f"{calls.dropped:,} calls of its methods were too many to be recorded"
        problem = problem or self.load_accounts(state.get("remembered", {}))
        if problem is None and episode is not None:
            # This also loads a robot that is only loaded by the first reset.
            self.reset(seed=episode["seed"], options=episode["options"])
            if episode["state"] is not None:
                problem = self._call_again(call for call, _ in calls.during)
                problem = problem or self._load(episode["state"])
            else:
                problem = self._replay(episode, rewards, calls)
        self._calls = calls
        self._seeds.bit_generator.state = state["seeds"]
        self._next_seeds = list(state["next_seeds"])
        return problem

    def loaded_code(self, packages: list[str], files: list[str]) -> dict[str, str]:
        """Return what user code this environment's process runs; see `user_code`."""
        there: dict[str, str] = getattr(self.unwrapped, "interpreters_code", dict)()
        return user_code(packages) | user_models(files) | there

    def forgotten(self, state: dict[str, Any]) -> str | None:
        """Return the first attribute that differs after `restore_episode(state)`, or None."""
        before = state.get("attributes", {})
        for name, text in self._attributes().items():
            if before.get(name, text) != text:
                return printable(
                    f"{name} was {before[name]}, is {text} where the episode is replayed; "
                    "state_dict() and load_state_dict(state) would keep it"
                )
        return None

    def _attributes(self) -> dict[str, str]:
        """Return the numbers, texts and small arrays among the attributes of the user's classes.

        Texts may be secrets, and come as hashes. Parts with a `state_dict` are left out.
        """
        found: dict[str, str] = {}
        stateful = [part for _, part in _stateful(self.env)]
        for part in () if self.has_state else (*layers_of(self.env), self.unwrapped):
            kind = type(part)
            if kind.__module__.split(".")[0] in _KNOWN or any(part is other for other in stateful):
                continue
            for name, value in vars(part).items():
                text = _text(value)
                if text is not None and len(found) < _MOST_VALUES:
                    found[f"{kind.__name__}.{name}"] = text
        return found

    def _replay(
        self, episode: dict[str, Any], rewards: np.ndarray, calls: CallRecord
    ) -> str | None:
        actions = [] if episode["actions"] is None else episode["actions"]
        if len(actions) != len(rewards):
            return f"{len(actions)} of {len(rewards)} actions of the episode are known"
        by_step = calls.by_step()
        for number, action in enumerate(actions):
            problem = self._call_again(by_step.get(number, ()))
            if problem is not None:
                return problem
            # An entry of a one-dimensional array is a number, as a discrete action should be.
            _, reward, terminated, truncated, _ = self.step(action)
            if float(reward) != rewards[number]:
                return f"the reward of step {number + 1} of the episode differs"
            if terminated or truncated:
                return f"the episode ends at step {number + 1} of {len(actions)}"
        if _digest(self._observation) != episode["observation"]:
            return f"the observation after {len(actions)} steps of the episode differs"
        return self._call_again(by_step.get(len(actions), ()))

    def _call_again(self, calls: Iterable[Call]) -> str | None:
        for name, args, kwargs in calls:
            try:
                # A copy: an environment may keep its argument and change it.
                self.get_wrapper_attr(name)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            # User code can raise anything.
            except Exception as error:
                return printable(f"calling {name} again failed: {type(error).__name__}: {error}")
        return None

    def _load(self, state: dict[str, Any]) -> str | None:
        if not self.has_state:
            return "the environment has no state_dict any more"
        try:
            self.unwrapped.load_state_dict(state["env"])  # type: ignore[attr-defined]
        # A robot that is built differently here raises a RuntimeError.
        except (ValueError, RuntimeError, KeyError, TypeError) as error:
            return f"the environment refuses its state: {error}"
        for layer, values in zip(layers_of(self.env), state["wrappers"], strict=True):
            for name in _WRAPPER_STATE[type(layer)]:
                # A forged checkpoint can hold anything.
                if type(values[name]) is not type(getattr(layer, name)):
                    raise ValueError(f"{type(layer).__name__}.{name} does not fit")
                setattr(layer, name, values[name])
        return None


def layers_of(env: gym.Env) -> list[gym.Wrapper]:
    """Return the wrappers around an environment, from the outermost inwards."""
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    return layers


def has_exact_state(env: gym.Env) -> bool:
    """Return whether an environment gives its state, through wrappers that can be restored."""
    return bool(getattr(env.unwrapped, "exact_state", False)) and all(
        type(layer) in _WRAPPER_STATE for layer in layers_of(env)
    )


def _stateful(env: gym.Env) -> Iterator[tuple[str, Any]]:
    """Yield the user's parts that have a `state_dict`, by place in the chain and class.

    Robots of ours use that name for their whole state, which is restored elsewhere.
    """
    for number, part in enumerate([*layers_of(env), env.unwrapped]):
        kind = type(part)
        has_state = hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")
        if has_state and not hasattr(kind, "exact_state"):
            yield f"{number}:{kind.__name__}", part


def _digest(observation: Any) -> str:
    """Return a hash of an observation: an array, a number, or a dictionary or tuple of them."""
    digest = hashlib.sha256()
    if isinstance(observation, dict):
        for key in sorted(observation):
            digest.update(f"{key}:{_digest(observation[key])};".encode())
    elif isinstance(observation, (tuple, list)):
        for part in observation:
            digest.update(f"{_digest(part)};".encode())
    else:
        array = np.asarray(observation)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _text(value: Any) -> str | None:
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return str(value)[:_LONGEST]
    if isinstance(value, str):
        return f"text {hashlib.sha256(value.encode()).hexdigest()[:8]}"
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    if is_array and value.size <= _LARGEST_ARRAY:
        return f"array {hashlib.sha256(value.tobytes()).hexdigest()[:8]}"
    return None
