"""Limits that a robot should keep: how they are stated, and which of them a step broke."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.chain import Chain
from robots.distributions import known_name, read_number
from robots.drives import ActionMode
from robots.elementary import clip
from robots.sensors import Floats, State
from robots.shielding import chain_of, driving, make_shield
from robots.world import World

Broken = dict[str, Any]
"""Number of joints, or of entries of the action, beyond each limit, shape (...)."""

TERM = "safety"
"""Name of the reward term of the penalty."""
REASON = "unsafe"
"""Reason for ending an episode."""

_LIMITS = ("joint_margin", "max_velocity", "max_torque", "max_action_rate", "workspace")
_KEYS = (*_LIMITS, "end_effector", "deceleration", "on_violation", "penalty")
_ANSWERS = ("count", "penalty", "terminate", "shield")


class Safety:
    """Limits on the driven joints and on the action; its functions take one world or many.

    Attributes:
        kinds: Names of the limits that are watched.
        on_violation: Effect of a broken limit: it is counted (``count``), costs a ``penalty`` in
            the reward too, or ends the episode (``terminate``). With ``shield``, commands are
            changed so that none is broken.
        shield: What changes them, or None.
        is_priced: Whether the reward has a term for them.
    """

    def __init__(
        self, config: Mapping[str, Any], world: World, mode: ActionMode, strongest: float = 1.0
    ) -> None:
        """Read the limits.

        Args:
            config: ``joint_margin`` is the least distance from the limits of a joint [rad or m],
                ``max_velocity`` [rad/s or m/s] and ``max_torque`` [N m or N] hold for all driven
                joints or give one value for each, ``max_action_rate`` is the greatest change of an
                entry of the action in a step, ``workspace`` has the lowest and the highest corner
                of a box for the link ``end_effector`` [m]. ``on_violation`` is count, penalty,
                terminate or shield, which takes ``deceleration`` [rad/s^2 or m/s^2].
            world: The robot in its surroundings.
            mode: How it is driven.
            strongest: Greatest factor on the strength of its motors.

        Raises:
            ValueError: If an entry is unknown or does not fit.
        """
        if not isinstance(config, Mapping):
            raise ValueError(f"safety={config!r} must be a mapping, as {{max_velocity: 10}}.")
        for name in config:
            known_name("safety", name, _KEYS)
        answer = config.get("on_violation", "count")
        self.on_violation = known_name("safety.on_violation", answer, _ANSWERS)
        drive = driving(world.robot.drive)
        is_shield = self.on_violation == "shield"
        for name, able in (("penalty", ("penalty", "shield")), ("deceleration", ("shield",))):
            if name in config and self.on_violation not in able:
                raise ValueError(
                    f"safety.{name}={config[name]!r} has no effect with on_violation="
                    f"{self.on_violation!r}. Set on_violation={able[0]!r}, or leave it out."
                )
        usual = 0.0 if is_shield else 1.0
        self._penalty = read_number("safety.penalty", config.get("penalty", usual), 0.0)
        self.is_priced = self.on_violation == "penalty" or (is_shield and self._penalty > 0.0)
        self._motors = drive.motors
        self._mode = ActionMode(mode)
        self._columns = np.array(drive.motors.read_columns)
        self._lower, self._upper = self._position_limits(config.get("joint_margin"))
        self._velocity, self._torque = (
            self._per_joint(name, config.get(name)) for name in ("max_velocity", "max_torque")
        )
        rate = config.get("max_action_rate")
        self._rate = None if rate is None else read_number("safety.max_action_rate", rate, 0.0)
        self._chain, self._box = self._workspace(config, world)
        limits = {
            "joint_position": self._lower,
            "velocity": self._velocity,
            "torque": self._torque,
            "action_rate": self._rate,
            "workspace": self._chain,
        }
        self.kinds = tuple(name for name, limit in limits.items() if limit is not None)
        if not self.kinds:
            raise ValueError(
                f"safety={dict(config)} states no limit. Set one of: {', '.join(_LIMITS)}."
            )
        self.shield = None
        if is_shield:
            self.shield = make_shield(
                world,
                mode,
                position=(self._lower, self._upper),
                velocity=self._velocity,
                torque=self._torque,
                action_rate=self._rate,
                workspace=None if self._chain is None else (self._chain, self._box),
                strongest=strongest,
                deceleration=self._per_joint("deceleration", config.get("deceleration")),
            )

    def broken(
        self, state: State, action: Floats, previous: Floats, targets: Floats, strength: Floats
    ) -> Broken:
        """Return how many joints, or entries of the action, are beyond each limit.

        Args:
            state: State after the step.
            action: What the policy chose, in [-1, 1], shape (..., n_actions).
            previous: The same of the step before; zeros at the start of an episode.
            targets: Commands of the motors, shape (..., n_targets).
            strength: Factor on the strength of the motors, shape (..., 1).

        Returns:
            Whole numbers of shape (...), by the names in ``kinds``.
        """
        beyond: dict[str, NDArray[np.bool_]] = {}
        if self._lower is not None:
            position = state.joint_position[..., self._columns]
            beyond["joint_position"] = (position < self._lower) | (position > self._upper)
        if self._velocity is not None:
            velocity = state.joint_velocity[..., self._columns]
            beyond["velocity"] = abs(velocity) > self._velocity
        if self._torque is not None:
            beyond["torque"] = abs(self._torques(state, targets, strength)) > self._torque
        if self._rate is not None:
            beyond["action_rate"] = abs(action - previous) > self._rate
        if self._chain is not None:
            end = self._chain.end_of(state.joint_position[..., self._columns])
            beyond["workspace"] = (end < self._box[0]) | (end > self._box[1])
        return {name: np.add.reduce(flags, axis=-1) for name, flags in beyond.items()}

    def cost(self, counts: Broken) -> Any:
        """Return the reward term, shape (...): minus the penalty for every limit with a count.

        With a shield the counts are not what is broken but what it changed.
        """
        return -self._penalty * sum((count > 0 for count in counts.values()), start=np.int64(0))

    def ends(self, broken: Broken) -> Any:
        """Return whether a broken limit ends the episode, shape (...)."""
        if self.on_violation != "terminate":
            return False
        return np.logical_or.reduce([count > 0 for count in broken.values()])

    def _torques(self, state: State, targets: Floats, strength: Floats) -> Floats:
        """Return torques or forces of the driven joints, shape (..., n_driven)."""
        if self._mode is ActionMode.TORQUE:
            return strength * targets
        if self._mode is not ActionMode.PD:
            return state.joint_effort[..., self._columns]
        # Bullet reports no torque of this mode: it is what the controller asks for now.
        motors = self._motors
        error = targets - state.joint_position[..., self._columns]
        velocity = state.joint_velocity[..., self._columns]
        wanted = np.array(motors.position_gain) * error - np.array(motors.velocity_gain) * velocity
        strongest = strength * np.array(motors.max_force)
        fastest = np.array(motors.fastest)
        low = np.where(velocity <= -fastest, 0.0, -strongest)
        return clip(wanted, low, np.where(velocity >= fastest, 0.0, strongest))

    def _position_limits(self, margin: Any) -> tuple[Any, Any]:
        if margin is None:
            return None, None
        inset = read_number("safety.joint_margin", margin, 0.0)
        motors = self._motors
        lower, upper = motors.lower + inset, motors.upper - inset
        if not np.isfinite(lower).any():
            raise ValueError(
                f"safety.joint_margin={margin}: no driven joint has limits. Leave it out."
            )
        if (lower >= upper).any():
            width = float(np.min(motors.upper - motors.lower))
            raise ValueError(
                f"safety.joint_margin={margin} leaves no room: the narrowest joint has "
                f"{width:.3g} between its limits. Set it below {width / 2:.3g}."
            )
        return lower, upper

    def _workspace(self, config: Mapping[str, Any], world: World) -> tuple[Chain | None, Any]:
        corners = config.get("workspace")
        if corners is None:
            if "end_effector" in config:
                raise ValueError(
                    f"safety.end_effector={config['end_effector']!r} has no effect without "
                    "workspace. Set safety.workspace too, or leave it out."
                )
            return None, None
        box = np.array([])
        with suppress(TypeError, ValueError):
            box = np.array(corners, np.float64)
        if box.shape != (2, 3) or not np.isfinite(box).all() or not (box[0] < box[1]).all():
            raise ValueError(
                f"safety.workspace={corners!r} must be two corners, the lowest and the highest "
                "[m]. Set for example [[0.2, -0.5, 0.05], [0.8, 0.5, 1.0]]."
            )
        return chain_of(world, config.get("end_effector")), box

    def _per_joint(self, name: str, value: Any) -> NDArray[np.float64] | None:
        if value is None:
            return None
        joints = self._motors.joints
        is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        values = list(value) if is_list else [value] * len(joints)
        if len(values) != len(joints):
            names = ", ".join(joint.name for joint in joints)
            raise ValueError(
                f"safety.{name}={value} has {len(values)} values for {len(joints)} driven joints. "
                f"Give one for all, or one for each of: {names}."
            )
        return np.array([read_number(f"safety.{name}", entry, 0.0) for entry in values])


def needs_efforts(config: object, mode: ActionMode) -> bool:
    """Return whether limits need the sensors of the motors' torques."""
    is_known_anyway = mode in (ActionMode.TORQUE, ActionMode.PD)
    return isinstance(config, Mapping) and "max_torque" in config and not is_known_anyway
