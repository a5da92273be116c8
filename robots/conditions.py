"""Conditions of an environment's episodes: actuation, randomization and safety limits."""

from collections import deque
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from robots.distributions import read_number
from robots.elementary import clip
from robots.privileged import Privileged
from robots.randomization import Randomizer
from robots.robot import ActionMode
from robots.safety import TERM, Broken, Safety
from robots.sensors import Floats, State
from robots.shield import Changes, Shield
from robots.shielding import driving, guard
from robots.task import GoalTask, Task
from robots.world import World

Command = NDArray[np.float64]


class ConditionOptions(TypedDict, total=False):
    """Conditions that every environment accepts; see ``Conditions``."""

    latency: int
    max_action_rate: float | None
    motor_strength: float
    randomization: Mapping[str, Any] | None
    safety: Mapping[str, Any] | None
    privileged: bool


class Actuation:
    """Delays actions and limits how fast they change, for one world.

    The reward is computed from the action that the policy chose; only the motors get the result.

    Attributes:
        latency: Control steps by which actions arrive late in every episode.
        is_limited: Whether there is a greatest change.
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
        self.latency, self.is_limited = int(latency), max_rate is not None
        self._max_rate = max_rate
        self._rest = np.zeros(n_actions)
        self.begin()

    def begin(self, more_latency: int = 0) -> None:
        """Start an episode, in which zeros arrive until the first action does.

        Args:
            more_latency: Control steps added to the latency in this episode.
        """
        self._under_way = deque([self._rest] * (self.latency + more_latency))
        self._arrived: Command = self._rest

    def apply(self, command: Command) -> Command:
        """Return what reaches the motors in the step in which a command is given.

        Args:
            command: In [-1, 1], shape (n_actions,).
        """
        if self._under_way:
            self._under_way.append(command)
            command = self._under_way.popleft()
        if self._max_rate is not None:
            change = clip(command - self._arrived, -self._max_rate, self._max_rate)
            command = self._arrived = self._arrived + change
        return command

    def progress(self) -> dict[str, NDArray[np.float64]]:
        """Return what is under way in the episode."""
        shape = (len(self._under_way), len(self._rest))
        return {
            "under_way": np.reshape(list(self._under_way), shape).astype(np.float64),
            "arrived": np.array(self._arrived, np.float64),
        }

    def resume(self, progress: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from ``progress`` of an episode that began alike; else raise a ValueError."""
        own = self.progress()
        self._under_way = deque(progress["under_way"].reshape(own["under_way"].shape))
        self._arrived = progress["arrived"].reshape(own["arrived"].shape)


