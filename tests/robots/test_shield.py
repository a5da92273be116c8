"""A shield changes commands so that limits hold, as little as it must, and says what it changed."""

import gymnasium
import numpy as np
import pytest
from continuing import actions_for, arm, cartpole, husky, play

from robots.chain import chain_to, loads
from robots.drives import ActionMode
from robots.env import BaseRobotEnv
from robots.shield import ALWAYS, MOTORS, PUSHED, TRIES, JointModel, Shield
from robots.vec_env import RobotVecEnv

ENGINES = ("bullet", "mujoco")
STEP_S = 0.02
LIMITS = {"joint_margin": 0.1, "max_velocity": 1.0, "max_torque": 200.0, "max_action_rate": 0.5}


def joints(n=1, rate=None, **changes):
    """Return n joints that a motor of 10 N m turns, and whose inertia is 1 kg m^2."""
    ones = np.ones(n)
    usual = {
        **{"lower": -ones, "upper": ones, "force": 10 * ones, "inertia": ones},
        **{"least_inertia": ones, "weight": 0 * ones, "push": 0 * ones, "kept": 0 * ones},
        **{"follows": 0 * ones, "fastest": np.inf * ones},
        "rate": None if rate is None else rate * ones,
    }
    return JointModel(**{**usual, **changes})


def shielded(limits=LIMITS, **more):
    """Return the entry of an environment's options."""
    return {**limits, **more, "on_violation": "shield"}


