"""The wheeled robots and their task: drive to a point."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import gymnasium
import numpy as np
import pybullet_data
import pytest
from continuing import episode

from robots.drive_to_goal import DriveToGoal
from robots.frames import yaw
from robots.sensors import State

HUSKY, RACECAR = "robots/HuskyDrive-v1", "robots/RacecarDrive-v1"
URDFS = {HUSKY: "husky/husky.urdf", RACECAR: "racecar/racecar.urdf"}
ENVS = [HUSKY, RACECAR]


def turn_and_drive(observation):
    """Return an action for a robot that turns on the spot."""
    _, cosine, sine, *_ = observation
    return [2.0 * cosine - 1.0, 1.5 * np.arctan2(sine, cosine)]


def steer(observation):
    """Return an action for a car: ahead or back, whichever end is nearer to the goal."""
    _, cosine, sine, *_ = observation
    gear = 1.0 if cosine > 0 else -1.0
    return [0.6 * gear, 2.0 * np.arctan2(sine, gear * cosine)]


def after(env, action, steps):
    """Return position and heading after an action was repeated, with the goal out of reach."""
    env.reset(seed=0)
    env.state.memory["goal"][:] = (50.0, 50.0)
    for _ in range(steps):
        env.step(np.array(action))
    return env.state.base_position, float(yaw(env.state.base_orientation.tolist()))


def state_at(position, goal, **memory):
    """Return a state upright at rest, heading along +x."""
    kept = {"goal": np.array(goal), "action": np.zeros(2), **memory}
    still = np.zeros(3)
    return State(
        np.zeros(4), np.zeros(4), None, np.array(position), np.array([0, 0, 0, 1.0]), still, still
    )._replace(memory=kept)


@pytest.mark.parametrize(("env_id", "controller"), [(HUSKY, turn_and_drive), (RACECAR, steer)])
def test_a_simple_controller_reaches_goals_in_all_directions(env_id, controller):
    env = gymnasium.make(env_id)
    results = [episode(env, controller, seed) for seed in range(8)]
    assert [info["end_reason"] for _, _, info in results] == ["goal_reached"] * 8
    assert all(info["is_success"] for _, _, info in results)
    assert all(7.5 < episode_return <= 10 for episode_return, *_ in results)


def test_goals_lie_in_all_directions_at_the_distances_asked_for():
    task = DriveToGoal(4, min_goal_m=2.0, max_goal_m=3.0)
    rng = np.random.default_rng(0)
    goals = np.array([task.sample_initial_state(rng).memory["goal"] for _ in range(400)])
    distances = np.hypot(*goals.T)
    assert 2.0 <= distances.min() < 2.05
    assert 2.95 < distances.max() <= 3.0
    assert {(x > 0, y > 0) for x, y in goals} == {(a, b) for a in (0, 1) for b in (0, 1)}


def test_a_goal_within_the_tolerance_is_refused():
    with pytest.raises(ValueError, match=r"reached at the start"):
        DriveToGoal(4, tolerance_m=2.0)


def test_first_action_drives_ahead_and_back(env):
    ahead, heading = after(env, [1.0, 0.0], 20)
    assert ahead[0] > 0.7
    assert abs(ahead[1]) < 0.05
    assert abs(heading) < 0.05
    assert after(env, [-1.0, 0.0], 20)[0][0] < -0.7


def test_second_action_turns_to_the_left(env):
    left, right = after(env, [0.5, 0.5], 20), after(env, [0.5, -0.5], 20)
    assert left[1] > 0.3
    assert right[1] < -0.3
    assert left[0][1] > 0.05
    assert right[0][1] < -0.05


def test_only_the_husky_turns_on_the_spot():
    headings = {}
    for env_id in URDFS:
        env = gymnasium.make(env_id).unwrapped
        position, headings[env_id] = after(env, [0.0, 1.0], 20)
        assert np.hypot(*position[:2]) < 0.3
    assert headings[HUSKY] > 1.0
    assert abs(headings[RACECAR]) < 0.01


def test_the_husky_turns_at_about_the_same_rate_in_every_direction():
    env = gymnasium.make(HUSKY).unwrapped
    after(env, [0.0, 1.0], 20)
    rates = []
    for _ in range(60):
        env.step(np.array([0.0, 1.0]))
        rates.append(env.state.base_angular_velocity[2])
    # More than a whole turn; with implicit cone friction the rate falls to a fifth on the way.
    assert min(rates) > 0.5 * max(rates) > 1.0


def test_robots_weigh_what_their_files_state(env):
    urdf = URDFS[env.spec.id]
    tree = ElementTree.parse(Path(pybullet_data.getDataPath(), urdf))
    stated = sum(float(mass.get("value")) for mass in tree.iterfind("link/inertial/mass"))
    links = env.simulation.link_dynamics(env.robot.body)
    assert sum(link.mass_kg for link in links.values()) == pytest.approx(stated, abs=0.01)


def test_observation_gives_the_goal_in_the_frame_of_the_robot():
    task = DriveToGoal(4)
    observation = task.observation(state_at([1.0, 1.0, 0.0], [1.0, 3.0]))
    assert observation[:3] == pytest.approx([2.0, 0.0, 1.0])
    turned = state_at([1.0, 1.0, 0.0], [1.0, 3.0])._replace(
        base_orientation=np.array([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)])
    )
    assert task.observation(turned)[:3] == pytest.approx([2.0, 1.0, 0.0], abs=1e-6)


def test_reward_terms_are_shares_of_the_way_and_the_arrival():
    task = DriveToGoal(4, tolerance_m=0.5)
    terms = task.reward_terms(
        state_at([1.0, 0.0, 0.0], [2.5, 0.0], way=2.0, way_left=1.5), np.array([0.5, -1.0])
    )
    assert terms == {"progress": 0.25, "goal": 0.0, "time": -1.0, "change": -1.25}
    arrived = state_at([2.2, 0.0, 0.0], [2.5, 0.0], way=2.0, way_left=0.1)
    terms = task.reward_terms(arrived, np.zeros(2))
    assert terms["progress"] == pytest.approx(0.05)
    assert terms["goal"] == 1.0


def test_a_robot_on_its_back_has_tipped_over():
    task = DriveToGoal(4)
    state = state_at([0.0, 0.0, 0.0], [2.0, 0.0])
    assert not task.terminations(state)["tipped_over"]
    on_its_back = state._replace(base_orientation=np.array([1.0, 0.0, 0.0, 0.0]))
    assert task.terminations(on_its_back)["tipped_over"]
    assert not task.success(on_its_back, np.array(True))


def test_the_camera_shows_robot_and_goal_from_behind_the_robot(env):
    env.reset(seed=0)
    env.state.memory["goal"][:] = (0.0, 3.0)
    camera = env.current_camera()
    assert camera.yaw_deg == pytest.approx(0.0, abs=1.0)
    assert camera.target[1] == pytest.approx(0.9, abs=0.05)
    env.state.memory["goal"][:] = (300.0, 0.0)
    assert env.current_camera().target[0] == pytest.approx(1.0, abs=0.05)
