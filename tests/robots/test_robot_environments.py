"""Every registered robot environment keeps to the suite that one of a user's own is given."""

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pybullet
import pytest

from rlzoo_plus.testing import RobotContract
from robots import ROBOT_IDS


class TestEveryRobot(RobotContract):
    @pytest.fixture(params=ROBOT_IDS)
    def env_id(self, request: pytest.FixtureRequest) -> str:
        return request.param

    def test_frame_shows_something_in_the_size_asked_for(self, env_id: str) -> None:
        env = gymnasium.make(env_id, render_mode="rgb_array", render_width=120, render_height=80)
        env.reset(seed=0)
        frame = env.render()
        env.close()
        assert frame.shape == (80, 120, 3)
        assert frame.dtype == np.uint8
        assert frame.std() > 0

    def test_render_fps_is_the_control_rate(self, env: gymnasium.Env) -> None:
        step_s = env.unwrapped.simulation.step_s
        assert env.unwrapped.metadata["render_fps"] == round(1 / step_s)

    def test_close_leaves_no_client_and_may_be_repeated(self, env_id: str) -> None:
        env = gymnasium.make(env_id)
        client = env.unwrapped.simulation.client
        assert pybullet.isConnected(client)
        env.close()
        env.close()
        assert not pybullet.isConnected(client)

    def test_dropping_an_environment_leaves_no_client(self, env_id: str) -> None:
        env = gymnasium.make(env_id).unwrapped
        client = env.simulation.client
        del env
        assert not pybullet.isConnected(client)

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_simulation_refuses_to_be_copied(self, env: gymnasium.Env, duplicate: Any) -> None:
        with pytest.raises(TypeError, match="second environment"):
            duplicate(env.unwrapped.simulation)

    def test_deepcopy_is_refused_and_the_original_lives_on(self, env: gymnasium.Env) -> None:
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.deepcopy(env)
        env.reset(seed=0)
        env.step(env.action_space.sample())

    def test_window_without_display_is_refused_and_the_process_survives(
        self, env_id: str, run_python: Any
    ) -> None:
        process = run_python(
            "import gymnasium, importlib, rlzoo_plus, robots\n"
            f"robots.register_robots()\n"
            f"for name in {self.modules!r}: importlib.import_module(name)\n"
            f"try: gymnasium.make({env_id!r}, render_mode='human')\n"
            "except RuntimeError as error: print(error)\n"
            "print('alive')"
        )
        assert process.returncode == 0, process.stderr
        assert "Use render_mode='rgb_array'" in process.stdout
        assert process.stdout.split()[-1] == "alive"

    def test_unknown_argument_is_named(self, env_id: str) -> None:
        with pytest.raises(TypeError, match="gravitas"):
            gymnasium.make(env_id, gravitas=1)

    def test_unknown_reward_term_is_refused(self, env_id: str) -> None:
        with pytest.raises(ValueError, match=r"reward: .*Known: "):
            gymnasium.make(env_id, reward={"no_such_term": 1.0})

    @pytest.mark.slow
    def test_ten_thousand_random_steps_stay_finite(self, env: gymnasium.Env) -> None:
        super().test_ten_thousand_random_steps_stay_finite(env)


def test_importing_robots_does_not_import_pybullet(run_python: Any) -> None:
    process = run_python("import sys, robots; print(robots.ROBOT_IDS, 'pybullet' in sys.modules)")
    assert process.stdout.strip() == f"{ROBOT_IDS} False"
