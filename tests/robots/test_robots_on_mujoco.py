"""Every robot on MuJoCo keeps the contract of robots; its joints and links are those on Bullet."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rlzoo_plus.testing import RobotContract
from robots import ROBOT_IDS
from robots.vec_env import RobotVecEnv

ON_MUJOCO = {"engine": "mujoco"}
# One of each kind of body and of action; the others are like them.
FAST = ("robots/CartPoleBalance-v0", "robots/A1Walk-v1", "robots/FrankaLift-v0")
ROBOTS = [
    pytest.param(env_id, marks=[] if env_id in FAST else [pytest.mark.slow]) for env_id in ROBOT_IDS
]


class TestEveryRobot(RobotContract):
    kwargs = ON_MUJOCO

    @pytest.fixture(params=ROBOTS)
    def env_id(self, request):
        return request.param

    def test_frame_shows_something_in_the_size_asked_for(self, env_id):
        size = {"render_width": 120, "render_height": 80}
        env = gymnasium.make(env_id, render_mode="rgb_array", **size, **self.kwargs)
        env.reset(seed=0)
        frame = env.render()
        env.close()
        assert frame.shape == (80, 120, 3)
        assert frame.std() > 0

    def test_an_action_that_is_not_a_number_is_an_error(self, env, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        if not isinstance(env.action_space, gymnasium.spaces.Box):
            pytest.skip("its actions are whole numbers")
        env.reset(seed=0)
        nothing = np.full(env.action_space.shape, np.nan, np.float32)

        def play():
            for _ in range(3):
                env.step(nothing)

        with pytest.raises(FloatingPointError):
            play()
        assert not list(Path.cwd().glob("MUJOCO_LOG*"))


def test_a_state_that_is_not_a_number_in_many_worlds_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBOTS_THREADS", "2")
    worlds = RobotVecEnv([gymnasium.make(ROBOT_IDS[0], **ON_MUJOCO).unwrapped for _ in range(4)])
    worlds.reset(seed=0)
    with pytest.raises(FloatingPointError, match="world 0"):
        worlds.step(np.full((4, 1), np.nan, np.float32))
    worlds.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=ROBOT_IDS)
def both(request):
    envs = [gymnasium.make(request.param, engine=name).unwrapped for name in ("bullet", "mujoco")]
    yield envs
    for env in envs:
        env.close()


def test_a_robot_is_the_same_on_both_engines(both):
    bullet, mujoco = (env.simulation for env in both)
    bodies = [(env.robot.body) for env in both]
    names = [sim.links(body) for sim, body in zip((bullet, mujoco), bodies, strict=True)]
    assert names[0] == names[1]
    joints = [sim.movable_joints(body) for sim, body in zip((bullet, mujoco), bodies, strict=True)]
    assert [(one.index, one.name) for one in joints[0]] == [
        (one.index, one.name) for one in joints[1]
    ]
    for one, other in zip(*joints, strict=True):
        if not one.lower > one.upper:
            limits = one.lower, one.upper
            assert (other.lower, other.upper) == pytest.approx(limits, abs=1e-6)
    masses = [
        {link: one.mass_kg for link, one in sim.link_dynamics(body).items() if one.mass_kg > 1e-4}
        for sim, body in zip((bullet, mujoco), bodies, strict=True)
    ]
    moving = masses[0].keys() - {-1}
    assert {k: masses[1].get(k) for k in moving} == pytest.approx(
        {k: masses[0][k] for k in moving}, rel=1e-5
    )


def test_both_engines_start_an_episode_alike(both):
    first, second = (env.reset(seed=3)[0] for env in both)
    if isinstance(first, dict):
        first, second = first["observation"], second["observation"]
    if first.dtype == np.uint8:
        pytest.skip("pictures differ in their pixels")
    assert np.allclose(first, second, atol=0.02)


def test_the_engine_of_a_registered_robot_is_bullet():
    env = gymnasium.make("robots/CartPoleBalance-v0").unwrapped
    assert env.simulation.engine == "bullet"
    env.close()


def test_another_engine_is_refused_by_name():
    with pytest.raises(
        ValueError, match=r"engine='physx' is unknown\. Choose among: bullet, mujoco"
    ):
        gymnasium.make("robots/CartPoleBalance-v0", engine="physx")


@pytest.mark.parametrize("steps", [3, 400])
def test_native_and_python_steps_have_the_same_numbers(steps, run_python):
    code = """
import gymnasium, robots
from rlzoo_plus.testing.robot_contract import trajectory_digest
for name in ("A1Walk-v1", "FrankaLift-v0", "HuskyDrive-v1"):
    print(trajectory_digest(gymnasium.make("robots/" + name, engine="mujoco"), %d))
"""
    digests = {run_python(code % steps, ROBOTS_NATIVE=on).stdout for on in "01"}
    assert len(digests) == 1
    assert len(digests.pop().split()) == 3
