"""What every registered robot environment promises."""

import copy
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pybullet
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from random_play import (
    check_random_play,
    check_same_numbers,
    digest_of_steps,
    first_steps,
    play_randomly,
    trajectory_digest,
)
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from robots import ROBOT_IDS
from robots.goal_env import GoalRobotEnv
from robots.vec_env import RobotVecEnv

TRAJECTORY = """
import sys
sys.path.append("tests/robots")
import gymnasium, robots
from random_play import trajectory_digest
print("DIGEST", trajectory_digest(gymnasium.make({env_id!r})))
"""


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
        assert process.stdout.split("DIGEST")[1].strip() == trajectory_digest(env)

    def test_first_reset_equals_a_reset_after_a_long_history(self, env: gymnasium.Env) -> None:
        first = trajectory_digest(env)
        play_randomly(env, 700)
        assert trajectory_digest(env) == first

    def test_first_steps_do_not_depend_on_the_episode_before(self, env: gymnasium.Env) -> None:
        env.action_space.seed(5)
        actions = [env.action_space.sample() for _ in range(12)]
        assert first_steps(env, actions, range(12)) == first_steps(
            env, actions, [*range(11, -1, -1)]
        )

    def test_rendering_does_not_change_the_trajectory(
        self, env: gymnasium.Env, env_id: str
    ) -> None:
        rendered = gymnasium.make(env_id, render_mode="rgb_array")
        rendered.reset(seed=0)
        rendered.render()
        assert trajectory_digest(rendered) == trajectory_digest(env)
        rendered.close()

    def test_random_play_stays_inside_the_observation_space(self, env: gymnasium.Env) -> None:
        check_random_play(env, 700)

    @pytest.mark.slow
    def test_ten_thousand_random_steps_stay_finite(self, env: gymnasium.Env) -> None:
        check_random_play(env, 10_000)

    @pytest.mark.parametrize("n_steps", [0, 37])
    def test_state_dict_goes_on_exactly_for_500_steps(
        self, env: gymnasium.Env, env_id: str, n_steps: int
    ) -> None:
        other = gymnasium.make(env_id)
        other.reset(seed=9)
        other.step(other.action_space.sample())
        env.reset(seed=2)
        env.action_space.seed(1)
        for _ in range(n_steps):
            if any(env.step(env.action_space.sample())[2:4]):
                env.reset()
        other.unwrapped.load_state_dict(env.unwrapped.state_dict())
        assert digest_of_steps(other.unwrapped, 500) == digest_of_steps(env.unwrapped, 500)
        other.close()

    def test_worlds_side_by_side_give_the_numbers_of_single_ones(self, env_id: str) -> None:
        singles = [gymnasium.make(env_id).unwrapped for _ in range(3)]
        together = RobotVecEnv([gymnasium.make(env_id).unwrapped for _ in singles])
        check_same_numbers(together, singles, 300)
        together.close()
        for env in singles:
            env.close()

    def test_a_goal_can_be_exchanged_for_another(self, env: gymnasium.Env) -> None:
        if not isinstance(env.unwrapped, GoalRobotEnv):
            pytest.skip("its observations hold no goal")
        played = play_randomly(env, 100)
        achieved = np.stack([o["achieved_goal"] for o, _, _ in played])
        desired = np.stack([o["desired_goal"] for o, _, _ in played])
        rewards = np.array([reward for _, reward, _ in played])
        infos = [info for _, _, info in played]
        assert np.array_equal(env.unwrapped.compute_reward(achieved, desired, infos), rewards)
        one = env.unwrapped.compute_reward(achieved[0], achieved[0], infos[0])
        assert one == env.unwrapped.compute_reward(achieved[:1], achieved[:1], infos[:1])[0]
        assert one >= rewards.max()

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
