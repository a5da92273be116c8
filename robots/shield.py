"""A shield: changes commands as little as it must for limits to hold after the next step.

It needs no physics engine: what it knows of a robot are the numbers of ``JointModel`` and of a
``Chain``. Simulation, control loop and serving use it alike; ``shield_numbers`` writes it down.
"""

from dataclasses import dataclass

import numpy as np

from robots.chain import Chain
from robots.elementary import clip
from robots.frames import Floats

Changes = dict[str, Floats]
"""Sum of the changes of all entries of a command for each limit, in its unit, shape (...)."""

ALWAYS = "always"
MOTORS = "while the motors have the force"
PUSHED = "while nothing pushes harder than the weight of what hangs on it"
TRIES = "no promise: it is kept as well as the masses are known"

ROOM = 0.03
"""Share of a greatest velocity that is kept free, and as much again in rad/s or m/s, but at most
half of it: motors reach a velocity only nearly, the less the more they carry."""
ROOM_AT_END = 5e-3
"""What is kept free at the ends of a joint's range [rad or m]."""
STOPPING_STEPS = 2.0
"""Control steps that a joint needs at least to stop from its greatest velocity."""
LEAST_SHARE = 0.1
"""Share of its strength that a motor is taken to brake with if its load may need more."""
ROOM_OF_BOX_M = 1e-2
"""The same at the walls of a workspace."""
BACK_SHARE = 0.75
"""Share of the way back from outside of what is kept free, against what an arm sags."""
SWEEPS = 8
"""How often, at most, velocities are projected on the walls of the workspace."""
WAY_SHARE = 0.25
"""Share of the way to a wall of the workspace that one step may take."""


@dataclass(frozen=True)
class JointModel:
    """What a shield knows of n driven joints; arrays of shape (n,)."""

    lower: Floats
    """Least position [rad or m], -inf for none."""
    upper: Floats
    """Greatest position."""
    force: Floats
    """Nominal strength of the motors [N m or N]."""
    inertia: Floats
    """Greatest that a motor can have to move [kg m^2 or kg]."""
    least_inertia: Floats
    """Least."""
    weight: Floats
    """Greatest torque or force of gravity [N m or N]."""
    push: Floats
    """Greatest one of links that no motor holds."""
    rate: Floats | None
    """Velocity that a motor drives to for a position error of 1 [1/s], 1 for targets that are
    velocities; None: commands are torques."""
    follows: Floats
    """1 where a target is a position, 0 where it is a velocity."""
    kept: Floats
    """Share of its velocity that a motor keeps in a physics step, as ``velocity_gain`` says."""
    fastest: Floats
    """Highest velocity that the motors drive to by themselves, inf for any."""
    damping: Floats | None = None
    """Gain of the velocity error of a PD controller [N m s/rad or N s/m]."""


