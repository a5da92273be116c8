"""`rz.sweep`: the command's sweep from Python, in a plain script, without its signals and words."""

import json
import signal
import subprocess
import sys

import pytest
from support.processes import PLUS, environ_of_tests

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests

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


SCRIPT = """
import sys
print("from the beginning")
import rlzoo_plus as rz
runs = rz.sweep({words!r}, seed=range(2))
print(len(runs), len(runs.summary()), runs.failed)
"""


@pytest.mark.slow
def test_a_plain_script_makes_the_commands_runs_and_again_only_what_is_missing(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.format(words=TINY))

    def run(*command, folder):
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            command, cwd=folder, env=environ_of_tests(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python, plus = tmp_path / "python", tmp_path / "command"
    out = run(sys.executable, "../script.py", folder=python)
    assert out.count("from the beginning") == 1
    assert out.splitlines()[-1] == "2 1 {}"
    run(*PLUS, "train", "-m", *TINY, "seed=range(0,2)", folder=plus)
    files = sorted(file.parent for file in python.glob("outputs/sweeps/default/*/*/*/result.json"))
    assert len(files) == 2
    for path in files:
        twin = plus / path.relative_to(python)
        assert run_digests(RunDir(path)) == run_digests(RunDir(twin))
    (files[0] / "status.json").write_text(json.dumps({"state": "failed", "message": "lost"}))
    before = (files[1] / "result.json").stat().st_mtime_ns
    out = run(sys.executable, "../script.py", folder=python)
    assert "2 1 {}" in out
    assert (files[1] / "result.json").stat().st_mtime_ns == before
