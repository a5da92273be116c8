"""What is below a joint, and where a chain of joints brings its end; read once from an engine."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import dist, hypot

import numpy as np

from robots.elementary import cos, sin
from robots.frames import Floats
from robots.simulation import LinkPlace, Simulation


@dataclass(frozen=True)
class Load:
    """What a motor moves, in any posture; other joints at rest."""

    most: float
    """Greatest inertia that it can have to turn or push [kg m^2 or kg]."""
    least: float
    """That of the link at the joint alone."""
    weight: float
    """Greatest torque or force of gravity at it [N m or N]."""
    push: float
    """Greatest one of the weight of links that no motor holds [N m or N]."""


def loads(
    simulation: Simulation, body: int, joints: Sequence[int], passive: Collection[int] = ()
) -> list[Load]:
    """Return bounds of what hangs on some joints of a body.

    They hold for every posture: what is below a joint is as far from it as a stretched chain is.

    Args:
        simulation: The world; the robot is at rest in it.
        body: The robot.
        joints: Indices of n joints.
        passive: Indices of the joints that no motor holds.
    """
    tree = _Tree(simulation, body)
    return [tree.load(joint, passive) for joint in joints]


class _Tree:
    """The links of a body, with what they weigh."""

    def __init__(self, simulation: Simulation, body: int) -> None:
        self._places = dict(enumerate(simulation.link_places(body), start=-1))
        self._dynamics = simulation.link_dynamics(body)
        self._gravity = simulation.gravity_m_s2
        self._travel = {
            joint.index: max(abs(joint.lower), abs(joint.upper))
            for joint in simulation.movable_joints(body)
            if joint.slides and joint.lower < joint.upper
        }

    def load(self, joint: int, passive: Collection[int]) -> Load:
        """Return what hangs on one joint."""
        place = self._places[joint]
        slides = place.kind == "prismatic"
        most = least = weight = push = 0.0
        for link, before, is_own, swings in self._below(joint, passive):
            known = self._dynamics.get(link)
            if known is None or not known.mass_kg:
                continue
            arm = before + dist(self._origin(link), self._places[link].centre)
            force = known.mass_kg * self._gravity
            most += known.mass_kg * (1.0 if slides else arm * arm)
            most += 0.0 if slides else max(known.inertia)
            least += self._own(place, link, slides) if is_own else 0.0
            weight += force * (1.0 if slides else arm)
            push += force * (1.0 if slides else arm) if swings else 0.0
        return Load(most, max(least, 1e-4), weight * self._tilt(joint, slides), push)

    def _below(self, joint: int, passive: Collection[int]) -> list[tuple[int, float, bool, bool]]:
        """Return the links that a joint moves, the way to their joints [m], and two flags.

        The flags say whether nothing moves between, and whether something passive does.
        """
        found, open_ends = [], [(joint, 0.0, True, False)]
        while open_ends:
            link, way, is_own, swings = open_ends.pop()
            found.append((link, way, is_own, swings))
            for child, place in self._places.items():
                if place.parent == link and child != joint:
                    step = dist(self._origin(link), place.origin) + self._travel.get(child, 0.0)
                    fixed = place.kind == "fixed"
                    open_ends.append(
                        (child, way + step, is_own and fixed, swings or child in passive)
                    )
        return found

    def _origin(self, link: int) -> Sequence[float]:
        return self._places[link].origin

    def _own(self, place: LinkPlace, link: int, slides: bool) -> float:
        """Return the inertia of a link about an axis, without what its shape adds but its least."""
        mass = self._dynamics[link].mass_kg
        if slides:
            return mass
        arm = np.subtract(self._places[link].centre, place.origin)
        about = np.cross(arm, place.axis)
        return float(mass * (about @ about)) + min(self._dynamics[link].inertia)

    def _tilt(self, joint: int, slides: bool) -> float:
        """Return the share of the weight that a joint can feel: 1 if joints above it can turn."""
        place, link = self._places[joint], self._places[joint].parent
        while link in self._places:
            if self._places[link].kind not in ("fixed", "prismatic") and link >= 0:
                return 1.0
            link = self._places[link].parent
        x, y, z = place.axis
        share = abs(z) if slides else hypot(x, y)
        return float(share if share > 1e-6 else 0.0)


@dataclass(frozen=True)
class Chain:
    """The way from a base that does not move to a link, as a product of turns and slides."""

    origins: Floats
    """Points on the axes [m], world frame, where the positions are those of ``rest``, (n, 3)."""
    axes: Floats
    """Their directions, (n, 3)."""
    slides: tuple[bool, ...]
    """Which of them are prismatic."""
    end: Floats
    """Where the link is then [m], (3,)."""
    rest: Floats
    """Positions of the joints then [rad or m], (n,)."""
    columns: tuple[int, ...]
    """Which of the joints that are given they are."""

    def __post_init__(self) -> None:
        """Prepare what does not depend on the posture."""
        x, y, z = self.axes.T
        zero = np.zeros(len(x))
        turn = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(-1, 3, 3)
        turn[list(self.slides)] = 0.0
        points = np.stack([self.origins, self.axes], axis=1).reshape(-1, 3)
        fields = {
            "_once": turn,
            "_twice": np.stack([one @ one for one in turn]),
            # Points and directions in turn, the end last; only points have a place.
            "_rest": np.concatenate([points, self.end[None]]).T.copy(),
            "_is_point": np.arange(len(points) + 1) % 2 == 0,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def end_of(self, position: Floats) -> Floats:
        """Return the first of what ``reach`` does."""
        return self.reach(position)[0]

    def reach(self, position: Floats) -> tuple[Floats, Floats]:
        """Return where the link is, and how each joint moves it.

        Args:
            position: Of the joints [rad or m], shape (..., n_joints).

        Returns:
            World position [m], shape (..., 3), and its derivatives, shape (..., n_joints, 3).
        """
        moved = position[..., list(self.columns)] - self.rest
        once, twice = self._once, self._twice  # type: ignore[attr-defined]
        turned = sin(moved)[..., None, None] * once
        turned = turned + (1.0 - cos(moved))[..., None, None] * twice + np.eye(3)
        rest, is_point = self._rest, self._is_point  # type: ignore[attr-defined]
        placed = np.zeros((*moved.shape[:-1], *rest.shape)) + rest
        for joint in reversed(range(len(self.slides))):
            first = 2 * joint + 2
            points, part = is_point[first:], placed[..., first:]
            if self.slides[joint]:
                step = moved[..., joint, None, None] * self.axes[joint][:, None]
                placed[..., first:] = part + step * points
                continue
            centre = self.origins[joint][:, None] * points
            arms, by = part - centre, turned[..., joint, :, :]
            # Added one after the other, since a matrix product adds in another order.
            total = by[..., 0:1] * arms[..., 0:1, :] + by[..., 1:2] * arms[..., 1:2, :]
            placed[..., first:] = total + by[..., 2:3] * arms[..., 2:3, :] + centre
        end = placed[..., -1]
        origins, axes = placed[..., 0:-1:2], placed[..., 1:-1:2]
        a, b = axes, end[..., None] - origins
        ways = np.stack(
            [
                a[..., 1, :] * b[..., 2, :] - a[..., 2, :] * b[..., 1, :],
                a[..., 2, :] * b[..., 0, :] - a[..., 0, :] * b[..., 2, :],
                a[..., 0, :] * b[..., 1, :] - a[..., 1, :] * b[..., 0, :],
            ],
            axis=-1,
        )
        ways = np.where(np.array(self.slides)[:, None], np.swapaxes(axes, -1, -2), ways)
        derivatives = np.zeros((*position.shape, 3))
        derivatives[..., list(self.columns), :] = ways
        return end, derivatives


def chain_to(
    simulation: Simulation, body: int, link: int, joints: Sequence[int], position: Floats
) -> Chain:
    """Return the way to a link of a body whose base does not move.

    Args:
        simulation: The world.
        body: The robot.
        link: Index of the link.
        joints: Indices of the joints that move it.
        position: Where they are now [rad or m], shape (n_joints,).

    Raises:
        ValueError: If another joint moves it too, or none does.
    """
    places = dict(enumerate(simulation.link_places(body), start=-1))
    path = []
    above = link
    while above >= 0:
        if places[above].kind != "fixed":
            path.append(above)
        above = places[above].parent
    path.reverse()
    strange = [places[one].joint for one in path if one not in joints]
    if strange or not path:
        what = f"{', '.join(strange)} moves" if strange else "no joint moves"
        raise ValueError(
            f"safety.workspace: {what} {places[link].name} and no action drives it. Leave workspace"
            " out, or set safety.end_effector to a link that driven joints alone move."
        )
    columns = tuple(joints.index(one) for one in path)
    (end, *_) = simulation.link_reader(body, [link])()
    return Chain(
        origins=np.array([places[one].origin for one in path], np.float64),
        axes=np.array([places[one].axis for one in path], np.float64),
        slides=tuple(places[one].kind == "prismatic" for one in path),
        end=np.array(end, np.float64),
        rest=position[list(columns)],
        columns=columns,
    )
