"""Who makes the pictures, and what is added to them: a floor, colours and shadows."""

from typing import ClassVar

import gymnasium
import numpy as np
import pybullet
import pytest

from robots.camera import Camera
from robots.cartpole import CartPoleBalance
from robots.engines.bullet import client as egl
from robots.env import BaseRobotEnv
from robots.robot import RobotSpec
from robots.sensors import SensorSpec

CARTPOLE = "robots/CartPoleBalance-v0"


def frame(**options):
    """Return the first picture of an episode."""
    env = gymnasium.make(CARTPOLE, render_mode="rgb_array", **options)
    env.reset(seed=0)
    picture = env.render()
    return picture


def middle_of_the_pole(picture):
    """Return row and column of the middle of what is orange [pixels]."""
    red, _, blue = np.moveaxis(picture.astype(int), -1, 0)
    rows, columns = np.nonzero(red - blue > 100)
    return rows.mean(), columns.mean()


def test_an_unknown_renderer_is_named():
    with pytest.raises(ValueError, match="renderer='vulkan' is unknown"):
        gymnasium.make(CARTPOLE, renderer="vulkan")


def test_egl_shows_what_the_software_renderer_shows():
    problem = egl.egl_problem()
    if problem is not None:
        pytest.skip(problem)
    by_egl, by_software = frame(renderer="egl"), frame()
    assert by_egl.shape == by_software.shape
    # They light the scene in ways of their own, but the pole stands in the same place.
    assert middle_of_the_pole(by_egl) == pytest.approx(middle_of_the_pole(by_software), abs=4)


def test_egl_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(egl, "egl_problem", lambda: "EGL found no device to render with")
    with pytest.raises(egl.RendererError, match=r"no device.*Use renderer='tiny'"):
        gymnasium.make(CARTPOLE, renderer="egl")


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["robots/FrankaLift-v0", "robots/HuskyDrive-v1"])
def test_worlds_that_draw_nothing_load_no_looks_and_move_alike(env_id):
    read, shapes = [], []
    for mode in (None, "rgb_array"):
        env = gymnasium.make(env_id, render_mode=mode).unwrapped
        env.reset(seed=0)
        env.action_space.seed(0)
        rows = []
        for _ in range(40):
            env.step(env.action_space.sample())
            env.render()
            rows.append(list(env.readings))
        read.append(rows)
        found = env.simulation.bind(pybullet.getVisualShapeData)(env.robot.body)
        shapes.append({shape[4].decode() for shape in found})
    assert read[0] == read[1]
    # What Bullet then takes for looks are the shapes that collide.
    assert shapes[0] != shapes[1]


class OwnEnv(BaseRobotEnv):
    """A robot of a user's own, who says nothing of pictures."""

    camera: ClassVar[Camera] = Camera(target=(0.0, 0.0, 0.4), distance_m=2.5)

    def __init__(self, urdf="kuka_iiwa/model.urdf", mode="rgb_array", **sensors):
        """Load any URDF, with a task that is never asked."""
        spec = RobotSpec(urdf=urdf, action_scale=1.0, sensors=SensorSpec(**sensors))
        super().__init__(spec, CartPoleBalance(), render_mode=mode)


def bodies_of(env):
    """Return the ids of all bodies."""
    bind = env.simulation.bind
    return [bind(pybullet.getBodyUniqueId)(i) for i in range(bind(pybullet.getNumBodies)())]


def colours(env):
    """Return the colours of a robot's links."""
    shapes = env.simulation.bind(pybullet.getVisualShapeData)(env.robot.body)
    return {tuple(round(value, 2) for value in shape[7][:3]) for shape in shapes}


def test_an_own_robot_stands_on_a_floor_that_touches_nothing():
    env, plain = OwnEnv(), OwnEnv(mode=None)
    assert bodies_of(plain) == [plain.robot.body]
    bind = env.simulation.bind
    scenery = [body for body in bodies_of(env) if body != env.robot.body]
    assert scenery
    for body in scenery:
        assert not bind(pybullet.getCollisionShapeData)(body, -1)
        # Its top is not above the lowest point of the robot.
        half_height = bind(pybullet.getVisualShapeData)(body)[0][3][2] / 2
        height = bind(pybullet.getBasePositionAndOrientation)(body)[0][2]
        assert height + half_height == pytest.approx(0.0, abs=0.02)


def test_a_shadow_lies_on_the_floor_and_not_on_the_robot():
    env = OwnEnv()
    shaded = env.render().astype(int)
    plain = env.simulation.picture(env.current_camera()).astype(int)
    dark = (plain - shaded).sum(axis=-1) > 60
    assert 0.002 < dark.mean() < 0.1
    assert np.array_equal(shaded[~dark], plain[~dark])
    # Of what is in the shadow nothing has the colours of the robot, blue and orange.
    assert np.ptp(plain[dark], axis=1).max() < 40


def test_a_pale_robot_is_painted_and_others_keep_their_colours():
    assert (1.0, 0.42, 0.04) in colours(OwnEnv())
    pale = OwnEnv("xarm/xarm6_robot_white.urdf")
    assert len(colours(pale)) == 3
    assert np.ptp(list(colours(pale)), axis=1).max() > 0.5


def test_what_a_robots_own_camera_sees_has_no_floor():
    env = OwnEnv(camera=Camera(width=32, height=32))
    assert bodies_of(env) == [env.robot.body]
