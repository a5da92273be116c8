"""The contracts of environments and of robot environments, and random play to compare them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

from robots.goal_env import GoalRobotEnv
from robots.vec_env import RobotVecEnv

# Of any robot, which mypy cannot know.
Env: TypeAlias = Any
TRAJECTORY = """
import gymnasium, importlib, rlzoo_plus, robots
robots.register_robots()
for name in {modules!r}: importlib.import_module(name)
from rlzoo_plus.testing.robot_contract import trajectory_digest
print("DIGEST", trajectory_digest(gymnasium.make({env_id!r}, **{kwargs!r})))
"""


class EnvironmentContract:
    """The suite for any environment; the fixture `env_id` returns its id.

    Attributes:
        modules: Modules whose import registers it.
        kwargs: What it is made with.
    """

    modules: ClassVar[tuple[str, ...]] = ()
    kwargs: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def env_id(self) -> str:
        """Return the id of the environment."""
        raise NotImplementedError("give the suite a fixture `env_id`")

    @pytest.fixture
    def env(self, env_id: str) -> Iterator[Env]:
        """Return the environment, closed after the test."""
        env = gymnasium.make(env_id, **self.kwargs)
        yield env
        env.close()

    def test_gymnasium_check_passes(self, env: Env) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # The checker warns of velocities, which have no bound.
            warnings.filterwarnings("ignore", ".*(infinity|infinite).*")
            gymnasium_check_env(env.unwrapped, skip_render_check=True)

    def test_sb3_check_passes_without_warnings(self, env: Env) -> None:
        from stable_baselines3.common.env_checker import check_env

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped, skip_render_check=True)

    def test_same_seed_gives_same_trajectory_in_another_process(
        self, env: Env, env_id: str
    ) -> None:
        # Rendering must not need a display.
        environ = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
        environ["PYTHONPATH"] = os.pathsep.join(str(Path(place).absolute()) for place in sys.path)
        code = TRAJECTORY.format(env_id=env_id, modules=self.modules, kwargs=self.kwargs)
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

    def test_first_reset_equals_a_reset_after_a_long_history(self, env: Env) -> None:
        first = trajectory_digest(env)
        play_randomly(env, 700)
        assert trajectory_digest(env) == first

    def test_random_play_stays_inside_the_observation_space(self, env: Env) -> None:
        check_random_play(env, 700)


class RobotContract(EnvironmentContract):
    """The suite for environments that are built from `robots.env.BaseRobotEnv`."""

    def test_first_steps_do_not_depend_on_the_episode_before(self, env: Env) -> None:
        env.action_space.seed(5)
        actions = [env.action_space.sample() for _ in range(12)]
        forwards = first_steps(env, actions, range(12))
        assert forwards == first_steps(env, actions, range(11, -1, -1))

    def test_rendering_does_not_change_the_trajectory(self, env: Env, env_id: str) -> None:
        rendered = gymnasium.make(env_id, render_mode="rgb_array", **self.kwargs)
        rendered.reset(seed=0)
        rendered.render()
        assert trajectory_digest(rendered) == trajectory_digest(env)
        rendered.close()

    def test_ten_thousand_random_steps_stay_finite(self, env: Env) -> None:
        check_random_play(env, 10_000)

    @pytest.mark.parametrize("n_steps", [0, 37])
    def test_state_dict_goes_on_exactly_for_500_steps(
        self, env: Env, env_id: str, n_steps: int
    ) -> None:
        other: Env = gymnasium.make(env_id, **self.kwargs)
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

    @pytest.mark.parametrize(
        "n_worlds",
        [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(17, marks=pytest.mark.slow)],
    )
    def test_worlds_side_by_side_give_the_numbers_of_single_ones(
        self, env_id: str, n_worlds: int
    ) -> None:
        def make() -> list[Env]:
            return [gymnasium.make(env_id, **self.kwargs).unwrapped for _ in range(n_worlds)]

        singles, worlds = make(), make()
        together = RobotVecEnv(worlds)
        check_same_numbers(together, singles, 900 // n_worlds)
        together.close()
        for env in singles:
            env.close()

    def test_a_goal_can_be_exchanged_for_another(self, env: Env) -> None:
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

    def test_reward_is_the_sum_of_its_terms(self, env: Env) -> None:
        for _, reward, info in play_randomly(env, 200):
            assert reward == sum(info["reward_terms"].values())

    def test_episode_terms_sum_to_the_return(self, env: Env) -> None:
        episode_return = 0.0
        for _, reward, info in play_randomly(env, 3000):
            episode_return += reward
            if "episode_terms" in info:
                assert sum(info["episode_terms"].values()) == pytest.approx(episode_return)
                assert type(info["is_success"]) is bool
                return
        pytest.fail("no episode ended")


def bytes_of(observation: Any) -> bytes:
    """Return the bytes of an observation, an array or a dictionary of arrays."""
    if isinstance(observation, dict):
        return b"".join(key.encode() + bytes_of(observation[key]) for key in sorted(observation))
    return np.ascontiguousarray(observation).tobytes()


def trajectory_digest(env: Env, steps: int = 300) -> str:
    """Return a digest of episodes that depend on nothing but the environment."""
    env.reset(seed=7)
    return digest_of_steps(env, steps)


def digest_of_steps(env: Env, steps: int) -> str:
    """Return a digest of all that random steps and the resets between them returned."""
    env.action_space.seed(3)
    digest = hashlib.sha256()
    for _ in range(steps):
        observation, *rest = env.step(env.action_space.sample())
        digest.update(bytes_of(observation) + repr(rest).encode())
        if rest[1] or rest[2]:
            digest.update(bytes_of(env.reset()[0]))
    return digest.hexdigest()


def first_steps(
    env: Env, actions: Sequence[Any], order: Sequence[int]
) -> dict[int, tuple[bytes, bytes]]:
    """Return the readings after each of the first two steps, by action, tried in an order."""
    readings = {}
    for number in order:
        env.reset(seed=number % 3)
        both = []
        for _ in range(2):
            env.step(actions[number])
            both.append(np.array(env.unwrapped.readings).tobytes())
        readings[number] = (both[0], both[1])
    return readings


def play_randomly(env: Env, steps: int) -> list[tuple[Any, float, dict[str, Any]]]:
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


def check_random_play(env: Env, steps: int) -> None:
    """Check that random steps stay inside the observation space, and finite."""
    for observation, reward, _ in play_randomly(env, steps):
        parts = observation.values() if isinstance(observation, dict) else [observation]
        assert env.observation_space.contains(observation)
        assert all(np.isfinite(part).all() for part in parts)
        assert np.isfinite(reward)


def check_same_numbers(together: RobotVecEnv, singles: Sequence[Env], steps: int) -> None:
    """Check that worlds side by side do the same as single environments, bit for bit."""
    together.reset(seed=5)
    for number, env in enumerate(singles):
        env.reset(seed=5 + number)
        env.action_space.seed(number)
    for _ in range(steps):
        actions = [env.action_space.sample() for env in singles]
        moved = together.step_worlds(np.stack(actions))
        for number, (env, action) in enumerate(zip(singles, actions, strict=True)):
            observation, reward, terminated, truncated, info = env.step(action)
            row: Any = moved.observation
            row = {k: v[number] for k, v in row.items()} if isinstance(row, dict) else row[number]
            assert bytes_of(row) == bytes_of(observation)
            assert moved.reward[number] == reward
            assert (moved.terminated[number], moved.truncated[number]) == (terminated, truncated)
            assert moved.infos[number] == info
            if terminated or truncated:
                first, _ = together.reset_world(number)
                assert bytes_of(first) == bytes_of(env.reset()[0])
