"""Guesses whether the base of a robot is fixed, from what its limbs and wheels look like."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.doctor.new_robot.model_file import ModelFile
from robots.simulation import JointInfo, LinkPlace, Simulation

_FIXED_ROOTS = ("world", "map")
# Share of the robot's height within which a limb or a wheel stands on the ground.
_NEAR_SHARE = 0.15
# Share of a limb's own height that lies below its first joint: legs hang, fingers rise.
_HANGING_SHARE = 0.3
_FEWEST_WHEELS = 2
_FEWEST_LEGS = 2
_MOST_FINGERS = 5
_FEWEST_ROTORS = 3
# A wider range [rad or m] is as good as none.
_WIDEST_RANGE = 1000.0
# Where shapes tell nothing: a hand that points down has as many limbs as a quadruped.
_HAND = re.compile(r"palm|finger|thumb|gripper", re.IGNORECASE)


@dataclass(frozen=True)
class _Part:
    """A link that a joint moves."""

    joint: str  # Name of the joint
    limb: int  # First link of the limb that it belongs to
    depth: int  # Number of movable joints from the base to it
    low: float  # Height of its lowest point [m]
    high: float  # Height of its highest point [m]
    origin: float  # Height of its joint [m]
    turns: bool  # Whether the joint turns without limits
    upright: float  # Vertical share of the joint's axis, 0 to 1


def guess_base(simulation: Simulation, body: int, file: ModelFile) -> tuple[bool, str]:
    """Return whether the base is probably free to move, and why."""
    if file.is_free is not None:
        return file.is_free, f"the MJCF gives it {'a' if file.is_free else 'no'} free joint"
    if file.floating:
        return True, f"the joint {printable(file.floating[0])} is floating"
    root = simulation.link_places(body)[0].name
    if root in _FIXED_ROOTS:
        return False, f"the first link is called {root}"
    base_low, base_high, parts = _parts(simulation, body, file)
    ground = min([base_low, *(part.low for part in parts)])
    near = ground + _NEAR_SHARE * (max([base_high, *(part.high for part in parts)]) - ground)
    limbs = [[part for part in parts if part.limb == limb] for limb in {p.limb for p in parts}]
    wheels = [p for p in parts if p.turns and p.low <= near and p.upright < 0.5 and _ends(p, limbs)]
    if len(wheels) >= _FEWEST_WHEELS:
        return True, f"{len(wheels)} wheels stand on the ground"
    legs = [limb for limb in limbs if _is_leg(limb, near)]
    if len(legs) >= _FEWEST_LEGS:
        names = [file.title, root, *(part.joint for part in parts)]
        if sum(map(bool, map(_HAND.search, names))) > len(names) / 2:
            return False, "most of its parts are named like those of a hand"
        return True, f"{len(legs)} limbs reach down to the ground"
    long = [limb for limb in limbs if max(part.depth for part in limb) > 1]
    if len(long) > _MOST_FINGERS:
        return True, f"{len(long)} limbs are more than a hand has fingers"
    rotors = [limb for limb in limbs if len(limb) == 1 and limb[0].turns and limb[0].upright > 0.5]
    if len(rotors) >= _FEWEST_ROTORS:
        return True, f"{len(rotors)} joints on it turn without limits about upright axes, as rotors"
    return False, "neither two wheels nor two limbs reach down to the ground"


def _is_leg(limb: Sequence[_Part], near: float) -> bool:
    low, high = min(part.low for part in limb), max(part.high for part in limb)
    hanging = limb[0].origin - low
    return (
        low <= near
        and max(part.depth for part in limb) > 1
        and hanging >= _HANGING_SHARE * (high - low)
    )


def _ends(part: _Part, limbs: Sequence[Sequence[_Part]]) -> bool:
    """Return whether no joint lies beyond a part."""
    (limb,) = (limb for limb in limbs if part in limb)
    return part.depth == max(other.depth for other in limb)


def _parts(simulation: Simulation, body: int, file: ModelFile) -> tuple[float, float, list[_Part]]:
    """Return the lowest and the highest point of the base, and all that moves against it."""
    first, *others = simulation.link_places(body)
    infos = {joint.name: joint for joint in simulation.movable_joints(body)}
    base = _heights(first)
    limbs: dict[int, tuple[int, int]] = {-1: (-1, 0)}
    parts = []
    for index, place in enumerate(others):
        limb, depth = limbs[place.parent]
        is_fixed = place.kind == "fixed"
        low, high = _heights(place)
        if limb == -1 and is_fixed:
            limbs[index] = (-1, 0)
            base = min(base[0], low), max(base[1], high)
            continue
        limbs[index] = (index if limb == -1 else limb, depth + (not is_fixed))
        info = infos.get(place.joint)
        parts.append(
            _Part(
                joint=place.joint,
                limb=limbs[index][0],
                depth=limbs[index][1],
                low=low,
                high=high,
                origin=place.origin[2],
                turns=info is not None and not info.slides and is_endless(info, file),
                upright=abs(place.axis[2]) / (math.hypot(*place.axis) or 1.0),
            )
        )
    return *base, parts


def is_endless(joint: JointInfo, file: ModelFile) -> bool:
    """Return whether a joint has no limits, or none that it could reach."""
    is_wide = joint.lower > joint.upper or joint.upper - joint.lower > _WIDEST_RANGE
    return joint.name in file.endless or is_wide


def _heights(place: LinkPlace) -> tuple[float, float]:
    """Return the lowest and the highest point of a link; without shapes, its center of mass."""
    low, high = place.box or (place.centre, place.centre)
    return low[2], high[2]
