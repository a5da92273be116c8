"""Cart-poles on a rail: balance, balance by camera, and swing-up."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera, Colour, Vector3
from robots.elementary import cos, sin
from robots.env import BaseRobotEnv, EnvOptions
from robots.rendering import add_box, paint
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, Memory, SensorSpec, State
from robots.task import Bools, Task, columns, observation_of
from robots.world import WorldSpec

FALL_ANGLE_RAD = 0.2095
UPRIGHT_COSINE = 0.95
"""Cosine of the angle within which a pole that swung up counts as upright: 18 degrees."""
UPRIGHT_STEPS = 25
"""Steps at the end of an episode for which it must be upright: one second at 25 Hz."""
WIDTH, HEIGHT = 80, 40
"""Size of an image that the policy sees [pixels]."""
OVERSAMPLING = 2
"""Pixels rendered for each pixel shown, along width and height: PyBullet's renderer does not blend
pole and background, and a falling pole moves by less than a pixel a step."""

GREY: Colour = (0.52, 0.56, 0.62, 1.0)
BLUE: Colour = (0.20, 0.47, 0.80, 1.0)
RED: Colour = (0.86, 0.30, 0.28, 1.0)
ORANGE: Colour = (1.0, 0.58, 0.16, 1.0)
_FLOOR: Colour = (0.80, 0.84, 0.88, 1.0)
_UNSEEN: Colour = (0.0, 0.0, 0.0, 0.0)
_FLOOR_M = 0.9
"""Half the width of a floor."""


class CartPoleBalance(Task):
    """Balance the pole near the middle of the rail.

    The limits are those of Barto, Sutton and Anderson (1983, doi:10.1109/TSMC.1983.6313077). One
    for every step survived would let the cart drift, so half of the reward is for the centre.
    """

    track_half_length_m: ClassVar[float] = 2.4
    reward_weights: ClassVar[Mapping[str, float]] = {"alive": 0.5, "centred": 0.5, "effort": 0.01}
    _bound = np.array([np.inf, np.inf, 1.0, 1.0, np.inf], np.float32)
    observation_space: spaces.Space[Any] = spaces.Box(-_bound, _bound)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw position [m, rad] and velocity [m/s, rad/s] within 0.05 of rest, shape (2,) each."""
        position, velocity = rng.uniform(-0.05, 0.05, (2, 2))
        return InitialState(position, velocity)

    def observation(self, state: State) -> Any:
        """Return cart position and velocity, sine and cosine of the angle, angular velocity.

        Returns:
            [m, m/s, 1, 1, rad/s], shape (..., 5); the angle is 0 when upright.
        """
        (cart, angle), (cart_velocity, angular_velocity) = state.joints
        return observation_of(cart, cart_velocity, sin(angle), cos(angle), angular_velocity)

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        del joints
        return ("cart", "cart velocity", "sin angle", "cos angle", "angular velocity")

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``alive``: 1 while the pole stands; ``centred``: 1 in the middle of the rail and 0.1 at 1 m
        from it; ``effort``: minus the squared action.
        """
        (cart, angle), _ = state.joints
        (push,) = columns(action)
        return {
            "alive": 1.0 * (abs(angle) <= FALL_ANGLE_RAD),
            "centred": tolerance(cart, margin=1.0),
            "effort": -(push * push),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the pole fell and whether the cart left the track, each of shape (...)."""
        (cart, angle), _ = state.joints
        return {
            "pole_fell": abs(angle) > FALL_ANGLE_RAD,
            "cart_left_track": abs(cart) > self.track_half_length_m,
        }


class CartPoleByCamera(CartPoleBalance):
    """Balance the pole on a rail of 1 m to either side, which is what the camera overlooks.

    The second image is that of the previous step; without it nothing shows how fast the pole falls.
    """

    track_half_length_m = 1.0
    observation_space: spaces.Space[Any] = spaces.Box(0, 255, (HEIGHT, WIDTH, 2), np.uint8)

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the image of this step and the previous one; at the start they are the same."""
        del action
        seen = darkness(state.image)
        return {"seen": seen, "seen_before": state.memory.get("seen", seen)}

    def observation(self, state: State) -> Any:
        """Return this step's image and the previous one, uint8, shape (..., 40, 80, 2)."""
        return np.stack([state.memory["seen"], state.memory["seen_before"]], axis=-1)


class CartPoleByCameraAndState(CartPoleByCamera):
    """The same for a policy that learns from one that sees no images, but the state."""

    observation_space = spaces.Dict(
        observation=CartPoleByCamera.observation_space, state=CartPoleBalance.observation_space
    )

    def observation(self, state: State) -> Any:
        """Return the images as ``observation``, and as ``state`` what balance observes."""
        known = CartPoleBalance.observation(self, state)
        return {"observation": super().observation(state), "state": known}


