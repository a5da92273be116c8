"""Many worlds at once: each steps its own physics, one NumPy pass does all the rest."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from robots.conditions import (
    check_limits_of_worlds,
    cost_of_worlds,
    info_of,
    shielded_targets,
)
from robots.elementary import clip
from robots.engines import stepper
from robots.env import BaseRobotEnv
from robots.safety import REASON, Broken
from robots.sensors import State
from robots.transition import Transition


class RobotVecEnv(VectorEnv[Any, Any, Any]):
    """Steps n equal robot environments, with the same numbers as stepping them one by one.

    An episode that ended is followed by the next in the same step (``AutoresetMode.SAME_STEP``).
    ``step_worlds`` and ``reset_world`` are for managers that reset by themselves. Between
    ``take_over`` and ``give_back`` an environment knows only the actions of its episode.

    Attributes:
        envs: The environments; nothing else should step them.
        num_envs: Their number.
        state: What the sensors of all worlds read last.
    """

    def __init__(self, envs: Sequence[BaseRobotEnv]) -> None:
        """Take over environments that were made with the same arguments.

        Args:
            envs: At least one.

        Raises:
            ValueError: If they differ in kind, or override how they step.
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
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._worlds = [env.world for env in self.envs]
        self._step_physics = stepper(first.simulation.engine)(self._worlds)
        self._task = first.task
        self._choices = first.discrete_actions
        self._max_steps = first.max_episode_steps
        self._steps = np.zeros(self.num_envs, np.int64)
        self._totals = {name: np.zeros(self.num_envs) for name in first.term_names}
        self._conditions = [env.conditions for env in self.envs if env.conditions is not None]
        self._terms: dict[str, Any] = {}
        self._rows = np.stack([env.readings for env in self.envs])
        self._memory: dict[str, Any] = {}
        self._images: Any = None
        if first.state.image is not None:
            self._images = np.stack([env.state.image for env in self.envs])
        self.state = self._state_of_rows()

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every world.

        Args:
            seed: Seed of the first world, the next ones count up; or one for each.
            options: Unused.
        """
        seeds = [seed] * self.num_envs if seed is None else seed
        if isinstance(seeds, int):
            seeds = range(seeds, seeds + self.num_envs)
        infos: dict[str, Any] = {}
        observations = []
        for index, one in enumerate(seeds):
            observation, info = self.reset_world(index, one, options)
            observations.append(observation)
            infos = self._add_info(infos, info, index)
        if isinstance(observations[0], dict):
            return {key: np.stack([o[key] for o in observations]) for key in observations[0]}, infos
        return np.stack(observations), infos

    def reset_world(
        self, index: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in one world, as its environment's ``reset``."""
        observation, info = self.envs[index].reset(seed=seed, options=options)
        self.take_over(index)
        return observation, info

    def take_over(self, index: int) -> None:
        """Read the state of one environment that was reset or had its state loaded."""
        env = self.envs[index]
        self._steps[index] = env.episode.num_steps
        for name, total in env.episode.terms.items():
            self._totals[name][index] = total
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
        self.state = self._state_of_rows()

    def give_back(self, index: int) -> None:
        """Write the state of a world into its environment; the opposite of ``take_over``."""
        env = self.envs[index]
        env.readings = self._rows[index].tolist()
        memory = {name: value[index].copy() for name, value in self._memory.items()}
        image = None if self._images is None else self._images[index].copy()
        env.state = env.world.sensors.state(env.readings, memory, image)
        env.episode.num_steps = int(self._steps[index])
        env.episode.terms = {name: float(total[index]) for name, total in self._totals.items()}

    def mark(self, index: int) -> object:
        """Return an object that is another one after each step and reset of one environment."""
        return self.envs[index].readings

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Act in all worlds, and reset those whose episode ended; see ``step_worlds``.

        Returns:
            As ``gymnasium.vector``: the last observation of an ended episode is in
            ``infos["final_obs"]``, its last info in ``infos["final_info"]``.
        """
        observation, reward, terminated, truncated, each = self.step_worlds(np.asarray(actions))
        parts = observation if isinstance(observation, dict) else {"": observation}
        running = ~(terminated | truncated)
        infos: dict[str, Any] = {}
        if self._conditions:
            for index in np.flatnonzero(running).tolist():
                infos = self._add_info(infos, each[index], index)
        elif running.any():
            # The same, since these worlds report nothing but their terms.
            terms: dict[str, Any] = {}
            for name, values in self._terms.items():
                terms[name], terms[f"_{name}"] = np.where(running, values, 0.0), running.copy()
            infos = {"reward_terms": terms, "_reward_terms": running.copy()}
        for index in np.flatnonzero(~running).tolist():
            last = {key: part[index].copy() for key, part in parts.items()}
            first, start = self.reset_world(index)
            for key, part in parts.items():
                part[index] = first[key] if isinstance(observation, dict) else first
            final = last if isinstance(observation, dict) else last[""]
            info = {**start, "final_obs": final, "final_info": each[index]}
            infos = self._add_info(infos, info, index)
        return observation, reward, terminated, truncated, infos

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
            commands = clip(np.asarray(actions, np.float64), -1.0, 1.0)
        else:
            commands = self._choices[actions]
        conditions, applied = self._conditions, commands
        generators = [env.np_random for env in self.envs] if conditions else []
        if conditions:
            rows = zip(conditions, commands, generators, strict=True)
            applied = np.stack([one.apply(command, rng) for one, command, rng in rows])
        targets = self._worlds[0].robot.drive.targets(applied, self.state)
        if conditions:
            targets = shielded_targets(conditions, targets, self.state)
        self._rows = self._step_physics(targets)
        if self._images is not None:
            images: list[Any] = [world.image() for world in self._worlds]
            self._images = np.stack(images)
        self._steps += 1
        state = self._state_of_rows()
        broken = check_limits_of_worlds(conditions, state, commands, targets) if conditions else {}
        reward = self._rewards(state, commands, broken)
        names = tuple(self._terms)
        terms = zip(*(values.tolist() for values in self._terms.values()), strict=True)
        infos: list[dict[str, Any]] = [
            {"reward_terms": dict(zip(names, row, strict=True))} for row in terms
        ]
        ends = {
            name: self._per_world(flag) for name, flag in self._task.terminations(state).items()
        }
        if conditions:
            ends[REASON] = self._per_world(conditions[0].end(broken))
        memory = self._task.remember(state, commands)
        if memory is not state.memory:
            self._memory = dict(memory)
            state = state._replace(memory=self._memory)
        self.state = state
        terminated = np.zeros(self.num_envs, np.bool_)
        for flags in ends.values():
            terminated |= flags
        truncated = ~terminated & (self._steps >= self._max_steps)
        if terminated.any() or truncated.any():
            self._report_ends(state, ends, truncated, infos)
        observation = clean = self._task.observation(state)
        if conditions:
            for index, info in enumerate(infos):
                counts = {name: count[index] for name, count in broken.items()}
                info.update(info_of(counts, conditions[index].changes))
            for one, rng in zip(conditions, generators, strict=True):
                one.randomizer.draw_noise(rng)
            noises = [one.randomizer.noise for one in conditions]
            noise = None if noises[0] is None else np.array(noises)
            observation = conditions[0].randomizer.with_noise(observation, noise)
            if conditions[0].randomizer.delays:
                observation = self._late(observation)
            if conditions[0].privileged is not None:
                observation = conditions[0].privileged.add(observation, clean, state, conditions)
        return Transition(observation, reward, terminated, truncated, infos)

    def render(self) -> tuple[Any, ...]:
        """Return a frame of every world."""
        for index in range(self.num_envs):
            self.give_back(index)
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close all environments."""
        del kwargs
        for env in self.envs:
            env.close()

    def _late(self, observation: Any) -> Any:
        """Return what has arrived in each world of observations, which are late there."""
        if isinstance(observation, dict):
            return {**observation, "observation": self._late(observation["observation"])}
        rows = zip(self._conditions, observation, strict=True)
        return np.stack([one.randomizer.with_delay(row) for one, row in rows])

    def _state_of_rows(self) -> State:
        return self._worlds[0].sensors.state(self._rows, self._memory, self._images)

    def _rewards(
        self, state: State, commands: NDArray[np.float64], broken: Broken
    ) -> NDArray[np.float64]:
        """Return the rewards; keep the weighted terms, each of shape (n_worlds,)."""
        weights = self._task.weights
        terms = {
            name: weights[name] * np.asarray(term, np.float64)
            for name, term in self._task.reward_terms(state, commands).items()
        }
        if self._conditions:
            terms |= cost_of_worlds(self._conditions, broken)
        self._terms = {name: self._per_world(values) for name, values in terms.items()}
        reward = np.zeros(self.num_envs)
        for name, value in self._terms.items():
            self._totals[name] += value
            reward += value
        if math.isnan(np.add.reduce(reward)) and np.isnan(reward).any():
            raise FloatingPointError(
                f"world {int(np.isnan(reward).argmax())} came to a state that is not a number."
            )
        return reward

    def _report_ends(
        self,
        state: State,
        ends: dict[str, NDArray[np.bool_]],
        truncated: NDArray[np.bool_],
        infos: list[dict[str, Any]],
    ) -> None:
        """Add to the infos what the last step of an episode reports."""
        success = self._per_world(self._task.success(state, truncated)).tolist()
        totals = {name: total.tolist() for name, total in self._totals.items()}
        reasons = dict.fromkeys(truncated.nonzero()[0].tolist(), "time_limit")
        for name, flags in reversed(ends.items()):  # The first one counts.
            reasons |= dict.fromkeys(flags.nonzero()[0].tolist(), name)
        for index, reason in reasons.items():
            info = infos[index]
            info["episode_terms"] = {name: total[index] for name, total in totals.items()}
            info["end_reason"] = reason
            info["is_success"] = bool(success[index]) and reason != REASON
            if self._conditions:
                info.update(self._conditions[index].last_info())

    def _per_world(self, values: Any) -> Any:
        """Return one value for each world, of one for each or of one for all."""
        if isinstance(values, np.ndarray) and values.ndim == 1:
            return values
        return np.full(self.num_envs, values)


def why_not_batched(env: Any) -> str | None:
    """Return why an environment cannot be stepped by ``RobotVecEnv``; None if it can."""
    if not isinstance(env, BaseRobotEnv):
        return f"{type(env).__name__} is no BaseRobotEnv"
    for name in ("step", "reset", "begin", "state_dict"):
        if getattr(type(env), name) is not getattr(BaseRobotEnv, name):
            return f"{type(env).__name__} overrides {name}"
    return None
