"""The metric of examples/ keeps to the suite, and is recorded by the real command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.testing import MetricContract

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("env=cartpole_bullet", "tuned=none", "n_timesteps=256", "algo.hyperparams.n_steps=128")


class TestUpright(MetricContract):
    @pytest.fixture
    def metric(self):
        from upright_metric import Upright

        return Upright(within_rad=1.0)


def _run(folder, *words):
    command = [sys.executable, "-m", "rlzoo_plus", *words]
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_real_commands_measure_with_it(tmp_path):
    metric = "eval.metrics=[action_change,{upright_metric.Upright: {within_rad: 0.5}}]"
    more = ["eval.episodes=2", "report.video=false", "report.plot=false", "run_dir=run"]
    code, out, err = _run(tmp_path, "train", *WORDS, *more, metric)
    assert code == 0, out + err
    names = {"action_change", "upright/share", "upright/worst_rad", "reward/alive"}
    (record, *_) = read_records(tmp_path / "run" / "evaluations.jsonl")
    assert names <= record["metrics"].keys()
    logged = {row["key"] for row in read_records(tmp_path / "run" / "metrics.jsonl")}
    assert {f"eval/{name}" for name in names} <= logged
    # Of somebody else's run, it is not imported unless the user says so.
    code, out, err = _run(tmp_path, "evaluate", "run", "--episodes", "2")
    assert (code, "upright_metric.Upright" in err, "--trust" in err) == (2, True, True)
    words = ("evaluate", "run", "env.kwargs.force_n=3", "--episodes", "2", "--trust")
    code, out, err = _run(tmp_path, *words)
    assert code == 0, out + err
    assert "env.kwargs.force_n=3" in out
    assert "upright/share" in out
    code, out, err = _run(tmp_path, *words, "--json")
    record = json.loads(out)
    assert record["overrides"] == ["env.kwargs.force_n=3"]
    assert names <= record["metrics"].keys()
