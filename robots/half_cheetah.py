"""Half-cheetah: a body with two legs runs in a plane, as in the PyBullet task of that name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces

from robots.camera import Camera, Colour
from robots.elementary import clip
from robots.env import BaseRobotEnv, EnvOptions
from robots.rendering import paint
from robots.robot import InitialState, RobotSpec
from robots.sensors import Floats, Memory, SensorSpec, State
from robots.task import Bools, Task, columns, observation_of
from robots.world import WorldSpec

STEP_S = 0.0165
TARGET_X_M = 1000.0
SUCCESS_M = 20.0
START_HEIGHT_M = float(np.float32(0.7))
"""Height of the torso at the start, which no joint changes; Bullet reads the file's 0.7 so."""

_JOINTS = "[bf](thigh|shin|foot)"
_TORQUES_N_M = (120.0, 90.0, 60.0, 140.0, 60.0, 30.0)
_LOWER_RAD = np.array([-0.52, -0.785, -0.4, -1.5, -1.2, -3.1], np.float32).astype(np.float64)
_UPPER_RAD = np.array([1.05, 0.785, 0.785, 0.8, 1.1, -0.3], np.float32).astype(np.float64)
_RANGE_RAD = _UPPER_RAD - _LOWER_RAD
_TORSO_COLOUR: Colour = (1.0, 0.58, 0.16, 1.0)
_COLOURS: dict[str, Colour] = {"f": (0.20, 0.47, 0.80, 1.0), "b": (0.30, 0.34, 0.42, 1.0)}
"""Of the links by the first letter of their names: front and back."""
_NEAR_LIMIT = np.float32(0.99)
_TORSO = 3
"""Index of the torso among the 16 links that are read."""
_ORDER = (0, 3, 1, 2, *range(4, 16))
"""Order in which the original adds the positions of the links."""


