"""Worlds of PettingZoo as vectorised environments: each agent of each world is a row.

All agents, or those of each group of `env.groups`, share one policy (parameter sharing). A row
whose agent is not in the world (it has left, or is not there yet) sees zeros and earns nothing
until the world begins again; the rows of a world begin again together.

The state of a world is the seed of its episode and the actions since then: they are played again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import (
    VecEnv,
    VecEnvObs,
    VecEnvStepReturn,
    VecEnvWrapper,
)

from rlzoo_plus.config.critics import JOINT
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.own_vec_env import OwnVecEnv
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.registry import where_raised
from rlzoo_plus.teams.difference_reward import DifferenceReward
from rlzoo_plus.teams.grouping import Grouping
from rlzoo_plus.teams.joint_observation import JointObservation
from rlzoo_plus.teams.world import StepOfWorld, World

if find_spec("pettingzoo") is None:
    raise ConfigError("vec_env=pettingzoo needs PettingZoo: pip install 'rlzoo-plus[pettingzoo]'.")
from pettingzoo import aec_registry, make, parallel_registry

from rlzoo_plus.teams.turns import in_parallel

# Names of what makes the worlds of a module, as PettingZoo has them; the first is taken.
_MAKERS = ("parallel_env", "env")


class PettingZooVecEnv(VecEnv):
    """Worlds of one kind, whose agents, or those of each group, have the same spaces.

    Attributes:
        agents: Names of the agents of a world; row k is agent k % len(agents) of its world.
        agents_per_env: How many.
        idle: Rows whose agent was not in its world in the last step, shape (num_envs,).
        learned_rewards: What the last step taught each row in place of its reward, shape
            (num_envs,): with `env.credit`; else None.
    """

    def __init__(
        self, env: EnvConfig, n_envs: int, seed: int, render_mode: str | None = None
    ) -> None:
        """Make `n_envs` worlds of `env.id` with `env.kwargs`, but for `joint_observation`.

        Raises:
            ConfigError: There is no such world, or its agents differ.
        """
        kwargs = {name: value for name, value in env.kwargs.items() if name != JOINT}
        mode = {} if render_mode is None else {"render_mode": render_mode}
        self.render_mode, self.limit = render_mode, env.time_limit
        make = _maker_of(env.id)
        self.worlds = [World(in_parallel(make(**{**kwargs, **mode}))) for _ in range(n_envs)]
        first = self.worlds[0].inner
        self.metadata = dict(getattr(first, "metadata", {}))
        self.agents = list(first.possible_agents)
        self.agents_per_env = self._count_rows(env)
        self._grouping = None
        space: Any
        action: Any
        if env.groups is not None:
            spaces_of = (first.observation_space, first.action_space)
            self._grouping = Grouping(env.id, env.groups, self.agents, spaces_of)
            space, action = self._grouping.space, self._grouping.action_space
            for world in self.worlds:
                world.own_action = self._grouping.action
        else:
            space = _shared_space(env.id, self.agents, first.observation_space, "observation")
            action = _shared_space(env.id, self.agents, first.action_space, "action")
        self._own, self._joint = space, None
        if env.kwargs.get(JOINT):
            self._joint = JointObservation(env.id, space, len(self.agents))
            space = self._joint.space
        super().__init__(n_envs * self.agents_per_env, space, action)
        self.idle = np.zeros(self.num_envs, bool)
        self._credit = self._make_credit(env, partial(make, **kwargs))
        self.learned_rewards = None if self._credit is None else np.zeros(self.num_envs)
        self._actions: Any = None
        nothing = self._grouping.seen if self._grouping else lambda _: _zeros(self._own)
        self._zeros = {agent: nothing(agent) for agent in self.agents}
        self.seed(seed)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Decide by a number how the next episodes begin."""
        self._seed, self._n_begun = 0 if seed is None else seed, 0
        return [seed] * self.num_envs

    def reset(self) -> VecEnvObs:
        """Begin an episode in every world."""
        rows: list[Any] = []
        for number in range(len(self.worlds)):
            rows += self._begin(number)
        self.idle[:] = self._absent()
        return self._seen(rows)

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions of all rows."""
        self._actions = np.array(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Act in every world, and begin again where all agents are done."""
        seen: list[Any] = []
        rewards, dones = np.zeros(self.num_envs, np.float64), np.zeros(self.num_envs, bool)
        infos: list[dict[str, Any]] = []
        self.idle[:] = self._absent()
        steps = self._step_worlds()
        for number, world in enumerate(self.worlds):
            agents, rows = self._playing(number), self._rows_of(number)
            cut = self._is_cut(world)
            found = [self._row(world, steps[number], agent, cut=cut) for agent in agents]
            rewards[rows] = [row[1] for row in found]
            dones[rows] = [row[2] for row in found]
            infos += [row[3] for row in found]
            if cut or self._is_over(number):
                for agent, info in zip(agents, infos[rows], strict=True):
                    info |= self._summary(number, agent)
                seen += self._begin(number)
            else:
                seen += [row[0] for row in found]
        if self._joint is not None:
            self._joint.complete(infos, self._stacked(seen), ~self.idle)
        return self._seen(seen), rewards, dones, infos

    def _row(self, world: World, step: StepOfWorld, agent: str, *, cut: bool) -> tuple[Any, ...]:
        """Return what an agent sees, its reward, whether its episode is over, and its info."""
        if agent not in step.rewards:
            # Over at each step, so that what it learns from leads nowhere.
            nothing = self._zeros[agent]
            return nothing, 0.0, True, {"terminal_observation": nothing}
        observation = self._as_row(agent, step.observations[agent])
        terminated = bool(step.terminations.get(agent))
        truncated = bool(step.truncations.get(agent)) or cut
        info = dict(step.infos.get(agent, {}))
        if not (terminated or truncated):
            return observation, float(step.rewards[agent]), False, info
        info |= {
            "terminal_observation": observation,
            "TimeLimit.truncated": truncated and not terminated,
            "episode_returns": world.numbers(agent),
        }
        return self._zeros[agent], float(step.rewards[agent]), True, info

    def _count_rows(self, env: EnvConfig) -> int:
        """Return how many rows a world has; its agents are known."""
        del env
        return len(self.agents)

    def _playing(self, number: int) -> list[Any]:
        """Return the agents of a world whose rows these are."""
        del number
        return self.agents

    def _make_credit(self, env: EnvConfig, make: Callable[[], Any]) -> DifferenceReward | None:
        """Return what tells the shares of agents, if they learn from those."""
        if env.credit is None:
            return None
        teams = {agent: self.team_of(agent) for agent in self.agents}
        return DifferenceReward(env, lambda: World(in_parallel(make())), teams)

    def team_of(self, agent: Any) -> list[Any]:
        """Return the agents whose rewards count for one: its group, or all."""
        return self.agents if self._grouping is None else self._grouping.group_of(agent)

    def _rows_of(self, number: int) -> slice:
        return slice(number * self.agents_per_env, (number + 1) * self.agents_per_env)

    def _step_worlds(self) -> list[StepOfWorld]:
        """Act in every world."""
        return [self._step_world(number) for number in range(len(self.worlds))]

    def _step_world(self, number: int) -> StepOfWorld:
        world, rows = self.worlds[number], self._rows_of(number)
        actions = dict(zip(self.agents, self._actions[rows], strict=True))
        if self._credit is None or self.learned_rewards is None:
            return world.step(actions)
        step, shares = self._credit.step(world, actions)
        self.learned_rewards[rows] = [shares.get(agent, 0.0) for agent in self.agents]
        return step

    def _is_cut(self, world: World) -> bool:
        return self.limit is not None and world.n_steps >= self.limit

    def _is_over(self, number: int) -> bool:
        return not self.worlds[number].inner.agents

    def _summary(self, number: int, agent: Any) -> dict[str, Any]:
        """Return what the last info of an agent has on a world that is over."""
        world = self.worlds[number]
        whole = {"team": world.team_return}
        if self._grouping is not None:
            whole |= self._grouping.returns(world.returns)
        return {"episode_returns": world.numbers(agent) | whole}

    def _begin(self, number: int) -> list[Any]:
        """Begin an episode in a world; return what its agents see."""
        drawn = np.random.SeedSequence([self._seed, self._n_begun]).generate_state(1)
        self._n_begun += 1
        observations = self.worlds[number].begin(int(drawn[0] >> 1), self.agents)
        return [
            self._as_row(agent, observations[agent])
            if agent in observations
            else self._zeros[agent]
            for agent in self._playing(number)
        ]

    def _as_row(self, agent: Any, observation: Any) -> Any:
        return observation if self._grouping is None else self._grouping.seen(agent, observation)

    def _absent(self) -> np.ndarray:
        """Return which rows have no agent in their world now."""
        pairs = enumerate(self.worlds)
        return np.array([w.is_idle(agent) for n, w in pairs for agent in self._playing(n)])

    def _seen(self, rows: Sequence[Any]) -> VecEnvObs:
        """Return what the agents see, with what their team sees if that is asked for."""
        stacked: Any = self._stacked(rows)
        return stacked if self._joint is None else self._joint.of(stacked, ~self._absent())

    def _stacked(self, rows: Sequence[Any]) -> Any:
        space = self._own
        if isinstance(space, spaces.Dict):
            return {
                key: np.stack([row[key] for row in rows]).astype(part.dtype)
                for key, part in space.spaces.items()
            }
        return np.stack(rows).astype(space.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return how each world got to where it is."""
        return {
            "seed": self._seed,
            "begun": self._n_begun,
            "idle": self.idle.copy(),
            "worlds": [world.state(self.action_space) for world in self.worlds],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Play each world again.

        Raises:
            ValueError: A world comes out otherwise.
        """
        if len(state["worlds"]) != len(self.worlds):
            raise ValueError(f"it has {len(state['worlds'])} worlds, not {len(self.worlds)}")
        self._seed, self._n_begun = int(state["seed"]), int(state["begun"])
        self.idle[:] = state["idle"]
        for world, saved in zip(self.worlds, state["worlds"], strict=True):
            world.play_again(saved, self.agents)

    def close(self) -> None:
        """Close the worlds."""
        if self._credit is not None:
            self._credit.close()
        for world in self.worlds:
            world.inner.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the world of each row."""
        return [getattr(self._world_of(rank), attr_name) for rank in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the world of each row."""
        for rank in self._get_indices(indices):
            setattr(self._world_of(rank), attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Call a method of the world of each row; the masks of actions are those of its agent."""
        if method_name == "action_masks":
            pairs = [divmod(rank, self.agents_per_env) for rank in self._get_indices(indices)]
            return [
                self.worlds[number].inner.action_masks(self._playing(number)[place])
                for number, place in pairs
            ]
        return [
            getattr(self._world_of(rank), method_name)(*args, **kwargs)
            for rank in self._get_indices(indices)
        ]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False: there are no wrappers of single agents."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return an image of the world of each row."""
        frames = [world.inner.render() for world in self.worlds]
        return [frame for frame in frames for _ in range(self.agents_per_env)]

    def _world_of(self, rank: int) -> Any:
        return self.worlds[rank // self.agents_per_env].inner


def worlds_of(venv: Any) -> PettingZooVecEnv:
    """Return the worlds inside of wrappers."""
    while isinstance(venv, VecEnvWrapper):
        venv = venv.venv
    assert isinstance(venv, OwnVecEnv)
    assert isinstance(venv.inner, PettingZooVecEnv)
    return venv.inner


def _maker_of(env_id: str) -> Any:
    """Return what makes worlds: of a registered id, a module, or a function or class in one."""
    try:
        if env_id in parallel_registry:
            return partial(make, "parallel", env_id)
        if env_id in aec_registry:
            return partial(make, "aec", env_id)
        if "/" in env_id:
            known = sorted({*parallel_registry, *aec_registry})
            raise ConfigError(unknown_name("env.id", env_id, known))
        found = _imported(env_id)
        if callable(found):
            return found
        for name in _MAKERS:
            if hasattr(found, name):
                return getattr(found, name)
    except ConfigError:
        raise
    # What is imported can raise anything.
    except Exception as error:
        raise ConfigError(f"env.id={env_id} cannot be made: {where_raised(error)}.") from error
    raise ConfigError(
        f"env.id={env_id} makes no worlds. Name a registered id, such as sisl/pursuit-v5, a module "
        "with parallel_env or env, or a function or class of your own: my_module.my_world."
    )


def _imported(name: str) -> Any:
    """Return a module, or what is in one."""
    module, _, inner = name.replace(":", ".").rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not module or error.name != name:
            raise
    return getattr(importlib.import_module(module), inner)


def _shared_space(
    env_id: str, agents: Sequence[str], space_of: Any, kind: str
) -> spaces.Space[Any]:
    found = {agent: space_of(agent) for agent in agents}
    first: spaces.Space[Any] = found[agents[0]]
    other = next((agent for agent in agents if found[agent] != first), None)
    if other is not None:
        raise ConfigError(
            f"env.id={env_id}: {agents[0]} has the {kind} space {first}, and {other} "
            f"{found[other]}. Agents that share a policy need the same: pad them, with SuperSuit "
            "for instance."
        )
    return first


def _zeros(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(part) for key, part in space.spaces.items()}
    return np.zeros(space.shape or (), space.dtype)
