"""The exact state of an environment: its running episode, played again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np

from robots.state import InexactStateError, overridden_alone, read_episode

if TYPE_CHECKING:
    from robots.conditions import Conditions
    from robots.env import BaseRobotEnv
    from robots.episode import Episode
    from robots.world import World


class ExactState(gymnasium.Env[Any, Any]):
    """Gives and takes the state of ``BaseRobotEnv``."""

    world: "World"
    episode: "Episode"
    readings: list[float]
    conditions: "Conditions | None"

    def begin(self) -> None:
        """Start an episode that the environment's generator draws."""
        raise NotImplementedError

    @property
    def exact_state(self) -> bool:
        """Whether ``state_dict`` gives the state.

        False for a subclass that overrides ``step`` or ``reset`` without ``state_dict``, since it
        may remember more.
        """
        return overridden_alone(type(self), ("reset", "step"), "state_dict") is None

    def state_dict(self) -> dict[str, Any]:
        """Return the exact state between two steps, as plain data that shares nothing with it.

        The state is the generator at the start of the episode and the actions since. Bullet keeps
        contacts, and the impulses that start its next solution of them, where Python cannot set
        them, and hands out the pose of a free base rounded: only playing the episode again brings
        all of it back bit for bit.

        Not part of it: the arguments, the generators of the two spaces, and whatever a wrapper
        keeps.

        Returns:
            Nested dictionaries of strings, numbers, lists and float64 arrays.

        Raises:
            InexactStateError: If ``exact_state`` is False.
        """
        self._require_exact_state()
        return {
            "env": type(self).__name__,
            "step_s": self.world.simulation.step_s,
            "start": None if self.episode.start is None else dict(self.episode.start),
            "actions": np.array(self.episode.actions).reshape(-1, *(self.action_space.shape or ())),
            "readings": list(self.readings),
            "np_random": self.np_random.bit_generator.state,
            "np_random_seed": self.np_random_seed,
            **({} if self.conditions is None else self.conditions.progress()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned, in place of a ``reset``.

        Args:
            state: From an environment made with the same arguments.

        Raises:
            InexactStateError: If ``exact_state`` is False, or the episode comes out otherwise
                here: with other arguments, libraries or processors.
            ValueError: If the state is of another environment, or not in order; the environment
                is then as it was.
        """
        self._require_exact_state()
        episode = read_episode(cast("BaseRobotEnv", self), state)
        if self.conditions is not None:
            self.conditions.go_back(episode.progress)
        if episode.start is not None:
            self.np_random.bit_generator.state = episode.start["np_random"]
            self._np_random_seed = episode.start["np_random_seed"]
            self.begin()
            for action in episode.actions:
                self.step(action)
            if self.readings != episode.readings:
                raise InexactStateError(
                    f"After {len(episode.actions)} steps the sensors of {type(self).__name__} "
                    "read otherwise than when its state was saved. Use the same arguments, "
                    "library versions and kind of processor."
                )
        if self.conditions is not None:
            self.conditions.go_on(episode.progress)
        self.np_random.bit_generator.state = episode.np_random
        self._np_random_seed = episode.np_random_seed

    def _require_exact_state(self) -> None:
        overridden = overridden_alone(type(self), ("reset", "step"), "state_dict")
        if overridden is not None:
            raise InexactStateError(
                f"The state of {type(self).__name__} cannot be given exactly: {overridden} is "
                "overridden without state_dict. Ask exact_state first, and replay the actions of "
                "the episode instead."
            )