class RunForward(Task):
    """Run towards a point 1 km away, with the rewards of ``HalfCheetahBulletEnv-v0``.

    That task is of pybullet-envs-gymnasium 0.6.0 (zlib licence, https://github.com/araffin/
    pybullet_envs_gymnasium). Stepped side by side, both give the same numbers: sums are added in
    its order, and rounded to single precision where it does so.
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "alive": 1.0,
        "progress": 1.0,
        "electricity": 2.0,
        "joints_at_limit": 0.1,
    }
    observation_space = spaces.Box(-5.0, 5.0, (26,), np.float32)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw joint positions within 0.1 rad of zero, at rest."""
        nothing = np.zeros(6)
        memory = {"x": np.zeros(()), "contact": nothing, "contact_before": nothing}
        return InitialState(rng.uniform(-0.1, 0.1, 6), np.zeros(6), memory=memory)

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the place, and the contacts of this step and of the one before."""
        del action
        return {
            "x": _mean_x(state),
            "contact": state.contact,
            "contact_before": state.memory["contact"],
        }

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        torso = ("height", "sin target", "cos target")
        velocity = ("velocity ahead", "velocity left", "velocity up", "roll", "pitch")
        pairs = [f"{name}{of}" for name in joints for of in ("", " velocity")]
        legs = ("ffoot", "fshin", "fthigh", "bfoot", "bshin", "bthigh")
        return (*torso, *velocity, *pairs, *(f"{name} contact" for name in legs))

    def observation(self, state: State) -> Floats:
        """Return the posture, the joints and the contacts of the step before, within 5 of 0.

        Returns:
            Shape (..., 26): the torso's height above its start [m]; sine and cosine of the angle
            to the target; velocity forward, sideways and up [0.3 m/s]; roll and pitch [rad]; for
            each joint its position, -1 at the lower and 1 at the upper limit, and its velocity
            [10 rad/s]; 1 for each leg part that touched the ground: ffoot, fshin, fthigh, bfoot,
            bshin, bthigh.
        """
        _, _, height = columns(state.link_position[..., _TORSO, :])
        x, y, z, w = orientation = columns(state.link_orientation[..., _TORSO, :])
        pitch, known = _pitch(orientation)
        roll = known * np.arctan2(2.0 * (y * z + w * x), w * w - x * x - y * y + z * z)
        yaw = known * np.arctan2(2.0 * (x * y + w * z), w * w + x * x - y * y - z * z)
        vx, vy, vz = columns(state.link_velocity[..., _TORSO, :])
        # The robot cannot leave its plane, so that the target stays straight ahead.
        ahead = 0.0 - yaw
        cosine, sine = np.cos(-yaw), np.sin(-yaw)
        positions, velocities = _scaled_joints(state)
        joints = zip(columns(positions), columns(velocities), strict=True)
        observation = observation_of(
            height - START_HEIGHT_M,
            np.sin(ahead),
            np.cos(ahead),
            0.3 * (cosine * vx - sine * vy),
            0.3 * (sine * vx + cosine * vy),
            0.3 * vz,
            roll,
            pitch,
            *chain.from_iterable(joints),
            *columns(state.memory["contact_before"])[::-1],
        )
        return clip(observation, -5.0, 5.0)

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``alive``: 1, or -1 while the torso is pitched by 1 rad or more or a thigh or shin touched
        the ground in the step before; ``progress``: the speed towards the target [m/s];
        ``electricity``: minus the mean of |action| times joint speed [10 rad/s], and a twentieth of
        the mean squared action; ``joints_at_limit``: minus the number of joints within half a
        percent of a limit, or beyond.
        """
        pitch, _ = _pitch(columns(state.link_orientation[..., _TORSO, :]))
        back_thigh, back_shin, _, thigh, shin, _ = columns(state.memory["contact"])
        on_feet = (back_thigh + back_shin + thigh + shin) == 0.0
        positions, velocities = _scaled_joints(state)
        push = action.astype(np.float32)
        power = _mean_of_six(abs(push * velocities))
        holding = _mean_of_six(push * push)
        at_limit = np.add.reduce(abs(positions) > _NEAR_LIMIT, -1)
        return {
            "alive": 2.0 * (on_feet & (abs(pitch) < 1.0)) - 1.0,
            "progress": _potential(_mean_x(state)) - _potential(state.memory["x"]),
            "electricity": -power - 0.05 * holding,
            "joints_at_limit": -at_limit,
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return none: a cheetah that has fallen may get up again."""
        del state
        return {}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether it has run 20 m."""
        del survived
        far: Bools = np.asarray(state.memory["x"] >= SUCCESS_M)
        return far


class HalfCheetahEnv(BaseRobotEnv):
    """The half-cheetah of PyBullet's ``mjcf/half_cheetah.xml`` at 61 Hz."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.45), distance_m=4.0, yaw_deg=0.0, pitch_deg=-12.0, fov_deg=32.0
    )

    def __init__(
        self, *, reward: Mapping[str, float] | None = None, **options: Unpack[EnvOptions]
    ) -> None:
        """Build the environment.

        Args:
            reward: Weights of the terms ``alive``, ``progress``, ``electricity`` and
                ``joints_at_limit`` to change.
            options: See ``BaseRobotEnv``; ``episode_s`` is 16.5, 1000 steps, by default.
        """
        robot = RobotSpec(
            urdf="mjcf/half_cheetah.xml",
            joints=_JOINTS,
            action_scale=tuple(0.9 * torque for torque in _TORQUES_N_M),
            self_collision=True,
            ancestor_collision=False,
            keep_damping=True,
            sensors=SensorSpec(
                links="torso|[bf].*|link0_(?!1$).*", links_as_left=True, contacts=_JOINTS
            ),
        )
        world = WorldSpec(
            time_step_s=STEP_S / 4,
            gravity_m_s2=9.8,
            solver_iterations=5,
            contact_erp=0.9,
            single_precision_time=False,
            ground_friction=0.8,
            ground_restitution=0.5,
            ground_file="plane_stadium.sdf",
        )
        options.setdefault("episode_s", 16.5)
        super().__init__(robot, RunForward(reward), world, **options)

    def current_camera(self) -> Camera:
        """Return the camera, which follows the torso along its way."""
        camera = super().current_camera()
        x = float(self.state.link_position[_TORSO, 0])
        return replace(camera, target=(x + camera.target[0], *camera.target[1:]))

    def build_scenery(self) -> None:
        """Paint the torso, and the hind leg darker than the fore leg."""
        for name, link in self.simulation.links(self.robot.body).items():
            paint(self.simulation, self.robot.body, link, _COLOURS.get(name[0], _TORSO_COLOUR))


def _scaled_joints(state: State) -> tuple[Floats, Floats]:
    """Return positions within the limits as [-1, 1], and velocities [10 rad/s], as float32."""
    positions = 2 * (state.joint_position - _LOWER_RAD) / _RANGE_RAD - 1.0
    velocities = 0.1 * state.joint_velocity
    return positions.astype(np.float32), velocities.astype(np.float32)


def _mean_x(state: State) -> Any:
    """Return the mean place of the links and the ground along the way [m], shape (...)."""
    x = columns(state.link_position[..., 0])
    first, second = _ORDER[:8], _ORDER[8:]
    a, b, c, d, e, f, g, h = (x[i] + x[j] for i, j in zip(first, second, strict=True))
    return (((a + b) + (c + d)) + ((e + f) + (g + h))) / 17


def _potential(x: Any) -> Any:
    return -abs(TARGET_X_M - x) / STEP_S


def _mean_of_six(values: Floats) -> Any:
    # Fewer than eight numbers side by side are added from left to right, for one world or many.
    return np.float64(np.add.reduce(values, -1) / 6)


def _pitch(orientation: list[Any]) -> tuple[Any, Any]:
    """Return the pitch of a quaternion's components [rad] as Bullet defines it.

    Returns:
        The pitch, and 1 where roll and yaw are known; 0 where it is a right angle, and
        they are 0 for a body in a plane.
    """
    x, y, z, w = orientation
    sine = -2.0 * (x * z - w * y)
    known = 1.0 * (abs(sine) < 0.99999)
    side = 1.0 * (sine >= 0.99999) - 1.0 * (sine <= -0.99999)
    return np.arcsin(known * sine) + side * (0.5 * np.pi), known
