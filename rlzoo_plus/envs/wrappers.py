"""Wrappers that `env.wrappers` offers by name; they make a task harder or less observed.

Their state belongs to the running episode and follows from its seed and actions, so a replayed
episode restores it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Step = tuple[Any, Any, bool, bool, dict[str, Any]]

# Indices of the velocities in the observations of Gymnasium's environments, without versions.
VELOCITIES = {
    "Acrobot": (4, 5),
    "CartPole": (1, 3),
    "LunarLander": (2, 3, 5),
    "LunarLanderContinuous": (2, 3, 5),
    "MountainCar": (1,),
    "MountainCarContinuous": (1,),
    "Pendulum": (2,),
}


class MaskObservation(gym.ObservationWrapper):
    """Set the entries `hidden` of a flat observation to zero: the task is partially observed."""

    def __init__(self, env: gym.Env, hidden: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"mask_observation needs a flat Box observation, not {space}")
        self._hidden = list(hidden)
        size = space.shape[0]
        if any(not 0 <= index < size for index in self._hidden):
            raise ValueError(f"hidden={self._hidden}: indices go from 0 to {size - 1}")
        low, high = self.observation(space.low), self.observation(space.high)
        self.observation_space = spaces.Box(low, high, dtype=space.dtype)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the observation with the hidden entries at zero."""
        visible = observation.copy()
        visible[self._hidden] = 0
        return visible