def broken_by(env, steps=150, push=None):
    """Return the limits that a policy broke that pushes as hard as it can, now here, now there."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    found, changed = set(), set()
    for step in range(steps):
        if step % 25 == 0:
            action = rng.choice([-1.0, 1.0], env.action_space.shape)
        *_, terminated, truncated, info = env.step(action if push is None else push)
        found |= set(info.get("violations", ()))
        changed |= set(info.get("shield", ()))
        if terminated or truncated:
            env.reset()
    return found, changed


# The projection alone -----------------------------------------------------------------------------


def test_a_command_within_all_limits_is_left_as_it_is():
    shield = Shield(joints(rate=1.0), STEP_S, braking=True, max_velocity=np.ones(1))
    targets, changes = shield.project(np.array([0.3]), np.zeros(1), np.zeros(1))
    assert targets.tolist() == [0.3]
    assert changes == {"velocity": 0.0, "joint_position": 0.0}


def test_a_joint_that_is_told_to_run_into_its_end_stops_before_it():
    shield = Shield(joints(rate=1.0), STEP_S, braking=True)
    position, velocity, speeds = np.zeros(1), np.zeros(1), []
    for _ in range(200):
        target, _ = shield.project(np.array([3.0]), position, velocity)
        # The motor reaches what it is told with 10 rad/s^2, in the shield's model of it.
        before, velocity = velocity, velocity + np.clip(target - velocity, -0.2, 0.2)
        position = position + STEP_S * 0.5 * (before + velocity)
        speeds.append(float(velocity[0]))
    assert 0.97 < position[0] <= 1.0
    assert max(speeds) > 2.0
    assert speeds[-1] == pytest.approx(0.0, abs=0.05)


def test_whatever_state_braking_began_in_a_joint_that_can_stop_does():
    rng = np.random.default_rng(1)
    shield = Shield(joints(500, rate=1.0), STEP_S, braking=True)
    way = rng.uniform(0.006, 2.0, 500)
    position, velocity = 1.0 - way, rng.uniform(0.0, 1.0, 500) * np.sqrt(20.0 * (way - 0.005))
    for _ in range(400):
        target, _ = shield.project(np.full(500, 9.0), position, velocity)
        before, velocity = velocity, velocity + np.clip(target - velocity, -0.2, 0.2)
        # The worst way from one velocity to the other: later if faster, at once if slower.
        slow = np.minimum(before, velocity)
        braking = np.maximum(before - velocity, 0.0)
        position = position + STEP_S * np.maximum(velocity, slow) + braking**2 / 20.0
    assert position.max() <= 1.0


def test_forces_slow_a_joint_down_before_its_end_and_its_greatest_velocity():
    shield = Shield(joints(), STEP_S, braking=True, max_velocity=np.ones(1))
    position, velocity, fastest = np.zeros(1), np.zeros(1), 0.0
    for _ in range(400):
        force, _ = shield.project(np.array([10.0]), position, velocity)
        velocity = velocity + STEP_S * force
        position = position + STEP_S * velocity
        fastest = max(fastest, float(velocity[0]))
    assert position[0] <= 1.0
    assert 0.85 < fastest <= 1.0


def test_the_rate_of_actions_holds_to_the_last_bit():
    rng = np.random.default_rng(0)
    shield = Shield(joints(), STEP_S, max_action_rate=0.3)
    previous, action = rng.uniform(-1, 1, (2, 100_000, 1))
    limited, _ = shield.limit_action(action, previous)
    assert (abs(limited - previous) <= 0.3).all()
    near = abs(action - previous) <= 0.3
    assert np.array_equal(limited[near], action[near])


def test_the_torque_of_a_stronger_or_weaker_motor_holds_to_the_last_bit():
    rng = np.random.default_rng(0)
    strength = rng.uniform(0.3, 3.0, (100_000, 1))
    shield = Shield(joints(), STEP_S, max_torque=np.array([3.7]))
    command, _ = shield.project(np.full((100_000, 1), 9.0), strength * 0, strength * 0, strength)
    assert (abs(command * strength) <= 3.7).all()
    assert (command * strength).min() == pytest.approx(min(3.7, 9.0 * strength.min()))


def test_what_was_changed_is_told_by_limit():
    shield = Shield(joints(rate=1.0), STEP_S, braking=True, max_velocity=np.ones(1))
    _, changes = shield.project(np.array([3.0]), np.zeros(1), np.zeros(1))
    assert changes == {"velocity": pytest.approx(2.06), "joint_position": 0.0}
    _, changes = shield.project(np.array([0.9]), np.array([0.99]), np.zeros(1))
    assert changes["velocity"] == 0.0
    assert changes["joint_position"] > 0.5


@pytest.mark.parametrize("rate", [None, 1.0, 24.0])
def test_one_world_and_many_have_the_same_numbers(rate):
    rng = np.random.default_rng(2)
    follows = np.full(7, float(rate == 24.0))
    shield = Shield(
        joints(7, rate, follows=follows),
        STEP_S,
        braking=True,
        max_velocity=np.full(7, 0.8),
        max_torque=np.full(7, 7.0),
    )
    targets, position, velocity = rng.uniform(-1.5, 1.5, (3, 50, 7))
    strength = rng.uniform(0.5, 1.5, (50, 1))
    many, changes = shield.project(targets, position, velocity, strength)
    for i in range(50):
        one, own = shield.project(targets[i], position[i], velocity[i], strength[i])
        assert one.tobytes() == many[i].tobytes()
        assert {k: float(v) for k, v in own.items()} == {k: v[i] for k, v in changes.items()}


# What it knows of a robot -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_chain_is_where_the_engine_says_that_its_end_is(engine):
    env = arm(ActionMode.POSITION, engine=engine)
    simulation, body, indices = env.simulation, env.robot.body, env.robot.drive.motors.indices
    link = simulation.links(body)["lbr_iiwa_link_7"]
    env.reset(seed=0)
    chain = chain_to(simulation, body, link, indices, env.state.joint_position)
    read = simulation.link_reader(body, [link])
    places = np.random.default_rng(0).uniform(-1.5, 1.5, (4, 7))
    ends, ways = chain.reach(places)
    for place, end, way in zip(places, ends, ways, strict=True):
        simulation.reset_joints(body, indices, place, np.zeros(7))
        assert end == pytest.approx(np.array(read()[0]), abs=1e-6)
        assert end.tobytes() == chain.end_of(place).tobytes()
        moved = [chain.end_of(place + 1e-6 * one) - end for one in np.eye(7)]
        assert way == pytest.approx(np.array(moved) / 1e-6, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cart_feels_its_pole_as_inertia_and_as_a_push(engine):
    env = cartpole(engine=engine)
    (cart,) = loads(env.simulation, env.robot.body, [0], passive=[1])
    assert cart.most == pytest.approx(1.1)
    assert cart.least == pytest.approx(1.0)
    assert cart.weight == 0.0
    assert cart.push == pytest.approx(0.1 * 9.81)


def test_promises_say_what_they_depend_on():
    def promised(env):
        return env.conditions.shield.promises

    assert promised(cartpole(safety=shielded(LIMITS, joint_margin=1.0))) == {
        "action_rate": ALWAYS,
        "velocity": PUSHED,
        "joint_position": PUSHED,
        "torque": ALWAYS,
    }
    assert promised(arm(ActionMode.VELOCITY, safety=shielded()))["joint_position"] == MOTORS
    assert promised(arm(ActionMode.PD, safety=shielded()))["velocity"] == TRIES
    assert promised(arm(ActionMode.TORQUE, safety=shielded()))["velocity"] == TRIES


# In environments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", [ActionMode.VELOCITY, ActionMode.POSITION, "delta_position"])
def test_an_arm_breaks_no_limit(engine, mode):
    # A range of 1.9 rad or less for each joint.
    safety = shielded(max_velocity=0.8, joint_margin=1.6)
    env = arm(ActionMode(mode), engine=engine, safety=safety)
    plain = arm(ActionMode(mode), engine=engine, safety={**safety, "on_violation": "count"})
    assert broken_by(plain)[0] >= {"velocity", "action_rate"}
    assert broken_by(env) == (set(), {"velocity", "action_rate", "joint_position"})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cart_stays_on_its_rail_and_below_its_velocity(engine):
    limits = {"joint_margin": 13.5, "max_velocity": 1.0, "max_torque": 8.0, "max_action_rate": 0.5}
    for answer in ("count", "shield"):
        env = gymnasium.make(
            "robots/CartPoleSwingUp-v0", engine=engine, safety={**limits, "on_violation": answer}
        ).unwrapped
        found, changed = broken_by(env, push=np.ones(1))
        if answer == "count":
            assert found == {"joint_position", "velocity", "torque", "action_rate"}
        else:
            assert (found, changed) == (
                set(),
                {"joint_position", "velocity", "torque", "action_rate"},
            )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_end_effector_stays_in_its_box(engine):
    box = [[0.3, -0.1, 0.015], [0.5, 0.1, 0.3]]
    env = gymnasium.make(
        "robots/FrankaPush-v0", engine=engine, safety=shielded({"workspace": box})
    ).unwrapped
    for push in (np.array([1.0, 1.0, 1.0]), np.array([-1.0, -1.0, 0.5])):
        assert broken_by(env, 60, push) == (set(), {"workspace"})
        tip = env.state.link_position[0]
        walls = np.array(box)[np.sign(push).astype(int).clip(0), range(3)]
        assert np.sort(abs(tip - walls))[1] < 0.03


def test_the_reward_sees_the_action_of_the_policy():
    env, plain = cartpole(safety=shielded({"max_action_rate": 0.1})), cartpole()
    for one in (env, plain):
        one.reset(seed=0)
    effort, usual = (one.step(np.ones(1))[4]["reward_terms"]["effort"] for one in (env, plain))
    assert effort == usual == pytest.approx(-0.01)
    assert env.state.joint_velocity[0] < plain.state.joint_velocity[0]


def test_changes_are_told_per_step_and_over_the_episode():
    env = cartpole(safety=shielded({"max_action_rate": 0.25}))
    env.reset(seed=0)
    total, steps = 0.0, 0
    for action in actions_for(env):
        *_, terminated, truncated, info = env.step(action)
        total += info.get("shield", {}).get("action_rate", 0.0)
        steps += "shield" in info
        if terminated or truncated:
            break
    assert steps > 3
    assert info["episode_shield"] == {
        "action_rate": steps,
        "action_rate_change": pytest.approx(total),
    }
    assert info["episode_violations"] == {"action_rate": 0}


def test_a_penalty_is_for_every_limit_that_was_changed():
    limits = {"max_action_rate": 0.5, "max_torque": 4.0}
    env = cartpole(safety=shielded(limits, penalty=0.3))
    env.reset(seed=0)
    for action, cost in ((1.0, -0.6), (0.3, 0.0), (0.45, -0.3)):
        _, reward, _, _, info = env.step(np.array([action]))
        assert info["reward_terms"]["safety"] == pytest.approx(cost)
        assert reward == sum(info["reward_terms"].values())
    assert "safety" not in cartpole(safety=shielded(limits)).term_names


def test_what_reaches_the_motors_late_is_judged_when_it_does():
    env = cartpole(latency=2, safety=shielded({"max_action_rate": 0.4}))
    env.reset(seed=0)
    changed = [env.step(np.ones(1))[4].get("shield") for _ in range(5)]
    assert changed == [None, None, {"action_rate": 0.6}, {"action_rate": pytest.approx(0.2)}, None]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", list(ActionMode))
def test_one_environment_and_many_go_the_same_way(engine, mode):
    def made():
        return arm(mode, engine=engine, safety=shielded(max_velocity=0.5, penalty=0.1))

    env, worlds = made(), RobotVecEnv([made(), made()])
    actions = actions_for(env, 60)
    other = -actions[::-1]
    env.reset(seed=3)
    worlds.reset(seed=[3, 4])
    for action, against in zip(actions, other, strict=True):
        observation, reward, terminated, truncated, info = env.step(action)
        many, rewards, *_, infos = worlds.step_worlds(np.stack([action, against]))
        assert many[0].tobytes() == observation.tobytes()
        assert rewards[0] == reward
        assert infos[0] == info
        if terminated or truncated:
            break


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", [ActionMode.POSITION, ActionMode.END_EFFECTOR])
def test_an_episode_goes_on_exactly_from_its_state(engine, mode):
    def made():
        return arm(mode, engine=engine, safety=shielded(max_velocity=0.5))

    env, fresh = made(), made()
    env.reset(seed=0)
    actions = actions_for(env, 80)
    play(env, actions[:30])
    fresh.load_state_dict(env.state_dict())
    assert play(fresh, actions[30:]) == play(env, actions[30:])


def test_wheels_and_a_robot_without_limits_of_its_joints_can_be_shielded():
    from continuing import Wander

    env = BaseRobotEnv(husky(), Wander(4), safety=shielded({"max_velocity": 2.0}))
    env.reset(seed=0)
    _, changed = broken_by(env, 20, np.ones(4))
    assert changed == {"velocity"}


@pytest.mark.parametrize(
    ("safety", "message"),
    [
        ({"max_torque": 1.0, "deceleration": 2.0}, "no effect with on_violation='count'"),
        (shielded({"joint_margin": 1.0}, deceleration=0.0), "deceleration=.* must be above 0"),
        ({"workspace": [[0, 0, 0], [1, 1]]}, "must be two corners"),
        ({"workspace": [[0, 0, 0], [1, 0, 1]]}, "must be two corners"),
        ({"workspace": [[-1] * 3, [1] * 3]}, "end_effector=None is no link of the robot"),
        ({"workspace": [[-1] * 3, [1] * 3], "end_effector": "pole"}, "cart_to_pole moves pole"),
        ({"max_torque": 1.0, "end_effector": "cart"}, "no effect without workspace"),
        (
            shielded({"workspace": [[-1] * 3, [1] * 3], "end_effector": "cart"}),
            "cannot be kept by a shield with action_mode=torque",
        ),
    ],
)
def test_what_cannot_be_shielded_is_refused_with_a_fix(safety, message):
    with pytest.raises(ValueError, match=message):
        cartpole(safety=safety)
