"""What every registered robot environment promises."""

import copy
import hashlib
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pybullet
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from robots import ROBOT_IDS

TRAJECTORY = """
import hashlib, gymnasium, robots
env = gymnasium.make({env_id!r})
env.action_space.seed(3)
digest = hashlib.sha256(env.reset(seed=7)[0].tobytes())
for _ in range(300):
    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    digest.update(observation.tobytes() + repr(reward).encode())
    if terminated or truncated:
        digest.update(env.reset()[0].tobytes())
print(digest.hexdigest())
"""


def trajectory_digest(env: gymnasium.Env) -> str:
    """Return the digest that ``TRAJECTORY`` prints, computed in this process."""
    env.action_space.seed(3)
    digest = hashlib.sha256(env.reset(seed=7)[0].tobytes())
    for _ in range(300):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        digest.update(observation.tobytes() + repr(reward).encode())
        if terminated or truncated:
            digest.update(env.reset()[0].tobytes())
    return digest.hexdigest()


def play_randomly(env: gymnasium.Env, steps: int) -> list[tuple[np.ndarray, float, dict[str, Any]]]:
    """Return observation, reward and info of random steps, resetting between episodes."""
    env.action_space.seed(0)
    env.reset(seed=0)
    played = []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        played.append((observation, reward, info))
        if terminated or truncated:
            env.reset()
    return played


@pytest.mark.parametrize("env_id", ROBOT_IDS)
class TestEveryRobot:
    """The contract of ``BaseRobotEnv``."""

    @pytest.fixture
    def env(self, env_id: str) -> Iterator[gymnasium.Env]:
        """Return the environment, closed after the test."""
        env = gymnasium.make(env_id)
        yield env
        env.close()

    def test_gymnasium_check_passes(self, env: gymnasium.Env) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Velocities have no bound; the checker would rather they had.
            warnings.filterwarnings("ignore", ".*(infinity|infinite).*")
            gymnasium_check_env(env.unwrapped, skip_render_check=True)

    def test_sb3_check_passes_without_warnings(self, env: gymnasium.Env) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sb3_check_env(env.unwrapped, skip_render_check=True)

    def test_same_seed_gives_same_trajectory_in_another_process(
        self, env: gymnasium.Env, env_id: str, run_python: Any
    ) -> None:
        process = run_python(TRAJECTORY.format(env_id=env_id))
        assert process.returncode == 0, process.stderr
        assert process.stdout.split()[-1] == trajectory_digest(env)

    def test_first_reset_equals_a_reset_after_a_long_history(self, env: gymnasium.Env) -> None:
        first = trajectory_digest(env)
        play_randomly(env, 1500)
        assert trajectory_digest(env) == first

    def test_rendering_does_not_change_the_trajectory(
        self, env: gymnasium.Env, env_id: str
    ) -> None:
        rendered = gymnasium.make(env_id, render_mode="rgb_array")
        rendered.reset(seed=0)
        rendered.render()
        assert trajectory_digest(rendered) == trajectory_digest(env)
        rendered.close()

    def test_random_play_stays_inside_the_observation_space(self, env: gymnasium.Env) -> None:
        for observation, reward, _ in play_randomly(env, 2000):
            assert env.observation_space.contains(observation)
            assert np.isfinite(observation).all()
            assert np.isfinite(reward)

    def test_reward_is_the_sum_of_its_terms(self, env: gymnasium.Env) -> None:
        for _, reward, info in play_randomly(env, 200):
            assert reward == sum(info["reward_terms"].values())

    def test_episode_terms_sum_to_the_return(self, env: gymnasium.Env) -> None:
        episode_return = 0.0
        for _, reward, info in play_randomly(env, 3000):
            episode_return += reward
            if "episode_terms" in info:
                assert sum(info["episode_terms"].values()) == pytest.approx(episode_return)
                assert type(info["is_success"]) is bool
                return
        pytest.fail("no episode ended")

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
            "import gymnasium, robots\n"
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
        with pytest.raises(ValueError, match="Known terms"):
            gymnasium.make(env_id, reward={"no_such_term": 1.0})


def test_importing_robots_does_not_import_pybullet(run_python: Any) -> None:
    process = run_python("import sys, robots; print(robots.ROBOT_IDS, 'pybullet' in sys.modules)")
    assert process.stdout.strip() == f"{ROBOT_IDS} False"
