"""Driving between posts: where they stand, how they are seen, and what it is to touch one."""

from collections.abc import Iterator
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from support.native import needs_plugin

from robots.avoiding import ASIDE_M, RADIUS_M, RANGE_M, DriveBetweenPosts, Footprint
from robots.native import NativeWorlds
from robots.sensors import State
from robots.vec_env import RobotVecEnv

HUSKY, RACECAR = "robots/HuskyDrive-v1", "robots/RacecarDrive-v1"
FOOTPRINT = Footprint(ahead_m=0.4, behind_m=0.2, half_width_m=0.3, sensor_height_m=0.4)


def made(env_id: str, **options: float) -> gymnasium.Env:
    """Return an environment with five posts."""
    distances = {"min_goal_m": 3.0, "max_goal_m": 5.0}
    return gymnasium.make(env_id, **{"obstacles": 5, **distances, **options}).unwrapped


@pytest.fixture(params=[HUSKY, RACECAR])
def env(request: pytest.FixtureRequest) -> Iterator[gymnasium.Env]:
    """Return an environment, closed after the test."""
    env = made(request.param)
    yield env
    env.close()


def task_of(footprint: Footprint = FOOTPRINT, n_posts: int = 1) -> DriveBetweenPosts:
    return DriveBetweenPosts(n_posts, footprint, 4, 3.0, 5.0, 0.35)


def touches(*posts: float, turned: float = 0.0) -> bool:
    """Return whether a robot at the origin that is turned by an angle touches one of the posts."""
    still = np.zeros(3)
    half = 0.5 * turned
    orientation = np.array([0.0, 0.0, np.sin(half), np.cos(half)])
    state = State(np.zeros(4), np.zeros(4), None, still, orientation, still, still)
    return bool(task_of().touches(state._replace(memory={"posts": np.array(posts)})))


def test_a_post_is_touched_at_the_edges_of_the_robot() -> None:
    assert touches(0.4 + RADIUS_M, 0.0)
    assert not touches(0.45 + RADIUS_M, 0.0)
    assert touches(-0.2 - RADIUS_M, 0.0)
    assert not touches(-0.4 - RADIUS_M, 0.0)
    assert touches(0.1, 0.3 + RADIUS_M)
    assert not touches(0.1, -0.35 - RADIUS_M)
    # A round post beside a corner.
    assert not touches(0.38 + RADIUS_M, 0.28 + RADIUS_M)
    assert touches(0.38 + RADIUS_M, 0.0, turned=0.0)
    assert not touches(0.38 + RADIUS_M, 0.0, turned=np.pi / 2)
    # The second of two.
    assert touches(5.0, 5.0, 0.0, 0.4)


def test_posts_stand_beside_the_way_and_clear_of_start_and_goal() -> None:
    task, rng = task_of(n_posts=4), np.random.default_rng(0)
    for _ in range(200):
        start = task.sample_initial_state(rng)
        goal, posts = start.memory["goal"], start.obstacle_position[:, :2]
        assert start.memory["posts"].tolist() == posts.ravel().tolist()
        assert np.hypot(*posts.T).min() > FOOTPRINT.ahead_m + RADIUS_M
        assert np.hypot(*(posts - goal).T).min() > FOOTPRINT.ahead_m + RADIUS_M
        along = goal / np.hypot(*goal)
        assert abs(along[0] * posts[:, 1] - along[1] * posts[:, 0]).max() <= ASIDE_M


def test_the_sensor_sees_the_posts_and_never_the_robot(env: gymnasium.Env) -> None:
    env.reset(seed=1)
    posts = env.state.memory["posts"].reshape(-1, 2)
    sensor = env.footprint.range_sensor
    middle = env.state.base_position[:2] + np.array(sensor.position)[:2]
    nearest = np.hypot(*(posts - middle).T).min() - RADIUS_M
    # The rays are 11 degrees apart, so the nearest point of a post may lie between two.
    assert nearest - 0.01 < env.state.ranges.min() < nearest + 0.15
    far_away = np.full((5, 3), 50.0)
    start = env.task.sample_initial_state(np.random.default_rng(0))
    row = env.world.start(start._replace(obstacle_position=far_away))
    assert env.world.sensors.state(row).ranges.tolist() == [RANGE_M] * sensor.n_rays


def test_driving_blindly_to_the_goal_touches_a_post_and_costs(env: gymnasium.Env) -> None:
    ends = []
    for seed in range(4):
        observation, _ = env.reset(seed=seed)
        assert observation.shape == env.observation_space.shape == (40,)
        done = False
        while not done:
            _, cosine, sine = observation[:3]
            action = np.clip([0.6, 1.5 * np.arctan2(sine, cosine)], -1, 1)
            observation, _, terminated, truncated, info = env.step(action)
            done = terminated or truncated
        ends.append(info["end_reason"])
        assert info["is_success"] == (info["end_reason"] == "goal_reached")
        assert info["episode_terms"]["touch"] == -5.0 * (info["end_reason"] == "touched")
    assert "touched" in ends


def test_posts_are_part_of_the_exact_state() -> None:
    with closing(made(HUSKY)) as env, closing(made(HUSKY)) as other:
        rng = np.random.default_rng(0)
        env.reset(seed=5)
        for _ in range(7):
            env.step(rng.uniform(-1, 1, 2))
        other.reset(seed=1)
        other.load_state_dict(env.state_dict())
        for _ in range(10):
            action = rng.uniform(-1, 1, 2)
            assert env.step(action)[0].tolist() == other.step(action)[0].tolist()
        assert env.reset()[0].tolist() == other.reset()[0].tolist()


@needs_plugin
@pytest.mark.parametrize("env_id", [HUSKY, RACECAR])
def test_worlds_with_posts_give_the_numbers_of_single_ones(env_id: str) -> None:
    rng = np.random.default_rng(0)
    single = made(env_id, episode_s=1.0)
    worlds = RobotVecEnv([made(env_id, episode_s=1.0) for _ in range(2)])
    assert isinstance(worlds._step_physics.__self__, NativeWorlds)
    first, _ = worlds.reset(seed=3)
    assert first[0].tolist() == single.reset(seed=3)[0].tolist()
    for _ in range(45):
        actions = rng.uniform(-1, 1, (2, 2))
        observations, rewards, ends, cuts, _ = worlds.step(actions)
        observation, reward, end, cut, _ = single.step(actions[0])
        assert (reward, end, cut) == (rewards[0], ends[0], cuts[0])
        if end or cut:
            observation, _ = single.reset()
        assert observation.tolist() == observations[0].tolist()
    worlds.close()
    single.close()


def test_obstacles_without_room_or_below_none_are_refused() -> None:
    with pytest.raises(ValueError, match="leaves no room for obstacles"):
        gymnasium.make(HUSKY, obstacles=3)
    with pytest.raises(ValueError, match="obstacles=-1 must be at least 0"):
        made(HUSKY, obstacles=-1)
