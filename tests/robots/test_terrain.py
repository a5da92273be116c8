"""Uneven ground: its heights, where episodes put it, and robots on it."""

import gymnasium
import numpy as np
import pybullet
import pytest
from continuing import on_rough_ground

import robots
from robots.terrain import START_M, TerrainSpec

A1 = next(env_id for env_id in robots.ROBOT_IDS if "A1Walk" in env_id)
ROUGH = {"roughness_m": 0.06}


def heights_below(env, points):
    """Return the height of the ground at points x and y."""
    low, high = (np.column_stack([points, np.full(len(points), z)]) for z in (-1.0, 0.0005))
    hits = env.simulation.bind(pybullet.rayTestBatch)(high.tolist(), low.tolist())
    return np.array([hit[3][2] for hit in hits if hit[0] == env.world.ground])


def test_heights_come_from_the_seed_and_span_the_roughness():
    spec = TerrainSpec(roughness_m=0.1, seed=3)
    assert spec.heights().tolist() == TerrainSpec(roughness_m=0.1, seed=3).heights().tolist()
    assert spec.heights().tolist() != TerrainSpec(roughness_m=0.1, seed=4).heights().tolist()
    assert spec.heights().shape == (201, 201)
    assert (spec.heights().min(), spec.heights().max()) == (0.0, 0.1)


def test_no_point_under_the_start_lies_above_it_and_the_ground_is_uneven():
    env = on_rough_ground()
    around = np.linspace(0, 6, 12)
    circles = [(r * np.cos(a), r * np.sin(a)) for r in (0.1, 0.3, START_M) for a in around]
    for seed in range(4):
        env.reset(seed=seed)
        env.world.simulation.reset_base(env.robot.body, (0, 0, 5), (0, 0, 0, 1))
        heights = heights_below(env, np.array(circles))
        assert len(heights) == len(circles)
        assert -0.06 < heights.min() < heights.max() <= 1e-6
        assert heights.std() > 0.002


def test_the_place_and_the_turn_of_the_field_are_where_the_pose_says():
    env = on_rough_ground(terrain={"roughness_m": 0.06, "cell_m": 0.5})
    terrain = env.world.terrain
    for place, turn in (((0.0, 0.0), 0.0), ((3.0, -2.0), 1.3)):
        pose = terrain.pose_of(*place, turn)
        env.world.simulation.reset_base(terrain.body, *pose)
        row, column = (round(at / 0.5) + 40 for at in (place[1], place[0]))
        expected = terrain.heights[row, column] + pose.position[2] - 0.03
        (found,) = heights_below(env, np.array([[1e-4, 1e-4]]))
        assert found == pytest.approx(expected, abs=1e-3)


def test_episodes_lie_on_different_places_and_repeat_with_their_seed():
    env = on_rough_ground()
    final = []
    for seed in (0, 1, 0):
        env.reset(seed=seed)
        for _ in range(20):
            env.step(np.zeros(env.action_space.shape))
        final.append(env.state.base_position.tolist())
    assert final[0] == final[2] != final[1]


def test_a_flat_ground_is_the_default():
    env = on_rough_ground(terrain=None)
    assert env.world.terrain is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (0.05, "must be a mapping"),
        ({"roughnes_m": 0.05}, "roughness_m"),
        ({"roughness_m": -1.0}, r"terrain\.roughness_m"),
        ({"seed": 1.5}, "whole number"),
        ({"size_m": 10.0}, r"terrain\.size_m"),
        ({"cell_m": 0.02}, "Make it smaller"),
    ],
    ids=str,
)
def test_a_terrain_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        on_rough_ground(terrain=wrong)


def test_a_robot_without_a_ground_takes_no_terrain():
    with pytest.raises(ValueError, match="needs a ground"):
        gymnasium.make("robots/CartPoleBalance-v0", terrain=ROUGH)
