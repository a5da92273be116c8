"""Vectorised environments of the user's own, and those of `gymnasium.vector`.

They step all environments in one call, on a GPU or in a compiled simulator, so there is no chain
of wrappers for each. This module does what the chain does elsewhere: it reports the ends of
episodes as Stable-Baselines3 expects them, records episodes, passes on seeds, and saves the state
if the environment gives it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from rlzoo_plus.config.catalog import VEC_ENVS
from rlzoo_plus.config.references import reveal
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.exactness import N_AFTER, N_BEFORE
from rlzoo_plus.envs.infos import copy_of
from rlzoo_plus.envs.monitor import EpisodeMonitor, EpisodeRows, episode_numbers, with_own_episode
from rlzoo_plus.envs.plain_state import is_plain, to_plain
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.envs.single import import_packages
from rlzoo_plus.envs.trial import allowed_action, check_shape
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.registry import where_raised

log = logging.getLogger(__name__)
GYMNASIUM = "gymnasium"
_Infos = list[dict[str, Any]]


def make_own_vec_env(
    spec: EnvConfig,
    n_envs: int,
    vec_env: str,
    seed: int,
    monitor: Path | None = None,
    render_mode: str | None = None,
) -> OwnVecEnv:
    """Make the environments that `vec_env` names.

    It is `gymnasium`, or a user's class. A `VecEnv` of Stable-Baselines3 is called with `env` (the
    specification), `n_envs`, `seed` (of the first episodes) and `render_mode`, a `VectorEnv` of
    Gymnasium as `gymnasium.make_vec` calls it. `monitor` is the folder for a CSV of episodes.

    Raises:
        ConfigError: There are none of that kind, or they cannot be made.
    """
    import_packages(spec)
    options = reveal(spec.kwargs, "env.kwargs")
    kind: Any = _registered if vec_env == GYMNASIUM else VEC_ENVS.load(vec_env)
    if kind is _registered or issubclass(kind, VectorEnv):
        limit = {} if spec.time_limit is None else {"max_episode_steps": spec.time_limit}
        mode = {} if render_mode is None else {"render_mode": render_mode}
        arguments = {"num_envs": n_envs, **limit, **mode, **options}
    else:
        env = spec.model_copy(update={"kwargs": options})
        arguments = {"env": env, "n_envs": n_envs, "seed": seed, "render_mode": render_mode}
    try:
        inner = kind(spec.id, arguments) if kind is _registered else kind(**arguments)
    except ConfigError:
        raise
    # User code can raise anything.
    except (Exception, SystemExit) as error:
        given = ", ".join(arguments)
        raise ConfigError(
            f"vec_env={vec_env} cannot be made with the arguments {given}: {where_raised(error)}."
        ) from error
    single = "single_" if isinstance(inner, VectorEnv) else ""
    for name in (f"{single}observation_space", f"{single}action_space"):
        if not isinstance(getattr(inner, name, None), gym.Space):
            raise ConfigError(f"vec_env={vec_env}: it has no {name}. Set it in its __init__().")
    # A world of several agents has a row for each.
    if inner.num_envs != n_envs * getattr(inner, "agents_per_env", 1):
        raise ConfigError(
            f"vec_env={vec_env}: num_envs is {inner.num_envs}, and n_envs={n_envs} was asked for. "
            "Let it make as many as it is asked for, or set n_envs."
        )
    venv = OwnVecEnv(inner, vec_env, monitor)
    venv.seed(seed)
    return venv


def _registered(env_id: str, arguments: dict[str, Any]) -> VectorEnv:
    try:
        found = gym.spec(env_id)
    except gym.error.Error as error:
        raise ConfigError(f"env.id={env_id}: {str(error).splitlines()[0]}") from error
    if found.vector_entry_point is None:
        raise ConfigError(
            f"vec_env={GYMNASIUM} needs an environment that is registered with a "
            f"vector_entry_point, and {env_id} has none. Use vec_env=auto or subproc."
        )
    return gym.make_vec(env_id, vectorization_mode="vector_entry_point", **arguments)


class OwnVecEnv(VecEnv):
    """Environments that step together, as a `VecEnv` that records their episodes.

    Attributes:
        inner: What was made, a `VecEnv` or a `VectorEnv`.
        has_state: Whether it gives its state, with `state_dict()` and `load_state_dict(state)`.
        unrecorded: What callbacks did that a checkpoint does not hold.
    """

    def __init__(self, inner: VecEnv | VectorEnv, name: str, monitor: Path | None = None) -> None:
        """Wrap environments that `vec_env` calls `name`; `monitor` is the folder for their CSV."""
        self.inner, self.name = inner, name
        self._venv = _Translated(inner) if isinstance(inner, VectorEnv) else inner
        self.has_state = all(hasattr(inner, m) for m in ("state_dict", "load_state_dict"))
        self.unrecorded: list[str] = []
        self._t_start = time.time()
        spec = getattr(inner, "spec", None)
        file = None if monitor is None else monitor / f"0.{EpisodeMonitor.EXT}"
        self._rows = None if file is None else EpisodeRows(file, spec, self._t_start)
        spaces = self._venv.observation_space, self._venv.action_space
        super().__init__(inner.num_envs, *spaces)
        self._clear()

    def _clear(self) -> None:
        self._returns = np.zeros(self.num_envs, np.float64)
        self._lengths = np.zeros(self.num_envs, np.int64)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the episodes that the next reset begins."""
        self._venv.seed(seed)
        return [None if seed is None else seed + rank for rank in range(self.num_envs)]

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        self._clear()
        observations: VecEnvObs = self._kept(self._venv.reset())
        self.reset_infos = list(self._venv.reset_infos)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Act, and add the record of each episode that ended to its info.

        Raises:
            RunError: The environments raised an error, or called `sys.exit`.
        """
        try:
            observations, given_rewards, given_dones, given_infos = self._venv.step(self._actions)
        except SystemExit as error:
            # Passed on, it would end the command with the exit code of one that has succeeded.
            raise RunError(f"{self.name} called sys.exit({error.code!r}).") from error
        except (ConfigError, RunError):
            raise
        # User code can raise anything.
        except Exception as error:
            text = f"vec_env={self.name}: its step raises {where_raised(error)}."
            raise RunError(text) from error
        rewards = np.asarray(given_rewards, np.float64)
        dones = np.asarray(given_dones, bool)
        infos = [with_own_episode(dict(info)) for info in given_infos]
        self._returns += rewards
        self._lengths += 1
        ended = dones & ~getattr(self._venv, "idle", np.zeros(self.num_envs, bool))
        for rank in np.flatnonzero(ended).tolist():
            row = {"r": float(self._returns[rank]), "l": int(self._lengths[rank])}
            row["t"] = round(time.time() - self._t_start, 6)
            if self._rows is not None:
                self._rows.write_row(row)
            infos[rank]["episode"] = {**row, **episode_numbers(infos[rank])}
        self._returns[dones], self._lengths[dones] = 0.0, 0
        # The record has the rewards of the world, whatever is learned from.
        learned = getattr(self._venv, "learned_rewards", None)
        rewards = rewards if learned is None else np.asarray(learned, np.float64)
        return self._kept(observations), rewards.astype(np.float32), dones, infos

    def _kept(self, observations: Any) -> Any:
        """Copy what was not yet: a class may write the next ones into the same memory."""
        return observations if isinstance(self._venv, _Translated) else copy_of(observations)

    def try_out(self) -> None:
        """Reset and step once, with a random action.

        Raises:
            ConfigError: It raises, or returns arrays of other shapes than its spaces say.
        """
        where, n_envs = f"vec_env={self.name}", self.num_envs
        self.action_space.seed(0)
        try:
            first = self.reset()
            after, rewards, dones, _ = self.step(self._any_actions())
        except RunError as error:
            raise ConfigError(str(error)) from error
        # User code can raise anything.
        except (Exception, SystemExit) as error:
            what = f"{where}: its reset or step raises {where_raised(error)}."
            raise ConfigError(what) from error
        space = batch_space(self.observation_space, n_envs)
        for observations in (first, after):
            check_shape(observations, space, where)
        if np.shape(rewards) != (n_envs,) or np.shape(dones) != (n_envs,):
            raise ConfigError(f"{where}: rewards and ends are not of shape ({n_envs},).")

    def _any_actions(self) -> np.ndarray:
        """Return random actions; the first allowed ones if some are masked."""
        space, masks = self.action_space, None
        if not isinstance(space, gym.spaces.Box):
            # User code can raise anything where there is no such method.
            with contextlib.suppress(Exception):
                masks = self.env_method("action_masks")
        if masks is None:
            return np.stack([space.sample() for _ in range(self.num_envs)])
        return np.stack([allowed_action(space, mask) for mask in masks])

    def replay_problem(self) -> str | None:
        """Return why a state does not come back after a few random steps, None if it does.

        Steps are taken, the state from before them is restored, and they are taken again.

        Raises:
            ConfigError: A step raises.
        """
        if not self.has_state:
            return self.no_state
        try:
            for _ in range(N_BEFORE):
                self.step(self._any_actions())
            state = self.state()
            actions = [self._any_actions() for _ in range(N_AFTER)]
            # As in a resume, which restores them last.
            with generators_kept():
                expected = [_digest_of(self.step(chosen)) for chosen in actions]
            with generators_kept():
                problem = self.restore(state)
            found = [] if problem else [_digest_of(self.step(chosen)) for chosen in actions]
        except RunError as error:
            raise ConfigError(str(error)) from error
        except ValueError as error:
            return str(error)
        if problem is None and found != expected:
            return f"vec_env={self.name}: steps after a state was restored differ"
        return problem

    @property
    def no_state(self) -> str:
        """Why a run with it cannot be resumed bit for bit, where it gives no state."""
        return (
            f"vec_env={self.name} does not give its state, and its episodes start over; "
            "state_dict() and load_state_dict(state) would keep them"
        )

    def state(self) -> dict[str, Any] | None:
        """Return all that decides how it continues, as plain data; None if it is not known.

        Raises:
            ValueError: What `state_dict` returns is more than plain data.
        """
        if not self.has_state:
            return None
        state = self.inner.state_dict()  # type: ignore[union-attr]
        if not is_plain(state):
            raise ValueError(
                f"vec_env={self.name}: its state_dict() returns more than plain data. Use numbers, "
                "texts, NumPy arrays, and lists and dictionaries of them."
            )
        return {
            "inner": to_plain(state),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "stepper": self._venv.state() if isinstance(self._venv, _Translated) else None,
        }

    def restore(self, state: Any) -> str | None:
        """Restore freshly made environments from `state()`; return why that fails, or None."""
        if state is None or not self.has_state:
            return self.no_state
        try:
            self.inner.load_state_dict(state["inner"])  # type: ignore[union-attr]
            self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
            if isinstance(self._venv, _Translated):
                self._venv.restore(state["stepper"])
        # User code can raise anything.
        except Exception as error:
            return f"vec_env={self.name} refuses its state: {where_raised(error)}"
        return None

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, for each environment."""
        chosen = list(self._get_indices(indices))
        if attr_name == "has_state":
            # True is only for single environments whose whole state is known.
            return [False for _ in chosen]
        if attr_name in ("spec", "metadata", "render_mode"):
            return [getattr(self.inner, attr_name, None) for _ in chosen]
        return self._venv.get_attr(attr_name, chosen)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute."""
        self._note(f"set_attr {attr_name!r}")
        self._venv.set_attr(attr_name, value, indices)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Call a method; of `gymnasium.vector`, once for all environments."""
        chosen = list(self._get_indices(indices))
        if method_name == "set_episode_seeds":
            # One seed for all: they have no resets of their own.
            if 0 in chosen:
                self.seed(int(args[0][0]))
            return [None for _ in chosen]
        if method_name in ("accounts", "load_accounts"):
            # Only single environments have a state between episodes.
            return [{} if method_name == "accounts" else None for _ in chosen]
        if method_name not in ("action_masks", "loaded_code"):
            self._note(f"env_method {method_name!r}")
        return self._venv.env_method(method_name, *args, indices=chosen, **kwargs)

    def _note(self, call: str) -> None:
        reason = f"{call} was called, which a checkpoint does not hold for vec_env={self.name}"
        if reason not in self.unrecorded:
            self.unrecorded.append(reason)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False: there are no wrappers of single environments."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return an image of each environment.

        Raises:
            ConfigError: There are none.
        """
        try:
            frames = self._venv.get_images()
        except NotImplementedError:
            frames = None
        if frames is None:
            raise ConfigError(f"vec_env={self.name} renders no images.")
        return list(frames)

    def close(self) -> None:
        """Close them, and the record of episodes."""
        if self._rows is not None:
            self._rows.close()
        self.inner.close()


class _Translated:
    """A `VectorEnv` with the methods of a `VecEnv`; it translates how the next episode begins.

    SAME_STEP: the step that ends an episode returns the first observation of the next, and the
    last one in `final_obs`, as Stable-Baselines3 wants it. DISABLED: they are reset here, with
    `reset_mask`. NEXT_STEP: the next step is a reset and ignores its action. There is nothing to
    learn from that step, and it cannot be left out of the batch. It is reported as an episode of
    one step that begins in the last observation and ends there with reward 0, truncated if the
    real episode was: a terminal state has value 0, and a truncated one keeps its own value.

    Attributes:
        idle: Of which environments the last step was such a reset, shape (n_envs,).
    """

    def __init__(self, inner: VectorEnv) -> None:
        self.inner = inner
        mode = inner.metadata.get("autoreset_mode")
        if mode is None:
            mode = AutoresetMode.NEXT_STEP
            log.warning(
                "%s does not say how it begins the next episode: metadata['autoreset_mode'] is "
                "missing, and NEXT_STEP, Gymnasium's default, is assumed", type(inner).__name__
            )  # fmt: skip
        self.mode = AutoresetMode(mode)
        self._seed: int | None = None
        self.num_envs = inner.num_envs
        self.observation_space = inner.single_observation_space
        self.action_space = inner.single_action_space
        # Whether the next step resets an environment, and whether its episode was truncated.
        self._resets, self._was_cut, self.idle = np.zeros((3, inner.num_envs), bool)
        self._last: Any = None

    def seed(self, seed: int | None) -> None:
        self._seed = seed

    def reset(self) -> VecEnvObs:
        observations, infos = self.inner.reset(seed=self._seed)
        self._seed = None
        self._resets = np.zeros(self.num_envs, bool)
        self.reset_infos = _infos_of(infos, self.num_envs)
        copied: VecEnvObs = self._copied(observations)
        return copied

    def step(self, actions: np.ndarray) -> VecEnvStepReturn:
        seen, rewards, terminated, truncated, batch = self.inner.step(actions)
        observations, infos = self._copied(seen), _infos_of(batch, self.num_envs)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        rewards = np.array(rewards, np.float64)
        idle = self.idle = self._resets
        rewards[idle], terminated[idle], truncated[idle] = 0.0, False, False
        ended = terminated | truncated
        for rank in np.flatnonzero(idle).tolist():
            infos[rank]["terminal_observation"] = _row(self._last, rank)
            infos[rank]["TimeLimit.truncated"] = bool(self._was_cut[rank])
        for rank in np.flatnonzero(ended).tolist():
            final = infos[rank].pop("final_info", None)
            infos[rank] |= final if isinstance(final, Mapping) else {}
            last = infos[rank].pop("final_obs", None)
            infos[rank]["terminal_observation"] = _row(observations, rank) if last is None else last
            infos[rank]["TimeLimit.truncated"] = bool(truncated[rank] and not terminated[rank])
        if self.mode is AutoresetMode.DISABLED and ended.any():
            first, _ = self.inner.reset(options={"reset_mask": ended.copy()})
            observations = self._copied(first)
        if self.mode is AutoresetMode.NEXT_STEP:
            self._resets, self._was_cut, self._last = ended, truncated & ~terminated, observations
        return observations, rewards, ended | idle, infos

    def state(self) -> Any:
        return {"resets": self._resets, "was_cut": self._was_cut, "last": to_plain(self._last)}

    def restore(self, state: Any) -> None:
        self._resets, self._was_cut = state["resets"].astype(bool), state["was_cut"].astype(bool)
        self._last = state["last"]

    def get_attr(self, attr_name: str, indices: Any) -> list[Any]:
        return [getattr(self.inner, attr_name) for _ in indices]

    def set_attr(self, attr_name: str, value: Any, indices: Any) -> None:
        setattr(self.inner, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any, **kwargs: Any) -> list[Any]:
        result = getattr(self.inner, method_name)(*args, **kwargs)
        each = isinstance(result, np.ndarray) and len(result) == self.num_envs
        return [result[rank] if each else result for rank in indices]

    def get_images(self) -> Any:
        return self.inner.render()

    def _copied(self, observations: Any) -> Any:
        """Copy: an environment may write the next ones into the same memory."""
        space = self.observation_space
        if isinstance(space, gym.spaces.Dict):
            parts = space.spaces.items()
            return {key: np.array(observations[key], part.dtype) for key, part in parts}
        return np.array(observations, space.dtype)


def _infos_of(batch: Mapping[str, Any], n_envs: int) -> _Infos:
    """Return the info of each environment; a key belongs to those that its `_key` names."""
    infos: _Infos = [{} for _ in range(n_envs)]
    for key, values in batch.items():
        if key.startswith("_") and key[1:] in batch:
            continue
        there = batch.get(f"_{key}", np.ones(n_envs, bool))
        parts = _infos_of(values, n_envs) if isinstance(values, Mapping) else values
        for rank in np.flatnonzero(there).tolist():
            if len(parts) == n_envs:
                infos[rank][key] = parts[rank]
    return infos


def _digest_of(step: VecEnvStepReturn) -> str:
    """Return a hash of the observations, rewards and ends of a step."""
    seen, rewards, dones, _ = step
    parts = seen.values() if isinstance(seen, Mapping) else [seen]
    digest = hashlib.sha256()
    for part in (*parts, rewards, dones):
        digest.update(np.asarray(part).tobytes())
    return digest.hexdigest()


def _row(observations: Any, rank: int) -> Any:
    if isinstance(observations, Mapping):
        return {key: values[rank].copy() for key, values in observations.items()}
    return observations[rank].copy()
