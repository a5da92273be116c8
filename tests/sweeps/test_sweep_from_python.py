"""`rz.sweep`: the command's sweep from Python, in a plain script, without its signals and words."""

import signal
import sys

import pytest

import rlzoo_plus as rz

TINY = [
    "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "tuned=none", "device=cpu",
    "network.net_arch=[8]", "eval.episodes=2", "log.tensorboard=false", "report.plot=false",
    "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "n_timesteps=64",
    "infra.workers=2",
]  # fmt: skip


@pytest.fixture
def here(in_process):
    return in_process


@pytest.mark.parametrize(
    ("overrides", "values", "part"),
    [
        (["seed=0,1", "algo=pppo"], {}, "Did you mean 'ppo'"),
        (["seed=0,1", "n_envs=0"], {}, "n_envs=0"),
        (["hpo=ppo"], {}, "is a study"),
        (["seed=0,1", "run_dir=mine"], {}, "would be shared"),
        (["seed=0,1", "--cfg"], {}, "--cfg"),
        ([], {"seed": ()}, "seed: several values are asked for"),
        ("seed=0", {}, "give a list"),
    ],
)
def test_a_mistake_is_an_error_before_anything_is_written(here, overrides, values, part):
    with pytest.raises(rz.ConfigError, match=part):
        rz.sweep(overrides, **values)
    assert list(here.iterdir()) == []


def test_a_sweep_that_is_not_there_is_named(here):
    with pytest.raises(rz.ConfigError, match="no such sweep"):
        rz.Sweep.open("nowhere")


@pytest.mark.training
def test_a_sweep_runs_in_this_process_and_is_held(here, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["notebook", "--its", "arguments"])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    seen = []
    runs = rz.sweep([*TINY, "infra=debug"], seed=(0, 1), sweep="mine", on_end=seen.append)
    assert sys.argv == ["notebook", "--its", "arguments"]
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert [run.config.seed for run in runs] == [0, 1]
    assert [run.path for run in seen] == [run.path for run in runs[:]]
    assert runs.path == rz.Sweep.open("mine").path
    assert len(runs.summary()) == 1
    assert list(rows_of(runs.jobs(), "state")) == ["done", "done"]
    assert list(rows_of(runs.summary(), "n_done")) == [2]
    assert runs.failed == {}
    assert repr(runs) == "<Sweep outputs/sweeps/mine: 2 jobs: 2 done>"
    assert (here / "outputs/sweeps/mine/summary.csv").is_file()
    assert "[2/2]" in capsys.readouterr().out


def rows_of(table, column):
    return [row[column] for row in table] if isinstance(table, list) else table[column]
