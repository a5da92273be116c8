"""Driving between posts: where they stand, how they are seen, and what it is to touch one."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from continuing import between_posts, episode
from support.native import needs_plugin

from benchmarks.driving_by_hand import drive_between_posts
from robots.avoiding import ASIDE_M, RADIUS_M, RANGE_M, DriveBetweenPosts, Footprint
from robots.engines.bullet.native import NativeWorlds
from robots.sensors import State
from robots.vec_env import RobotVecEnv

HUSKY, RACECAR = "robots/HuskyDrive-v1", "robots/RacecarDrive-v1"
ENVS = [partial(between_posts, env_id) for env_id in (HUSKY, RACECAR)]
FOOTPRINT = Footprint(ahead_m=0.4, behind_m=0.2, half_width_m=0.3, sensor_height_m=0.4)


def task_of(footprint=FOOTPRINT, n_posts=1):
    return DriveBetweenPosts(n_posts, footprint, 4, 3.0, 5.0, 0.35)


def touches(*posts, turned=0.0):
    """Return whether a robot at the origin that is turned by an angle touches one of the posts."""
    still = np.zeros(3)
    half = 0.5 * turned
    orientation = np.array([0.0, 0.0, np.sin(half), np.cos(half)])
    state = State(np.zeros(4), np.zeros(4), None, still, orientation, still, still)
    return bool(task_of().touches(state._replace(memory={"posts": np.array(posts)})))


def test_a_post_is_touched_at_the_edges_of_the_robot():
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


def test_posts_stand_beside_the_way_and_clear_of_start_and_goal():
    task, rng = task_of(n_posts=4), np.random.default_rng(0)
    for _ in range(200):
        start = task.sample_initial_state(rng)
        goal, posts = start.memory["goal"], start.obstacle_position[:, :2]
        assert start.memory["posts"].tolist() == posts.ravel().tolist()
        assert np.hypot(*posts.T).min() > FOOTPRINT.ahead_m + RADIUS_M
        assert np.hypot(*(posts - goal).T).min() > FOOTPRINT.ahead_m + RADIUS_M
        along = goal / np.hypot(*goal)
        assert abs(along[0] * posts[:, 1] - along[1] * posts[:, 0]).max() <= ASIDE_M


def test_the_sensor_sees_the_posts_and_never_the_robot(env):
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


def blindly_to_the_goal(observation):
    _, cosine, sine = observation[:3]
    return [0.6, 1.5 * np.arctan2(sine, cosine)]


def test_driving_blindly_to_the_goal_touches_a_post_and_costs(env):
    assert env.observation_space.shape == (40,)
    ends = []
    for seed in range(4):
        _, _, info = episode(env, blindly_to_the_goal, seed)
        ends.append(info["end_reason"])
        assert info["is_success"] == (info["end_reason"] == "goal_reached")
        assert info["episode_terms"]["touch"] == -5.0 * (info["end_reason"] == "touched")
    assert "touched" in ends


@needs_plugin
def test_the_plugin_steps_worlds_with_posts(env):
    worlds = RobotVecEnv([env])
    assert isinstance(worlds._step_physics.__self__, NativeWorlds)


def test_obstacles_without_room_or_below_none_are_refused():
    with pytest.raises(ValueError, match="leaves no room for obstacles"):
        gymnasium.make(HUSKY, obstacles=3)
    with pytest.raises(ValueError, match="obstacles=-1 must be at least 0"):
        between_posts(HUSKY, obstacles=-1)


def test_a_controller_made_by_hand_reaches_the_goals():
    env = between_posts(HUSKY)
    results = [episode(env, drive_between_posts, seed) for seed in range(12)]
    env.close()
    assert sum(info["is_success"] for *_, info in results) >= 11
    assert np.mean([total for total, *_ in results]) > 8
