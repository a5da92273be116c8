"""The arm that pushes to all sides: the way round the cube, the task, a controller by hand."""

import numpy as np
import pytest
from continuing import episode

from robots.franka_push_around import AROUND_M, FrankaPushAroundEnv, PushAroundTask
from robots.sensors import State

ENVS = [FrankaPushAroundEnv]


def push_by_hand(observation):
    """Return the action of a hand-made controller: round the cube, then env."""
    hand, (distance, *goal), (_, cosine, sine) = (
        -observation[6:8],
        observation[10:13],
        observation[13:16],
    )
    radius, angle, goal = np.hypot(*hand), np.arctan2(sine, cosine), np.array(goal)
    if abs(angle) > 0.25 or (abs(angle) > 0.12 and radius > 0.06):
        along = np.array([hand[1], -hand[0]]) * np.sign(angle)
        step = (0.035 * along + (0.075 - radius) * hand) / radius
    else:
        step = 0.6 * (-0.03 * goal - hand) + min(0.02, 0.6 * distance) * goal
    return np.array([*step / 0.05, 0.0])


def seen(hand, goal=(0.1, 0.0)):
    """Return the named entries of the observation with the cube at (0.5, 0)."""
    cube = np.array([[0.5, 0.0, 0.025]])
    state = State(
        np.zeros(9),
        np.zeros(9),
        link_position=np.array([[0.5 + hand[0], hand[1], 0.03]]),
        link_velocity=np.zeros((1, 3)),
        object_position=cube,
        object_orientation=np.array([[0.0, 0.0, 0.0, 1.0]]),
        object_velocity=np.zeros((1, 3)),
        memory={"goal": cube[0, :2] + goal},
    )
    task = PushAroundTask(None, 0.03)
    names = task.observation_names([])
    return dict(zip(names, task.observation(state).tolist(), strict=True))


def test_a_hand_made_controller_pushes_to_all_sides(env):
    results = [episode(env, push_by_hand, seed) for seed in range(12)]
    assert [info["end_reason"] for *_, info in results] == ["goal_reached"] * 12
    assert all(info["is_success"] for *_, info in results)
    assert all(9 < episode_return < 11.5 for episode_return, *_ in results)


def test_goals_lie_on_all_sides_of_the_cube():
    task, rng = PushAroundTask(None, 0.03), np.random.default_rng(0)
    ways = []
    for _ in range(500):
        start = task.sample_initial_state(rng)
        ways.append(start.memory["goal"] - start.object_position[0, :2])
    octants = np.floor(np.arctan2(*np.transpose(ways)[::-1]) / (np.pi / 4))
    assert len(set(octants.tolist())) == 8


@pytest.mark.parametrize(
    ("hand", "way"),
    [
        ((-AROUND_M, 0.0), 0.0),
        ((-0.2, 0.0), 0.2 - AROUND_M),
        ((0.0, AROUND_M), AROUND_M * np.pi / 2),
        ((AROUND_M, 0.0), AROUND_M * np.pi),
        # Along the tangent, then the arc.
        (
            (0.2, 0.0),
            np.sqrt(0.04 - AROUND_M * AROUND_M) + AROUND_M * (np.pi - np.arccos(AROUND_M / 0.2)),
        ),
        ((-AROUND_M, 0.1), 0.1),
    ],
)
def test_the_way_round_the_cube_is_the_shortest(hand, way):
    assert seen(hand)["way round"] == pytest.approx(way, abs=1e-6)
    mirrored = seen((hand[0], -hand[1]))
    assert mirrored["way round"] == pytest.approx(way, abs=1e-6)


def test_the_way_round_does_not_jump():
    rng = np.random.default_rng(0)
    for x, y in rng.uniform(-0.25, 0.25, (300, 2)):
        if np.hypot(x, y) > 0.03:
            here, there = seen((x, y)), seen((x + 1e-4, y))
            assert abs(here["way round"] - there["way round"]) < 4e-4


def test_a_cube_that_slides_over_its_goal_has_not_reached_it(env):
    env.reset(seed=0)
    cube = env.state.object_position[0, :2]
    at_goal = env.state._replace(memory={**env.state.memory, "goal": cube.copy()})
    assert env.task.success(at_goal, np.array(False))
    sliding = at_goal._replace(object_velocity=np.array([[0.1, 0.0, 0.0]]))
    assert not env.task.success(sliding, np.array(False))


@pytest.mark.parametrize("tolerance_m", [0.0, 0.08])
def test_a_tolerance_that_reaches_to_the_start_is_refused(tolerance_m):
    with pytest.raises(ValueError, match="below the nearest goal"):
        PushAroundTask(None, tolerance_m)
