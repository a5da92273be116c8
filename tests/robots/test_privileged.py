"""The entry `privileged` of observations: what conditions and noise hide from a policy."""

import gymnasium
import numpy as np
import pytest
from continuing import EPISODE_S, EVERYTHING, from_json, to_json, tumbler

import robots
from robots.cartpole import CartPoleCameraEnv
from robots.vec_env import RobotVecEnv

robots.register_robots()
VARIED = {**EVERYTHING, "latency": {"choice": [1, 3]}}
IDS = ("robots/CartPoleBalance-v0", "robots/KukaReach-v1", "robots/HuskyDrive-v1")


def made(env_id=IDS[0], **options):
    usual = {"randomization": VARIED, "privileged": True, "episode_s": EPISODE_S}
    return gymnasium.make(env_id, **{**usual, **options}).unwrapped


def actions_of(env, count, n_envs=1):
    rng = np.random.default_rng(0)
    shape = (count, n_envs, *env.action_space.shape)
    return rng.uniform(-1, 1, shape).astype(np.float32)


def named(env, observation):
    return dict(zip(env.conditions.privileged.names, observation["privileged"], strict=True))


@pytest.mark.parametrize("engine", ["bullet", "mujoco"])
@pytest.mark.parametrize("env_id", IDS[:2])
def test_one_world_and_many_see_the_same_on_both_engines(env_id, engine):
    pytest.importorskip("mujoco" if engine == "mujoco" else "pybullet")
    options = {"engine": engine, "latency": 1, "max_action_rate": 0.5}
    alone, worlds = made(env_id, **options), [made(env_id, **options) for _ in range(2)]
    batch = RobotVecEnv(worlds)
    one, many = alone.reset(seed=3)[0], batch.reset(seed=[3, 4])[0]
    n_ended = 0
    for action in actions_of(alone, 60, 2):
        assert alone.observation_space.contains(one)
        for key, value in one.items():
            assert many[key].dtype == value.dtype
            assert np.array_equal(many[key][0], value)
        one, _, terminated, truncated, _ = alone.step(action[0])
        many = batch.step(action)[0]
        if terminated or truncated:
            n_ended += 1
            one = alone.reset()[0]
    assert n_ended > 0


def test_it_holds_what_was_drawn_and_the_observation_without_noise():
    hidden = {"observation_bias": -0.1, "mass": {"uniform": [0.5, 2.0]},
              "latency": {"choice": [1, 3]}}  # fmt: skip
    env = made(randomization=hidden)
    masses = set()
    for seed in range(6):
        seen, info = env.reset(seed=seed)
        found, drawn = named(env, seen), info["randomization"]
        masses.add(found["mass"])
        assert found["mass"] == np.float32(drawn["mass"])
        assert found["latency"] == drawn["latency"]
        clean = [found[f"observation_{index}"] for index in range(len(seen["observation"]))]
        assert np.array_equal(clean, env.task.observation(env.state))
        assert np.allclose(seen["observation"] - clean, -0.1, atol=1e-6)
    assert len(masses) == 6


def test_actions_that_have_not_arrived_and_pushes_are_in_it():
    late = {"latency": {"choice": [2]}, "push": {"every_s": 0.1, "velocity": 0.5}}
    env = made(randomization=late)
    env.reset(seed=0)
    waits, pushed = [], 0
    for action in actions_of(env, 12)[:, 0]:
        seen = env.step(action)[0]
        found = named(env, seen)
        assert found["action_under_way_1"] == action[0]
        waits.append(round(found["push_in_s"] / env.simulation.step_s))
        # A push draws when the next one comes.
        is_new = len(waits) > 1 and waits[-1] > waits[-2]
        assert bool(found["push_0"] or found["push_1"]) == is_new or len(waits) == 1
        pushed += is_new
    assert pushed > 0


def test_a_free_robot_shows_its_push_and_all_that_is_read_of_it():
    env = tumbler(randomization={"push": {"every_s": 0.2, "velocity": 0.3}}, privileged=True)
    env.reset(seed=1)
    pushes = []
    for action in actions_of(env, 30)[:, 0]:
        found = named(env, env.step(action)[0])
        pushes.append((found["push_0"], found["push_1"]))
    assert any(map(any, pushes))
    assert not all(map(any, pushes))
    velocity = [found[f"base_velocity_{axis}"] for axis in range(3)]
    assert np.array_equal(velocity, env.state.base_velocity.astype(np.float32))
    assert {"contact_0", "object_position_0", "joint_effort_0"} <= found.keys()


def test_an_image_alone_has_the_state_behind_it():
    env = CartPoleCameraEnv(privileged=True)
    names = env.conditions.privileged.names
    assert names == ("joint_position_0", "joint_position_1", "joint_velocity_0", "joint_velocity_1")
    seen, _ = env.reset(seed=0)
    assert env.observation_space.contains(seen)
    assert np.array_equal(seen["privileged"][:2], env.state.joint_position.astype(np.float32))


@pytest.mark.parametrize("engine", ["bullet", "mujoco"])
def test_a_state_continues_with_the_same_entries(engine):
    pytest.importorskip("mujoco" if engine == "mujoco" else "pybullet")
    env, other = made(engine=engine), made(engine=engine)
    actions = actions_of(env, 30)[:, 0]
    env.reset(seed=5)
    for action in actions[:13]:
        env.step(action)
    other.reset(seed=9)
    other.load_state_dict(from_json(to_json(env.state_dict())))
    for action in actions[13:]:
        one, two = env.step(action), other.step(action)
        assert all(np.array_equal(one[0][key], two[0][key]) for key in one[0])
        if one[2] or one[3]:
            break


def test_physics_and_rewards_do_not_depend_on_it():
    plain, shown = (tumbler(randomization=VARIED, **more) for more in ({}, {"privileged": True}))
    assert np.array_equal(plain.reset(seed=2)[0], shown.reset(seed=2)[0]["observation"])
    for action in actions_of(plain, 25)[:, 0]:
        one, two = plain.step(action), shown.step(action)
        assert np.array_equal(one[0], two[0]["observation"])
        assert one[1:4] == two[1:4]


def test_it_is_true_or_false():
    with pytest.raises(ValueError, match="privileged='all' must be true or false"):
        made(privileged="all")
    assert made(privileged=False, randomization=None).conditions is None
