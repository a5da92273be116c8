"""A log of commands and joint states: read from a CSV, or played again from saved episodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.drivers.log_table import read_numbers
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError, closest
from rlzoo_plus.policies.episode import Episode
from robots.drives import EndEffectorDrive, JoinedDrive, commanding_drive
from robots.env import BaseRobotEnv

Floats = NDArray[np.float64]
_BASE = tuple(
    f"base/{what}/{axis}"
    for what, axes in (
        ("position", "xyz"),
        ("orientation", "xyzw"),
        ("velocity", "xyz"),
        ("angular_velocity", "xyz"),
    )
    for axis in axes
)
# How far a time step may be from the control step, as a part of it.
_JITTER = 0.1
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Stretch:
    """Rows of a log, one control step apart: what was measured, and what was commanded then."""

    states: Floats  # Positions, velocities; of a free base its 13 numbers, shape (n, n_numbers)
    commands: Floats  # Actions in [-1, 1], or targets in units, shape (n, n_commands)


@dataclass(frozen=True)
class Log:
    """What was measured of one robot."""

    stretches: list[Stretch]
    are_targets: bool = False  # Whether the commands are targets of joints
    notes: list[str] = field(default_factory=list)  # What was left out

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(len(one.states) for one in self.stretches)


def read_csv(path: Path, env: BaseRobotEnv) -> Log:
    """Read a log of a robot; its columns are found by their names.

    Raises:
        ConfigError: It is no such file, lacks a column, or holds something else than numbers.
    """
    names, rows = read_numbers(path)
    where = printable(path)
    joints = [joint.name for joint in env.robot.joints]
    for name in names:
        kind, _, joint = name.partition("/")
        if kind in ("position", "velocity", "target") and joint not in joints:
            near = closest(joint, joints)
            hint = f" Did you mean {near!r}?" if near else ""
            raise ConfigError(
                f"{where}: column {printable(name)!r} is of no joint of {id_of(env)}.{hint} It "
                f"has: {', '.join(joints)}."
            )
    wanted = [f"{what}/{joint}" for what in ("position", "velocity") for joint in joints]
    if env.robot.free_base:
        wanted += _BASE
    commands, are_targets = _commands_of(env, names, where)
    _require(names, [*wanted, *commands], where)
    columns = [names.index(name) for name in wanted]
    given = rows[:, [names.index(name) for name in commands]]
    if not are_targets:
        if not _acts_alone(env):
            raise ConfigError(
                f"{where}: what an action of {id_of(env)} does depends on the actions before, and "
                "segments do not know them. Log the targets of the joints, as target/JOINT."
            )
        given = _as_commands(env, given, where)
    used = {*wanted, *commands, "time", "episode"}
    unused = [name for name in names if name not in used]
    notes = [f"columns that were not used: {printable(', '.join(unused), 200)}"] if unused else []
    ends = _ends(names, rows, env.simulation.step_s, where)
    parts = zip(np.split(rows[:, columns], ends), np.split(given, ends), strict=True)
    return Log([Stretch(*part) for part in parts], are_targets, notes)


def log_of_episodes(
    spec: EnvConfig, episodes: Sequence[Episode], env: BaseRobotEnv
) -> tuple[list[Stretch], bool]:
    """Return what joints did in saved episodes, which are played again in their own environment.

    Args:
        spec: The environment that played them.
        episodes: Their seeds and actions.
        env: The robot that is looked for in them; it must have the same joints.

    Returns:
        What was measured in each, and whether the commands are targets of joints.

    Raises:
        ConfigError: The environment has other joints, or plays them otherwise than it did.
    """
    with closing(make_env(spec)) as played:
        base: Any = played.unwrapped
        names = [joint.name for joint in env.robot.joints]
        if not isinstance(base, BaseRobotEnv) or names != [j.name for j in base.robot.joints]:
            raise ConfigError(
                f"the episodes are of {spec.id}, which has other joints than {id_of(env)}. Give "
                "the env=... that they were played in."
            )
        if abs(base.simulation.step_s - env.simulation.step_s) > _ROUNDING:
            raise ConfigError(
                f"the episodes have control steps of {base.simulation.step_s:.4g} s, and env=... "
                f"has {env.simulation.step_s:.4g} s. Give the env=... that they were played in."
            )
        of_joints = not _acts_alone(base)
        return [_played(played, base, episode, of_joints) for episode in episodes], of_joints


def _acts_alone(env: BaseRobotEnv) -> bool:
    """Return whether an action means the same whatever came before it."""
    drive = env.robot.drive
    try:
        drive.targets(np.zeros(drive.n_actions), env.state._replace(memory={}))
    except KeyError:
        return False
    return True


def _played(env: Any, base: BaseRobotEnv, episode: Episode, of_joints: bool) -> Stretch:
    env.reset(seed=episode.seed)
    states, commands = [], []
    if episode.actions.shape[1:] != (base.action_space.shape or ()):
        raise ConfigError(
            f"the episodes' actions of shape {episode.actions.shape[1:]} are none of "
            f"{id_of(base)}. Name the run that played them with --run."
        )
    for action, reward in zip(episode.actions, episode.rewards.tolist(), strict=True):
        states.append(state_of(base))
        given = np.atleast_1d(action)
        commands.append(base.robot.drive.targets(given, base.state) if of_joints else given)
        _, got, *_ = env.step(action)
        if not np.isclose(float(got), reward, rtol=1e-4, atol=1e-4):
            raise ConfigError(
                f"the episode of seed {episode.seed} is played otherwise here, from step "
                f"{len(states)} on, so what its joints did is not known. Use the versions and "
                "the run that saved it (`rlzoo-plus replay` compares)."
            )
    whole = np.array(commands, np.float64)
    return Stretch(
        np.array(states), whole if of_joints else _as_commands(base, whole, "the episodes")
    )


def id_of(env: BaseRobotEnv) -> str:
    """Return the name by which an environment is known."""
    return type(env).__name__ if env.spec is None else env.spec.id


def state_of(env: BaseRobotEnv) -> Floats:
    """Return positions and velocities of a robot's joints, and of its base if that is free."""
    state = env.state
    parts = [np.asarray(state.joint_position), np.asarray(state.joint_velocity)]
    if env.robot.free_base:
        body, simulation = env.robot.body, env.simulation
        pose, motion = simulation.pose_reader(body)(), simulation.velocity_reader(body)()
        parts += [np.array(part) for part in (*pose, *motion)]
    return np.concatenate(parts)


