"""Finds what of a robot can fall over: a pole on a hinge without a motor, or the robot itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlzoo_plus.doctor.new_robot.model_file import ModelFile
from rlzoo_plus.doctor.new_robot.survey import RobotSurvey
from rlzoo_plus.errors import ConfigError
from robots.camera import Quaternion
from robots.frames import rotate, rotate_back
from robots.simulation import Simulation

# A hinge's axis is level, and the center of mass of what hangs on it above, to within this sine.
_LEVEL, _ABOVE = 0.3, 0.5
_LET_GO_S = 3.0
_FALLEN_COSINE = 0.5
# Share of its height; a robot whose base has sunk that far lies on the ground.
SUNK_SHARE = 0.4


@dataclass(frozen=True)
class Pole:
    """Links that nothing but the motion of the others keeps upright."""

    link: str  # The last of them
    orientation: Quaternion  # Of its frame, in the rest position
    hinges: tuple[int, ...]  # Indices of the joints that swing


def find_fall(file: ModelFile, robot: RobotSurvey, *, is_free: bool) -> Pole | None:
    """Return the pole of a robot with a fixed base; None for one that can fall itself.

    Raises:
        ConfigError: Nothing of it can fall over.
    """
    with file.world() as simulation:
        if is_free:
            _check_that_it_falls(simulation, file, robot)
            return None
        pole = _pole(simulation, file, robot)
    if pole is None:
        raise ConfigError(
            "--task balance: nothing of this robot can fall over: its base is fixed, and no pole "
            "stands on a hinge without limits and effort. Use --task posture, or --base free."
        )
    return pole


def _pole(simulation: Simulation, file: ModelFile, robot: RobotSurvey) -> Pole | None:
    body = _load(simulation, file, robot, is_free=False)
    masses, (_, *places) = simulation.link_dynamics(body), simulation.link_places(body)
    # Of each link, those that hang on it and itself.
    below: list[list[int]] = [[link] for link in range(len(places))]
    for link in reversed(range(len(places))):
        if places[link].parent >= 0:
            below[places[link].parent] += below[link]
    hinges: list[int] = []
    for joint in reversed(robot.joints):
        links, place = below[joint.index], places[joint.index]
        beyond = {other.index for other in robot.joints} & set(links) - {joint.index}
        if not joint.endless or joint.slides or joint.max_force > 0 or beyond - set(hinges):
            continue
        weights = [masses[link].mass_kg for link in links]
        centre = np.average([places[link].centre for link in links], axis=0, weights=weights)
        lever = centre - np.array(place.origin)
        if abs(place.axis[2]) <= _LEVEL and lever[2] > _ABOVE * np.linalg.norm(lever):
            hinges.append(joint.index)
    if not hinges or len(hinges) == len(robot.joints):
        return None
    # What a joint of an MJCF moves is a link without weight, on which the body hangs.
    last = next((link for link in below[max(hinges)] if masses[link].mass_kg > 0), max(hinges))
    return Pole(places[last].name, places[last].orientation, tuple(sorted(hinges)))


def _check_that_it_falls(simulation: Simulation, file: ModelFile, robot: RobotSurvey) -> None:
    """Refuse a robot that stays up when all its motors are let go."""
    body = _load(simulation, file, robot, is_free=True)
    read = simulation.pose_reader(body)
    height, up = robot.height_m or 0.0, rotate_back(list(robot.orientation), [0.0, 0.0, 1.0])
    for _ in range(round(_LET_GO_S / simulation.step_s)):
        simulation.step()
        position, orientation = read()
        has_sunk = position[2] < height - SUNK_SHARE * robot.size_m[2]
        if has_sunk or rotate(list(orientation), up)[2] < _FALLEN_COSINE:
            return
    raise ConfigError(
        "--task balance: nothing of this robot can fall over: it stands with all motors let go. "
        "Use --task walk."
    )


def _load(simulation: Simulation, file: ModelFile, robot: RobotSurvey, *, is_free: bool) -> int:
    """Load a robot in its rest position, where its task begins."""
    body = file.load(simulation, is_free=is_free)
    indices = [joint.index for joint in robot.joints]
    rest = [joint.rest for joint in robot.joints]
    simulation.reset_joints(body, indices, rest, [0.0] * len(indices))
    if is_free:
        # A nudge, without which a pole would stand on its tip for ever.
        start = (0.0, 0.0, (robot.height_m or 0.0) + 0.01)
        simulation.reset_base(body, start, robot.orientation, (0.1, 0.0, 0.0), (0.1, 0.3, 0.0))
    return body
