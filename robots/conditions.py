"""Conditions of an environment's episodes: actuation, randomization and safety limits."""

from collections import deque
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.distributions import read_number
from robots.randomization import Randomizer, read_level, read_randomization
from robots.robot import ActionMode, InitialState
from robots.safety import REASON, TERM, Broken, Safety
from robots.sensors import State
from robots.task import GoalTask, Task
from robots.world import World

Command = NDArray[np.float64]


class Actuation:
    """Delays actions and limits how fast they change, for one world.

    The reward sees the action that the policy chose; only the motors get what comes out here.

    Attributes:
        latency: Control steps by which actions arrive late in every episode.
        max_rate: Greatest change of an entry of the action from one step to the next, or None.
    """

    def __init__(self, n_actions: int, latency: int = 0, max_rate: float | None = None) -> None:
        """Set what holds for all episodes.

        Args:
            n_actions: Entries of an action.
            latency: Control steps by which actions arrive late.
            max_rate: Greatest change of an entry of the action, in [-1, 1], in a step; None: any.

        Raises:
            ValueError: If the latency is no whole number of at least 0, or the rate not positive.
        """
        is_whole = isinstance(latency, Integral) and not isinstance(latency, bool)
        if not is_whole or latency < 0:
            raise ValueError(
                f"latency={latency!r} must be a whole number of control steps, at least 0. "
                "Set for example latency=1."
            )
        if max_rate is not None and read_number("max_action_rate", max_rate, 0.0) == 0:
            raise ValueError(
                "max_action_rate=0 would never let an action change. Set for example "
                "max_action_rate=0.2, or null for no limit."
            )
        self.latency = int(latency)
        self.max_rate = max_rate
        self._rest = np.zeros(n_actions)
        self.begin()

    def begin(self, more_latency: int = 0) -> None:
        """Start an episode, in which zeros arrive until the first action does.

        Args:
            more_latency: Control steps added to the latency in this episode.
        """
        self._under_way = deque([self._rest] * (self.latency + more_latency))
        self._arrived = self._rest

    def arriving(self, command: Command) -> Command:
        """Return what reaches the motors in the step in which a command is given.

        Args:
            command: In [-1, 1], shape (n_actions,).
        """
        if self._under_way:
            self._under_way.append(command)
            command = self._under_way.popleft()
        if self.max_rate is not None:
            change = np.minimum(np.maximum(command - self._arrived, -self.max_rate), self.max_rate)
            command = self._arrived = self._arrived + change
        return command


