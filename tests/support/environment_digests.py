"""What an environment does in 200 steps, in a few numbers that can be compared with stored ones.

A fixed seed and fixed actions; physics computes in double precision, so the numbers are the same
everywhere but for the last bits of a sine or of a float32, which contacts amplify with time. So an
environment is played twice, the second time with actions that differ in their last bit: later
than 20 steps, numbers count until the two plays part.
"""

import contextlib
import json
import math
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import numpy as np
import yaml
from gymnasium import spaces
from support.training import make_config

import robots
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.envs.environment_version import environment_version
from rlzoo_plus.envs.single import make_env
from robots.engines import ENGINES

VERSIONS = Path(__file__).parents[1] / "envs" / "environment_versions.json"
FILE = Path(__file__).parents[1] / "envs" / "environment_digests.json"
SEED = 17
# After so many steps numbers are kept, which may differ by so much of their size.
TOLERANCES = {0: 1e-5, 1: 1e-4, 5: 1e-4, 20: 1e-4, 50: 1e-3, 100: 1e-2, 200: 1e-2}
ALWAYS = 20
_COLUMNS = ("the number of episodes", "the observation", "the sum of rewards")
# Options that every robot of ours takes, by variant of its name.
VARIANTS = {
    "": {"engine": "bullet"},
    "constrained": {
        "engine": "bullet",
        "latency": 1,
        "max_action_rate": 0.2,
        "motor_strength": 0.9,
    },
    "mujoco": {"engine": "mujoco"},
}
# OpenGL draws what it sees, on each machine a little otherwise.
SEES = "robots/CartPoleCamera-v0 mujoco"


def names():
    """Return the names of all digests: of each robot's variants, and of other environments."""
    ours = [f"{robot} {variant}".strip() for robot in robots.ROBOT_IDS for variant in VARIANTS]
    ours.remove(SEES)
    return [*ours, *sorted(_foreign())]


def digest(name, *, once=False):
    """Play an environment; return its numbers, and the package whose code it is.

    Played once, it has all numbers, of which another processor may not have the last.

    Raises:
        ConfigError: A package is not installed.
    """
    package = _version(package_of(name))
    numbers = {"numbers": _play(name, nudge=False)}
    if once:
        return {"package": package, **numbers}
    nudged = {"numbers": _play(name, nudge=True)}
    parted = _first_difference(numbers, nudged)
    if parted is not None:
        numbers["numbers"] = [
            row for row in numbers["numbers"] if row[0] <= ALWAYS or row[0] < parted[0]
        ]
    return {"package": package, **numbers}


def versions():
    """Return the hashes of what decides what each robot of ours does, by id and definition."""
    return {robot: _code(robot) for robot in robots.ROBOT_IDS}


def _code(robot):
    version = environment_version(
        make_config("env=cartpole_bullet").env.model_copy(
            update={"id": robot, "packages": [], "kwargs": {}}
        )
    )
    return {**version["code"], **version["assets"]}


def renamed(stored, found):
    """Return what to do about environments whose code is not the stored one, a text for each."""
    renew = "python scripts/renew_environment_digests.py --changed"
    texts = []
    for robot in sorted({*stored, *found}):
        old, new = stored.get(robot, {}), found.get(robot, {})
        names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        if names:
            texts.append(
                f"{robot}: {', '.join(names)} changed, so policies of before are refused. Register "
                f"what behaves otherwise, by one bit too, under a new version of the id; for what "
                f"behaves the same: {renew} {robot}"
            )
    return texts


def difference(stored, found):
    """Return where the numbers of an environment differ, None if they agree."""
    where = _first_difference(stored, found)
    return where and "after {} steps, {} is {}, not {}".format(*where)


def _first_difference(stored, found):
    """Return step, column, new and old value where both have numbers that differ, or None."""
    for (step, *expected), (_, *seen) in zip(stored["numbers"], found["numbers"], strict=False):
        tolerance = TOLERANCES[step]
        for key, old, new in zip(_COLUMNS, expected, seen, strict=True):
            if not math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance):
                return step, key, new, old
    return None