class FrameSkip(gym.Wrapper):
    """Repeat each action `skip` times and add up the rewards; inner time limits count all steps."""

    def __init__(self, env: gym.Env, skip: int = 4) -> None:
        super().__init__(env)
        self.skip = _positive("skip", skip)

    def step(self, action: Any) -> Step:
        """Act until the last repetition or the episode's end."""
        total = 0.0
        for _ in range(self.skip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class DelayedReward(gym.Wrapper):
    """Give the sum of the rewards every `delay` steps, and at the episode's end."""

    def __init__(self, env: gym.Env, delay: int = 10) -> None:
        super().__init__(env)
        self._delay = _positive("delay", delay)
        self._held, self._steps = 0.0, 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode, with a sum of zero."""
        self._held, self._steps = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Step:
        """Act; the reward is 0 except where the sum is given."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._held += float(reward)
        self._steps += 1
        if not (terminated or truncated or self._steps % self._delay == 0):
            return observation, 0.0, terminated, truncated, info
        total, self._held = self._held, 0.0
        return observation, total, terminated, truncated, info


class TruncateOnSuccess(gym.Wrapper):
    """End an episode after `n_successes` in a row, as `info["is_success"]` reports them.

    `reward_offset` is added to each reward.
    """

    def __init__(self, env: gym.Env, reward_offset: float = 0.0, n_successes: int = 1) -> None:
        super().__init__(env)
        self._offset = float(reward_offset)
        self._wanted = _positive("n_successes", n_successes)
        self._in_a_row = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode without successes."""
        self._in_a_row = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Step:
        """Act, and truncate the episode if the task was solved for long enough."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._in_a_row = self._in_a_row + 1 if info.get("is_success", False) else 0
        truncated = truncated or self._in_a_row >= self._wanted
        return observation, float(reward) + self._offset, terminated, truncated, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return the rewards that hindsight replay asks for, with the offset."""
        compute = self.env.get_wrapper_attr("compute_reward")
        return compute(achieved_goal, desired_goal, info) + self._offset


class NoisyAction(gym.Wrapper):
    """Add Gaussian noise to actions, in their units, and clip them to the action space."""

    def __init__(self, env: gym.Env, noise_std: float = 0.1) -> None:
        super().__init__(env)
        _require_box("noisy_action", "action", env.action_space)
        self._std = _deviation(noise_std)

    def step(self, action: Any) -> Step:
        """Act with noise drawn from the environment's generator, which its seed decides."""
        space: Any = self.action_space
        noisy = action + self.env.get_wrapper_attr("np_random").normal(0.0, self._std, space.shape)
        return self.env.step(np.clip(noisy, space.low, space.high).astype(space.dtype))


class NoisyObservation(gym.Wrapper):
    """Add Gaussian noise to observations, in their units, and clip them to their space.

    Of a dictionary observation only the entry `observation` gets noise: goals stay as they are.
    """

    def __init__(self, env: gym.Env, noise_std: float = 0.1) -> None:
        super().__init__(env)
        part = _observed(env.observation_space)
        self._box = _require_box("noisy_observation", "observation", part)
        if not np.issubdtype(self._box.dtype, np.floating):
            raise ValueError(f"noisy_observation needs numbers of floating point, not {part}")
        self._std = _deviation(noise_std)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode, whose first observation has noise, too."""
        observation, info = self.env.reset(**kwargs)
        return self._with_noise(observation), info

    def step(self, action: Any) -> Step:
        """Act, and show what came of it with noise drawn from the environment's generator."""
        observation, *rest = self.env.step(action)
        return self._with_noise(observation), *rest

    def _with_noise(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return {**observation, "observation": self._with_noise(observation["observation"])}
        generator, box = self.env.get_wrapper_attr("np_random"), self._box
        noisy = observation + generator.normal(0.0, self._std, box.shape)
        return np.clip(noisy, box.low, box.high).astype(box.dtype)


class DelayedAction(gym.Wrapper):
    """Let each action arrive `delay` steps late.

    Until the first arrives, a continuous action is zero, or what is nearest to it in the action
    space; of others the first one is done at once.
    """

    def __init__(self, env: gym.Env, delay: int = 1) -> None:
        super().__init__(env)
        self.delay = _positive("delay", delay)
        self._waiting: list[Any] = []

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode without actions on their way."""
        self._waiting = []
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Step:
        """Act with what was asked for `delay` steps before."""
        if not self._waiting:
            self._waiting = [self._nothing(action)] * self.delay
        self._waiting.append(np.array(action) if np.ndim(action) else action)
        return self.env.step(self._waiting.pop(0))

    def _nothing(self, action: Any) -> Any:
        space = self.action_space
        if not isinstance(space, spaces.Box):
            return action
        return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)


class SmoothAction(gym.Wrapper):
    """Act with the exponential moving average of the actions; it starts at zero.

    The average so far has the weight `smoothing_coef`: 0 changes nothing, near 1 is very smooth.
    """

    def __init__(self, env: gym.Env, smoothing_coef: float = 0.0) -> None:
        super().__init__(env)
        space = _require_box("smooth_action", "action", env.action_space)
        if not 0 <= smoothing_coef < 1:
            raise ValueError(f"smoothing_coef={smoothing_coef} must be from 0 to below 1")
        self.weight = float(smoothing_coef)
        self._average = np.zeros(space.shape, space.dtype)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode with an average of zero."""
        self._average = np.zeros_like(self._average)
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Step:
        """Act with the average, the new action included."""
        average = self.weight * self._average + (1 - self.weight) * np.asarray(action)
        self._average = average.astype(self._average.dtype)
        return self.env.step(self._average.copy())


class History(gym.Wrapper):
    """Show the last `horizon` observations, oldest first, then as many actions.

    Before the first of an episode they are zeros. Of a dictionary observation only the entry
    `observation` gets a history.
    """

    def __init__(self, env: gym.Env, horizon: int = 2) -> None:
        super().__init__(env)
        horizon = _positive("horizon", horizon)
        whole = env.observation_space
        seen = _require_box("history", "observation", _observed(whole), dimensions=1)
        done = _require_box("history", "action", env.action_space, dimensions=1)
        self._observations = np.zeros((horizon, *seen.shape), seen.dtype)
        self._actions = np.zeros((horizon, *done.shape), done.dtype)
        self.empty = (self._observations.copy(), self._actions.copy())
        # Zeros stand for what was before the episode, also where bounds exclude them.
        low = np.concatenate([np.tile(np.minimum(box.low, 0), horizon) for box in (seen, done)])
        high = np.concatenate([np.tile(np.maximum(box.high, 0), horizon) for box in (seen, done)])
        space = spaces.Box(low.astype(seen.dtype), high.astype(seen.dtype), dtype=seen.dtype)
        self.observation_space = space
        if isinstance(whole, spaces.Dict):
            self.observation_space = spaces.Dict({**whole.spaces, "observation": space})

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode with an empty history."""
        observation, info = self.env.reset(**kwargs)
        self._observations[:], self._actions[:] = 0, 0
        return self._with_history(observation), info

    def step(self, action: Any) -> Step:
        """Act, and show the history with the action and what it led to."""
        observation, *rest = self.env.step(action)
        self._actions = np.roll(self._actions, -1, axis=0)
        self._actions[-1] = action
        return self._with_history(observation), *rest

    def _with_history(self, observation: Any) -> Any:
        self._observations = np.roll(self._observations, -1, axis=0)
        is_dict = isinstance(observation, dict)
        self._observations[-1] = observation["observation"] if is_dict else observation
        parts = (self._observations.ravel(), self._actions.ravel())
        history = np.concatenate(parts).astype(self._observations.dtype)
        return {**observation, "observation": history} if is_dict else history


class PlainSpaces(gym.Wrapper):
    """Give spaces that the algorithms read as they are written.

    Discrete and MultiDiscrete count from 0 instead of from `start`, several dimensions become one,
    a single number becomes an array of one, and a Box of whole numbers is acted in with float32,
    rounded. Observations may be a dictionary of such spaces.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._inside: Any = env.action_space
        self.observation_space = _plain_space(env.observation_space)
        self.action_space = _plain_space(env.action_space, is_action=True)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**kwargs)
        return _to_plain(observation, self.env.observation_space), info

    def step(self, action: Any) -> Step:
        """Act with what the environment's own action space holds."""
        inside = self._inside
        if isinstance(inside, spaces.Box) and inside.dtype.kind in "biu":
            action = np.rint(action).astype(inside.dtype)
        own = np.reshape(action, inside.shape or ()) + getattr(inside, "start", 0)
        observation, *rest = self.env.step(own)
        return _to_plain(observation, self.env.observation_space), *rest


def _plain_space(space: spaces.Space[Any], *, is_action: bool = False) -> spaces.Space[Any]:
    """Return the space that `PlainSpaces` gives instead of one; an equal one if it stays."""
    if isinstance(space, spaces.Dict):
        # An OrderedDict, because a plain one would be sorted.
        parts = space.spaces.items()
        return spaces.Dict(OrderedDict((key, _plain_space(part)) for key, part in parts))
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(int(np.prod(space.shape))) if len(space.shape) > 1 else space
    if not isinstance(space, spaces.Box):
        return space
    is_rounded = is_action and space.dtype.kind in "biu"
    dtype: Any = np.float32 if is_rounded else space.dtype.type
    low, high = (np.atleast_1d(bound).astype(dtype) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=dtype)


def _to_plain(observation: Any, space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _to_plain(observation[key], part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return observation - space.start
    if isinstance(space, spaces.MultiDiscrete):
        return (np.asarray(observation) - space.start).ravel()
    if isinstance(space, spaces.MultiBinary):
        return np.ravel(observation)
    return np.atleast_1d(observation) if isinstance(space, spaces.Box) else observation


class MaskVelocity(MaskObservation):
    """Hide the velocities of one of Gymnasium's environments, see `VELOCITIES`."""

    def __init__(self, env: gym.Env) -> None:
        name = "" if env.spec is None else env.spec.name
        if name not in VELOCITIES:
            raise ValueError(
                f"mask_velocity knows {', '.join(VELOCITIES)}, not {name}; name the entries to "
                "hide with mask_observation"
            )
        super().__init__(env, VELOCITIES[name])


def make_without_velocities(env_id: str, **kwargs: Any) -> gym.Env:
    """Make an environment of Gymnasium with its velocities hidden."""
    return MaskVelocity(gym.make(env_id, disable_env_checker=True, **kwargs))


def register_without_velocities() -> None:
    """Register `<name>NoVel-v<N>`, the ids that rl_zoo3 uses, unless they are registered."""
    versions = {"CartPole": 1, "Pendulum": 1, "MountainCar": 0, "MountainCarContinuous": 0}
    for name, version in {**versions, "LunarLander": 3, "LunarLanderContinuous": 3}.items():
        env_id = f"{name}NoVel-v{version}"
        if env_id not in gym.registry:
            gym.register(
                env_id,
                entry_point="rlzoo_plus.envs.wrappers:make_without_velocities",
                kwargs={"env_id": f"{name}-v{version}"},
            )


def _observed(space: spaces.Space[Any]) -> Any:
    """Return what is observed: of a dictionary only the entry `observation`, not the goals."""
    return space.spaces.get("observation") if isinstance(space, spaces.Dict) else space


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name}={value} must be a whole number of at least 1")
    return int(value)


def _deviation(noise_std: float) -> float:
    if not 0 <= noise_std < np.inf:
        raise ValueError(f"noise_std={noise_std} must be a number, and not negative")
    return float(noise_std)


def _require_box(name: str, what: str, space: Any, dimensions: int | None = None) -> spaces.Box:
    shaped = "" if dimensions is None else "flat "
    if not isinstance(space, spaces.Box) or dimensions not in (None, len(space.shape)):
        raise ValueError(f"{name} needs a {shaped}Box {what} space, not {space}")
    return space
