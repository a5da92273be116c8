"""The worlds of a batch in the form of ``gymnasium.vector``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from robots.batch import Batch
from robots.env import BaseRobotEnv


class RobotVecEnv(Batch, VectorEnv[Any, Any, Any]):
    """Steps n equal robot environments, with the same numbers as stepping them one by one.

    An episode that ended is followed by the next in the same step (``AutoresetMode.SAME_STEP``).
    ``step_worlds`` and ``reset_world`` are for managers that reset by themselves.

    Attributes:
        envs: The environments; nothing else should step them.
    """

    def __init__(self, envs: Sequence[BaseRobotEnv]) -> None:
        """Take over environments that were made with the same arguments.

        Args:
            envs: At least one.

        Raises:
            ValueError: If they differ in kind, or step in a way of their own.
        """
        super().__init__(envs)
        first = envs[0]
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every world.

        Args:
            seed: Seed of the first world, the next ones count up; or one for each; None draws on.
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
        return _stack(observations), infos

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Act in all worlds, and reset those whose episode ended; see ``step_worlds``.

        Returns:
            As ``gymnasium.vector``: the last observation of an ended episode is in
            ``infos["final_obs"]``, what it is about in ``infos["final_info"]``.
        """
        moved = self.step_worlds(np.asarray(actions))
        observation = moved.observation
        running = ~(moved.terminated | moved.truncated)
        infos = self._infos_of(running, moved.infos)
        for index in np.flatnonzero(~running).tolist():
            last = _row(observation, index)
            first, start = self.reset_world(index)
            info = {**start, "final_obs": last, "final_info": moved.infos[index]}
            _set_row(observation, index, first)
            infos = self._add_info(infos, info, index)
        return observation, moved.reward, moved.terminated, moved.truncated, infos

    def _infos_of(self, running: NDArray[np.bool_], infos: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the information of the worlds that go on, in the form of ``gymnasium.vector``."""
        if self._conditions is not None or not running.any():
            together: dict[str, Any] = {}
            for index in np.flatnonzero(running).tolist():
                together = self._add_info(together, infos[index], index)
            return together
        # The same, since these worlds report nothing but their terms.
        terms: dict[str, Any] = {}
        for name, values in self._terms.items():
            terms[name], terms[f"_{name}"] = np.where(running, values, 0.0), running.copy()
        return {"reward_terms": terms, "_reward_terms": running.copy()}

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


def _stack(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([o[key] for o in observations]) for key in observations[0]}
    return np.stack(observations)


def _row(observation: Any, index: int) -> Any:
    if isinstance(observation, dict):
        return {key: value[index].copy() for key, value in observation.items()}
    return observation[index].copy()


def _set_row(observation: Any, index: int, row: Any) -> None:
    if isinstance(observation, dict):
        for key, value in observation.items():
            value[index] = row[key]
    else:
        observation[index] = row