class Conditions:
    """Everything between a policy and an undisturbed world, for one environment.

    Attributes:
        actuation: What delays and limits actions, or None.
        randomizer: What differs from episode to episode, or None.
        safety: The limits that are watched, or None.
        terms: Names of the reward terms that come from here.
        command: The last action in [-1, 1], shape (n_actions,); zeros before the first.
        violations: Joints, or entries of the action, beyond each limit, summed over the episode.
    """

    def __init__(
        self,
        world: World,
        task: Task,
        mode: ActionMode,
        *,
        gravity_m_s2: float,
        latency: int = 0,
        max_action_rate: float | None = None,
        motor_strength: float = 1.0,
        randomization: Mapping[str, Any] | None = None,
        safety: Mapping[str, Any] | None = None,
    ) -> None:
        """Read the conditions.

        Args:
            world: World they are for.
            task: What the robot does in it.
            mode: What an action commands.
            gravity_m_s2: Nominal gravity.
            latency: See ``BaseRobotEnv``, as for the others.
            max_action_rate: See there.
            motor_strength: See there.
            randomization: See there.
            safety: See there.

        Raises:
            ValueError: If one of them is not in order.
        """
        drive = world.robot.drive
        self._strength = read_number("motor_strength", motor_strength, 0.0)
        drive.set_strength(self._strength)
        self.randomizer: Randomizer | None = None
        if randomization is not None:
            spec = read_randomization(randomization)
            self.randomizer = Randomizer(spec, world, task.observation_space, gravity_m_s2)
        self.actuation: Actuation | None = Actuation(drive.n_actions, latency, max_action_rate)
        varies = self.randomizer is not None and "latency" in self.randomizer.spec.draws
        if not (latency or max_action_rate is not None or varies):
            self.actuation = None
        self.safety = None if safety is None else Safety(safety, drive, mode)
        is_priced = self.safety is not None and self.safety.on_violation == "penalty"
        if is_priced and isinstance(task, GoalTask):
            raise ValueError(
                "safety.on_violation='penalty' would make the reward depend on more than the "
                "goals, which are exchanged afterwards. Use 'count' or 'terminate'."
            )
        self.terms: tuple[str, ...] = (TERM,) if is_priced else ()
        self._rest = np.zeros(drive.n_actions)
        self.command: NDArray[np.float64] = self._rest
        self.violations: dict[str, int] = {}

    @property
    def are_any(self) -> bool:
        """Whether there is anything to do at a reset or a step."""
        return any(part is not None for part in (self.actuation, self.randomizer, self.safety))

    @property
    def motor_strength(self) -> float:
        """Factor on what the motors can apply in this episode."""
        drawn = {} if self.randomizer is None else self.randomizer.drawn
        factor: float = drawn.get("motor_strength", 1.0)
        return self._strength * factor

    def begin(self, rng: np.random.Generator) -> None:
        """Start an episode: draw, and set up the world."""
        late = 0
        if self.randomizer is not None:
            self.randomizer.begin(rng)
            late = self.randomizer.latency
        if self.actuation is not None:
            self.actuation.begin(late)
        self.command = self._rest
        self.violations = {} if self.safety is None else dict.fromkeys(self.safety.kinds, 0)

    def arriving(
        self, command: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return what reaches the motors in a step; also push the robot if it is time to.

        Args:
            command: What the policy chose, in [-1, 1], shape (n_actions,).
            rng: The environment's generator.
        """
        if self.randomizer is not None:
            self.randomizer.push(rng)
        return command if self.actuation is None else self.actuation.arriving(command)

    def judge(self, state: State, command: NDArray[np.float64], targets: list[float]) -> Broken:
        """Return which limits a step broke, and count them.

        Args:
            state: State after the step.
            command: What the policy chose.
            targets: Commands of the motors.
        """
        if self.safety is None:
            return {}
        strength = np.array([self.motor_strength])
        broken = self.safety.broken(state, command, self.command, np.array(targets), strength)
        self.command = command
        for name, count in broken.items():
            self.violations[name] += int(count)
        return broken

    def cost(self, broken: Broken) -> dict[str, float]:
        """Return the reward terms that come from broken limits."""
        if self.safety is None:
            return {}
        return {name: float(self.safety.cost(broken)) for name in self.terms}

    def end(self, broken: Broken) -> bool:
        """Return whether broken limits end the episode."""
        return self.safety is not None and bool(self.safety.ends(broken))

    def last_info(self) -> dict[str, Any]:
        """Return the conditions for the last ``info`` of an episode."""
        info = self.first_info()
        if self.safety is not None:
            info["episode_violations"] = dict(self.violations)
        return info

    def first_info(self) -> dict[str, Any]:
        """Return the conditions for the ``info`` of a reset."""
        return {} if self.randomizer is None else {"randomization": dict(self.randomizer.drawn)}

    def progress(self) -> dict[str, Any]:
        """Return the entries of the environment's state that go on from episode to episode."""
        return {} if self.randomizer is None else {"randomization": self.randomizer.progress()}

    def read_progress(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``progress`` put into a state.

        Raises:
            ValueError: If it is not in order.
        """
        if self.randomizer is None:
            return {}
        return self.randomizer.read_progress(state["randomization"])

    def go_back(self, progress: Mapping[str, Any]) -> None:
        """Go to the start of the episode that ``read_progress`` describes."""
        if self.randomizer is not None:
            self.randomizer.go_back(progress)

    def go_on(self, progress: Mapping[str, Any]) -> None:
        """Be where that episode was when the state was taken, after it was played again."""
        if self.randomizer is not None:
            self.randomizer.forced_level = progress["next_level"]

    def spread(self, initial: InitialState) -> InitialState:
        """Return the task's initial state with what randomization adds to it."""
        return initial if self.randomizer is None else self.randomizer.spread(initial)

    def draw_noise(self, rng: np.random.Generator) -> None:
        """Draw the noise of the next observation, after a step."""
        if self.randomizer is not None:
            self.randomizer.draw_noise(rng)

    def disturbed(self, observation: Any) -> Any:
        """Return an observation with the noise that was drawn for it."""
        if self.randomizer is None:
            return observation
        return self.randomizer.disturbed(observation, self.randomizer.noise)


def info_of(broken: Broken) -> dict[str, Any]:
    """Return the violated limits for the ``info`` of a step."""
    counts = {name: int(count) for name, count in broken.items() if count}
    return {"violations": counts} if counts else {}


def force_level(conditions: Conditions | None, level: float | None) -> None:
    """Set how far randomization spreads, or with None leave it to the curriculum.

    Raises:
        ValueError: If the level is not in [0, 1], or there is no randomization.
    """
    if conditions is None or conditions.randomizer is None:
        raise ValueError(
            f"level={level} has no effect without randomization. Make the environment with "
            "randomization={...}."
        )
    conditions.randomizer.forced_level = None if level is None else read_level("level", level)


class ConditionsOfWorlds:
    """The conditions of many environments made with the same arguments, in one NumPy pass."""

    def __init__(self, all_conditions: Sequence[Conditions]) -> None:
        """Take over the conditions of n environments."""
        self._all = list(all_conditions)
        self._first = self._all[0]
        self._commands = np.stack([one.command for one in self._all])
        kinds = () if self._first.safety is None else self._first.safety.kinds
        self._violations = {kind: np.zeros(len(self._all), np.int64) for kind in kinds}

    def take_over(self, index: int) -> None:
        """Go on from the conditions of one environment, which was reset or had its state loaded."""
        self._commands[index] = self._all[index].command
        for name, count in self._all[index].violations.items():
            self._violations[name][index] = count

    def give_back(self, index: int) -> None:
        """Write into the conditions of one environment what is known of them."""
        one = self._all[index]
        one.command = self._commands[index].copy()
        one.violations = {name: int(counts[index]) for name, counts in self._violations.items()}

    def arriving(
        self, commands: NDArray[np.float64], generators: Sequence[np.random.Generator]
    ) -> NDArray[np.float64]:
        """Return what reaches the motors, shape (n, n_actions); see ``Conditions.arriving``."""
        rows = zip(self._all, commands, generators, strict=True)
        return np.stack([one.arriving(command, rng) for one, command, rng in rows])

    def judge(
        self, state: State, commands: NDArray[np.float64], targets: NDArray[np.floating[Any]]
    ) -> Broken:
        """Return which limits a step broke, each of shape (n,), and count them."""
        if self._first.safety is None:
            return {}
        strengths = np.array([[one.motor_strength] for one in self._all])
        broken = self._first.safety.broken(state, commands, self._commands, targets, strengths)
        self._commands = commands.copy()
        for name, count in broken.items():
            self._violations[name] += count
        return broken

    def cost(self, broken: Broken) -> dict[str, NDArray[np.float64]]:
        """Return the reward terms that come from broken limits, each of shape (n,)."""
        if self._first.safety is None:
            return {}
        return {name: self._first.safety.cost(broken) for name in self._first.terms}

    def end(self, broken: Broken) -> dict[str, Any]:
        """Return the reason for ending an episode, of shape (n,), if there can be one."""
        safety = self._first.safety
        if safety is None or safety.on_violation != "terminate":
            return {}
        return {REASON: safety.ends(broken)}

    def last_info(self, index: int) -> dict[str, Any]:
        """Return the conditions of one world for the last ``info`` of an episode."""
        info = self._all[index].first_info()
        if self._first.safety is not None:
            info["episode_violations"] = {
                name: int(counts[index]) for name, counts in self._violations.items()
            }
        return info

    def disturbed(self, observation: Any, generators: Sequence[np.random.Generator]) -> Any:
        """Return the observations after a step, with noise that is drawn for them."""
        randomizer = self._first.randomizer
        if randomizer is None or randomizer.noise is None:
            return observation
        for one, rng in zip(self._all, generators, strict=True):
            one.draw_noise(rng)
        noise = [one.randomizer.noise for one in self._all if one.randomizer is not None]
        return randomizer.disturbed(observation, np.array(noise))
