"""The share of each agent in what its team earns: what the team would lack without what it does.

The difference reward is D_i(z) = G(z) - G(z_-i + c_i): what the team earns, without what it would
earn if agent i did c_i, which stands for nothing (Wolpert and Tumer, "Optimal Payoff Functions for
Members of Collectives", 2001). With `difference`, z is a single step, as in Castellini et al.,
"Difference Rewards Policy Gradients", 2021; with `wonderful_life`, all steps of the episode so far.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.utils import EzPickle

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.seeding import generator_states, generators_kept, set_generator_states
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import where_raised
from rlzoo_plus.teams.idle_actions import idle_actions
from rlzoo_plus.teams.world import StepOfWorld, World, is_same

log = logging.getLogger(__name__)
# Steps of an episode, each of which a world plays again that can be neither copied nor restored.
MOST_REPLAYED = 500
# A trial is the first steps of two episodes.
_TRIAL_SEEDS, _TRIAL_STEPS = (1, 2), 5
_KEY = "env.credit"


@dataclass
class _Follower:
    """A world in which one agent does nothing."""

    inner: Any
    at: tuple[int, int] = (-1, -1)  # the seed of its episode, and the steps since


class DifferenceReward:
    """The shares of the agents, from further worlds in which one of them does nothing.

    Nothing is done in the world itself but the step that is asked for.
    """

    def __init__(
        self,
        env: EnvConfig,
        make: Callable[[], World],
        teams: Mapping[Any, Sequence[Any]],
    ) -> None:
        """Find out how a moment of a world can be had again.

        Args:
            env: Its `credit` says what to compute.
            make: Makes another such world, which takes the agents' own actions.
            teams: For each agent, those whose rewards count for it.

        Raises:
            ConfigError: An agent has no such action, or no moment can be had again exactly.
        """
        assert env.credit is not None
        self._make, self._teams = make, teams
        self._is_of_step = env.credit.method == "difference"
        self._followers: dict[tuple[World, Any], _Follower] = {}
        with generators_kept():
            self._twin = make().inner
            self._idle = idle_actions(_KEY, env.id, self._twin, env.credit.default)
            self._again = self._found_way(env)

    def step(
        self, world: World, actions: Mapping[Any, Any]
    ) -> tuple[StepOfWorld, dict[Any, float]]:
        """Step a world; return what it gave, and the share of each agent that acted."""
        own = world.own({agent: actions[agent] for agent in world.inner.agents})
        # A world that draws from the global generators goes on as if nothing had been asked.
        before = generator_states()
        without = self._without_one if self._is_of_step else self._without_one_at_all
        lacking = {agent: without(world, agent, own) for agent in own}
        set_generator_states(before)
        step = world.step(actions)
        shares = {
            # None: it did what stands for nothing.
            agent: 0.0 if rest is None else self._earned(step.rewards, agent) - rest
            for agent, rest in lacking.items()
        }
        return step, shares

    def close(self) -> None:
        """Close the further worlds."""
        for inner in (self._twin, *(follower.inner for follower in self._followers.values())):
            inner.close()

    def _without_one(self, world: World, agent: Any, own: Mapping[Any, Any]) -> float | None:
        """Return what the team of an agent would earn in this step if it did nothing now."""
        if np.array_equal(own[agent], self._idle[agent]):
            return None
        given = self._again(world).step({**own, agent: self._idle[agent]})
        return self._earned(given[1], agent)

    def _without_one_at_all(self, world: World, agent: Any, own: Mapping[Any, Any]) -> float:
        """Return what its team would earn now if an agent had done nothing since the beginning."""
        key = (world, agent)
        if key not in self._followers:
            self._followers[key] = _Follower(self._make().inner)
        follower = self._followers[key]
        inner = follower.inner
        if follower.at != (world.seed, world.n_steps):
            self._play(inner, world, agent)
        follower.at = (world.seed, world.n_steps + 1)
        if not inner.agents:
            return 0.0
        return self._earned(inner.step(self._replaced(inner, own, agent))[1], agent)

    def _earned(self, rewards: Mapping[Any, Any], agent: Any) -> float:
        return sum(float(rewards.get(other, 0.0)) for other in self._teams[agent])

    def _replaced(self, inner: Any, own: Mapping[Any, Any], without: Any) -> dict[Any, Any]:
        """Return the actions of those who are in another world; who acted not does nothing."""
        return {
            agent: own[agent] if agent in own and agent != without else self._idle[agent]
            for agent in inner.agents
        }

    def _play(self, inner: Any, world: World, without: Any = None) -> None:
        """Play the episode of a world so far in another one, in which an agent does nothing."""
        inner.reset(seed=world.seed)
        for own in world.history():
            if not inner.agents:
                break
            inner.step(self._replaced(inner, own, without))

    def _found_way(self, env: EnvConfig) -> Callable[[World], Any]:
        """Return what gives a world at the moment of another one: the first way that is exact."""
        ways = {"restored": self._by_state, "copied": self._by_copy, "played again": self._by_play}
        problem: str | None = None
        for name, way in ways.items():
            if not self._is_of_step and way != self._by_play:
                continue
            problem = self._problem_of(way)
            if problem is None:
                log.debug("env.credit: worlds of %s are %s", env.id, name)
                self._check_length(env, is_played=self._is_of_step and name == "played again")
                return way
        raise ConfigError(
            f"{_KEY}: {env.id} cannot be played again from its seed: {problem}. Let it draw only "
            f"from the seed that its reset is given, or leave {_KEY} out."
        )

    def _check_length(self, env: EnvConfig, *, is_played: bool) -> None:
        if is_played and (env.time_limit is None or env.time_limit > MOST_REPLAYED):
            raise ConfigError(
                f"{_KEY}: {env.id} can be neither copied nor restored, so that each step plays "
                f"the episode again. Set env.time_limit to at most {MOST_REPLAYED}, give the world "
                f"state_dict() and load_state_dict(state), or use {_KEY}=wonderful_life."
            )

    def _by_state(self, world: World) -> Any:
        self._twin.load_state_dict(world.inner.state_dict())
        return self._twin

    def _by_copy(self, world: World) -> Any:
        return _copied(world.inner)

    def _by_play(self, world: World) -> Any:
        self._play(self._twin, world)
        return self._twin

    def _problem_of(self, way: Callable[[World], Any]) -> str | None:
        """Try a way; return what is wrong with it, None if it changes nothing and is exact."""
        tried, alone = self._make(), self._make()
        try:
            for seed in _TRIAL_SEEDS:
                for world in (tried, alone):
                    world.begin(seed, world.inner.possible_agents)
                for own in self._acts(tried):
                    # What shares something with the world would move it.
                    way(tried).step(self._replaced(tried.inner, own, tried.inner.agents[0]))
                    expected = StepOfWorld(way(tried).step(own))
                    for world in (tried, alone):
                        if not _are_same(world.step(own), expected):
                            return "a step has other results"
        # Somebody else's code, or none at all.
        except Exception as error:
            return where_raised(error)
        finally:
            tried.inner.close()
            alone.inner.close()
        return None

    def _acts(self, world: World) -> Iterator[dict[Any, Any]]:
        """Yield random actions while there are agents."""
        spaces = {agent: copy.deepcopy(world.inner.action_space(agent)) for agent in self._idle}
        for rank, space in enumerate(spaces.values()):
            space.seed(rank)
        for _ in range(_TRIAL_STEPS):
            if world.inner.agents:
                yield {agent: spaces[agent].sample() for agent in world.inner.agents}


def _copied(inner: Any) -> Any:
    """Return a copy of a world at the same moment."""
    whole: Any = inner.unwrapped
    # Fonts and surfaces, which cannot be copied, only draw.
    drawn = (x for x in vars(whole).values() if type(x).__module__.startswith("pygame"))
    memo: dict[int, Any] = {id(x): x for x in drawn}
    if isinstance(whole, EzPickle):
        # Otherwise it would be made anew from its arguments.
        memo[id(whole)] = same = object.__new__(type(whole))
        vars(same).update(copy.deepcopy(vars(whole), memo))
    return copy.deepcopy(inner, memo)


def _are_same(one: StepOfWorld, other: StepOfWorld) -> bool:
    return is_same(one.observations, other.observations) and is_same(one.rewards, other.rewards)
