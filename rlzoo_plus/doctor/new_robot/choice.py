"""Chooses the task of a new robot, or refuses one that means nothing for it."""

from __future__ import annotations

from rlzoo_plus.doctor.new_robot.falling import Pole, find_fall
from rlzoo_plus.doctor.new_robot.model_file import ModelFile
from rlzoo_plus.doctor.new_robot.reaching import Circle, Reach, find_circle, find_reach, is_arm
from rlzoo_plus.doctor.new_robot.survey import RobotSurvey
from rlzoo_plus.errors import ConfigError

Target = Reach | Circle | Pole | None


def choose_task(
    wanted: str, file: ModelFile, robot: RobotSurvey, *, is_free: bool
) -> tuple[str, Target]:
    """Return the task and what it is about.

    Args:
        wanted: A key of `TASKS`, or `auto`: walking on a free base; on a fixed one balancing a
            pole, reaching with an arm, and otherwise postures.
        file: The file of the robot.
        robot: What was measured of it.
        is_free: Whether its base moves.

    Raises:
        ConfigError: The task means nothing for this robot.
    """
    if wanted == "auto":
        return _automatic(file, robot, is_free=is_free)
    if is_free != (wanted == "walk") and wanted != "balance":
        kind, other = ("free", "walk or balance") if is_free else ("fixed", "reach or posture")
        says = f", or say with --base {'fixed' if is_free else 'free'} that it is not"
        raise ConfigError(
            f"--task {wanted}: the base of this robot is {kind}. Use --task {other}"
            f"{says if file.is_free is None else ''}."
        )
    if wanted == "balance":
        return wanted, find_fall(file, robot, is_free=is_free)
    robot = robot.without(file.undriven)
    if wanted == "reach":
        return wanted, find_reach(file, robot)
    return wanted, find_circle(file, robot) if wanted == "track" else None


def _automatic(file: ModelFile, robot: RobotSurvey, *, is_free: bool) -> tuple[str, Target]:
    if is_free:
        return "walk", None
    for task, means_something in (
        ("balance", True),
        ("reach", is_arm(file, robot.without(file.undriven))),
    ):
        try:
            if means_something:
                return choose_task(task, file, robot, is_free=False)
        except ConfigError:
            continue
    return "posture", None
