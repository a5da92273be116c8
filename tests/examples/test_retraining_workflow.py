"""The workflow that retrains, compares, gates and promotes, run as a CI would run it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlzoo_plus.models.model_store import ModelStore

CI = Path(__file__).resolve().parents[2] / "examples" / "ci"
SHORT = {
    "BASE": (
        "algo=ppo env=cartpole_bullet tuned=none n_envs=1 n_timesteps=512 eval.every_steps=512 "
        "eval.episodes=2 report.video=false report.plot=false algo.hyperparams.n_steps=256"
    ),
    "SEEDS": "0,1",
    "GITHUB_SHA": "0a1b2c3d",
}


def run_workflow(folder, gate, **env):
    """Run the steps of the job; return name and output of the step that failed, if any."""
    workflow = yaml.safe_load((CI / "retrain.yaml").read_text())
    shutil.copy(gate, folder / "gate.yaml")
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "rlzoo-plus"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rlzoo_plus "$@"\n')
    program.chmod(0o755)
    variables, summary = folder / "variables", folder / "summary"
    variables.write_text("")
    given = {
        **os.environ,
        **workflow["env"],
        **SHORT,
        **env,
        "RLZOO_MODELS": str(folder / "registry"),
        "GITHUB_ENV": str(variables),
        "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": str(CI.parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    failed = None
    for step in workflow["jobs"]["retrain"]["steps"]:
        condition = step.get("if", "success()")
        if "run" not in step or condition == "runner.environment":
            continue  # What a runner of GitHub has, and this one has already.
        if failed is not None and condition != "always()":
            continue
        kept = dict(line.split("=", 1) for line in variables.read_text().splitlines())
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={**given, **kept},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and failed is None:
            failed = step["name"], done.stdout + done.stderr
    return failed


@pytest.mark.slow
def test_a_change_is_trained_compared_gated_and_promoted(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gate = tmp_path / "lenient.yaml"
    gate.write_text(yaml.safe_dump({"episodes": 4, "min_return": 1, "not_worse": 5}))
    assert run_workflow(tmp_path, gate) is None
    store = ModelStore(str(tmp_path / "registry"))
    first = store.newest("cartpole", "production")
    assert (first.version, first.why) == (1, "0a1b2c3d")
    assert all(check["holds"] for check in first.gate)
    assert "cartpole@1" in (tmp_path / "summary").read_text()
    # A second commit, which the gate of the example refuses: what acts stays, and the job fails.
    shutil.rmtree(tmp_path / "outputs")
    change = "algo.hyperparams.gamma=0.9"
    step, said = run_workflow(tmp_path, CI / "gate.yaml", CHANGE=change, GITHUB_SHA="9f8e7d6c")
    assert step == "Promote it, if it passes the gate"
    assert "FAILED  return" in said
    assert store.newest("cartpole", "production") == first
    assert store.version("cartpole", 2).why == "9f8e7d6c"
