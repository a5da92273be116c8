"""Every registered robot environment keeps to the suite that one of a user's own is given."""

import copy
import pickle

import gymnasium
import numpy as np
import pybullet
import pytest

from rlzoo_plus.testing import RobotContract
from robots import ROBOT_IDS

CARTPOLE = "robots/CartPoleBalance-v0"
ENVS = [CARTPOLE]
# Like another robot in kind: a sample of their tests each day will do.
LIKE_OTHERS = {
    *("robots/CartPoleSwingUp-v0", "robots/DoublePendulum-v0", "robots/HalfCheetah-v0"),
    *("robots/KukaReach-v1", "robots/FrankaPushAround-v0", "robots/FrankaLift-v0"),
    *("robots/RacecarDrive-v1", "robots/Vision60Walk-v1"),
}
ROBOTS = [
    pytest.param(env_id, marks=[pytest.mark.slow] * (env_id in LIKE_OTHERS)) for env_id in ROBOT_IDS
]


class TestEveryRobot(RobotContract):
    @pytest.fixture(params=ROBOTS)
    def env_id(self, request):
        return request.param

    def test_frame_shows_something_in_the_size_asked_for(self, env_id):
        env = gymnasium.make(env_id, render_mode="rgb_array", render_width=120, render_height=80)
        env.reset(seed=0)
        frame = env.render()
        env.close()
        assert frame.shape == (80, 120, 3)
        assert frame.dtype == np.uint8
        assert frame.std() > 0

    def test_render_fps_is_the_control_rate(self, env):
        step_s = env.unwrapped.simulation.step_s
        assert env.unwrapped.metadata["render_fps"] == round(1 / step_s)

    def test_an_action_that_is_not_a_number_is_an_error(self, env):
        env.reset(seed=0)
        with pytest.raises(FloatingPointError, match="nan"):
            env.unwrapped.step(np.full(env.action_space.shape, np.nan))

    def test_unknown_argument_is_named(self, env_id):
        with pytest.raises(TypeError, match="gravitas"):
            gymnasium.make(env_id, gravitas=1)

    def test_unknown_reward_term_is_refused(self, env_id):
        with pytest.raises(ValueError, match=r"reward: .*Known: "):
            gymnasium.make(env_id, reward={"no_such_term": 1.0})

    @pytest.mark.slow  # What each does is stored: tests/envs/test_environment_digests.py.
    def test_same_seed_gives_same_trajectory_in_another_process(self, env, env_id):
        super().test_same_seed_gives_same_trajectory_in_another_process(env, env_id)

    @pytest.mark.slow
    def test_ten_thousand_random_steps_stay_finite(self, env):
        super().test_ten_thousand_random_steps_stay_finite(env)


def test_close_leaves_no_client_and_may_be_repeated():
    env = gymnasium.make(CARTPOLE)
    client = env.unwrapped.simulation.client
    assert pybullet.isConnected(client)
    env.close()
    env.close()
    assert not pybullet.isConnected(client)


def test_dropping_an_environment_leaves_no_client():
    env = gymnasium.make(CARTPOLE).unwrapped
    client = env.simulation.client
    del env
    assert not pybullet.isConnected(client)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_simulation_refuses_to_be_copied(env, duplicate):
    with pytest.raises(TypeError, match="second environment"):
        duplicate(env.unwrapped.simulation)


def test_deepcopy_is_refused_and_the_original_lives_on(env):
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(env)
    env.reset(seed=0)
    env.step(env.action_space.sample())


def test_window_without_display_is_refused_and_the_process_survives(run_python):
    process = run_python(
        "import gymnasium, robots\n"
        "robots.register_robots()\n"
        f"try: gymnasium.make({CARTPOLE!r}, render_mode='human')\n"
        "except RuntimeError as error: print(error)\n"
        "print('alive')"
    )
    assert process.returncode == 0, process.stderr
    assert "Use render_mode='rgb_array'" in process.stdout
    assert process.stdout.split()[-1] == "alive"


def test_importing_robots_does_not_import_pybullet(run_python):
    process = run_python("import sys, robots; print(robots.ROBOT_IDS, 'pybullet' in sys.modules)")
    assert process.stdout.strip() == f"{ROBOT_IDS} False"