def darkness(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return how dark blocks of pixels are, in whole numbers so that all machines agree.

    The white background becomes 0, and a network's first layer sees nothing but the robot.

    Args:
        image: Shape (..., 80, 160, 3).

    Returns:
        255 minus the mean over a block of 2 x 2 and its colours, shape (..., 40, 80).
    """
    blocks = image.reshape(*image.shape[:-3], HEIGHT, OVERSAMPLING, WIDTH, OVERSAMPLING * 3)
    total = blocks.sum(axis=(-3, -1), dtype=np.uint16)
    mean: NDArray[np.uint8] = (total // (3 * OVERSAMPLING * OVERSAMPLING)).astype(np.uint8)
    return 255 - mean


class CartPoleSwingUp(CartPoleBalance):
    """Swing a hanging pole up and keep it up near the middle; observed as for balance.

    The reward is a product: as a sum, a policy collected the share of the upright pole by
    spinning it for ever. Each factor but the first stays above 0, so that the way up is rewarded
    wherever the cart is and however fast the pole turns.
    """

    reward_weights: ClassVar[Mapping[str, float]] = {"upright": 1.0, "effort": 0.01}

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw position [m, rad] and velocity within 0.05 of rest with the pole hanging."""
        start = super().sample_initial_state(rng)
        start.joint_position[1] += np.pi  # type: ignore[index]
        return start._replace(memory={"upright_steps": np.zeros(())})

    def remember(self, state: State, action: Floats) -> Memory:
        """Count the steps since the pole was last not upright."""
        del action
        (_, angle), _ = state.joints
        upright = cos(angle) > UPRIGHT_COSINE
        return {"upright_steps": (state.memory["upright_steps"] + 1.0) * upright}

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``upright``: the product of the height of the pole's tip, 0 hanging and 1 upright, of
        closeness to the middle (1, at 1 m 0.55, far off 0.5) and of slowness (1, at 5 rad/s 0.28,
        spinning 0.2); ``effort``: minus the squared action.
        """
        (cart, angle), (_, angular_velocity) = state.joints
        (push,) = columns(action)
        height = 0.5 + 0.5 * cos(angle)
        centred = 0.5 + 0.5 * tolerance(cart, margin=1.0)
        slow = 0.2 + 0.8 * tolerance(angular_velocity, margin=5.0)
        return {"upright": height * centred * slow, "effort": -(push * push)}

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the cart left the track, shape (...)."""
        (cart, _), _ = state.joints
        return {"cart_left_track": abs(cart) > self.track_half_length_m}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the pole was upright for the whole last second."""
        held: Bools = survived & (state.memory["upright_steps"] >= UPRIGHT_STEPS)
        return held


class RailEnv(BaseRobotEnv):
    """A cart on a rail with one or two poles: how it is shown."""

    follow: ClassVar[float] = 0.5
    """Share of the cart's motion that the camera follows, so that the rest stays visible."""

    def current_camera(self) -> Camera:
        """Return the camera, which follows the cart."""
        camera = super().current_camera()
        cart = float(self.state.joint_position[0])
        return replace(camera, target=(self.follow * cart, *camera.target[1:]))

    def add_rail(
        self,
        floor_m: float,
        post: tuple[float, float],
        post_size: Vector3,
        colour: Colour,
        marks_half_width_m: float | None = None,
    ) -> None:
        """Paint the robot, and lay a rail and a floor from one post to the other.

        The model's own rail, which is far longer, is hidden: PyBullet's renderer takes much of the
        time of an image for it, and for a floor up to the horizon.

        Args:
            floor_m: Height of the floor.
            post: Distance of the posts from the middle of the rail, and height of their middle.
            post_size: Half the edges of a post.
            colour: Colour of the posts.
            marks_half_width_m: Half the width of a mark every half metre; None: no marks.
        """
        simulation = self.simulation
        body, (to_post, _) = self.robot.body, post
        for link in range(-1, len(self.robot.joints)):
            paint(simulation, body, link, (_UNSEEN, BLUE, ORANGE, RED)[link + 1])
        (_, width, height), place = simulation.look_of_base(body)
        add_box(simulation, (to_post, width / 2, height / 2), place, GREY)
        add_box(simulation, (to_post + 0.35, _FLOOR_M, 0.01), (0.0, 0.0, floor_m), _FLOOR)
        if marks_half_width_m is not None:
            for mark in np.arange(-2.0, 2.1, 0.5):
                shade = (0.35, 0.40, 0.48, 1.0) if mark == 0 else (0.60, 0.66, 0.73, 1.0)
                size = (0.015, marks_half_width_m, 0.005)
                add_box(simulation, size, (float(mark), 0.0, floor_m + 0.015), shade)
        for side in (-1, 1):
            add_box(simulation, post_size, (side * post[0], 0.0, post[1]), colour)


class SimpleRobotEnv(RailEnv):
    """Cart-pole balance at 50 Hz on PyBullet's ``cartpole.urdf``; base of the other cart-poles."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.34), distance_m=4.0, yaw_deg=10.0, pitch_deg=-13.0, fov_deg=32.0
    )
    task_class: type[CartPoleBalance] = CartPoleBalance
    substeps: ClassVar[int] = 4
    sensors: ClassVar[SensorSpec] = SensorSpec()
    pushes: ClassVar[tuple[float, ...]] = (-1.0, 1.0)
    default_force_n: ClassVar[float] = 10.0

    def __init__(
        self,
        *,
        discrete: bool = False,
        reward: Mapping[str, float] | None = None,
        force_n: float | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            discrete: Choose among ``pushes``, shares of the force to the left (negative) or right,
                by their number instead of a continuous action in [-1, 1].
            reward: Weights of the task's terms to change.
            force_n: Force on the cart at action 1 [N]; ``default_force_n`` if None.
            options: See ``BaseRobotEnv``; ``episode_s`` is 10 by default.
        """
        super().__init__(
            RobotSpec(
                urdf="cartpole.urdf",
                action_scale=self.default_force_n if force_n is None else force_n,
                action_mode=ActionMode.TORQUE,
                actuated="slider_to_cart",
                sensors=self.sensors,
            ),
            self.task_class(reward),
            WorldSpec(substeps=self.substeps),
            discrete_actions=np.array(self.pushes)[:, None] if discrete else None,
            **options,
        )

    def build_scenery(self) -> None:
        """Add the rail, on a floor marked every half metre."""
        self.add_rail(-0.26, (2.65, -0.05), (0.05, 0.25, 0.2), RED, marks_half_width_m=0.45)


class CartPoleSwingUpEnv(SimpleRobotEnv):
    """Cart-pole swing-up, at 25 Hz.

    At 50 Hz one of two PPO runs did not learn to stay up in 131,072 steps.
    """

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, -0.02), distance_m=4.4, yaw_deg=10.0, pitch_deg=-8.0, fov_deg=32.0
    )
    task_class = CartPoleSwingUp
    substeps = 8
    pushes = (-1.0, 0.0, 1.0)

    def build_scenery(self) -> None:
        """Add the rail on two posts, with a floor below the hanging pole."""
        self.add_rail(-1.25, (2.7, -0.625), (0.05, 0.05, 0.725), RED)


