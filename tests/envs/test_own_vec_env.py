"""Vectorised environments of the user's own and of Gymnasium, in the form of the library."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv
from support.tiny_envs import TinyDict, TinyReach
from support.training import evaluations, make_config, tiny_config, train_run

from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.envs.fit import inspect_env
from rlzoo_plus.envs.own_vec_env import OwnVecEnv
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.evaluation import evaluate

MINE = "vec_env=support.vec_envs.Walkers"
LENGTHS = (3, 4)


class _Ending(TinyReach):
    """Ends its own way after a number of steps; the third observation counts them."""

    def __init__(self, length, cut):
        super().__init__()
        self.length, self.cut = length, cut

    def step(self, action):
        observation, reward, *_ = super().step(action)
        ends = self.steps == self.length
        info = {"is_success": True} if ends else {}
        return observation, reward, ends and not self.cut, ends and self.cut, info


def _venv(mode, *, cut=True):
    makers = [lambda n=n: _Ending(n, cut) for n in LENGTHS]
    venv = OwnVecEnv(SyncVectorEnv(makers, autoreset_mode=mode), "mine")
    venv.seed(3)
    return venv


def _play(venv, n_steps):
    """Return observations and, for each step, what was told."""
    rows = [(venv.reset(), None, None, None)]
    for number in range(n_steps):
        actions = np.full((venv.num_envs, 1), 0.1 * number, np.float32)
        rows.append(venv.step(actions))
    return rows


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_each_step_is_as_in_a_dummy_vec_env(mode, cut):
    dummy = DummyVecEnv([lambda n=n: gym.wrappers.OrderEnforcing(_Ending(n, cut)) for n in LENGTHS])
    dummy.seed(3)
    for mine, theirs in zip(_play(_venv(mode, cut=cut), 9), _play(dummy, 9), strict=True):
        if mine[1] is None:
            np.testing.assert_array_equal(mine[0], theirs[0])
            continue
        np.testing.assert_array_equal(mine[1], theirs[1])
        np.testing.assert_array_equal(mine[2], theirs[2])
        for rank in np.flatnonzero(mine[2]):
            info, other = mine[3][rank], theirs[3][rank]
            np.testing.assert_array_equal(
                info["terminal_observation"], other["terminal_observation"]
            )
            assert info["TimeLimit.truncated"] == other["TimeLimit.truncated"] == cut
            assert info["is_success"]


@pytest.mark.parametrize("cut", [True, False])
def test_a_reset_that_takes_a_step_is_an_episode_of_its_own_that_teaches_nothing(cut):
    rows = _play(_venv(AutoresetMode.NEXT_STEP, cut=cut), 9)[1:]
    ends = [n for n, row in enumerate(rows) if "episode" in row[3][0]]
    assert ends == [2, 6], "an episode of three steps, and one step to reset"
    for end in ends:
        _, rewards, dones, infos = rows[end]
        last = infos[0]["terminal_observation"]
        assert dones[0]
        assert rewards[0] < 0
        assert last[2] == 3
        assert infos[0]["TimeLimit.truncated"] == cut
        after, rewards, dones, infos = rows[end + 1]
        assert dones[0]
        assert rewards[0] == 0
        assert after[0][2] == 0, "the next episode's first observation"
        np.testing.assert_array_equal(infos[0]["terminal_observation"], last)
        assert infos[0]["TimeLimit.truncated"] == cut
        assert "episode" not in infos[0]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_return_and_length_of_each_episode_are_those_of_its_steps(mode):
    rows = _play(_venv(mode), 9)
    total, count = np.zeros(2), np.zeros(2, int)
    for _, rewards, dones, infos in rows[1:]:
        total, count = total + rewards, count + 1
        for rank in np.flatnonzero(dones):
            if "episode" in infos[rank]:
                assert infos[rank]["episode"]["l"] == LENGTHS[rank] == count[rank]
                assert infos[rank]["episode"]["r"] == pytest.approx(total[rank], rel=1e-6)
            total[rank], count[rank] = 0.0, 0


def test_infos_belong_to_the_environments_that_gave_them():
    class Telling(TinyReach):
        def __init__(self, rank):
            super().__init__()
            self.rank = rank

        def step(self, action):
            observation, *rest, _ = super().step(action)
            info = {"rank": self.rank, "parts": {"a": 2 * self.rank}} if self.rank else {}
            return observation, *rest, info

    venv = OwnVecEnv(SyncVectorEnv([lambda n=n: Telling(n) for n in range(3)]), "mine")
    infos = _play(venv, 1)[1][3]
    assert [info.get("rank") for info in infos] == [None, 1, 2]
    assert [info.get("parts") for info in infos] == [None, {"a": 2}, {"a": 4}]


def test_observations_are_copies_also_of_dictionaries():
    inner = SyncVectorEnv([lambda: TinyDict(picture=False)] * 2, copy=False)
    venv = OwnVecEnv(inner, "mine")
    first = venv.reset()
    kept = {key: value.copy() for key, value in first.items()}
    venv.step(np.ones((2, 1), np.float32))
    assert isinstance(venv.observation_space, spaces.Dict)
    for key, value in kept.items():
        np.testing.assert_array_equal(first[key], value)


def test_environments_that_say_nothing_of_their_resets_are_taken_for_the_default(caplog):
    inner = SyncVectorEnv([TinyReach])
    inner.metadata = {}
    OwnVecEnv(inner, "mine")
    assert "autoreset_mode" in caplog.text


def test_a_class_is_called_with_the_configuration_the_number_and_the_seed():
    config = tiny_config(
        "ppo", "Walk", MINE, "n_envs=3", "env.kwargs={length: 5}", "env.time_limit=7"
    )
    venv = make_train_env(config, seed=11)
    inner = venv.unwrapped.inner
    assert (inner.env.id, inner.env.kwargs, inner.env.time_limit) == ("Walk", {"length": 5}, 7)
    assert (inner.num_envs, inner.first_seed) == (3, 11)


def test_a_class_of_gymnasium_is_called_as_make_vec_calls_it():
    config = tiny_config(
        "ppo", "Cart", "vec_env=gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv",
        "n_envs=2", "env.time_limit=9", "env.kwargs={sutton_barto_reward: true}",
    )  # fmt: skip
    inner = make_train_env(config, seed=0).unwrapped.inner
    assert (inner.num_envs, inner.max_episode_steps, inner._sutton_barto_reward) == (2, 9, True)


def test_its_seed_decides_its_episodes_and_the_wrappers_of_the_run_are_around_it():
    config = tiny_config("ppo", "Walk", MINE, "n_envs=2", "env.frame_stack=3", "normalize=true")
    venvs = [make_train_env(config, seed) for seed in (5, 5, 6)]
    first, again, other = (venv.reset() for venv in venvs)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == (2, 6)
    assert venvs[0].norm_obs


class Always:
    """A policy that does the same at each step."""

    maskable = False

    def __init__(self, actions):
        self.actions = actions

    def predict(self, observation, state, starts, deterministic, masks):
        return self.actions, None


def test_evaluation_plays_the_same_class_with_the_same_seeds_each_time():
    config = tiny_config("ppo", "Walk", MINE, "n_envs=2")
    venv = make_eval_env(config.env, 2, config.vec_env)
    assert type(venv.unwrapped.inner).__name__ == "Walkers"

    always = Always(np.zeros((2, 1), np.float32))
    played = [evaluate(always, venv, [70, 71, 72]) for _ in range(2)]
    assert played[0] == played[1]
    assert len(played[0].returns) == 3


def test_evaluation_counts_no_step_between_episodes_as_one():
    config = tiny_config("ppo", "CartPole-v1", "vec_env=gymnasium", "n_envs=2", "env.packages=[]")
    venv = make_eval_env(config.env, 2, config.vec_env)

    result = evaluate(Always(np.ones(2, np.int64)), venv, list(range(6)))
    assert result.returns == [float(length) for length in result.episode_lengths]
    assert min(result.episode_lengths) > 5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("vec_env=support.vec_envs.Missing",), "is not in its module"),
        (("vec_env=support.tiny_envs.TinyReach",), "is not a VecEnv or VectorEnv"),
        (("vec_env=support.vec_envs.TooFew", "n_envs=3"), "num_envs is 1, and n_envs=3"),
        (("vec_env=support.vec_envs.Refuses",), "cannot be made with the arguments"),
        (("vec_env=support.vec_envs.OtherShape",), "has the shape|of shape"),
        (("vec_env=support.vec_envs.Breaks",), "its step raises ZeroDivisionError"),
        (("vec_env=gymnasium", "env.id=Pendulum-v1"), "Pendulum-v1 has none"),
        (("vec_env=gymnasium", "env.id=Pendulm-v1"), "Pendulm"),
    ],
)
def test_what_is_no_vectorised_environment_is_refused_in_one_line(overrides, message):
    chosen = "env.id=Walk" if not any(o.startswith("env.id") for o in overrides) else "seed=0"
    config = make_config("env=gym", "algo=ppo", "tuned=none", chosen, *overrides)
    with pytest.raises(ConfigError, match=message) as error:
        inspect_env(config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("override", ["env.wrappers=[clip_reward]", "env.warmup_resets=1"])
def test_what_wraps_single_environments_is_refused(override):
    with pytest.raises(ConfigError, match="steps all environments at once"):
        tiny_config("ppo", "Walk", MINE, override)


def test_a_misspelled_name_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean 'subproc'"):
        tiny_config("ppo", "tests/TinyReach-v0", "vec_env=subprok")


def test_its_name_is_part_of_the_runs_hash():
    hashes = {
        config_hash(tiny_config("ppo", "tests/TinyReach-v0", f"vec_env={name}"))
        for name in ("auto", "dummy", "gymnasium", "support.vec_envs.Walkers")
    }
    assert len(hashes) == 3


def test_why_it_is_not_exact_is_known_before_it_trains():
    reason = inspect_env(
        tiny_config("ppo", "Walk", "vec_env=support.vec_envs.NoState")
    ).replay_problem
    assert reason.startswith("vec_env=support.vec_envs.NoState does not give its state")
    assert inspect_env(tiny_config("ppo", "Walk", MINE)).replay_problem is None
    differs = "vec_env=support.vec_envs.Forgetful: steps after a state was restored differ"
    forgets = tiny_config("ppo", "Walk", "vec_env=support.vec_envs.Forgetful")
    assert inspect_env(forgets).replay_problem == differs


def test_what_callbacks_call_is_named_as_not_recorded():
    venv = make_train_env(tiny_config("ppo", "Walk", MINE, "n_envs=2"), 0)
    venv.env_method("harder")
    assert "env_method 'harder' was called" in venv.unwrapped.unrecorded[0]


def test_a_state_of_more_than_plain_data_is_named():
    venv = make_train_env(tiny_config("ppo", "Walk", "vec_env=support.vec_envs.SeesClock"), 0)
    with pytest.raises(ValueError, match="returns more than plain data"):
        venv.unwrapped.state()


OF_GYMNASIUM = ("CartPole-v1", "vec_env=gymnasium", "env.packages=[]")


@pytest.mark.training
@pytest.mark.parametrize(
    ("algo", "env", "n_rows"),
    [("ppo", ("Walk", MINE), 9), ("sac", ("Walk", MINE), 9), ("ppo", OF_GYMNASIUM, None)],
)
def test_a_training_records_its_episodes_and_evaluates(tmp_path, algo, env, n_rows):
    run_dir, result = train_run(tmp_path / "run", tiny_config(algo, *env, "n_envs=2"))
    assert result.state == "finished"
    rows = (run_dir.monitor / "0.monitor.csv").read_text().splitlines()[2:]
    assert n_rows in (None, len(rows))
    assert len(evaluations(run_dir)) > 0


class _Reusing(DummyVecEnv):
    """Returns the same array at each step, and an `episode` of its own."""

    def step_wait(self):
        observations, rewards, dones, infos = super().step_wait()
        self.shown[:] = observations
        return self.shown, rewards, dones, [{**info, "episode": 5} for info in infos]

    def reset(self):
        self.shown = super().reset()
        return self.shown


def test_a_class_may_use_its_arrays_and_the_word_episode_itself():
    venv = OwnVecEnv(_Reusing([lambda: _Ending(3, True)]), "mine")
    before = [venv.reset()]
    for number in range(1, 4):
        observations, _, dones, infos = venv.step(np.zeros((1, 1), np.float32))
        assert infos[0]["env_episode"] == 5
        assert ("episode" in infos[0]) == dones[0] == (number == 3)
        before.append(observations)
    assert [int(one[0, 2]) for one in before] == [0, 1, 2, 0]