class Conditions:
    """Everything between a policy and an undisturbed world, for one environment.

    Attributes:
        are_any: Whether there is anything to do at a reset or a step.
        is_random: Whether there is randomization.
        actuation: Delays and limits actions.
        randomizer: Draws what differs from episode to episode.
        safety: The limits that are watched, or None.
        shield: What changes commands so that they are kept, or None.
        terms: Names of the reward terms for broken limits.
        command: The last action in [-1, 1], shape (n_actions,), with a shield the one that was
            applied; zeros before the first.
        violations: Joints, or entries of the action, beyond each limit, summed over the episode.
        changes: What the shield changed in the last step, by limit, in the unit of the command.
        shielded: The steps with a change, and the sum of the changes, over the episode.
        privileged: Adds to observations what they leave out, or None.
    """

    def __init__(
        self,
        world: World,
        task: Task,
        mode: ActionMode,
        *,
        latency: int = 0,
        max_action_rate: float | None = None,
        motor_strength: float = 1.0,
        randomization: Mapping[str, Any] | None = None,
        safety: Mapping[str, Any] | None = None,
        privileged: bool = False,
    ) -> None:
        """Check and set up the conditions.

        Args:
            world: World they are for.
            task: Task of the robot.
            mode: What an action commands.
            latency: Control steps by which actions reach the motors late.
            max_action_rate: Greatest change, in a step, of an entry of the action that reaches
                the motors; None: any.
            motor_strength: Factor on the torques or forces that the motors can apply.
            randomization: What differs from episode to episode: see
                ``docs/robots/randomization.md``.
            safety: Limits that are watched: see ``docs/robots/safety.md``.
            privileged: Whether observations have an entry ``privileged`` with what they leave out.

        Raises:
            ValueError: If one of them is not valid.
        """
        drive = world.robot.drive
        self._strength = read_number("motor_strength", motor_strength, 0.0)
        drive.set_strength(self._strength)
        self.is_random = randomization is not None
        config = randomization if self.is_random else {}
        self.randomizer = Randomizer(config, world, task.observation_space)
        self.actuation = Actuation(drive.n_actions, latency, max_action_rate)
        drawn = self.randomizer.draws.get("motor_strength")
        strongest = self._strength * (1.0 if drawn is None else drawn.high)
        self.safety = None if safety is None else Safety(safety, world, mode, strongest)
        self.shield: Shield | None = None if self.safety is None else self.safety.shield
        self.is_guarded = self.shield is not None and guard(world, self.shield, self.note)
        drive.set_strength(self._strength)
        self.columns = driving(drive).motors.read_columns
        is_priced = self.safety is not None and self.safety.is_priced
        if is_priced and isinstance(task, GoalTask):
            raise ValueError(
                "safety.penalty would make the reward depend on more than the goals, which are "
                "exchanged afterwards. Leave it out, and use on_violation='count', 'terminate' or "
                "'shield'."
            )
        is_limited = bool(latency) or max_action_rate is not None
        self.are_any = is_limited or self.is_random or self.safety is not None or privileged
        self.terms: tuple[str, ...] = (TERM,) if is_priced else ()
        self._rest = np.zeros(drive.n_actions)
        self.command: Command = self._rest
        self.applied: Command = self._rest
        self.violations: dict[str, int] = {}
        self.changes: dict[str, float] = {}
        self.shielded: dict[str, NDArray[np.float64]] = {}
        if not isinstance(privileged, bool):
            raise ValueError(f"privileged={privileged!r} must be true or false.")
        self.privileged: Privileged | None = None
        if privileged:
            state = world.sensors.state(world.sensors.read())
            self.privileged = Privileged(self, task.observation_space, state)

    @property
    def motor_strength(self) -> float:
        """Factor on what the motors can apply in this episode."""
        factor: float = self.randomizer.drawn.get("motor_strength", 1.0)
        return self._strength * factor

    def begin(self, rng: np.random.Generator) -> None:
        """Start an episode: draw, and set up the world."""
        self.randomizer.begin(rng)
        self.actuation.begin(self.randomizer.drawn.get("latency", 0))
        self.command = self._rest
        self.violations = {} if self.safety is None else dict.fromkeys(self.safety.kinds, 0)
        if self.shield is not None:
            self.shielded = {kind: np.zeros(2) for kind in self.shield.kinds}

    def apply(self, command: Command, rng: np.random.Generator) -> Command:
        """Return what reaches the motors in a step; also push the robot if it is time to.

        Args:
            command: What the policy chose, in [-1, 1], shape (n_actions,).
            rng: The environment's generator.
        """
        self.randomizer.push(rng)
        applied = self.actuation.apply(command)
        if self.shield is not None:
            self.changes = {}
            limited, changes = self.shield.limit_action(applied, self.command)
            applied = self.applied = np.asarray(limited, np.float64)
            self.note(changes)
        return applied

    def targets(self, targets: list[float], state: State) -> list[float]:
        """Return the commands of the motors with which the limits are kept.

        Args:
            targets: One row of ``Drive.targets``.
            state: State before the step.
        """
        if self.shield is None or self.is_guarded:
            return targets
        row: list[float] = shielded_targets([self], np.array(targets)[None], state)[0].tolist()
        return row

    def note(self, changes: Changes) -> None:
        """Keep and count what the shield changed."""
        for name, change in changes.items():
            if change > 0.0:
                self.changes[name] = float(change)
                self.shielded[name] += np.array([1.0, float(change)])

    def progress(self) -> dict[str, NDArray[np.float64]]:
        """Return what a step of the episode changes and the next one depends on."""
        return {
            **self.actuation.progress(),
            **self.randomizer.running(),
            "command": np.array(self.command, np.float64),
            "violations": np.array(list(self.violations.values()), np.float64),
            **({"shielded": np.array([*self.shielded.values()])} if self.shielded else {}),
        }

    def resume(self, progress: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from ``progress`` of an episode that began alike.

        Raises:
            KeyError: If a part is missing.
            ValueError: If a part has another shape.
        """
        self.actuation.resume(progress)
        self.randomizer.resume(progress)
        self.command = progress["command"].reshape(self._rest.shape)
        counts = progress["violations"].reshape(len(self.violations)).tolist()
        self.violations = dict(zip(self.violations, map(int, counts), strict=True))
        if self.shielded:
            rows = progress["shielded"].reshape(len(self.shielded), 2)
            self.shielded = dict(zip(self.shielded, rows.copy(), strict=True))

    def check_limits(self, state: State, command: Command, targets: list[float]) -> Broken:
        """Return which limits a step broke, and count them.

        Args:
            state: State after the step.
            command: What the policy chose.
            targets: Commands of the motors.
        """
        if self.safety is None:
            return {}
        command = self.reaching(command)
        strength = np.array([self.motor_strength])
        broken = self.safety.broken(state, command, self.command, np.array(targets), strength)
        self.count(command, broken)
        return broken

    def reaching(self, command: Command) -> Command:
        """Return the action that is judged: with a shield the applied one, else the chosen one."""
        return command if self.shield is None else self.applied

    def count(self, command: Command, broken: Broken) -> None:
        """Count the limits that a step with a command broke."""
        self.command = command
        for name, count in broken.items():
            self.violations[name] += int(count)

    def cost(self, broken: Broken) -> dict[str, Any]:
        """Return the reward terms that come from broken limits, each of shape (...)."""
        counts = broken if self.shield is None else self.changes
        return {name: self.safety.cost(counts) for name in self.terms if self.safety is not None}

    def end(self, broken: Broken) -> Any:
        """Return whether broken limits end the episode, shape (...)."""
        return self.safety is not None and self.safety.ends(broken)

    def first_info(self) -> dict[str, Any]:
        """Return the conditions for the ``info`` of a reset."""
        return {"randomization": dict(self.randomizer.drawn)} if self.is_random else {}

    def last_info(self) -> dict[str, Any]:
        """Return the conditions for the last ``info`` of an episode."""
        counts: dict[str, Any] = {}
        if self.safety is not None:
            counts["episode_violations"] = dict(self.violations)
        if self.shielded:
            totals = {name: steps for name, (steps, _) in self.shielded.items()}
            sums = {f"{name}_change": change for name, (_, change) in self.shielded.items()}
            counts["episode_shield"] = {k: float(v) for k, v in {**totals, **sums}.items()}
        return {**self.first_info(), **counts}


def info_of(broken: Broken, changes: Mapping[str, float]) -> dict[str, Any]:
    """Return the violated limits, and what the shield changed, for the ``info`` of a step."""
    counts = {name: int(count) for name, count in broken.items() if count}
    info: dict[str, Any] = {"violations": counts} if counts else {}
    return {**info, "shield": dict(changes)} if changes else info


def shielded_targets(conditions: Sequence[Conditions], targets: Floats, state: State) -> Floats:
    """Return the commands of the motors of n worlds with which limits are kept.

    Args:
        conditions: Those of each world.
        targets: ``Drive.targets``, shape (n, n_targets).
        state: State of the n worlds before the step, or of the one that there is.
    """
    first = conditions[0]
    if first.shield is None or first.is_guarded:
        return targets
    columns = first.columns
    strengths = np.array([[one.motor_strength] for one in conditions])
    position, velocity = state.joint_position[..., columns], state.joint_velocity[..., columns]
    targets, changes = first.shield.project_rows(targets, position, velocity, strengths)
    for index, one in enumerate(conditions):
        one.note({name: change[index] for name, change in changes.items()})
    return targets


def check_limits_of_worlds(
    conditions: list[Conditions], state: State, commands: Command, targets: NDArray[Any]
) -> Broken:
    """Return which limits a step of n worlds broke, each of shape (n,), and count them."""
    safety = conditions[0].safety
    if safety is None:
        return {}
    previous = np.stack([one.command for one in conditions])
    if conditions[0].shield is not None:
        commands = np.stack([one.applied for one in conditions])
    strengths = np.array([[one.motor_strength] for one in conditions])
    broken = safety.broken(state, commands, previous, targets, strengths)
    for index, one in enumerate(conditions):
        one.count(commands[index], {name: counts[index] for name, counts in broken.items()})
    return broken


def cost_of_worlds(conditions: list[Conditions], broken: Broken) -> dict[str, Any]:
    """Return the reward terms of n worlds that come from their limits, each of shape (n,)."""
    first = conditions[0]
    if first.shield is None or first.safety is None:
        return first.cost(broken)
    changes = {
        kind: np.array([one.changes.get(kind, 0.0) for one in conditions])
        for kind in first.shield.kinds
    }
    return {name: first.safety.cost(changes) for name in first.terms}