class CartPoleCameraEnv(SimpleRobotEnv):
    """Cart-pole balance by camera, at 25 Hz: half the images, and twice the motion in each."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.4), distance_m=4.0, yaw_deg=0.0, pitch_deg=-5.0, fov_deg=28.0
    )
    follow = 0.0
    task_class = CartPoleByCamera
    substeps = 8
    default_force_n = 5.0
    # Fixed to the world, square to the rail; sees 1.3 m by 2.7 m there.
    sensors = SensorSpec(
        camera=Camera(
            target=(0.0, 0.0, 0.5),
            distance_m=8.0,
            yaw_deg=0.0,
            pitch_deg=0.0,
            fov_deg=9.5,
            width=OVERSAMPLING * WIDTH,
            height=OVERSAMPLING * HEIGHT,
        )
    )

    def __init__(
        self,
        *,
        discrete: bool = False,
        reward: Mapping[str, float] | None = None,
        force_n: float | None = None,
        state: bool = False,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            discrete: See ``SimpleRobotEnv``, like ``reward`` and ``force_n``.
            reward: See there.
            force_n: See there.
            state: Observe a dictionary: the images, and as ``state`` what balance observes.
            options: See ``BaseRobotEnv``.
        """
        if state:
            self.task_class = CartPoleByCameraAndState
        super().__init__(discrete=discrete, reward=reward, force_n=force_n, **options)

    def build_scenery(self) -> None:
        """Paint the pole darkest; the background stays white, since a floor would cost time."""
        for link, colour in ((-1, _FLOOR), (0, BLUE), (1, (0.10, 0.02, 0.02, 1.0))):
            paint(self.simulation, self.robot.body, link, colour)
