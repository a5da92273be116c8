"""Many agents of PettingZoo: rows of a batch, exact, told apart in evaluations."""

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from support.meeting import Forgetful, Meeting
from support.training import make_config

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.envs.own_vec_env import make_own_vec_env
from rlzoo_plus.errors import ConfigError

TASK = ("env=pettingzoo", "env.id=support.meeting.Meeting", "tuned=none", "network.net_arch=[8]",
        "device=cpu", "num_threads=1", "n_envs=2", "n_timesteps=300", "eval.every_steps=150",
        "eval.episodes=6", "log.tensorboard=false", "report.video=false",
        "algo.hyperparams.n_steps=10", "algo.hyperparams.batch_size=20")  # fmt: skip


def worlds(env_id="support.meeting.Meeting", n_envs=2, seed=3, monitor=None, **kwargs):
    values = [f"env.kwargs.{key}={str(value).lower()}" for key, value in kwargs.items()]
    config = make_config(*TASK, f"env.id={env_id}", *values)
    return make_own_vec_env(config.env, n_envs, config.vec_env, seed, monitor)


def acts(venv, rng):
    return rng.uniform(-1, 1, (venv.num_envs, *venv.action_space.shape)).astype(np.float32)


def test_rows_are_what_the_agents_of_a_world_see_and_earn():
    venv, alone = worlds(n_envs=1), Meeting()
    seen, rng = venv.reset(), np.random.default_rng(0)
    inner = venv.inner.worlds[0]
    first_seed = inner.seed
    first, _ = alone.reset(seed=first_seed)
    assert np.array_equal(seen, np.stack([first[agent] for agent in "abc"]))
    for step in range(1, 8):
        actions = acts(venv, rng)
        there = list(alone.agents)
        seen, rewards, dones, infos = venv.step(actions)
        expected = alone.step({a: x for a, x in zip("abc", actions, strict=True) if a in there})
        for row, agent in enumerate("abc"):
            if agent not in there:
                assert (rewards[row], dones[row]) == (0, True)
                assert "episode" not in infos[row]
                assert not infos[row]["terminal_observation"].any()
                continue
            assert rewards[row] == np.float32(expected[1][agent])
            assert dones[row] == (expected[2][agent] or expected[3][agent])
            last = infos[row]["terminal_observation"] if dones[row] else seen[row]
            assert np.array_equal(last, expected[0][agent])
            if dones[row]:
                assert infos[row]["TimeLimit.truncated"] == (not expected[2][agent])
        if step == 4:
            assert infos[0]["episode"]["l"] == 4
            assert "return/team" not in infos[0]["episode"]  # It is not over.
    assert infos[1]["episode"]["l"] == 7
    earned = [infos[row]["episode"]["r"] for row in (1, 2)]
    assert np.allclose([infos[1]["episode"]["return/b"], infos[2]["episode"]["return/c"]], earned)
    assert infos[1]["episode"]["return/team"] == infos[2]["episode"]["return/team"]
    # The next episode has begun for all, from another seed.
    assert np.array_equal(seen[:, 1:], [[0, 1]] * 3)
    assert inner.seed != first_seed


def test_an_agent_that_comes_later_has_an_episode_of_its_own():
    venv, rng = worlds(n_envs=1, late="c", leaves=100), np.random.default_rng(0)
    seen = venv.reset()
    assert not seen[2].any()
    lengths = {}
    for _ in range(7):
        _, _, dones, infos = venv.step(acts(venv, rng))
        lengths |= {row: infos[row]["episode"]["l"] for row in np.flatnonzero(dones)
                    if "episode" in infos[row]}  # fmt: skip
    # It is there from the second step on, and its first action is in the third.
    assert lengths == {0: 7, 1: 7, 2: 6}


def test_episodes_of_agents_are_recorded_once(tmp_path):
    venv, rng = worlds(monitor=tmp_path), np.random.default_rng(0)
    venv.reset()
    for _ in range(14):
        venv.step(acts(venv, rng))
    venv.close()
    rows = (tmp_path / "0.monitor.csv").read_text().splitlines()[2:]
    assert sorted(int(row.split(",")[1]) for row in rows) == [4] * 4 + [7] * 8


