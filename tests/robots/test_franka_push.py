"""The pushing arm: its task, its hand, and inverse kinematics."""

from contextlib import closing

import numpy as np
import pytest
from continuing import episode

from robots.franka_push import (
    CUBE_HALF_EDGE_M,
    PUSH_DISTANCE_M,
    WORKSPACE,
    FrankaPushEnv,
    FrankaPushTask,
)

ENVS = [FrankaPushEnv]
POINTING_DOWN = np.array([1.0, 0.0, 0.0, 0.0])


def hand(env):
    """Return the position between the fingertips [m], shape (3,)."""
    return env.state.link_position[0].copy()


def push_by_hand(observation):
    """Return the action of a hand-made controller: get behind the cube, then env."""
    gripper, cube = observation["observation"][:2], observation["achieved_goal"]
    way = observation["desired_goal"] - cube
    distance, side = np.hypot(*way), gripper - cube
    if distance < 0.02:
        return np.zeros(3)
    behind = np.arctan2(-way[1], -way[0])
    here = np.arctan2(side[1], side[0])
    turn = (behind - here + np.pi) % (2 * np.pi) - np.pi
    if abs(turn) > 0.35:
        angle, radius = here + np.clip(turn, -0.5, 0.5), 0.085
        target = cube + radius * np.array([np.cos(angle), np.sin(angle)])
    elif abs(turn) > 0.15:
        target = cube + 0.07 * np.array([np.cos(behind), np.sin(behind)])
    else:
        target = gripper + 0.8 * min(distance + np.hypot(*side) - 0.045, 0.05) * way / distance
    step = (target - gripper) / 0.037
    return np.array([*step / max(abs(step).max(), 1.0), -0.3])


def test_a_hand_made_controller_pushes_the_cube_to_its_goal(env):
    successes = [episode(env, push_by_hand, seed)[2]["is_success"] for seed in range(20)]
    assert sum(successes) >= 17


@pytest.mark.parametrize("spread", [0.5, np.pi])
def test_goals_lie_at_the_asked_distance_and_angle_from_the_cube(spread):
    task = FrankaPushTask(None, 0.05, spread)
    rng = np.random.default_rng(0)
    ways = []
    for _ in range(1000):
        start = task.sample_initial_state(rng)
        ways.append(start.memory["goal"] - start.object_position[0, :2])
    distances = np.hypot(*np.transpose(ways))
    angles = np.arctan2(*np.transpose(ways)[::-1])
    assert distances.min() >= PUSH_DISTANCE_M[0] - 1e-12 > task.tolerance
    assert distances.max() <= PUSH_DISTANCE_M[1] + 1e-12
    assert 0.98 * spread < np.abs(angles).max() <= spread


def test_cubes_and_goals_lie_in_the_workspace_of_the_hand(env):
    rng = np.random.default_rng(0)
    low, high = (np.array(corner)[:2] for corner in WORKSPACE)
    for _ in range(1000):
        start = env.task.sample_initial_state(rng)
        for place in (start.object_position[0, :2], start.memory["goal"]):
            assert (low < place).all()
            assert (place < high).all()


def test_the_hand_stays_in_its_workspace_and_points_down(env):
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    low, high = np.array(WORKSPACE)
    for direction in rng.choice([-1.0, 1.0], (4, 3)):
        for _ in range(15):
            env.step(direction)
            assert (hand(env) > low - 0.01).all()
            assert (hand(env) < high + 0.01).all()
            assert abs(env.state.link_orientation[0] @ POINTING_DOWN) > 0.99


def test_links_and_cube_have_the_masses_of_their_files(env):
    arm = env.simulation.link_dynamics(env.robot.body)
    assert sum(link.mass_kg for link in arm.values()) == pytest.approx(15.06, abs=0.02)
    cube = env.simulation.link_dynamics(env.world.objects[0])[-1]
    assert cube.mass_kg == 0.5
    edge = 2 * CUBE_HALF_EDGE_M
    assert cube.inertia == pytest.approx((0.5 * edge * edge / 6,) * 3, rel=0.1)


def test_a_quarter_turn_of_the_cube_changes_no_feature(env):
    env.reset(seed=0)
    task, state = env.task, env.state
    half = np.pi / 4
    turned = state._replace(object_orientation=np.array([[0.0, 0.0, np.sin(half), np.cos(half)]]))
    assert task.features(turned) == pytest.approx(task.features(state), abs=1e-6)


def test_an_episode_does_not_depend_on_a_reset_that_was_not_played():
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 3)).astype(np.float32)

    def cubes(env):
        env.reset(seed=2**30 + 1)
        return [env.step(action)[0]["achieved_goal"].tolist() for action in actions]

    with closing(FrankaPushEnv()) as fresh:
        expected = cubes(fresh)
    with closing(FrankaPushEnv()) as env:
        for seed in range(12):
            # As after the last episode of an evaluation.
            env.reset(seed=seed)
            assert cubes(env) == expected