def _commands_of(env: BaseRobotEnv, names: list[str], where: str) -> tuple[list[str], bool]:
    """Return the columns of the commands, and whether they are targets of joints."""
    drive = env.robot.drive
    count = 1 if env.discrete_actions is not None else drive.n_actions
    actions = [f"action/{number}" for number in range(count)]
    kinds = {name.partition("/")[0] for name in names} & {"action", "target"}
    if kinds == {"action", "target"}:
        raise ConfigError(f"{where} has columns action/... and target/...; leave one kind.")
    if kinds != {"target"}:
        return actions, False
    if isinstance(commanding_drive(drive), EndEffectorDrive | JoinedDrive):
        raise ConfigError(
            f"{where}: the actions of {id_of(env)} are no targets of joints. Log the actions: "
            f"{', '.join(actions)}."
        )
    return [f"target/{joint.name}" for joint in drive.motors.joints], True


def _require(names: list[str], wanted: list[str], where: str) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        near = closest(missing[0], names)
        hint = f" Did you mean that by {printable(near)!r}?" if near else ""
        more = f", and {len(missing) - 1} more" if missing[1:] else ""
        raise ConfigError(
            f"{where} lacks the column {missing[0]!r}{more}, which the state of this robot "
            f"needs.{hint}"
        )


def _as_commands(env: BaseRobotEnv, given: Floats, where: str) -> Floats:
    """Return actions in [-1, 1]; of discrete ones what their numbers stand for."""
    if env.discrete_actions is not None:
        numbers = given[:, 0].astype(int)
        if (numbers != given[:, 0]).any() or not 0 <= numbers.min() <= numbers.max() < len(
            env.discrete_actions
        ):
            raise ConfigError(
                f"{where}: action/0 must be the number of one of {len(env.discrete_actions)} "
                "discrete actions."
            )
        return np.array(env.discrete_actions[numbers], np.float64)
    if np.abs(given).max() > 1 + _ROUNDING:
        row, column = np.argwhere(np.abs(given) > 1 + _ROUNDING)[0]
        raise ConfigError(
            f"{where}: action/{column} is {given[row, column]:.4g} in row {row + 1}, and actions "
            "are in [-1, 1]. Log what the environment takes, or targets in units as target/JOINT."
        )
    return np.clip(given, -1.0, 1.0)


def _ends(names: list[str], rows: Floats, step_s: float, where: str) -> list[int]:
    """Return the rows before which there is a gap, or another episode begins."""
    is_gap = np.zeros(len(rows) - 1, bool)
    if "episode" in names:
        is_gap |= np.diff(rows[:, names.index("episode")]) != 0
    if "time" in names:
        steps = np.diff(rows[:, names.index("time")])
        off = np.abs(steps - step_s) > _JITTER * step_s
        if len(steps) and off.mean() > 0.5:
            raise ConfigError(
                f"{where}: its rows are {np.median(steps):.4g} s apart, and a control step is "
                f"{step_s:.4g} s. Log one row for each command."
            )
        is_gap |= off
    return (np.flatnonzero(is_gap) + 1).tolist()
