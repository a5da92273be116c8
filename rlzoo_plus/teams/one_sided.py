"""Worlds of PettingZoo with two sides, of which one learns: its agents are the rows of the batch.

The other side is played here, by frozen policies of the same run or at random. In a game in turns a
step is a move of the side that learns, with all moves of the other side up to its next turn.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from rlzoo_plus.config.opponents import ALTERNATE
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.errors import ConfigError, RunError, unknown_name
from rlzoo_plus.teams.pettingzoo_vec_env import PettingZooVecEnv
from rlzoo_plus.teams.world import StepOfWorld

# In place of the step of a snapshot: an opponent that acts at random.
AT_RANDOM = -1
# The key of an info on an episode that is over, for ratings: opponent and score.
RESULT = "self_play_result"
# Games that may end, and turns that may pass, before the side that learns has its turn.
_MOST_GAMES, _MOST_TURNS = 1000, 10_000
# Random steps in which both sides earn the same, after which a world is called cooperative.
_STEPS_OF_A_LOOK = 200
_NUMBERED = re.compile(r"_?[0-9]+$")


class Opponents(Protocol):
    """Who can play the other side."""

    @property
    def is_maskable(self) -> bool:
        """Whether they take masks of actions."""

    def draw(self, random: np.random.Generator) -> int:
        """Return the step of the next opponent, or `AT_RANDOM`."""

    def find(self, step: int) -> Any:
        """Return an opponent, None if there is none of this step."""

    def act(self, step: int, observations: Any, masks: np.ndarray | None, seed: int) -> np.ndarray:
        """Return the actions of an opponent."""


@dataclass
class _Game:
    """Who plays in a world."""

    n_begun: int = 0  # episodes
    side: int = 0  # the one that learns
    opponent: int = AT_RANDOM  # step of its snapshot


class OneSidedVecEnv(PettingZooVecEnv):
    """Worlds with two sides of equal size, whose agents all have the same spaces.

    Attributes:
        sides: Names of the agents of each side, by its name.
        opponents: Who plays the other side; None: agents that act at random, as in evaluations.
    """

    def __init__(
        self, env: EnvConfig, n_envs: int, seed: int, render_mode: str | None = None
    ) -> None:
        """Make `n_envs` worlds of `env.id`; `env.opponents.side` names the side that learns.

        Raises:
            ConfigError: The world has not two equal sides, or they work together.
        """
        self.opponents: Opponents | None = None
        super().__init__(env, n_envs, seed, render_mode)
        self._random_space = copy.deepcopy(self.action_space)
        # What one does whose turn it is not.
        self._nothing = np.zeros(self.action_space.shape or (), self.action_space.dtype)
        self._refuse_cooperation(env)
        self.seed(seed)

    def _count_rows(self, env: EnvConfig) -> int:
        assert env.opponents is not None
        self.sides = _sides_of(env.id, self.agents)
        names, side = list(self.sides), env.opponents.side
        if side not in (ALTERNATE, *names):
            raise ConfigError(unknown_name("env.opponents.side", side, (ALTERNATE, *names)))
        self._fixed = None if side == ALTERNATE else names.index(side)
        return len(self.sides[names[0]])

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Decide by a number how the next episodes begin, and what opponents do in them."""
        self._games = [_Game() for _ in self.worlds]
        self._random = np.random.default_rng([0 if seed is None else seed, 1])
        return super().seed(seed)

    def opponents_in_use(self) -> set[int]:
        """Return the steps of the opponents of running episodes."""
        return {game.opponent for game in self._games}

    def _playing(self, number: int) -> list[Any]:
        return self._agents_of(self._games[number].side)

    def _agents_of(self, side: int) -> list[Any]:
        return list(self.sides.values())[side]

    def _begin(self, number: int) -> list[Any]:
        """Begin an episode, and play the other side until it is the learning side's turn."""
        game, world = self._games[number], self.worlds[number]
        for _ in range(_MOST_GAMES):
            alternating = (number + game.n_begun) % 2
            game.side = alternating if self._fixed is None else self._fixed
            game.opponent = (
                AT_RANDOM if self.opponents is None else self.opponents.draw(self._random)
            )
            game.n_begun += 1
            super()._begin(number)
            self._wait([number], {})
            if not (self._is_cut(world) or self._is_over(number)):
                there, agents = world.inner.agents, self._playing(number)
                return [world.sees(a) if a in there else self._zeros[a] for a in agents]
        raise RunError(
            f"{_MOST_GAMES} games ended before the first turn of {', '.join(self._playing(number))}"
            ". Let the other side learn: env.opponents.side."
        )

    def _step_worlds(self) -> list[StepOfWorld]:
        mine = {}
        for number in range(len(self.worlds)):
            actions = self._actions[self._rows_of(number)]
            mine[number] = dict(zip(self._playing(number), actions, strict=True))
        steps = self._wait(list(mine), self._act(mine))
        return [steps[number] for number in mine]

    def _wait(
        self, numbers: Sequence[int], steps: dict[int, StepOfWorld]
    ) -> dict[int, StepOfWorld]:
        """Play the other side until the learning side has its turn, or a world is over.

        Args:
            numbers: Of the worlds.
            steps: What the moves before gave, by world.

        Returns:
            The same, with the moves that followed.
        """
        for _ in range(_MOST_TURNS):
            numbers = [number for number in numbers if self._is_waiting(number)]
            if not numbers:
                return steps
            for number, step in self._act({number: {} for number in numbers}).items():
                steps[number] = steps[number].then(step) if number in steps else step
        raise RunError(f"the other side has {_MOST_TURNS} turns in a row. Set env.time_limit.")

    def _act(self, mine: Mapping[int, Mapping[Any, Any]]) -> dict[int, StepOfWorld]:
        """Step worlds with the actions of the learning side, by agent, and those of the other."""
        theirs, nothing = self._choose(mine), dict.fromkeys(self.agents, self._nothing)
        return {
            number: self.worlds[number].step({**nothing, **acts, **theirs[number]})
            for number, acts in mine.items()
        }

    def _is_waiting(self, number: int) -> bool:
        """Return whether only the other side can move."""
        if self._is_over(number) or self._is_cut(self.worlds[number]):
            return False
        return not set(self._playing(number)) & set(_movers(self.worlds[number].inner))

    def _is_over(self, number: int) -> bool:
        """Return whether nobody is there any more of those that learn."""
        return not set(self._playing(number)) & set(self.worlds[number].inner.agents)

    def _choose(self, numbers: Iterable[int]) -> dict[int, dict[Any, Any]]:
        """Return what the other side does, by world and agent; each opponent acts once."""
        asked: dict[int, list[tuple[int, Any]]] = {}
        chosen: dict[int, dict[Any, Any]] = {number: {} for number in numbers}
        for number in chosen:
            mine, game = self._playing(number), self._games[number]
            for agent in _movers(self.worlds[number].inner):
                if agent not in mine:
                    asked.setdefault(game.opponent, []).append((number, agent))
        for opponent, pairs in asked.items():
            for (number, agent), action in zip(pairs, self._acts(opponent, pairs), strict=True):
                chosen[number][agent] = action
        return chosen

    def _acts(self, opponent: int, pairs: Sequence[tuple[int, Any]]) -> Iterable[Any]:
        if opponent == AT_RANDOM or self.opponents is None:
            return [self._random_action(self.worlds[n].inner, agent) for n, agent in pairs]
        masks = None
        if self.opponents.is_maskable:
            masks = np.stack([self.worlds[n].inner.action_masks(agent) for n, agent in pairs])
        seen = self._stacked([self.worlds[n].sees(agent) for n, agent in pairs])
        return self.opponents.act(opponent, seen, masks, int(self._random.integers(2**63)))

    def _random_action(self, inner: Any, agent: Any) -> Any:
        """Return any action that is allowed."""
        space = self._random_space
        if isinstance(space, spaces.Discrete):
            masks = getattr(inner, "action_masks", None)
            allowed = np.arange(space.n) if masks is None else np.flatnonzero(masks(agent))
            return space.start + self._random.choice(allowed)
        space.seed(int(self._random.integers(2**31)))
        return space.sample()

    def _summary(self, number: int, agent: Any) -> dict[str, Any]:
        world, game = self.worlds[number], self._games[number]
        mine, theirs = (
            sum(world.returns[one] for one in self._agents_of(side))
            for side in (game.side, 1 - game.side)
        )
        score = 0.5 + 0.5 * float(np.sign(mine - theirs))
        who = "random" if game.opponent == AT_RANDOM else "pool"
        summary: dict[str, Any] = {
            "episode_returns": world.numbers(agent),
            "episode_wins": {who: float(score == 1.0)},
            "episode_draws": {who: float(score == 0.5)},
        }
        # Once for a game.
        is_first = agent == self._playing(number)[0]
        return summary | ({RESULT: (game.opponent, score)} if is_first else {})

    def state_dict(self) -> dict[str, Any]:
        """Return how each world got to where it is, and against whom."""
        games = [(game.n_begun, game.side, game.opponent) for game in self._games]
        return {
            **super().state_dict(),
            "games": np.array(games, np.int64),
            "random": self._random.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Play each world again, with what the opponents did.

        Raises:
            ValueError: A world comes out otherwise, or an opponent is missing.
        """
        super().load_state_dict(state)
        games = [_Game(*map(int, row)) for row in state["games"]]
        if len(games) != len(self.worlds) or any(game.side not in (0, 1) for game in games):
            raise ValueError("it does not say who plays in each world")
        for step in {game.opponent for game in games} - {AT_RANDOM}:
            if self.opponents is None or self.opponents.find(step) is None:
                raise ValueError(f"the opponent of step {step} is missing")
        self._games = games
        self._random.bit_generator.state = state["random"]

    def _refuse_cooperation(self, env: EnvConfig) -> None:
        """Play a world at random for a while, and see whether both sides always earn the same.

        Raises:
            ConfigError: They do.
        """
        world, random = self.worlds[0], np.random.default_rng(0)
        earned = []
        world.begin(0, self.agents)
        for _ in range(_STEPS_OF_A_LOOK):
            if not world.inner.agents:
                world.begin(int(random.integers(2**31)), self.agents)
            acts = {a: self._random_action(world.inner, a) for a in world.inner.agents}
            step = world.step({**dict.fromkeys(self.agents, self._nothing), **acts})
            earned.append(
                [sum(step.rewards.get(a, 0.0) for a in side) for side in self.sides.values()]
            )
        found = np.array(earned)
        if found.any() and np.array_equal(found[:, 0], found[:, 1]):
            raise ConfigError(
                f"env.id={env.id}: {' and '.join(self.sides)} earned the same in each of "
                f"{_STEPS_OF_A_LOOK} random steps. They work together, and none has an opponent. "
                "Leave env.opponents out."
            )


def _movers(inner: Any) -> list[Any]:
    """Return the agents that act in the next step of a world."""
    found: list[Any] = getattr(inner, "movers", inner.agents)
    return found


def _sides_of(env_id: str, agents: Sequence[Any]) -> dict[str, list[Any]]:
    """Return two agents as two sides, or more by their names without numbers: red_0, blue_0.

    Raises:
        ConfigError: There are not two, or one has more agents.
    """
    found: dict[str, list[Any]] = {}
    for agent in agents:
        name = str(agent) if len(agents) == 2 else _NUMBERED.sub("", str(agent))
        found.setdefault(name, []).append(agent)
    if len(found) != 2 or len({len(side) for side in found.values()}) != 1:
        shown = ", ".join(map(str, agents[:8]))
        raise ConfigError(
            f"env.id={env_id}: env.opponents needs two sides of as many agents, such as red_0 and "
            f"blue_0, and its agents are {shown}. Leave env.opponents out."
        )
    return found
