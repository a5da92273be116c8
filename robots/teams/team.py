"""Teams: a task that several robots of one world do together, and its form in PettingZoo."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from robots.env import BaseRobotEnv
from robots.frames import Components, columns
from robots.sensors import Floats, State
from robots.task import Bools, Task, observation_of


class TeamTask(Task):
    """What a team should do: every robot has an observation and a reward of its own.

    The observation of the world is that of its robots, one after the other, and its reward the sum
    of theirs. ``reward_weights`` holds for each robot; the names of the world's terms end in the
    number of the robot. ``memory["done"]`` has 1 for each robot that has done its part, else 0.

    Attributes:
        n_robots: Robots in the team.
    """

    def __init__(
        self, n_robots: int, n_observations: int, reward: Mapping[str, float] | None = None
    ) -> None:
        """Set how many robots there are, what each observes, and the weights of its reward."""
        super().__init__(reward)
        self.n_robots = n_robots
        self.weights = {
            term_of(name, robot): weight
            for robot in range(n_robots)
            for name, weight in self.weights.items()
        }
        self.observation_space = spaces.Box(-np.inf, np.inf, (n_robots * n_observations,))

    @abstractmethod
    def sight(self, state: State, robot: int) -> Sequence[Any]:
        """Return what a robot observes, each of shape (...)."""

    @abstractmethod
    def robot_terms(self, state: State, action: Components, robot: int) -> dict[str, Any]:
        """Return the terms of a robot's reward before weighting, each of shape (...).

        Args:
            state: State after the step, with the memory from before it.
            action: Entries of the robot's own action, each of shape (...).
            robot: Its number.
        """

    @abstractmethod
    def failures(self, state: State) -> dict[str, Any]:
        """Return the reasons for ending the episode before all is done, each of shape (...)."""

    @abstractmethod
    def done(self, state: State) -> Components:
        """Return whether each robot has done its part, one value of shape (...) each."""

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return what the robots observe, one after the other."""
        sights = [value for robot in range(self.n_robots) for value in self.sight(state, robot)]
        return observation_of(*sights)

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms of every robot; a robot that had done its part earns nothing more."""
        entries, was_done = columns(action), columns(state.memory["done"])
        size = len(entries) // self.n_robots
        return {
            term_of(name, robot): value * (1.0 - was_done[robot])
            for robot in range(self.n_robots)
            for name, value in self.robot_terms(
                state, entries[robot * size : (robot + 1) * size], robot
            ).items()
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return the failures, and whether all robots have done their parts."""
        return {**self.failures(state), "all_done": self._all_done(state)}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether all robots have done their parts."""
        del survived
        all_done: Bools = self._all_done(state)
        return all_done

    def flags(self, state: State) -> Floats:
        """Return ``done`` as what ``memory`` keeps of it, shape (..., n_robots)."""
        return stacked([1.0 * flag for flag in self.done(state)])

    def _all_done(self, state: State) -> Any:
        first, *others = self.done(state)
        for other in others:
            first = first & other
        return first


class ParallelTeam(ParallelEnv):  # type: ignore[misc]
    """A team in PettingZoo's parallel form: ``robot_0``, ``robot_1`` and so on.

    A robot that has done its part leaves, and acts no more: its action is 0. The last ``info`` of a
    robot has ``is_success``, whether it did its part, and ``end_reason``.

    Attributes:
        env: The world of the team, an environment of Gymnasium with the actions of all robots.
        possible_agents: Names of the robots.
        agents: Names of those that are in the world now.
        state_space: Space of ``state``.
    """

    def __init__(self, env: BaseRobotEnv) -> None:
        """Give a world PettingZoo's form.

        Raises:
            ValueError: Its randomization has a curriculum, and a seed would not repeat an episode.
        """
        assert isinstance(env.task, TeamTask)
        if env.randomizer is not None and env.randomizer.is_growing:
            env.close()
            raise ValueError(
                "randomization.curriculum depends on earlier episodes, and those of a team depend "
                "on their seed alone. Leave it out."
            )
        self.env, self.task = env, env.task
        count = self.task.n_robots
        self.possible_agents = [f"robot_{number}" for number in range(count)]
        self.agents: list[str] = []
        self.render_mode = env.render_mode
        self.metadata = {**env.metadata, "name": type(self).__name__}
        self.state_space = env.observation_space
        n_seen, n_actions = (
            space.shape[0] // count  # type: ignore[index]
            for space in (env.observation_space, env.action_space)
        )
        self._sees = {name: spaces.Box(-np.inf, np.inf, (n_seen,)) for name in self.possible_agents}
        self._acts = {name: spaces.Box(-1.0, 1.0, (n_actions,)) for name in self.possible_agents}
        own = [
            [name for name in env.term_names if name not in env.task.weights or ends_in(name, rank)]
            for rank in range(count)
        ]
        self._terms = dict(zip(self.possible_agents, own, strict=True))
        self._zeros = np.zeros(n_actions, np.float32)
        self._seen: NDArray[np.float32] = np.zeros(self.state_space.shape or (), np.float32)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return what a robot observes."""
        return self._sees[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return what a robot can do."""
        return self._acts[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, dict[str, Any]]]:
        """Begin an episode; the options are not used."""
        self._seen, info = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._by_robot(), {agent: dict(info) for agent in self.agents}

    def step(self, actions: Mapping[str, NDArray[np.float32]]) -> tuple[dict[str, Any], ...]:
        """Act for one control step with the actions of the robots that are there.

        Returns:
            Observations, rewards, terminations, truncations and infos of these robots.
        """
        agents = self.agents
        chosen = [actions.get(agent, self._zeros) for agent in self.possible_agents]
        command = np.concatenate(chosen, dtype=np.float32)
        self._seen, _, terminated, truncated, info = self.env.step(command)
        terms, flags = info["reward_terms"], self.env.state.memory["done"].tolist()
        done = dict(zip(self.possible_agents, map(bool, flags), strict=True))
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in agents}
        for agent in agents:
            if terminated or truncated or done[agent]:
                reason = "done" if done[agent] else info["end_reason"]
                infos[agent] = {"is_success": done[agent], "end_reason": reason}
        self.agents = [agent for agent in agents if not infos[agent]]
        return (
            {agent: row for agent, row in self._by_robot().items() if agent in agents},
            {agent: sum(terms[name] for name in self._terms[agent]) for agent in agents},
            {agent: terminated or done[agent] for agent in agents},
            {agent: truncated and not done[agent] for agent in agents},
            infos,
        )

    def state(self) -> NDArray[np.float32]:
        """Return the observations of all robots, one after the other."""
        return self._seen.copy()

    def state_dict(self) -> dict[str, Any]:
        """Return the exact state between two steps, as ``ExactState`` gives it."""
        seen = self._seen.copy()
        return {"agents": list(self.agents), "seen": seen, "env": self.env.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned, in place of a ``reset``."""
        self.env.load_state_dict(state["env"])
        self.agents, self._seen = list(state["agents"]), np.array(state["seen"], np.float32)

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image of the world, shape (height, width, 3)."""
        return self.env.render()

    def close(self) -> None:
        """Close the world."""
        self.env.close()

    def _by_robot(self) -> dict[str, NDArray[np.float32]]:
        rows = self._seen.reshape(len(self.possible_agents), -1)
        return {name: row.copy() for name, row in zip(self.possible_agents, rows, strict=True)}


def stacked(values: Sequence[Any]) -> Floats:
    """Return values of shape (...) side by side, shape (..., n)."""
    return np.array(values, np.float64) if isinstance(values[0], float) else np.stack(values, -1)


def term_of(name: str, robot: int) -> str:
    """Return the name of a term of a robot's reward among those of the world."""
    return f"{name} {robot}"


def ends_in(term: str, robot: int) -> bool:
    """Return whether a term of the world is that of a robot."""
    return term.rpartition(" ")[2] == str(robot)
