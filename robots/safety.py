"""Limits that a robot should keep: how they are stated, and which of them a step broke."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.distributions import known_name, read_number
from robots.drives import ActionMode, Drive
from robots.elementary import clip
from robots.sensors import Floats, State

Broken = dict[str, Any]
"""Number of joints, or of entries of the action, beyond each limit, shape (...)."""

TERM = "safety"
"""Name of the reward term of the penalty."""
REASON = "unsafe"
"""Reason for ending an episode."""

_LIMITS = ("joint_margin", "max_velocity", "max_torque", "max_action_rate")
_KEYS = (*_LIMITS, "on_violation", "penalty")
_ANSWERS = ("count", "penalty", "terminate")


class Safety:
    """Limits on the driven joints and on the action; its functions take one world or many.

    Attributes:
        kinds: Names of the limits that are watched.
        on_violation: Effect of a broken limit: it is counted (``count``), costs a ``penalty`` in
            the reward too, or ends the episode (``terminate``).
    """

    def __init__(self, config: Mapping[str, Any], drive: Drive, mode: ActionMode) -> None:
        """Read the limits.

        Args:
            config: ``joint_margin`` is the least distance from the limits of a joint [rad or m],
                ``max_velocity`` [rad/s or m/s] and ``max_torque`` [N m or N] hold for all driven
                joints or give one value for each, ``max_action_rate`` is the greatest change of an
                entry of the action in a step. ``on_violation`` is count, penalty or terminate.
            drive: What moves the joints.
            mode: How it does.

        Raises:
            ValueError: If an entry is unknown or does not fit.
        """
        if not isinstance(config, Mapping):
            raise ValueError(f"safety={config!r} must be a mapping, as {{max_velocity: 10}}.")
        for name in config:
            known_name("safety", name, _KEYS)
        answer = config.get("on_violation", "count")
        self.on_violation = known_name("safety.on_violation", answer, _ANSWERS)
        if "penalty" in config and self.on_violation != "penalty":
            raise ValueError(
                f"safety.penalty={config['penalty']!r} has no effect with on_violation="
                f"{self.on_violation!r}. Set on_violation='penalty', or leave it out."
            )
        self._penalty = read_number("safety.penalty", config.get("penalty", 1.0), 0.0)
        self._motors = drive.motors
        self._mode = ActionMode(mode)
        self._columns = np.array(drive.motors.read_columns)
        self._lower, self._upper = self._position_limits(config.get("joint_margin"))
        self._velocity, self._torque = (
            self._per_joint(name, config.get(name)) for name in ("max_velocity", "max_torque")
        )
        rate = config.get("max_action_rate")
        self._rate = None if rate is None else read_number("safety.max_action_rate", rate, 0.0)
        limits = {
            "joint_position": self._lower,
            "velocity": self._velocity,
            "torque": self._torque,
            "action_rate": self._rate,
        }
        self.kinds = tuple(name for name, limit in limits.items() if limit is not None)
        if not self.kinds:
            raise ValueError(
                f"safety={dict(config)} states no limit. Set one of: {', '.join(_LIMITS)}."
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
        return {name: np.add.reduce(flags, axis=-1) for name, flags in beyond.items()}

    def cost(self, broken: Broken) -> Any:
        """Return the reward term: minus the penalty for every limit that is broken, shape (...)."""
        return -self._penalty * sum((count > 0 for count in broken.values()), start=np.int64(0))

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
