"""Teams of robots: PettingZoo's form, what each earns, and that neither task can be done alone."""

import warnings

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from pettingzoo.test import parallel_api_test, parallel_seed_test

from robots.teams.two_arms import TwoArms
from robots.teams.two_racecars import TwoRacecars

TEAMS = (TwoRacecars, TwoArms)
ENGINES = ("bullet", "mujoco")
LINKS_M = 0.4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("team", TEAMS)
def test_a_team_is_an_environment_of_pettingzoo_that_a_seed_repeats(team, engine):
    pytest.importorskip("pybullet" if engine == "bullet" else "mujoco")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(team(engine=engine, episode_s=1.0), 25)
    parallel_seed_test(lambda: team(engine=engine, episode_s=1.0), 25)


def drive(env, action_of, n_steps, seed=0):
    """Act until all have left, and return what each earned, its last info, and the steps."""
    seen, _ = env.reset(seed=seed)
    earned, infos, steps = dict.fromkeys(env.possible_agents, 0.0), {}, 0
    while env.agents and steps < n_steps:
        actions = {agent: action_of(env, agent, seen) for agent in env.agents}
        seen, rewards, _, _, told = env.step(actions)
        steps += 1
        for agent, reward in rewards.items():
            earned[agent] += reward
            infos[agent] = told[agent]
    return earned, infos, steps


def to_the_goal(env, agent, seen):
    _, cosine, sine = seen[agent][:3]
    return np.array([0.5, np.clip(3.0 * np.arctan2(sine, cosine), -1, 1)], np.float32)


def around_the_other(env, agent, seen):
    near, cosine, sine = seen[agent][8:11]
    if near < 1.4 and cosine > 0.3:  # Turn away to the right, both of them.
        return np.array([0.5, np.clip(3.0 * np.arctan2(sine, cosine) - 2.0, -1, 1)], np.float32)
    return to_the_goal(env, agent, seen)


def test_cars_that_only_look_at_their_goals_crash_and_cars_that_give_way_arrive():
    env = TwoRacecars()
    for policy, arrives in ((to_the_goal, False), (around_the_other, True)):
        earned, infos, _ = drive(env, policy, 200, seed=5)
        for agent, info in infos.items():
            reason = "done" if arrives else "crashed"
            assert info == {"is_success": arrives, "end_reason": reason}
            assert earned[agent] > 9 if arrives else earned[agent] < 0
    env.close()


def test_a_car_that_has_arrived_leaves_and_stands():
    env = TwoRacecars()
    alone = {"robot_0": to_the_goal}

    def one_drives(env, agent, seen):
        return alone[agent](env, agent, seen) if agent in alone else np.zeros(2, np.float32)

    earned, infos, steps = drive(env, one_drives, 120, seed=1)
    assert steps == 120
    assert env.agents == ["robot_1"]
    assert infos["robot_1"] == {}
    assert earned["robot_0"] > 9 > 0 > earned["robot_1"]
    assert np.abs(env.env.state.base_velocity).max() < 0.01
    env.close()


def push(env, agent, seen):
    """Move a finger straight ahead, 30 cm/s, by the inverse of the arm's Jacobian."""
    shoulder, elbow = seen[agent][:2].astype(float)
    both = shoulder + elbow
    jacobian = LINKS_M * np.array(
        [[-np.sin(shoulder) - np.sin(both), -np.sin(both)],
         [np.cos(shoulder) + np.cos(both), np.cos(both)]]
    )  # fmt: skip
    speeds = np.linalg.solve(jacobian, [0.0, -0.3])
    return np.clip(speeds, -1, 1).astype(np.float32)


def cube_x(env):
    return float(env.env.state.object_position[0, 0])


@pytest.mark.parametrize("engine", ENGINES)
def test_two_arms_move_the_cube_that_one_alone_cannot(engine):
    pytest.importorskip("pybullet" if engine == "bullet" else "mujoco")
    env = TwoArms(engine=engine, tolerance_m=0.06)
    moved = {}
    for who in (("robot_0", "robot_1"), ("robot_0",), ("robot_1",)):

        def some_push(env, agent, seen, who=who):
            return push(env, agent, seen) if agent in who else np.zeros(2, np.float32)

        env.reset(seed=3)
        start = cube_x(env)
        _, infos, _ = drive(env, some_push, 40, seed=3)
        moved[who] = cube_x(env) - start
        assert [info.get("is_success", False) for info in infos.values()] == [len(who) == 2] * 2
    env.close()
    together, *alone = moved.values()
    assert together > 0.15
    assert max(alone) < 0.5 * together


def test_the_second_arm_sees_and_acts_in_the_mirror_of_the_first():
    env = TwoArms()
    seen, _ = env.reset(seed=0)
    actions = {agent: np.array([0.3, -0.2], np.float32) for agent in env.agents}
    later, *_ = env.step(actions)
    env.close()
    # Both turn their shoulders outwards and their elbows inwards.
    for agent in later:
        assert later[agent][0] > seen[agent][0]
        assert later[agent][1] < seen[agent][1]
    assert np.allclose(later["robot_0"][8:10], later["robot_1"][6:8] * [1, -1], atol=1e-6)


def test_conditions_of_robots_hold_for_teams():
    env = TwoRacecars(latency=2, randomization={"observation_noise": 0.01})
    env.reset(seed=0)
    action = {agent: np.ones(2, np.float32) for agent in env.agents}
    speeds = []
    for _ in range(4):
        env.step(action)
        speeds.append(float(np.linalg.norm(env.env.state.base_velocity[:2])))
    env.close()
    assert max(speeds[:2]) < 0.02 < speeds[3]


@pytest.mark.parametrize(
    ("team", "kwargs", "told"),
    [
        (TwoRacecars, {"tolerance_m": 0.8}, "must rise"),
        (TwoArms, {"tolerance_m": 0.3}, "below 0.14"),
        (TwoArms, {"reward": {"speed": 1}}, "speed"),
        (TwoArms, {"cube": 1}, "no argument 'cube'"),
        (TwoArms, {"randomization": {"curriculum": {"episodes": 9}}}, "seed alone"),
    ],
)
def test_mistakes_in_the_arguments_are_told(team, kwargs, told):
    with pytest.raises((TypeError, ValueError), match=told):
        team(**kwargs)


@pytest.mark.parametrize("team", TEAMS)
def test_a_team_is_drawn(team):
    env = team(render_mode="rgb_array", render_width=96, render_height=64)
    env.reset(seed=0)
    first = env.render()
    env.reset(seed=1)
    second = env.render()
    env.close()
    assert first.shape == (64, 96, 3)
    assert (first != second).any()
