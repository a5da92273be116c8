"""The range sensor: what its rays measure, where they lie, and obstacles that episodes place."""

import numpy as np
import pytest
from continuing import husky

from robots.ranges import RangeSensor
from robots.robot import InitialState
from robots.sensors import SensorSpec
from robots.world import ObjectSpec, World, WorldSpec

AHEAD_AND_AROUND = RangeSensor(n_rays=4, max_m=4.0, position=(0.0, 0.0, 0.45))
POST = ObjectSpec("cylinder", (0.25, 1.0, 0.0), mass_kg=0.0, position=(2.0, 0.0, 0.5))


@pytest.fixture
def world():
    """Return a Husky before a post, with four rays: behind, right, ahead, left."""
    robot = husky(
        action_scale=5.0,
        base_position=(0.0, 0.0, 0.01),
        inertia_from_file=True,
        max_force=None,
        sensors=SensorSpec(base=True, ranges=AHEAD_AND_AROUND),
    )
    world = World(WorldSpec(ground_friction=0.8, objects=(POST,)), robot)
    world.save()
    return world


def ranges(world, row):
    return world.sensors.state(row).ranges


def started(world, **initial):
    """Return what the rays measure where an episode starts."""
    start = InitialState(np.zeros(4), np.zeros(4), **initial)
    return ranges(world, world.start(start))


def test_a_ray_measures_the_distance_of_the_next_body(world):
    base = world.sensors.state(world.start(world.robot.at_rest)).base_position
    expected = [4.0, 4.0, 2.0 - 0.25 - base[0], 4.0]
    assert started(world) == pytest.approx(expected, abs=1e-3)


def test_rays_turn_with_the_robot(world):
    quarter = (0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5))
    seen = started(world, base_position=(0.0, 0.0, 0.1), base_orientation=quarter)
    assert seen[1] == pytest.approx(1.75, abs=1e-3)
    assert seen[[0, 2, 3]].tolist() == [4.0, 4.0, 4.0]


def test_an_episode_places_obstacles(world):
    at = np.array([[0.0, 1.5, 0.5]])
    assert started(world, obstacle_position=at)[2:].round(2).tolist() == [4.0, 1.25]
    # Without a place of its own, an episode has them where they were built.
    assert started(world)[3] == 4.0
    assert started(world)[2] < 2.0


def test_obstacles_stop_a_robot_and_do_not_move(world):
    row = world.start(world.robot.at_rest)
    for _ in range(300):
        row = world.step([8.0] * 4)
    state = world.sensors.state(row)
    assert 0.8 < state.base_position[0] < 1.6
    assert world.obstacles
    assert world.objects == []


@pytest.mark.parametrize(
    ("sensor", "degrees"),
    [
        (RangeSensor(4), [-180, -90, 0, 90]),
        (RangeSensor(3, view_rad=np.pi), [-90, 0, 90]),
        (RangeSensor(1, view_rad=1.0), [0]),
    ],
    ids=["round", "half", "one"],
)
def test_rays_are_spread_over_the_field_of_view(sensor, degrees):
    assert np.degrees(sensor.angles_rad) == pytest.approx(degrees)


def test_rays_start_at_their_least_distance():
    ((start, end),) = RangeSensor(1, min_m=0.5, max_m=3.0, view_rad=1.0).ends
    assert (start, end) == ([0.5, 0.0, 0.0], [3.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_rays": 0}, "n_rays=0"),
        ({"n_rays": 257}, "from 1 to 256"),
        ({"min_m": 5.0}, "must be at least 0 and rise"),
        ({"view_rad": 7.0}, "at most a full turn"),
    ],
)
def test_a_sensor_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        RangeSensor(**wrong)
