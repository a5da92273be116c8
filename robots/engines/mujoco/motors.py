"""Joint motors as constraints: they reach a velocity in a physics step, if their force suffices.

That is what Bullet's motors do. MuJoCo's actuators are springs and dampers, which sag under a load
and oscillate where they are stiff. Its friction of a joint is a constraint of limited force that
brings the velocity to 0, and is solved together with contacts; with another velocity in its place
it is a motor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.simulation import POSITION_GAIN, VELOCITY_GAIN

Floats = NDArray[np.float64]
# A motor without strength; at 0 its constraint would be left out.
LEAST_FORCE = 1e-9


@dataclass
class MotorSet:
    """Motors that are commanded together; a row for each.

    In a physics step of t seconds, a motor drives to the velocity ``gain * (position - present
    one) / t + kept * (present velocity) + speed``, no faster than ``fastest``.
    """

    joints: list[str]
    gain: Floats
    kept: Floats
    fastest: Floats
    is_position: bool
    targets: Floats = field(init=False)
    forces: list[float] = field(init=False)

    def __post_init__(self) -> None:
        """Start without strength."""
        self.targets = np.zeros(len(self.joints))
        self.forces = [0.0] * len(self.joints)


def velocity_set(joints: list[str]) -> MotorSet:
    """Return motors that hold velocities."""
    nothing = np.zeros(len(joints))
    return MotorSet(joints, nothing, nothing, np.full(len(joints), np.inf), is_position=False)


def position_set(
    joints: list[str],
    gains: Sequence[float] | None,
    damping: Sequence[float] | None,
    fastest: Sequence[float] | None,
) -> MotorSet:
    """Return motors that drive to positions; the arguments are those of ``position_motors``."""
    count = len(joints)
    return MotorSet(
        joints,
        np.array(gains or [POSITION_GAIN] * count, np.float64),
        1.0 - np.array(damping or [VELOCITY_GAIN] * count, np.float64),
        np.array(fastest or [np.inf] * count, np.float64),
        is_position=True,
    )


class Motors:
    """All motors of a model, in the order of its degrees of freedom.

    Attributes:
        sets: What they were made of.
        count: Their number.
        first_row: The constraint of the first one; the others follow.
        efforts: What they applied in the last physics step [N m or N], shape (count,).
    """

    def __init__(self, sets: list[MotorSet], model: mujoco.MjModel) -> None:
        """Find the motors in a model, and keep what they were last commanded."""
        self.sets = sets
        ids = [model.joint(name).id for one in sets for name in one.joints]
        if len(set(ids)) != len(ids):
            raise ValueError("a joint has two motors. Drive or hold each once.")
        order = np.argsort(ids, kind="stable")
        self.count = len(ids)
        self._places = np.empty(self.count, np.int64)
        self._places[order] = np.arange(self.count)
        joints = np.array(ids, np.int64)[order]
        self.dofs = model.jnt_dofadr[joints].astype(np.int32)
        self.positions = model.jnt_qposadr[joints].astype(np.int32)
        step_s = model.opt.timestep

        def rows(name: str) -> Floats:
            parts = [getattr(one, name) for one in sets]
            return np.concatenate([*parts, np.zeros(0)])[order]

        self.gain, self.kept, self.fastest = rows("gain") / step_s, rows("kept"), rows("fastest")
        self.slowest = -self.fastest
        self.goal, self.speed = np.zeros(self.count), np.zeros(self.count)
        self.efforts = np.zeros(self.count)
        self._spans: list[NDArray[np.int64]] = []
        start = 0
        for one in sets:
            self._spans.append(self._places[start : start + len(one.joints)])
            start += len(one.joints)
        # A joint equality is one constraint, and comes before these.
        self.first_row = int(model.neq)
        self.rows = slice(self.first_row, self.first_row + self.count)
        self.per_s = 1.0 / step_s
        for number in range(len(sets)):
            self.set_targets(number)
            self.set_forces(model, number)
        self.columns = {int(dof): column for column, dof in enumerate(self.dofs)}

    def set_targets(self, number: int) -> None:
        """Take over the targets of a set."""
        one = self.sets[number]
        (self.goal if one.is_position else self.speed)[self._spans[number]] = one.targets

    def set_forces(self, model: mujoco.MjModel, number: int) -> None:
        """Take over the forces of a set; the constraints must be made anew."""
        dofs = self.dofs[self._spans[number]]
        model.dof_frictionloss[dofs] = np.maximum(self.sets[number].forces, LEAST_FORCE)

    def command(self, data: mujoco.MjData) -> None:
        """Let the next physics step drive to the targets."""
        present = data.qvel[self.dofs]
        wanted = self.gain * (self.goal - data.qpos[self.positions])
        wanted += self.kept * present
        wanted += self.speed
        np.minimum(np.maximum(wanted, self.slowest, out=wanted), self.fastest, out=wanted)
        wanted -= present
        wanted *= self.per_s
        data.efc_aref[self.rows] = wanted

    def read(self, data: mujoco.MjData) -> None:
        """Keep what they have applied; to be called while the step's constraints are there."""
        self.efforts[:] = data.efc_force[self.rows]
