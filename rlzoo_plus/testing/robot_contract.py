"""The contracts of environments and of robot environments."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from rlzoo_plus.testing.random_play import (
    check_random_play,
    check_same_numbers,
    digest_of_steps,
    first_steps,
    play_randomly,
    trajectory_digest,
)
from robots.goal_env import GoalRobotEnv
from robots.vec_env import RobotVecEnv

TRAJECTORY = """
import gymnasium, importlib, rlzoo_plus, robots
robots.register_robots()
for name in {modules!r}: importlib.import_module(name)
from rlzoo_plus.testing.random_play import trajectory_digest
print("DIGEST", trajectory_digest(gymnasium.make({env_id!r})))
"""


class EnvironmentContract:
    """The suite for any environment; the fixture `env_id` returns its id.

    Attributes:
        modules: Modules whose import registers it.
    """

    modules: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def env_id(self) -> str:
        """Return the id of the environment."""
        raise NotImplementedError("give the suite a fixture `env_id`")

    @pytest.fixture
    def env(self, env_id: str) -> Iterator[gymnasium.Env]:
        """Return the environment, closed after the test."""
        env = gymnasium.make(env_id)
        yield env
        env.close()

    def test_gymnasium_check_passes(self, env):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # The checker warns of velocities, which have no bound.
            warnings.filterwarnings("ignore", ".*(infinity|infinite).*")
            gymnasium_check_env(env.unwrapped, skip_render_check=True)

    def test_sb3_check_passes_without_warnings(self, env):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sb3_check_env(env.unwrapped, skip_render_check=True)

    def test_same_seed_gives_same_trajectory_in_another_process(self, env, env_id):
        # Rendering must not need a display.
        environ = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
        environ["PYTHONPATH"] = os.pathsep.join(str(Path(place).absolute()) for place in sys.path)
        code = TRAJECTORY.format(env_id=env_id, modules=self.modules)
        process = subprocess.run(
            [sys.executable, "-c", code],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        assert process.stdout.split("DIGEST")[1].strip() == trajectory_digest(env)

    def test_first_reset_equals_a_reset_after_a_long_history(self, env):
        first = trajectory_digest(env)
        play_randomly(env, 700)
        assert trajectory_digest(env) == first

    def test_random_play_stays_inside_the_observation_space(self, env):
        check_random_play(env, 700)


class RobotContract(EnvironmentContract):
    """The suite for environments that are built from `robots.env.BaseRobotEnv`."""

    def test_first_steps_do_not_depend_on_the_episode_before(self, env):
        env.action_space.seed(5)
        actions = [env.action_space.sample() for _ in range(12)]
        forwards = first_steps(env, actions, range(12))
        assert forwards == first_steps(env, actions, range(11, -1, -1))

    def test_rendering_does_not_change_the_trajectory(self, env, env_id):
        rendered = gymnasium.make(env_id, render_mode="rgb_array")
        rendered.reset(seed=0)
        rendered.render()
        assert trajectory_digest(rendered) == trajectory_digest(env)
        rendered.close()

    def test_ten_thousand_random_steps_stay_finite(self, env):
        check_random_play(env, 10_000)

    @pytest.mark.parametrize("n_steps", [0, 37])
    def test_state_dict_goes_on_exactly_for_500_steps(self, env, env_id, n_steps):
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

    def test_worlds_side_by_side_give_the_numbers_of_single_ones(self, env_id):
        singles = [gymnasium.make(env_id).unwrapped for _ in range(3)]
        together = RobotVecEnv([gymnasium.make(env_id).unwrapped for _ in singles])
        check_same_numbers(together, singles, 300)
        together.close()
        for env in singles:
            env.close()

    def test_a_goal_can_be_exchanged_for_another(self, env):
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

    def test_reward_is_the_sum_of_its_terms(self, env):
        for _, reward, info in play_randomly(env, 200):
            assert reward == sum(info["reward_terms"].values())

    def test_episode_terms_sum_to_the_return(self, env):
        episode_return = 0.0
        for _, reward, info in play_randomly(env, 3000):
            episode_return += reward
            if "episode_terms" in info:
                assert sum(info["episode_terms"].values()) == pytest.approx(episode_return)
                assert type(info["is_success"]) is bool
                return
        pytest.fail("no episode ended")
