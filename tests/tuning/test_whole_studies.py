"""Studies as a user types them: pruned, killed, shared, concluded, and their winner again."""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from support.processes import PLUS, call, start, wait_for  # noqa: F401

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.tuning.stored_study import read_study_file
from rlzoo_plus.tuning.trials import TrialState

TINY = [
    "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "tuned=none",
    "eval.episodes=2", "device=cpu", "log.tensorboard=false", "report.plot=false",
]  # fmt: skip
SPACE = """
defaults: [_study, _self_]
algo: ppo
n_trials: 8
pruner_options: {n_startup_trials: 2, n_warmup_steps: 2}
space:
  algo.hyperparams.learning_rate: tag(log, interval(1e-5, 1e-1))
  algo.hyperparams.gamma: interval(0.8, 0.99)
  network.net_arch: "[8],[16]"
retrain: {best: 2, seeds: 2, episodes: 5}
"""
LONG = [
    "n_timesteps=20480", "algo.hyperparams.n_steps=128", "algo.hyperparams.batch_size=64",
    "checkpoint.every_steps=128",
]  # fmt: skip
SHORT = [
    "n_timesteps=640", "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16",
]  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture
def tune(tmp_path):
    """Return the words of a study's command."""
    own = tmp_path / "own" / "hpo"
    own.mkdir(parents=True)
    (own / "tiny.yaml").write_text(SPACE)
    words = [*PLUS, "train", "-m", "--config-dir", own.parent, "hpo=tiny", *TINY]
    return [*words, "infra.workers=2", "hpo.study=s"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "outputs" / "studies" / "s"


def views(folder):
    return read_study_file(folder).study.trials()


def counts(folder):
    found = {}
    for view in views(folder):
        found[str(view.state)] = found.get(str(view.state), 0) + 1
    return found


def training_now(folder, ignored=()):
    """Return process id and directory of a trial's run that has a checkpoint and trains."""
    for path in sorted(folder.glob("trials/*/s*/status.json")):
        run = RunDir(path.parent)
        status = run.read_status()
        pid = status.get("pid")
        if status.get("state") != "running" or pid in ignored or not run.checkpoints().steps():
            continue
        if Path(f"/proc/{pid}").exists():
            return pid, path.parent
    return None


def over(folder):
    found = counts(folder)
    return sum(found.get(str(s), 0) for s in (TrialState.DONE, TrialState.PRUNED))


def test_a_study_ends_with_a_winner_that_can_be_trained_again(call, tune, folder, tmp_path):  # noqa: F811
    text = call(*tune, *SHORT)
    assert over(folder) == 8
    assert "the best 2 again" in text
    report = json.loads((folder / "report.json").read_text())
    winner = next(best for best in report["best"] if best["number"] == report["winner"])
    assert winner["retrained"]["held_out"]["episodes"] == 5
    file = tmp_path / "own" / "experiment" / "s_best.yaml"
    content = yaml.safe_load(file.read_text())
    again = call(*PLUS, "train", "--config-dir", tmp_path / "own", "experiment=s_best",
                 "run_dir=again", "report.plot=false", "report.video=false",
                 "log.tensorboard=false")  # fmt: skip
    assert "trained" in again
    runs = {RunDir(p.parent).read_config()["seed"]: RunDir(p.parent)
            for p in folder.glob("retrain/*/*/*/result.json")
            if RunDir(p.parent).read_result()["config_hash"]
            == RunDir(tmp_path / "again").read_result()["config_hash"]}  # fmt: skip
    assert list(runs) == [content["seed"]]
    expected, found = run_digests(runs[content["seed"]]), run_digests(RunDir(tmp_path / "again"))
    assert found == expected


def test_any_trial_can_be_trained_by_its_number(call, tune, folder, tmp_path):  # noqa: F811
    call(*tune, *SHORT, "hpo.n_trials=2", "hpo.retrain.best=0", "hpo.keep=all", "hpo.pruner=none")
    words = ["study=s", "trial=1", "run_dir=again", "report.plot=false", "report.video=false"]
    refused = call(*PLUS, "train", *words, code=2)
    assert "--trust" in refused
    call(*PLUS, "train", *words, "--trust")
    trial = RunDir(folder / "trials" / "0001" / "s0")
    assert run_digests(RunDir(tmp_path / "again")) == run_digests(trial)


def test_a_killed_worker_and_a_killed_controller_lose_no_trial(start, call, tune, folder):  # noqa: F811
    long = [*tune, *LONG, "hpo.retrain.best=0"]
    process = start(*long)
    pid, path = wait_for(lambda: training_now(folder), process)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: over(folder) >= 3, process)
    assert any(view.folder in str(path) and view.retry_of is None for view in views(folder))
    wait_for(lambda: training_now(folder, [pid]), process)
    process.kill()
    process.communicate()
    before = {view.number: view for view in views(folder)}
    orphans = [view for view in before.values() if view.state is TrialState.RUNNING]
    assert orphans
    text = call(*long)
    after = {view.number: view for view in views(folder)}
    assert over(folder) == 8
    for view in before.values():
        if view.state in (TrialState.DONE, TrialState.PRUNED):
            assert after[view.number] == view
    for view in orphans:
        assert after[view.number].state is TrialState.REQUEUED
        successors = [v for v in after.values() if v.retry_of == view.number]
        assert [v.folder for v in successors] == [view.folder]
        assert f"trial {view.number} was left by a dead process" in text


def test_ctrl_c_lays_trials_down_and_the_same_command_takes_them_up(start, call, tune, folder):  # noqa: F811
    long = [*tune, *LONG, "hpo.n_trials=3", "hpo.retrain.best=0"]
    process = start(*long)
    wait_for(lambda: training_now(folder), process)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "the same command goes on" in text
    assert counts(folder).get("waiting", 0) >= 1
    call(*long)
    assert over(folder) == 3


def test_two_controllers_share_a_study_in_a_database(start, tune, folder, postgres):  # noqa: F811
    shared = [*tune, *LONG, f"hpo.storage={postgres.new_database()}", "hpo.heartbeat_s=1"]
    shared += ["hpo.retrain.best=0", "hpo.n_trials=6", "infra.workers=1"]
    first, second = start(*shared), start(*shared)
    wait_for(lambda: folder.joinpath("study.json").exists(), second)
    pid, _ = wait_for(lambda: training_now(folder), second)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: over(folder) >= 2, second)
    first.kill()
    first.communicate()
    text, _ = second.communicate(timeout=200)
    assert second.returncode == 0, text[-3000:]
    assert over(folder) == 6
    assert counts(folder).get("running", 0) == counts(folder).get("waiting", 0) == 0
    finished = [v for v in views(folder) if v.state in (TrialState.DONE, TrialState.PRUNED)]
    # Each directory belongs to one trial: none was trained twice.
    assert len({view.folder for view in finished}) == 6
