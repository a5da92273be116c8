"""Sweeps as a user types them: killed, resumed, extended, shared, limited, stopped."""

import json
import os
import signal

import pytest
from support.processes import PLUS, is_gone, wait_for

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests

SWEEP = [
    *PLUS, "train", "-m", "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]",
    "tuned=none", "network.net_arch=[8]", "eval.episodes=2", "device=cpu", "log.tensorboard=false",
    "report.plot=false", "infra.workers=2",
]  # fmt: skip
OFF_POLICY = ["algo.hyperparams.learning_starts=100", "algo.hyperparams.buffer_size=3000"]
# Two algorithms, four seeds: eight jobs of some seconds.
EIGHT = [
    *SWEEP, "algo=sac,td3", "seed=range(0,4)", *OFF_POLICY, "n_timesteps=1000",
    "checkpoint.every_steps=100",
]  # fmt: skip
PPO = ["algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "n_timesteps=64"]
ENDLESS = ["algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "n_timesteps=10000000"]

pytestmark = pytest.mark.slow


def runs_of(sweep):
    return {path.parent.relative_to(sweep).as_posix(): RunDir(path.parent) for path in
            sorted(sweep.glob("*/*/*/config.yaml"))}  # fmt: skip


def training_now(sweep, ignored=()):
    """Return the process id of a run that has a checkpoint and trains."""
    for run in runs_of(sweep).values():
        status = run.read_status()
        pid = status.get("pid")
        if status.get("state") == "running" and run.checkpoints().steps() and pid not in ignored:
            return pid
    return None


def events(sweep, event):
    lines = (sweep / "ledger.jsonl").read_text().splitlines()
    return [record["job"] for record in map(json.loads, lines) if record["event"] == event]


def test_killed_workers_and_a_killed_controller_lose_nothing(start, call, tmp_path):
    whole, killed = tmp_path / "whole" / "s", tmp_path / "killed" / "s"
    call(*EIGHT, f"sweep={whole}")
    process = start(*EIGHT, f"sweep={killed}")
    victims = []
    for _ in range(2):
        victims.append(wait_for(lambda: training_now(killed, victims), process))
        os.kill(victims[-1], signal.SIGKILL)
    last = wait_for(lambda: training_now(killed, victims), process)
    process.kill()
    process.communicate()
    # Without their controller, workers stop at their next iteration.
    wait_for(lambda: is_gone(last), timeout_s=30)
    done = {key for key, run in runs_of(killed).items() if run.read_result()}
    assert len(done) < 8
    before = len(events(killed, "started"))
    text = call(*EIGHT, f"sweep={killed}")
    started_again = events(killed, "started")[before:]
    assert not set(started_again) & done
    assert len(started_again) == 8 - len(done)
    assert "sac" in text
    expected, found = runs_of(whole), runs_of(killed)
    assert expected.keys() == found.keys()
    assert len(found) == 8
    for key, run in expected.items():
        assert run_digests(run) == run_digests(found[key]), key
    assert any(run.read_result()["resumed_at"] for run in found.values())
    assert "8 of 8 jobs were done already" in call(*EIGHT, f"sweep={killed}")


def test_a_failing_job_beside_good_ones(call, tmp_path):
    envs = "env.id=tests/TinyReach-v0,tests/TinyBroken-v0"
    words = [word for word in SWEEP if not word.startswith("env.id=")]
    text = call(*words, envs, *PPO, "sweep=mine", code=1)
    sweep = tmp_path / "outputs" / "sweeps" / "mine"
    assert "step() raises RuntimeError: the gearbox broke" in text
    (broken,) = [run for key, run in runs_of(sweep).items() if "broken" in key]
    log = (broken.path / "log.txt").read_text()
    assert "tiny_envs.py, line" in log
    assert "Traceback" not in log
    state = json.loads(call(*PLUS, "sweep", "status", "mine", "--json"))
    assert state["counts"] == {"waiting": 0, "running": 0, "done": 1, "failed": 1}
    assert "--trust" in call(*PLUS, "sweep", "retry-failed", "mine", code=2)
    assert "gearbox" in call(*PLUS, "sweep", "retry-failed", "mine", "--trust", code=1)
    assert "left alone" in call(*PLUS, "sweep", "resume", "mine", code=1)
    assert broken.path.is_dir()
    assert "add --yes" in call(*PLUS, "sweep", "prune", "mine")
    call(*PLUS, "sweep", "prune", "mine", "--yes")
    assert not broken.path.exists()
    assert len(runs_of(sweep)) == 1


def test_more_seeds_and_another_algorithm_add_only_the_new_ones(call, tmp_path):
    sweep = tmp_path / "outputs" / "sweeps" / "default"
    call(*SWEEP, *PPO, "algo=ppo", "seed=0,1")
    call(*SWEEP, *PPO, "algo=ppo", "seed=range(0,3)", "infra.workers=1")
    assert len(events(sweep, "started")) == 3
    words = [word for word in PPO if not word.startswith("algo.hyperparams.batch_size")]
    text = call(*SWEEP, *words, "algo=a2c", "seed=0")
    assert len(events(sweep, "started")) == 4
    assert "a2c" in text
    assert len(runs_of(sweep)) == 4
    summary = (sweep / "summary.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in summary[1:]] == ["ppo", "a2c"]
    assert {path.name for path in sweep.iterdir() if path.is_file()} == {
        *("ledger.jsonl", "sweep.json", "summary.csv", "summary.md")
    }


def test_debugging_in_this_process_gives_the_same_runs(call, tmp_path):
    call(*SWEEP, *PPO, "seed=0,1", f"sweep={tmp_path / 'a' / 's'}")
    words = [word for word in SWEEP if not word.startswith("infra")]
    call(*words, *PPO, "seed=0,1", f"sweep={tmp_path / 'b' / 's'}", "infra=debug")
    expected, found = runs_of(tmp_path / "a" / "s"), runs_of(tmp_path / "b" / "s")
    assert expected.keys() == found.keys()
    for key, run in expected.items():
        assert run_digests(run) == run_digests(found[key])


def test_two_controllers_share_the_jobs(start, tmp_path):
    sweep = tmp_path / "outputs" / "sweeps" / "default"
    command = [*SWEEP, *OFF_POLICY, "algo=sac", "seed=range(0,4)", "n_timesteps=800"]
    processes = [start(*command) for _ in range(2)]
    texts = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    assert len(events(sweep, "done")) >= 4
    for run in runs_of(sweep).values():
        # One command line for each process that trained.
        assert len(run.command_file.read_text().splitlines()) == 1
        assert run.read_result()["resumed_at"] == []


def test_a_job_above_its_memory_fails_and_can_be_tried_again(call):
    text = call(*SWEEP, *ENDLESS, "infra.memory_gib=0.01", code=1)
    assert "above infra.memory_gib=0.01" in text
    retry = [*PLUS, "sweep", "retry-failed", "default", "--trust"]
    assert "error:" in call(*retry, "infra.memory=4", code=2)
    text = call(*retry, "infra.memory_gib=null", "infra.time_limit_minutes=0.1", code=1)
    assert "longer than infra.time_limit_minutes=0.1" in text


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "cancel"])
def test_a_sweep_stops_cleanly(start, call, tmp_path, how):
    sweep = tmp_path / "outputs" / "sweeps" / "default"
    process = start(*SWEEP, *ENDLESS, "seed=0,1,2", "checkpoint.every_steps=64")
    pid = wait_for(lambda: training_now(sweep), process)
    wait_for(lambda: training_now(sweep, [pid]), process)
    assert json.loads(call(*PLUS, "sweep", "status", "default", "--json"))["controllers"] == 1
    if how == "cancel":
        call(*PLUS, "sweep", "cancel", "default")
    else:
        process.send_signal(getattr(signal, how))
    text, _ = process.communicate(timeout=60)
    assert process.returncode == (130 if how == "SIGINT" else 75), text
    assert "-m rlzoo_plus sweep resume outputs/sweeps/default" in text  # as it was started
    runs = list(runs_of(sweep).values())
    assert [run.read_status()["state"] for run in runs] == ["interrupted"] * 2
    state = json.loads(call(*PLUS, "sweep", "status", "default", "--json"))
    assert state["counts"]["waiting"] == 3