def test_a_time_limit_cuts_all_agents():
    config = make_config(*TASK, "env.time_limit=3")
    venv = make_own_vec_env(config.env, 1, config.vec_env, 0)
    venv.reset()
    for _ in range(3):
        _, _, dones, infos = venv.step(acts(venv, np.random.default_rng(0)))
    assert dones.all()
    assert all(info["TimeLimit.truncated"] for info in infos)


@pytest.mark.parametrize("kwargs", [{}, {"late": "b"}, {"discrete": True}])
def test_a_state_is_played_again(kwargs):
    venv, other, rng = worlds(**kwargs), worlds(seed=8, **kwargs), np.random.default_rng(0)
    venv.reset()

    def step(which, rng):
        if "discrete" in kwargs:
            return which.step(rng.integers(0, 3, which.num_envs))
        return which.step(acts(which, rng))

    for _ in range(5):
        step(venv, rng)
    other.reset()
    assert other.restore(venv.state()) is None
    for seed in range(12):
        one, two = (step(each, np.random.default_rng(seed)) for each in (venv, other))
        assert all(np.array_equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))


def test_a_world_that_comes_out_otherwise_is_told():
    venv, other = worlds("support.meeting.Forgetful"), worlds("support.meeting.Forgetful")
    assert isinstance(venv.inner.worlds[0].inner, Forgetful)
    venv.reset()
    venv.step(acts(venv, np.random.default_rng(0)))
    assert "comes out otherwise" in other.restore(venv.state())
    assert "worlds" in worlds(n_envs=1).restore(venv.state())


@pytest.mark.parametrize(
    ("env_id", "told"),
    [
        ("support.meeting.Different", "pad them, with SuperSuit"),
        ("support.meeting.Nothing", "no attribute 'Nothing'"),
        ("support.meeting", "makes no worlds"),
        ("mpe/no_such-v1", "unknown env.id"),
        ("pettingzoo.no_such_v1", "cannot be made"),
    ],
)
def test_mistakes_are_told(env_id, told):
    with pytest.raises(ConfigError, match=told):
        worlds(env_id)


def test_wrong_arguments_are_told():
    with pytest.raises(ConfigError, match="unexpected keyword argument 'lenght'"):
        worlds(lenght=3)


def test_only_worlds_of_pettingzoo_need_no_trust():
    assert own_code(make_config(*TASK)) == ["support.meeting"]
    assert own_code(make_config(*TASK, "env.id=mpe2.simple_spread_v3")) == []
    assert own_code(make_config(*TASK, "env.id=sisl/pursuit-v5")) == []


@pytest.mark.training
def test_a_run_is_trained_evaluated_and_resumed_exactly(tmp_path, capsys):
    run = tmp_path / "run"
    assert dispatch.run("train", [*TASK, "normalize=true", f"run_dir={run}"]) == 0
    records = list(read_records(RunDir(run).evaluations_file))
    assert {"return/a", "return/b", "return/c", "return/team"} <= records[-1]["metrics"].keys()
    capsys.readouterr()
    assert dispatch.run("evaluate", [str(run), "--episodes", "6"]) == 2
    assert "support.meeting" in capsys.readouterr().err
    assert dispatch.run("evaluate", [str(run), "--episodes", "6", "--trust"]) == 0
    assert "return/team" in capsys.readouterr().out
    assert dispatch.run("verify-resume", [*TASK]) == 0
    assert "identical" in capsys.readouterr().out


@pytest.mark.training
def test_off_policy_algorithms_share_a_policy_too(capsys):
    words = [word for word in TASK if "hyperparams" not in word]
    words += ["algo=sac", "algo.hyperparams.learning_starts=50", "algo.hyperparams.batch_size=16"]
    assert dispatch.run("verify-resume", words) == 0
    assert "identical" in capsys.readouterr().out
