"""Episodes that can be put back: what happened since the reset, to be replayed or restored.

An episode is decided by the seed of its reset and its actions. Replaying them in a new process
brings any deterministic environment back to the same moment; a robot of ours does so by itself.
What lasts longer than an episode comes back in two ways: calls of user code are made again, and an
environment or wrapper with `state_dict` and `load_state_dict` gets what it told before the reset.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.envs.calls import Call, CallRecord
from rlzoo_plus.envs.lasting import (
    accounting_parts,
    accounts,
    attributes_of,
    first_difference,
    layers_of,
    load_accounts,
)
from rlzoo_plus.envs.wrappers import MaskObservation, ReproducibleResets, WarmupResets
from rlzoo_plus.resume.fingerprint import user_code, user_models

_BLOCK = 4096
_ACCOUNT = "state_dict() and load_state_dict(state) would keep it"
# What these wrappers know of an episode; any other wrapper may know more, so it is replayed.
_WRAPPER_STATE: dict[type, tuple[str, ...]] = {
    TimeLimit: ("_elapsed_steps",),
    OrderEnforcing: ("_has_reset",),
    WarmupResets: ("_left",),
    MaskObservation: (),
}


class RecordedEpisodes(ReproducibleResets):
    """Records the running episode, so that `restore_episode` can bring it back elsewhere.

    Attributes:
        has_state: Whether the environment gives its state; otherwise its actions are kept here.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.has_state = has_exact_state(env)
        self._episode: dict[str, Any] | None = None
        self._actions: list[np.ndarray] = []
        self._blocks: list[np.ndarray] = []
        self._observation: Any = None
        self._calls = CallRecord()
        self._remembered: dict[str, Any] = {}
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and its record."""
        self._remembered = {} if self.has_state else accounts(self.env)
        self._calls.begin_episode()
        observation, info = super().reset(seed=seed, options=options)
        self._episode = {"seed": self.episode_seed, "options": options}
        self._actions, self._blocks = [], []
        self._steps = 0
        self._observation = observation
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and keep the action."""
        if not self.has_state:
            # A copy: an environment may change its argument.
            self._actions.append(np.array(action))
            if len(self._actions) == _BLOCK:
                self._blocks.append(np.stack(self._actions))
                self._actions = []
        self._steps += 1
        result = self.env.step(action)
        self._observation = result[0]
        return result

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
        state["episode"] = {
            **self._episode,
            "actions": np.concatenate(blocks) if blocks else None,
            "observation": None if self.has_state else _digest(self._observation),
            "state": self._wrapped_state() if self.has_state else None,
        }
        return state

    def restore_episode(self, state: dict[str, Any], rewards: np.ndarray) -> str | None:
        """Bring an episode back, by its state if the environment has one, else by its actions.

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
        problem = problem or load_accounts(self.env, state.get("remembered", {}))
        if problem is None and episode is not None:
            # Also what loads a robot that is only loaded by the first reset.
            self.reset(seed=episode["seed"], options=episode["options"])
            if episode["state"] is not None:
                problem = self._call_again(call for call, _ in calls.during)
                problem = problem or self._put_back(episode["state"])
            else:
                problem = self._replay(episode, rewards, calls)
        self._calls = calls
        self._seeds.bit_generator.state = state["seeds"]
        self._next_seeds = list(state["next_seeds"])
        return problem

    def loaded_code(self, packages: list[str], files: list[str]) -> dict[str, str]:
        """Return what this environment's process runs of the user's; see `user_code`."""
        return user_code(packages) | user_models(files)

    def forgotten(self, state: dict[str, Any]) -> str | None:
        """Return what a restored episode has lost of what lasts longer, as far as it can be seen.

        Args:
            state: What `restore_episode` was given.
        """
        reason = first_difference(state.get("attributes", {}), self._attributes())
        return None if reason is None else printable(f"{reason}; {_ACCOUNT}")

    def _attributes(self) -> dict[str, str]:
        """Return what can be seen of the chain, without the parts that give an account."""
        parts = [] if self.has_state else [*layers_of(self.env), self.unwrapped]
        accounting = {id(part) for _, part in accounting_parts(self.env)}
        return attributes_of([part for part in parts if id(part) not in accounting])

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
        """Do again what user code did; return what failed."""
        for name, args, kwargs in calls:
            try:
                # A copy: an environment may keep its argument and change it.
                self.get_wrapper_attr(name)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            # Whatever an environment of a user's makes of it.
            except Exception as error:
                return printable(f"calling {name} again failed: {type(error).__name__}: {error}")
        return None

    def _wrapped_state(self) -> dict[str, Any]:
        wrappers = [
            {name: getattr(layer, name) for name in _WRAPPER_STATE[type(layer)]}
            for layer in layers_of(self.env)
        ]
        return {"wrappers": wrappers, "env": self.unwrapped.state_dict()}  # type: ignore[attr-defined]

    def _put_back(self, state: dict[str, Any]) -> str | None:
        if not self.has_state:
            return "the environment has no state_dict any more"
        try:
            self.unwrapped.load_state_dict(state["env"])  # type: ignore[attr-defined]
        # Those of a robot that comes out otherwise here are of the second kind.
        except (ValueError, RuntimeError, KeyError, TypeError) as error:
            return f"the environment refuses its state: {error}"
        for layer, values in zip(layers_of(self.env), state["wrappers"], strict=True):
            for name in _WRAPPER_STATE[type(layer)]:
                # Of a forged checkpoint, it can be anything.
                if type(values[name]) is not type(getattr(layer, name)):
                    raise ValueError(f"{type(layer).__name__}.{name} does not fit")
                setattr(layer, name, values[name])
        return None


def has_exact_state(env: gym.Env) -> bool:
    """Tell whether an environment gives its state, through wrappers that can be put back."""
    return bool(getattr(env.unwrapped, "exact_state", False)) and all(
        type(layer) in _WRAPPER_STATE for layer in layers_of(env)
    )


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
