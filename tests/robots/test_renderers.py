"""Who makes the pictures."""

import gymnasium
import numpy as np
import pybullet
import pytest

from robots import client as egl

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
            rows.append(list(env.readings))
        read.append(rows)
        found = env.simulation.bind(pybullet.getVisualShapeData)(env.robot.body)
        shapes.append({shape[4].decode() for shape in found})
    assert read[0] == read[1]
    # What Bullet then takes for looks are the shapes that collide.
    assert shapes[0] != shapes[1]
