"""Forty faults, planted by wrappers or by settings, and forty environments that are sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Action(gym.Wrapper):
    """Changes what an action does; `kind` says how."""

    def __init__(self, env: gym.Env, kind: str, factor: float = 1.0, entry: int = 0) -> None:
        super().__init__(env)
        self._kind, self._factor, self._entry = kind, factor, entry
        self._last: Any = None
        space = env.action_space
        if kind in ("wide", "rescaled"):
            low, high = factor * space.low, factor * space.high
            self.action_space = spaces.Box(low, high, dtype=space.dtype)

    def reset(self, **options: Any) -> Any:
        """Reset; a filter keeps its state, which is its fault."""
        if self._kind != "filtered":
            self._last = None
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Step with another action."""
        space = self.env.action_space
        if self._kind == "ignored":
            action = space.start if isinstance(space, spaces.Discrete) else 0.0 * action
        elif self._kind == "wide":
            action = np.clip(action, space.low, space.high)
        elif self._kind == "rescaled":
            action = (np.asarray(action) / self._factor).astype(space.dtype)
        elif self._kind == "unsigned":
            action = np.abs(action)
        elif self._kind in ("reversed", "entry_ignored"):
            action = np.array(action)
            action[self._entry] *= -1.0 if self._kind == "reversed" else 0.0
        elif self._kind == "late":
            action, self._last = (action if self._last is None else self._last), action
        elif self._kind == "filtered":
            past = np.zeros_like(action) if self._last is None else self._last
            action = self._last = (0.8 * past + 0.2 * np.asarray(action)).astype(space.dtype)
        return self.env.step(action)


class Observation(gym.Wrapper):
    """Changes what is observed; `kind` says how."""

    def __init__(self, env: gym.Env, kind: str, factor: float = 1.0, entry: int = 0) -> None:
        super().__init__(env)
        self._kind, self._factor, self._entry = kind, factor, entry
        self._last: Any = None
        self._steps = 0
        space = env.observation_space
        if kind == "scaled":
            self.observation_space = spaces.Box(-np.inf, np.inf, space.shape, space.dtype)
        elif kind == "bounds":
            self.observation_space = spaces.Box(-factor, factor, space.shape, space.dtype)

    def reset(self, **options: Any) -> Any:
        """Reset, and return another observation."""
        found, info = self.env.reset(**options)
        self._last, self._steps = found, 0
        return self._changed(found), info

    def step(self, action: Any) -> Any:
        """Step, and return another observation."""
        found, *rest = self.env.step(action)
        self._steps += 1
        if self._kind == "stale":
            found, self._last = self._last, found
        return self._changed(found), *rest

    def _changed(self, found: np.ndarray) -> np.ndarray:
        found = np.array(found)
        if self._kind == "dead":
            found[self._entry] = self._factor
        elif self._kind == "constant":
            found[:] = self._factor
        elif self._kind == "scaled":
            found *= self._factor
        elif self._kind == "uneven":
            found[self._entry] *= self._factor
        elif self._kind == "nan" and self._steps == 15:
            found[self._entry] = self._factor
        elif self._kind == "noise":
            found += (
                np.random.default_rng().normal(0.0, self._factor, found.shape).astype(found.dtype)
            )
        return found


class Reward(gym.Wrapper):
    """Changes the reward; `kind` says how."""

    def __init__(self, env: gym.Env, kind: str, factor: float = 1.0) -> None:
        super().__init__(env)
        self._kind, self._factor = kind, factor

    def step(self, action: Any) -> Any:
        """Step, and return another reward."""
        found, reward, *rest = self.env.step(action)
        effort = float(np.square(action).sum())
        changed = {
            "constant": self._factor,
            "scaled": self._factor * float(reward),
            "effort": self._factor - effort,
            "nan": self._factor if effort > 1.0 else reward,
        }
        return found, changed[self._kind], *rest