def explain(name, stored, found):
    """Return what to do about a digest that differs, None if it does not."""
    where = difference(stored, found)
    if where is None:
        return None
    renew = "python scripts/renew_environment_digests.py"
    if stored["package"] != found["package"]:
        return (
            f"{name}, {where}: the numbers are of {stored['package']}, installed is "
            f"{found['package']}. If that is meant: {renew}"
        )
    env_id = name.split(" ")[0]
    return (
        f"{name} behaves otherwise, {where}. Register the new behaviour under the next version, "
        f"{env_id[:-1]}{int(env_id[-1]) + 1}, then: {renew}. For a repair that keeps the id: "
        f"{renew} --changed {env_id}"
    )


def save(digests, file=None):
    """Write the digests, or versions, a line for each environment."""
    lines = [f'"{name}": {json.dumps(digests[name])}' for name in sorted(digests)]
    (file or FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def load(file=None):
    """Return the stored digests, or versions, by name."""
    file = file or FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _foreign():
    """Return name of the configuration and packages of each environment that is not ours."""
    found = {}
    for path in sorted((conf_dir() / "env").glob("[!_]*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        env_id = data.get("id", "???")
        # Teams of robots and builds of Unity are no environments of Gymnasium.
        if env_id not in ("???", "unity") and not env_id.startswith(("robots/", "robots.teams.")):
            found[f"{env_id} ({path.stem})"] = (path.stem, data.get("packages") or [])
    return found


def package_of(name):
    """Return the package whose code an environment is: of a robot, that of its engine."""
    if name.startswith("robots/"):
        return ENGINES[_variant(name)["engine"]].package
    return [*_foreign()[name][1], "gymnasium"][0]


def _version(package):
    return f"{package} {metadata.version(package)}"


def _variant(name):
    return VARIANTS[name.partition(" ")[2]]


def _make(name):
    if not name.startswith("robots/"):
        return make_env(make_config(f"env={_foreign()[name][0]}", "tuned=none").env)
    robots.register_robots()
    return gym.make(name.partition(" ")[0], **_variant(name))


def _play(name, nudge):
    with contextlib.closing(_make(name)) as env:
        return _play_it(env, nudge)


def _play_it(env, nudge):
    observation, _ = env.reset(seed=SEED)
    total, episodes = 0.0, 0
    numbers = [_numbers(0, observation, total, episodes)]
    for step in range(1, max(TOLERANCES) + 1):
        observation, reward, terminated, truncated, _ = env.step(
            _action(env.action_space, step, nudge)
        )
        total += float(reward)
        if step in TOLERANCES:
            numbers.append(_numbers(step, observation, total, episodes))
        if terminated or truncated:
            episodes += 1
            observation, _ = env.reset(seed=SEED + episodes)
    return numbers


def _numbers(step, observation, total, episodes):
    values = _flat(observation)
    # Weights without a pattern: no change of one value is hidden by that of another.
    weights = np.array([math.sin(1.0 + 12.9898 * i) for i in range(len(values))])
    projected = math.fsum(values * weights) / math.sqrt(len(values))
    return [step, episodes, float(f"{projected:.9g}"), float(f"{total:.9g}")]


def _flat(observation):
    if isinstance(observation, dict):
        return np.concatenate([_flat(observation[key]) for key in sorted(observation)])
    array = np.asarray(observation)
    return array.astype(np.float64).ravel() / (255.0 if array.dtype == np.uint8 else 1.0)


def _action(space, step, nudge):
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start + (7 * step + step // 5) % space.n)
    low = np.clip(space.low, -1.0, 1.0).ravel()
    high = np.clip(space.high, -1.0, 1.0).ravel()
    # Rounded: no library's sine may decide.
    waves = [round(0.5 + 0.5 * math.sin(0.31 * step + 1.7 * i), 3) for i in range(len(low))]
    action = (low + np.array(waves) * (high - low)).astype(space.dtype).reshape(space.shape)
    return np.nextafter(action, np.zeros_like(action)) if nudge else action
