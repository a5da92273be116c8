"""Runs that are killed, as a user kills them, and go on."""

import json
import signal

import pytest
from support.processes import PLUS, wait_for

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests

TRAIN = [
    *PLUS, "train", "algo=sac", "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]",
    "tuned=none", "network.net_arch=[8]", "n_timesteps=4000", "eval.episodes=2", "num_threads=1",
    "device=cpu", "report.video=false", "report.plot=false",
    "algo.hyperparams.learning_starts=100", "algo.hyperparams.buffer_size=3000",
]  # fmt: skip

pytestmark = pytest.mark.slow


def _wait_for_checkpoint(run, process, above=0):
    wait_for(lambda: any(step > above for step in run.checkpoints().steps()), process)


def test_a_killed_command_goes_on_by_the_same_command_and_by_resume(start, call, tmp_path):
    call(*TRAIN, "run_dir=whole", "checkpoint.every_minutes=null")
    run, seen = RunDir(tmp_path / "killed"), 0
    often = ["run_dir=killed", "checkpoint.every_steps=100"]
    for words in ([*TRAIN, *often], [*TRAIN, *often], [*PLUS, "resume", "killed", "--trust"]):
        process = start(*words)
        _wait_for_checkpoint(run, process, above=seen)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        seen = run.checkpoints().steps()[-1]
        assert run.read_status()["state"] == "running"
    text = call(*PLUS, "resume", "killed", "--trust")
    # The environment is not ours, so nothing more can be known.
    assert "no difference found" in text
    assert run_digests(run) == run_digests(RunDir(tmp_path / "whole"))
    assert len(run.read_result()["resumed_at"]) >= 3
    before = run.status_file.read_bytes()
    assert "is finished" in call(*TRAIN, *often)
    assert run.status_file.read_bytes() == before


def test_checkpoints_on_demand_by_verb_and_by_signal(start, call, tmp_path):
    words = ["run_dir=mine", "checkpoint.every_minutes=null", "checkpoint.keep_best=false"]
    process = start(*TRAIN, *words, "n_timesteps=1000000")
    run = RunDir(tmp_path / "mine")
    wait_for(run.metrics_file.exists, process)
    path = call(*PLUS, "checkpoint", "mine").strip()
    first = run.checkpoints().steps()[-1]
    assert path.endswith(f"{first:012d}")
    process.send_signal(signal.SIGUSR1)
    _wait_for_checkpoint(run, process, above=first)
    assert "another process is training there" in call(*PLUS, "resume", "mine", "--trust", code=2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 75
    assert run.read_status()["state"] == "interrupted"
    assert "nothing is training there" in call(*PLUS, "checkpoint", "mine", code=2)


def test_verify_resume_proves_an_exact_run(call):
    text = call(*PLUS, "verify-resume", *TRAIN[4:], "--kills", "4", "--steps", "800")
    assert text.rstrip().endswith("identical")
    assert "killed 4 times" in text
    assert "replay buffer" in text


def test_verify_resume_tells_an_environment_that_hides_state(call):
    words = [word.replace("TinyReach", "TinyHidden") for word in TRAIN[4:]]
    text = call(*PLUS, "verify-resume", *words, "--kills", "3", "--steps", "800", code=1)
    assert "exact resume: no, because" in text
    assert text.rstrip().endswith("DIFFERENT")


def test_a_run_that_is_not_exact_says_since_when(start, call, tmp_path):
    words = [word.replace("TinyReach", "TinyHidden") for word in TRAIN]
    process = start(*words, "run_dir=mine", "checkpoint.every_steps=100")
    _wait_for_checkpoint(RunDir(tmp_path / "mine"), process)
    process.kill()
    first_text = process.communicate()[0]
    assert "exact resume: no, because" in first_text
    call(*PLUS, "resume", "mine", "--trust")
    result = json.loads((tmp_path / "mine" / "result.json").read_text())
    assert result["exact"] is False
    assert result["inexact_since"] == result["resumed_at"][0]
    assert result["inexact_because"]
    assert result["num_timesteps"] == 4000
