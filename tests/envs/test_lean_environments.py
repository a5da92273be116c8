"""Lean stepping and normalising: the results of Stable-Baselines3's classes, bit for bit."""

import pickletools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from support.training import assert_same_tree

from rlzoo_plus.envs.monitor import EpisodeMonitor
from rlzoo_plus.fast.normalize import LeanNormalize, update_statistics
from rlzoo_plus.fast.serial_vec_env import SerialVecEnv

SPACES = {
    "float32": spaces.Box(-np.inf, np.inf, (5,), np.float32),
    "float64": spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    "integers": spaces.Box(-100, 100, (4,), np.int64),
    "number": spaces.Box(-np.inf, np.inf, (), np.float32),
    "dictionary": spaces.Dict(
        {"a": spaces.Box(-np.inf, np.inf, (3,), np.float32), "b": spaces.Discrete(4)}
    ),
}


class Scripted(gym.Env):
    """Random observations of any size and infos of any kind; uses its arrays again."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space, self.info = space, {"shared": [0]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), {"first": True}

    def step(self, action):
        self.info["shared"][0] += 1
        info = {**self.info, "score": {"x": float(action)}, "where": np.arange(3.0), "n": 1}
        reward = self.np_random.normal() * 10.0 ** self.np_random.integers(-20, 20)
        ends, cut = self.np_random.random(2) < 0.1
        return self._draw(), reward, bool(ends), bool(cut), info

    def _draw(self):
        def draw(space):
            if isinstance(space, spaces.Discrete):
                return int(self.np_random.integers(space.n))
            size = 10.0 ** self.np_random.integers(-30, 15, size=space.shape)
            values = self.np_random.normal(size=space.shape) * size
            if space.dtype.kind == "i":
                return np.clip(values, space.low, space.high).astype(space.dtype)
            return np.asarray(values, space.dtype)

        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: draw(part) for key, part in space.spaces.items()}
        return draw(space)


def make(kind, space, n_envs=3):
    return kind([lambda: Monitor(Scripted(space)) for _ in range(n_envs)])


def play(venv, steps):
    """Return all that an environment and its statistics show."""
    venv.seed(1)
    seen = [_shown(venv.reset())]
    for number in range(steps):
        observations, rewards, dones, infos = venv.step(np.arange(venv.num_envs) + number % 2)
        for info in infos:
            info.get("episode", {}).pop("t", None)
        seen.append([_shown(observations), rewards, dones, infos, venv.reset_infos])
        if isinstance(venv, VecNormalize):
            seen.append([_shown(venv.get_original_obs()), venv.get_original_reward()])
            statistics = [getattr(venv, "obs_rms", None), venv.ret_rms]
            flat = [_statistics(one) for one in statistics if one is not None]
            seen.append([venv.returns, *flat])
    return seen


def _shown(observations):
    return dict(observations) if isinstance(observations, dict) else observations


def _statistics(statistics):
    if isinstance(statistics, dict):
        return {key: vars(one) for key, one in statistics.items()}
    return dict(vars(statistics))


@pytest.mark.parametrize("space", SPACES)
def test_environments_are_stepped_as_by_dummy_vec_env(space):
    expected = play(make(DummyVecEnv, SPACES[space]), 60)
    assert_same_tree(play(make(SerialVecEnv, SPACES[space]), 60), expected)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_episodes_are_recorded_as_by_a_monitor(space):
    lean = SerialVecEnv([lambda: EpisodeMonitor(Scripted(space)) for _ in range(3)])
    assert_same_tree(play(lean, 60), play(make(DummyVecEnv, space), 60))


def test_what_is_returned_belongs_to_the_caller():
    venv = make(SerialVecEnv, SPACES["float32"])
    venv.seed(1)
    first = venv.reset().copy()
    observations, rewards, _, infos = venv.step([0, 1, 0])
    shared, env = infos[0]["shared"], venv.envs[0].unwrapped
    assert shared is not env.info["shared"]
    kept = observations.copy(), rewards.copy(), infos[0]["where"].copy()
    infos[1]["score"]["x"] = infos[1]["where"][0] = 99.0
    venv.step([1, 1, 1])
    assert shared == [1]
    assert_same_tree([observations, rewards, infos[0]["where"]], list(kept))
    assert venv.buf_infos[1]["score"]["x"] != 99.0
    assert not np.array_equal(first, observations)


NORMALIZED = [name for name in SPACES if name != "dictionary"]


@pytest.mark.parametrize("space", NORMALIZED)
@pytest.mark.parametrize(
    "settings",
    [{}, {"training": False}, {"norm_obs": False}, {"norm_reward": False, "clip_obs": 3}],
    ids=str,
)
def test_numbers_are_those_of_vec_normalize(space, settings):
    plain = VecNormalize(make(DummyVecEnv, SPACES[space]), **settings)
    lean = LeanNormalize(make(DummyVecEnv, SPACES[space]), **settings)
    assert_same_tree(play(lean, 80), play(plain, 80))


def test_dictionaries_are_left_to_vec_normalize():
    space = SPACES["dictionary"]
    venvs = [
        kind(make(DummyVecEnv, space), norm_obs_keys=["a"])
        for kind in (LeanNormalize, VecNormalize)
    ]
    assert_same_tree(*[play(venv, 40) for venv in venvs])


def test_given_arrays_are_not_changed():
    venv = LeanNormalize(make(DummyVecEnv, SPACES["float64"]))
    venv.reset()
    given = np.random.default_rng(0).normal(size=(4, 2, 3))
    before, rewards = given.copy(), given[:, 0, 0].copy()
    result = venv.normalize_obs(given)
    venv.normalize_reward(rewards)
    assert_same_tree([given, rewards], [before, before[:, 0, 0]])
    assert result.dtype == np.float32


@pytest.mark.parametrize(
    "shape", [(1,), (8,), (37,), (1, 3), (4, 26), (33, 5), (200, 7), (3, 4, 5)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16])
def test_running_statistics_are_those_of_stable_baselines3(shape, dtype):
    random = np.random.default_rng(0)
    mine, theirs = RunningMeanStd(shape=shape[1:]), RunningMeanStd(shape=shape[1:])
    for _ in range(60):
        values = random.normal(size=shape) * 10.0 ** random.integers(-3, 3) + random.normal()
        update_statistics(mine, values.astype(dtype))
        theirs.update(values.astype(dtype))
        assert_same_tree(vars(mine), vars(theirs))


def test_it_is_saved_as_a_vec_normalize(tmp_path):
    venv = LeanNormalize(make(DummyVecEnv, SPACES["float32"]))
    play(venv, 5)
    venv.save(str(tmp_path / "normalize.pkl"))
    names = [text for _, text, _ in pickletools.genops((tmp_path / "normalize.pkl").read_bytes())]
    assert not any("rlzoo_plus" in str(name) for name in names)
    loaded = VecNormalize.load(
        str(tmp_path / "normalize.pkl"), make(DummyVecEnv, SPACES["float32"])
    )
    assert type(loaded) is VecNormalize
    assert_same_tree(vars(loaded.obs_rms), vars(venv.obs_rms))
