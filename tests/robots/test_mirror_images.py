"""Mirrors: twice gives all back, and a mirrored robot does the mirror image of what it did."""

import gymnasium
import numpy as np
import pytest

import robots
from robots.mirror import Reflection

robots.register_robots()
WALK = {"standing": 0.0}
POSTS = {"obstacles": 4, "min_goal_m": 2.5}
BULLET, MUJOCO = "bullet", "mujoco"
# Environment, options, engine, and by what share of their size entries may differ: contacts are
# solved one after the other, and those of the Husky's wheels slide.
CASES = {
    "cartpole": ("robots/CartPoleBalance-v0", {}, BULLET, 1e-4),
    "cartpole of choices": ("robots/CartPoleBalance-v0", {"discrete": True}, BULLET, 1e-4),
    "swing-up": ("robots/CartPoleSwingUp-v0", {"discrete": True}, MUJOCO, 1e-4),
    "double pendulum": ("robots/DoublePendulum-v0", {}, BULLET, 1e-4),
    "husky": ("robots/HuskyDrive-v1", {}, BULLET, 0.5),
    "husky between posts": ("robots/HuskyDrive-v1", POSTS, BULLET, 0.7),
    "racecar": ("robots/RacecarDrive-v1", {}, MUJOCO, 0.02),
    "racecar between posts": ("robots/RacecarDrive-v1", POSTS, MUJOCO, 0.2),
    "a1": ("robots/A1Walk-v1", WALK, BULLET, 0.6),
    "a1 without a gait": ("robots/A1Walk-v1", {**WALK, "gait": "none"}, BULLET, 0.6),
    "vision60": ("robots/Vision60Walk-v1", WALK, MUJOCO, 0.02),
}
STEPS = 40
ACROSS = np.array([1.0, -1.0, 1.0])


def made(env_id, options, engine):
    return gymnasium.make(env_id, engine=engine, **options).unwrapped


def mirrored_start(env, start):
    """Return the mirror image of where an episode starts, from what is known of the robot."""
    memory = dict(start.memory)
    for name in ("goal", "posts"):
        if name in memory:
            memory[name] = (memory[name].reshape(-1, 2) * [1.0, -1.0]).ravel()
    if "schedule" in memory:
        memory["schedule"] = memory["schedule"] * [1.0, -1.0, -1.0]
        memory["command"] = memory["command"] * [1.0, -1.0, -1.0]
        # Half a period of the clock, at 2.5 steps a second and 50 Hz.
        memory["count"] = memory["count"] + 10.0
        joints = np.asarray(start.joint_position)
        names = [joint.name for joint in env.robot.joints]
        return start._replace(joint_position=legs_mirrored(names, joints), memory=memory)
    if env.robot.free_base:
        places = start.obstacle_position
        places = None if places is None else places * ACROSS
        return start._replace(obstacle_position=places, memory=memory)
    back = {
        name: -np.asarray(getattr(start, name)) for name in ("joint_position", "joint_velocity")
    }
    return start._replace(**back, memory=memory)


def legs_mirrored(names, position):
    """Return joint positions of the other side, hips with the other sign."""
    legs = position.reshape(4, 3) * [-1.0, 1.0, 1.0]
    # The A1 has front right, front left, rear right, rear left; the Vision 60 both of the left
    # first.
    return legs[[1, 0, 3, 2] if names[0].startswith("FR") else [2, 3, 0, 1]].ravel()


def played(env, start, actions):
    env.task.sample_initial_state = lambda rng: start
    seen = [env.reset(seed=0)[0]]
    for action in actions:
        observation, _, terminated, _, _ = env.step(action)
        seen.append(observation)
        if terminated:
            break
    return np.array(seen)


def difference(case, mirror=None):
    """Return the largest share by which an entry of a mirrored episode differs."""
    env_id, options, engine, _ = CASES[case]
    pytest.importorskip("mujoco" if engine == MUJOCO else "pybullet")
    env, other = (made(env_id, options, engine) for _ in range(2))
    try:
        mirror = mirror or env.mirror
        rng = np.random.default_rng(1)
        start = env.task.sample_initial_state(rng)
        if isinstance(env.action_space, gymnasium.spaces.Discrete):
            actions = np.repeat(rng.integers(env.action_space.n, size=STEPS // 5), 5)
            opposite = np.array(mirror.action.places)[actions]
        else:
            size = 0.7 if env.robot.free_base else 0.15
            shape = (STEPS // 5, *env.action_space.shape)
            actions = np.repeat(rng.uniform(-size, size, shape), 5, axis=0)
            opposite = mirror.action.of(actions)
        seen = played(env, start, actions)
        mirrored = played(other, mirrored_start(env, start), opposite)
    finally:
        env.close()
        other.close()
    if len(seen) != len(mirrored):
        return np.inf
    assert len(seen) > 5
    error = rms(mirror.observation.of(seen) - mirrored) / np.maximum(rms(mirrored), 0.1)
    return error.max()


def rms(values):
    return np.sqrt((values**2).mean(axis=0))


@pytest.mark.parametrize("case", CASES)
def test_a_mirrored_robot_does_the_mirror_image(case):
    assert difference(case) < CASES[case][-1]


WRONG = {
    "a joint's sign": ("vision60", "observation", 17, None),
    "a hip's action": ("a1", "action", 3, None),
    "a leg": ("a1", "action", 7, 7),
    "steering": ("racecar", "action", 1, None),
    "a post": ("racecar between posts", "observation", 9, 9),
    "the pole's velocity": ("cartpole", "observation", 4, None),
}


@pytest.mark.parametrize(("case", "part", "entry", "place"), WRONG.values(), ids=WRONG)
def test_a_wrong_declaration_shows(case, part, entry, place):
    env = made(*CASES[case][:3])
    right = getattr(env.mirror, part)
    places, signs = list(right.places), list(right.signs)
    if place is None:
        signs[entry] = -signs[entry]
    else:
        places[entry] = place
    mirror = env.mirror._replace(**{part: Reflection(tuple(places), tuple(signs))})
    env.close()
    assert difference(case, mirror) > CASES[case][-1]


@pytest.mark.parametrize("case", CASES)
def test_twice_mirrored_is_the_same(case):
    env = made(*CASES[case][:3])
    rng = np.random.default_rng(0)
    sizes = env.observation_space.shape[0], len(env.mirror.action.places)
    for part, size in zip(env.mirror, sizes, strict=True):
        values = rng.normal(size=(3, size))
        assert not np.allclose(part.of(values), values)
        np.testing.assert_array_equal(part.of(part.of(values)), values)
    env.close()


def test_choices_are_exchanged():
    env = made(*CASES["swing-up"][:3])
    assert env.mirror.action == Reflection((2, 1, 0), (1.0, 1.0, 1.0))
    env.close()


@pytest.mark.parametrize("env_id", ["robots/CartPoleCamera-v0", "robots/KukaReach-v1"])
def test_others_have_no_mirror(env_id):
    env = made(env_id, {}, BULLET)
    assert env.mirror is None
    env.close()