class Shield:
    """Limits that commands are projected on; its functions take one world or many.

    Where limits disagree, the later one of this order wins: action_rate, workspace, velocity,
    joint_position, torque. The rate of the action holds of the action, the others of the motors'
    targets, so that braking is not delayed by it.

    Attributes:
        kinds: Names of its limits.
        promises: On what condition each of them holds.
    """

    def __init__(
        self,
        joints: JointModel,
        step_s: float,
        *,
        braking: bool = False,
        max_velocity: Floats | None = None,
        max_torque: Floats | None = None,
        max_action_rate: float | None = None,
        workspace: tuple[Chain, Floats] | None = None,
    ) -> None:
        """Set the limits.

        Args:
            joints: What is known of the joints.
            step_s: Time from one command to the next [s].
            braking: Keep joints within their limits.
            max_velocity: [rad/s or m/s], shape (n,).
            max_torque: [N m or N], shape (n,). Only commands that are torques are limited; other
                motors must be told themselves.
            max_action_rate: Greatest change of an entry of the action in a step.
            workspace: Where the end effector is, and the lowest and highest corner of its box [m],
                shape (2, 3).
        """
        self.joints, self.step_s = joints, step_s
        self.max_action_rate, self.max_torque = max_action_rate, max_torque
        self._lower, self._upper = joints.lower + ROOM_AT_END, joints.upper - ROOM_AT_END
        self.braking, self.max_velocity, self.workspace = braking, max_velocity, workspace
        self._velocity = max_velocity
        if max_velocity is not None:
            self._velocity = max_velocity - np.minimum(ROOM * max_velocity + ROOM, max_velocity / 2)
        top = joints.fastest if max_velocity is None else max_velocity
        self._most_slowing = top / (STOPPING_STEPS * step_s)
        is_set = {
            "action_rate": max_action_rate is not None,
            "velocity": max_velocity is not None,
            "joint_position": braking,
            "workspace": workspace is not None,
            "torque": max_torque is not None,
        }
        self.kinds = tuple(name for name, flag in is_set.items() if flag)
        self.promises = {name: self._promise(name) for name in self.kinds}

    def _promise(self, kind: str) -> str:
        joints = self.joints
        if kind in ("action_rate", "torque"):
            return ALWAYS
        if joints.damping is not None:
            return TRIES
        if joints.rate is None:
            # Gravity and the motion of other joints are unknown torques here.
            return PUSHED if len(joints.force) == 1 and not joints.weight.any() else TRIES
        left = joints.force - joints.weight - joints.push
        can_brake = bool((left >= LEAST_SHARE * joints.force).all())
        return MOTORS if can_brake or kind == "velocity" else TRIES

    def limit_action(self, action: Floats, previous: Floats) -> tuple[Floats, Changes]:
        """Return the action whose change is within the limit.

        Args:
            action: In [-1, 1], shape (..., n_actions).
            previous: What the step before applied.
        """
        rate = self.max_action_rate
        if rate is None:
            return action, {}
        high, low = previous + rate, previous - rate
        # One bit less where the sum was rounded to beyond the limit.
        high = np.where(high - previous > rate, np.nextafter(high, -np.inf), high)
        low = np.where(previous - low > rate, np.nextafter(low, np.inf), low)
        limited = clip(action, low, high)
        return limited, {"action_rate": _total(limited - action)}

    def project_rows(
        self, targets: Floats, position: Floats, velocity: Floats, strength: float | Floats = 1.0
    ) -> tuple[Floats, Changes]:
        """Do what ``project`` does with rows whose first n targets are those of its joints."""
        n_joints = position.shape[-1]
        head, changes = self.project(targets[..., :n_joints], position, velocity, strength)
        return np.concatenate([head, targets[..., n_joints:]], axis=-1), changes

    def project(
        self, targets: Floats, position: Floats, velocity: Floats, strength: float | Floats = 1.0
    ) -> tuple[Floats, Changes]:
        """Return targets nearest to the given ones with which the limits hold.

        Args:
            targets: Torques, velocities or positions of the joints, shape (..., n).
            position: Where they are [rad or m], shape (..., n).
            velocity: [rad/s or m/s], shape (..., n).
            strength: Factor on what the motors can apply, shape () or (..., 1).
        """
        strength = np.maximum(strength, 1e-9)
        force = self.joints.force * strength
        if self.joints.rate is None:
            return self._torques(targets, position, velocity, strength, force)
        return self._velocities(targets, position, velocity, force)

    def _velocities(
        self, targets: Floats, position: Floats, velocity: Floats, force: Floats
    ) -> tuple[Floats, Changes]:
        """Return the targets of motors that drive to a velocity, or to one in proportion."""
        rate, base = self.joints.rate, self.joints.follows * position
        assert rate is not None
        fastest = self.joints.fastest
        wanted = clip((targets - base) * rate, -fastest, fastest)
        speed: Floats = wanted
        changes: Changes = {}
        bounds = []
        for kind, moving, most in self._bounds(position, velocity, force):
            up, down = self._pulled(moving, most, force)
            bounds.append((-down, up))
            before, speed = speed, clip(speed, -down, up)
            changes[kind] = _total((speed - before) / rate)
        if self.workspace is not None:
            before = speed
            speed = self._along_walls(speed, position, velocity, force, bounds)
            changes["workspace"] = _total((speed - before) / rate)
        return np.where(speed == wanted, targets, base + speed / rate), changes

    def _bounds(
        self, position: Floats, velocity: Floats, force: Floats
    ) -> list[tuple[str, Floats, Floats]]:
        """Return present velocities, and the greatest that each limit lets joints drive to.

        Both have two rows, of shape (2, ..., n): towards the upper end, and towards the lower.
        """
        found: list[tuple[str, Floats, Floats]] = []
        moving = np.stack([velocity, -velocity])
        if self._velocity is not None:
            found.append(("velocity", moving, self._velocity))
        if self.braking:
            ways = np.stack([self._upper - position, position - self._lower])
            found.append(("joint_position", moving, self._towards(ways, moving, force)))
        return found

    def _slowing(self, force: Floats) -> Floats:
        """Return the deceleration that motors have against their load, or a tenth of it without."""
        joints = self.joints
        left = np.maximum(force - joints.weight - joints.push, LEAST_SHARE * force)
        slowing: Floats = np.minimum(left / joints.inertia, self._most_slowing)
        return slowing

    def _towards(self, way: Floats, velocity: Floats, force: Floats) -> Floats:
        """Return the greatest velocity with which a joint can stop before the end of its way.

        It is reached at once and kept over the step if it is above the present velocity v. If not,
        the joint slows down with a on the way there: v^2 - w^2 = 2 a s, then keeps w.
        """
        step_s, slowing = self.step_s, self._slowing(force)
        lost, left = slowing * step_s, np.maximum(way, 0.0)
        faster = np.sqrt(lost * lost + 2.0 * slowing * left) - lost
        rest = velocity - lost
        inner = rest * rest - 2.0 * velocity * velocity + 4.0 * slowing * left
        slower = np.where(inner > 0.0, 0.5 * (rest + np.sqrt(np.maximum(inner, 0.0))), 0.0)
        found = np.where(velocity <= faster, faster, slower)
        return np.where(way < 0.0, np.maximum(way / step_s, -lost), found)

    def _pulled(self, moving: Floats, most: Floats, force: Floats) -> Floats:
        """Return bounds for the commands of motors that do not get to a velocity in one go."""
        joints, excess = self.joints, np.maximum(moving - most, 0.0)
        if joints.damping is None:
            more = joints.kept / (1.0 - joints.kept) * excess
        else:
            braking = np.minimum(excess * (joints.inertia / self.step_s), force)
            more = np.maximum(braking / joints.damping - excess, 0.0)
        bound: Floats = most - more
        return bound

    def _along_walls(
        self,
        speed: Floats,
        position: Floats,
        velocity: Floats,
        force: Floats,
        bounds: list[tuple[Floats, Floats]],
    ) -> Floats:
        """Return velocities within bounds that keep the end effector in its box."""
        assert self.workspace is not None
        chain, box = self.workspace
        end, ways = chain.reach(position)
        # How far each joint that leads to a wall still goes there when all stop from now on.
        stops = velocity * np.abs(velocity) / (2.0 * self._slowing(force))
        goes = ways * stops[..., None]
        coming, going = (np.add.reduce(np.maximum(x, 0.0), axis=-2) for x in (goes, -goes))
        share = WAY_SHARE / self.step_s
        to_high, to_low = box[1] - ROOM_OF_BOX_M - end, end - box[0] - ROOM_OF_BOX_M
        back = BACK_SHARE / self.step_s
        above = np.where(to_high > 0.0, np.maximum(to_high - coming, 0.0) * share, to_high * back)
        below = np.where(to_low > 0.0, np.maximum(to_low - going, 0.0) * share, to_low * back)
        squares = np.maximum(np.add.reduce(ways * ways, axis=-2), 1e-9)
        # Onto each limit in turn, again and again, leads to a point within all of them.
        for _ in range(SWEEPS):
            before = speed
            for axis in range(3):
                one, way = slice(axis, axis + 1), ways[..., axis]
                along = np.add.reduce(way * speed, axis=-1, keepdims=True)
                excess = along - clip(along, -below[..., one], above[..., one])
                speed = speed - excess / squares[..., one] * way
            for low, high in bounds:
                speed = clip(speed, low, high)
            if (speed == before).all():
                break
        # What still leads through a wall makes all slow down together.
        moving = np.add.reduce(ways * speed[..., None], axis=-2)
        slack = 0.2 * ROOM_OF_BOX_M * share
        beyond = (moving > above + slack) | (moving < -below - slack)
        shares = clip(moving, -below, above) / np.where(beyond, moving, 1.0)
        shares = np.where(beyond, clip(shares, 0.0, 1.0), 1.0)
        return speed * np.minimum.reduce(shares, axis=-1, keepdims=True)

    def _torques(
        self,
        targets: Floats,
        position: Floats,
        velocity: Floats,
        strength: Floats,
        force: Floats,
    ) -> tuple[Floats, Changes]:
        """Return torques or forces."""
        changes: Changes = {}
        torques = targets * strength
        for kind, moving, most in self._bounds(position, velocity, force):
            up, down = self._torque_to(most, moving, force)
            before, torques = torques, clip(torques, -down, up)
            changes[kind] = _total(torques - before)
        if self.max_torque is not None:
            before, torques = torques, clip(torques, -self.max_torque, self.max_torque)
            changes["torque"] = _total(torques - before)
        commands = np.where(torques == targets * strength, targets, torques / strength)
        if self.max_torque is not None:
            beyond = np.abs(commands * strength) > self.max_torque
            commands = np.where(beyond, np.nextafter(commands, 0.0), commands)
        return commands, changes

    def _torque_to(self, goal: Floats, velocity: Floats, force: Floats) -> Floats:
        """Return the greatest torque with which a joint is not faster than a goal after a step."""
        joints, lacking = self.joints, (goal - velocity) / self.step_s
        gain = np.maximum(lacking * joints.least_inertia, joints.weight) - joints.push
        brake = np.maximum(lacking * joints.inertia - joints.push, -force)
        return np.where(lacking >= 0.0, gain, brake)


def _total(change: Floats) -> Floats:
    total: Floats = np.add.reduce(np.abs(change), axis=-1)
    return total
