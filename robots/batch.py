"""Many worlds at once: each steps its own physics, one NumPy pass does all the rest."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.conditions import ConditionsOfWorlds, info_of
from robots.env import BaseRobotEnv
from robots.safety import REASON, Broken
from robots.sensors import State
from robots.world import step_worlds


class Transition(NamedTuple):
    """One step of all worlds, before any of them is reset."""

    observation: Any
    """Shape (n_worlds, ...), or a dictionary of such."""
    reward: NDArray[np.float64]
    """Shape (n_worlds,)."""
    terminated: NDArray[np.bool_]
    """Whether the task ended the episode, shape (n_worlds,)."""
    truncated: NDArray[np.bool_]
    """Whether the time limit did, shape (n_worlds,)."""
    infos: list[dict[str, Any]]
    """What a single environment's ``step`` would return as ``info``."""


class Batch:
    """Steps n equal robot environments, with the same numbers as stepping them one by one.

    It resets nothing by itself. Between ``take_over`` and ``give_back`` an environment knows only
    the actions of its episode.

    Attributes:
        envs: The environments; nothing else should step them.
        num_envs: Their number.
    """

    def __init__(self, envs: Sequence[BaseRobotEnv]) -> None:
        """Take over environments that were made with the same arguments.

        Args:
            envs: At least one.

        Raises:
            ValueError: If they differ in kind, or step in a way of their own.
        """
        first = envs[0]
        for env in envs:
            reason = why_not_batched(env)
            if type(env) is not type(first):
                reason = f"{type(env).__name__} is not {type(first).__name__}"
            if reason is not None:
                raise ValueError(f"These environments cannot be stepped together: {reason}.")
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        self._worlds = [env.world for env in self.envs]
        self._task = first.task
        self._choices = first.discrete_actions
        self._max_steps = first.max_episode_steps
        self._steps = np.zeros(self.num_envs, np.int64)
        self._totals = {name: np.zeros(self.num_envs) for name in first.term_names}
        conditions = [env.conditions for env in self.envs if env.conditions is not None]
        self._conditions = ConditionsOfWorlds(conditions) if conditions else None
        self._terms: dict[str, Any] = {}
        self._rows = np.stack([env.readings for env in self.envs])
        self._memory: dict[str, Any] = {}
        self._images: Any = None
        if first.state.image is not None:
            self._images = np.stack([env.state.image for env in self.envs])
        self._state = self._state_of_rows()

    def reset_world(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in one world, as its environment's ``reset``."""
        observation, info = self.envs[index].reset(seed=seed, options=options)
        self.take_over(index)
        return observation, info

    def take_over(self, index: int) -> None:
        """Go on from the state of one environment, which was reset or had its state loaded."""
        env = self.envs[index]
        self._steps[index] = env.episode.num_steps
        for name, total in env.episode.terms.items():
            self._totals[name][index] = total
        if self._conditions is not None:
            self._conditions.take_over(index)
        self._rows[index] = env.readings
        if self._images is not None:
            self._images[index] = env.state.image
        for name, value in env.state.memory.items():
            entry = np.asarray(value)
            if name not in self._memory:
                self._memory[name] = np.zeros((self.num_envs, *entry.shape), entry.dtype)
            # A copy, since what a task keeps may be part of what it was given.
            self._memory[name] = np.array(self._memory[name])
            self._memory[name][index] = entry
        self._state = self._state_of_rows()

    def give_back(self, index: int) -> None:
        """Write into an environment what is known of its world; the opposite of ``take_over``."""
        env = self.envs[index]
        env.readings = self._rows[index].tolist()
        memory = {name: value[index].copy() for name, value in self._memory.items()}
        image = None if self._images is None else self._images[index].copy()
        env.state = env.world.sensors.state(env.readings, memory, image)
        env.episode.num_steps = int(self._steps[index])
        env.episode.terms = {name: float(total[index]) for name, total in self._totals.items()}
        if self._conditions is not None:
            self._conditions.give_back(index)

    def step_worlds(self, actions: NDArray[Any]) -> Transition:
        """Act in all worlds; none is reset.

        Args:
            actions: Shape (n_worlds, n_actions), clipped to [-1, 1]; or numbers of discrete
                actions, shape (n_worlds,).

        Raises:
            FloatingPointError: If an action or the physics is not a number.
        """
        for env, action in zip(self.envs, actions.tolist(), strict=True):
            env.episode.actions.append(action)
        if self._choices is None:
            commands = np.minimum(np.maximum(np.asarray(actions, np.float64), -1.0), 1.0)
        else:
            commands = self._choices[actions]
        conditions = self._conditions
        generators, arriving = [], commands
        if conditions is not None:
            generators = [env.np_random for env in self.envs]
            arriving = conditions.arriving(commands, generators)
        targets = self._worlds[0].robot.drive.targets(arriving, self._state)
        self._rows = step_worlds(self._worlds, targets)
        if self._images is not None:
            images: list[Any] = [world.image() for world in self._worlds]
            self._images = np.stack(images)
        self._steps += 1
        state = self._state_of_rows()
        broken = {} if conditions is None else conditions.judge(state, commands, targets)
        reward, terms = self._rewards(state, commands, broken)
        ends = self._terminations(state, broken)
        self._memory = dict(self._task.remember(state, commands))
        self._state = state = state._replace(memory=self._memory)
        terminated = np.zeros(self.num_envs, np.bool_)
        for flags in ends.values():
            terminated |= flags
        truncated = ~terminated & (self._steps >= self._max_steps)
        infos: list[dict[str, Any]] = [{"reward_terms": values} for values in terms]
        if terminated.any() or truncated.any():
            self._describe_ends(state, ends, terminated, truncated, infos)
        observation = self._task.observation(state)
        if conditions is not None:
            for index, info in enumerate(infos):
                info.update(info_of({name: count[index] for name, count in broken.items()}))
            observation = conditions.disturbed(observation, generators)
        return Transition(observation, reward, terminated, truncated, infos)

    def _state_of_rows(self) -> State:
        return self._worlds[0].sensors.state(self._rows, self._memory, self._images)

    def _rewards(
        self, state: State, commands: NDArray[np.float64], broken: Broken
    ) -> tuple[NDArray[np.float64], list[dict[str, float]]]:
        """Return rewards, and the weighted terms of each world."""
        weights = self._task.weights
        weighted = {
            name: self._per_world(weights[name] * np.asarray(term, np.float64))
            for name, term in self._task.reward_terms(state, commands).items()
        }
        if self._conditions is not None:
            for name, cost in self._conditions.cost(broken).items():
                weighted[name] = self._per_world(cost)
        reward = np.zeros(self.num_envs)
        for name, value in weighted.items():
            self._totals[name] += value
            reward += value
        if (reward != reward).any():  # Only a NaN differs from itself.
            raise FloatingPointError(
                f"world {int(np.isnan(reward).argmax())} came to a state that is not a number."
            )
        self._terms = weighted
        rows = zip(*[value.tolist() for value in weighted.values()], strict=True)
        return reward, [dict(zip(weighted, row, strict=True)) for row in rows]

    def _per_world(self, values: Any) -> Any:
        """Return one value for each world, of one for each or of one for all."""
        if isinstance(values, np.ndarray) and values.ndim == 1:
            return values
        return np.full(self.num_envs, values)

    def _terminations(self, state: State, broken: Broken) -> dict[str, NDArray[np.bool_]]:
        ends = dict(self._task.terminations(state))
        if self._conditions is not None:
            ends |= self._conditions.end(broken)
        return {name: self._per_world(flag) for name, flag in ends.items()}

    def _describe_ends(
        self,
        state: State,
        ends: dict[str, NDArray[np.bool_]],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        infos: list[dict[str, Any]],
    ) -> None:
        success = np.broadcast_to(self._task.success(state, truncated), (self.num_envs,))
        for index in np.flatnonzero(terminated | truncated):
            reasons = (name for name, flags in ends.items() if flags[index])
            infos[index]["episode_terms"] = {
                name: float(totals[index]) for name, totals in self._totals.items()
            }
            reason = next(reasons, "time_limit")
            infos[index]["end_reason"] = reason
            infos[index]["is_success"] = bool(success[index]) and reason != REASON
            if self._conditions is not None:
                infos[index].update(self._conditions.last_info(int(index)))


def why_not_batched(env: Any) -> str | None:
    """Return why an environment cannot be stepped by ``RobotVecEnv``; None if it can."""
    if not isinstance(env, BaseRobotEnv):
        return f"{type(env).__name__} is no BaseRobotEnv"
    for name in ("step", "reset", "begin", "state_dict"):
        if getattr(type(env), name) is not getattr(BaseRobotEnv, name):
            return f"{type(env).__name__} overrides {name}"
    return None