class Life(gym.Wrapper):
    """Changes how an episode begins and ends; `kind` says how."""

    def __init__(self, env: gym.Env, kind: str) -> None:
        super().__init__(env)
        self._kind, self._steps = kind, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Reset with another seed, or keep a part of the last state."""
        inner = self.env.unwrapped
        before = getattr(inner, "state", None)
        if self._kind == "unseeded":
            seed = int(np.random.default_rng().integers(2**31))
        found, info = self.env.reset(seed=0 if self._kind == "same" else seed, options=options)
        if self._kind == "leaks" and before is not None:
            inner.state = np.asarray(inner.state) + 0.3 * np.asarray(before)
            found = inner._get_obs()
        return found, info

    def step(self, action: Any) -> Any:
        """Step, and end an episode in another way."""
        found, reward, terminated, truncated, info = self.env.step(action)
        if self._kind == "terminated":
            terminated, truncated = terminated or truncated, False
        self._steps += 1
        if self._kind == "breaks" and self._steps > 200:
            raise RuntimeError("the robot is on fire")
        if self._kind == "one":
            terminated = True
        return found, reward, terminated, truncated, info


@dataclass(frozen=True)
class Fault:
    """A planted fault."""

    cause: str  # The name of the cause that comes first
    command: str  # Overrides of train
    wrapper: tuple[str, dict[str, Any]] | None = None  # The class that plants it, its arguments


def _planted(cause: str, command: str, name: str, **kwargs: Any) -> Fault:
    return Fault(cause, command, (f"benchmarks.planted_faults.{name}", kwargs))


_PENDULUM, _SWINGUP = "env=pendulum algo=sac", "env=cartpole_swingup algo=sac"
_POLE, _CARTPOLE = "env=cartpole_bullet algo=ppo", "env=cartpole algo=ppo"
_CHEETAH = "env=gym env.id=HalfCheetah-v5 algo=sac"
_KUKA, _DOUBLE = "env=kuka_reach algo=sac", "env=double_pendulum algo=sac"
_ACROBOT = "env=acrobot algo=dqn"
_HYPER = "algo.hyperparams."

FAULTS = [
    _planted("action_saturated", _PENDULUM, "Action", kind="wide", factor=30.0),
    _planted("action_saturated", _SWINGUP, "Action", kind="wide", factor=30.0),
    Fault("action_strong", f"{_POLE} env.kwargs.force_n=300"),
    _planted("action_bounds", "env=pendulum algo=ppo", "Action", kind="rescaled", factor=500.0),
    _planted("action_bounds", _POLE, "Action", kind="rescaled", factor=1000.0),
    _planted("action_reversed", _PENDULUM, "Action", kind="reversed"),
    _planted("action_reversed", _CHEETAH, "Action", kind="reversed", entry=2),
    _planted("action_ignored", _PENDULUM, "Action", kind="ignored"),
    _planted("action_ignored", _CARTPOLE, "Action", kind="ignored"),
    _planted("action_entry_ignored", _CHEETAH, "Action", kind="entry_ignored", entry=3),
    _planted("action_unsigned", _SWINGUP, "Action", kind="unsigned"),
    _planted("late", _PENDULUM, "Action", kind="late"),
    _planted("late", _CARTPOLE, "Observation", kind="stale"),
    _planted("late", _POLE, "Observation", kind="stale"),
    _planted("observation_dead", _PENDULUM, "Observation", kind="dead", entry=2),
    _planted("observation_dead", _CARTPOLE, "Observation", kind="dead", entry=3, factor=0.1),
    _planted("observation_constant", _PENDULUM, "Observation", kind="constant"),
    _planted("not_finite", _CARTPOLE, "Observation", kind="nan", factor=float("nan")),
    _planted("not_finite", _PENDULUM, "Reward", kind="nan", factor=float("inf")),
    _planted("observation_scale", _PENDULUM, "Observation", kind="scaled", factor=1e4),
    _planted("observation_scale", _POLE, "Observation", kind="uneven", factor=1e5),
    _planted("observation_bounds", _PENDULUM, "Observation", kind="bounds", factor=1.0),
    _planted("reward_for_nothing", _PENDULUM, "Reward", kind="effort", factor=0.0),
    _planted("reward_for_nothing", _SWINGUP, "Reward", kind="effort", factor=1.0),
    _planted("reward_constant", _PENDULUM, "Reward", kind="constant", factor=1.0),
    _planted("reward_sparse", _PENDULUM, "Reward", kind="constant", factor=0.0),
    _planted("reward_scale", _PENDULUM, "Reward", kind="scaled", factor=1e-5),
    _planted("reward_scale", _PENDULUM, "Reward", kind="scaled", factor=1e6),
    _planted("same_start", _PENDULUM, "Life", kind="same"),
    _planted("reset_leaks", _PENDULUM, "Life", kind="leaks"),
    _planted("reset_leaks", _PENDULUM, "Action", kind="filtered"),
    _planted("seed_ignored", _CARTPOLE, "Life", kind="unseeded"),
    _planted("short_episodes", _PENDULUM, "Life", kind="one"),
    _planted("timeout_terminated", _PENDULUM, "Life", kind="terminated"),
    Fault("few_updates", f"{_CARTPOLE} n_timesteps=4000 {_HYPER}n_steps=2048"),
    Fault("late_start", f"{_PENDULUM} n_timesteps=5000 {_HYPER}learning_starts=10000"),
    Fault("small_buffer", f"env=cartpole algo=dqn {_HYPER}buffer_size=100"),
    Fault("learning_rate", f"{_CARTPOLE} {_HYPER}learning_rate=1.0"),
    Fault("discount", f"{_PENDULUM} {_HYPER}gamma=0.3"),
    Fault("reward_clipping", "env=pendulum algo=ppo normalize={clip_reward:1e9}"),
]

# Planted when the thresholds of the causes stood, which these have not changed.
FURTHER = [
    _planted("action_saturated", _DOUBLE, "Action", kind="wide", factor=30.0),
    _planted("action_saturated", _KUKA, "Action", kind="wide", factor=10.0),
    _planted(
        "action_bounds", "env=cartpole_swingup algo=ppo", "Action", kind="rescaled", factor=1e-3
    ),
    _planted("action_ignored", _ACROBOT, "Action", kind="ignored"),
    _planted("action_reversed", _DOUBLE, "Action", kind="reversed"),
    _planted("action_entry_ignored", _KUKA, "Action", kind="entry_ignored", entry=1),
    _planted("late", _ACROBOT, "Observation", kind="stale"),
    _planted("late", _KUKA, "Action", kind="late"),
    _planted("observation_scale", _PENDULUM, "Observation", kind="scaled", factor=1e-5),
    _planted("observation_bounds", _SWINGUP, "Observation", kind="bounds", factor=0.5),
    _planted("observation_dead", _ACROBOT, "Observation", kind="dead", entry=4),
    _planted("seed_ignored", _PENDULUM, "Observation", kind="noise", factor=0.1),
    _planted("reward_sparse", _SWINGUP, "Reward", kind="constant", factor=-1.0),
    _planted("reward_scale", _POLE, "Reward", kind="scaled", factor=1e-5),
    _planted("reward_for_nothing", _DOUBLE, "Reward", kind="effort", factor=0.0),
    _planted("timeout_terminated", _SWINGUP, "Life", kind="terminated"),
    _planted(
        "timeout_terminated", "env=mountain_car_continuous algo=sac", "Life", kind="terminated"
    ),
    _planted("same_start", _ACROBOT, "Life", kind="same"),
    _planted("short_episodes", _CARTPOLE, "Life", kind="one"),
    _planted("not_finite", _SWINGUP, "Observation", kind="nan", factor=float("inf")),
    Fault("learning_rate", f"{_PENDULUM} {_HYPER}learning_rate=1e-9"),
    Fault("entropy", f"{_CARTPOLE} {_HYPER}ent_coef=2"),
    Fault("target_rate", f"{_PENDULUM} {_HYPER}tau=0"),
    Fault("clip_range", f"{_CARTPOLE} {_HYPER}clip_range=1e-6"),
    Fault("gradient_clipping", f"{_CARTPOLE} {_HYPER}max_grad_norm=1e-6"),
]

HEALTHY = [
    *("env=cartpole algo=ppo", "env=cartpole algo=dqn", "env=acrobot algo=dqn"),
    *("env=acrobot algo=ppo", "env=mountain_car algo=dqn", "env=mountain_car_continuous algo=sac"),
    *("env=pendulum algo=sac", "env=pendulum algo=td3", "env=pendulum algo=ppo"),
    *("env=cartpole_bullet algo=ppo", "env=cartpole_bullet algo=sac"),
    "env=cartpole_bullet algo=dqn env.kwargs.discrete=true",
    "env=cartpole_bullet algo=ppo env.kwargs.engine=mujoco",
    *(
        "env=cartpole_swingup algo=sac",
        "env=cartpole_camera algo=ppo",
        "env=double_pendulum algo=sac",
    ),
    *("env=halfcheetah algo=sac", "env=a1_walk algo=ppo", "env=vision60_walk algo=ppo"),
    *("env=franka_push algo=her", "env=franka_push_around algo=sac", "env=franka_lift algo=sac"),
    *("env=kuka_reach algo=sac", "env=husky_drive algo=sac", "env=husky_avoid algo=sac"),
    *("env=racecar_drive algo=sac", "env=racecar_avoid algo=sac", "env=panda_reach algo=her"),
    *(
        "env=panda_reach_dense algo=sac",
        "env=hopper_bullet algo=sac",
        "env=walker2d_bullet algo=sac",
    ),
    *("env=reacher_bullet algo=sac", "env=inverted_pendulum_bullet algo=sac"),
    *(
        "env=inverted_double_pendulum_bullet algo=sac",
        "env=gym env.id=InvertedPendulum-v5 algo=sac",
    ),
    *("env=gym env.id=Hopper-v5 algo=sac", "env=gym env.id=HalfCheetah-v5 algo=sac"),
    "env=pendulum algo=ppo normalize=true env.wrappers=[time_feature]",
    "env=cartpole algo=ppo env.frame_stack=4",
    "env=gym env.id=Reacher-v5 algo=sac",
]
