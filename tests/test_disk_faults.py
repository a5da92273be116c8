"""A disk that is full, and folders that vanish: what is not the policy ends no training."""

import errno
import os
import shutil
import subprocess
from contextlib import suppress
from unittest.mock import patch

import pytest
from support.training import evaluations, start_run, tiny_config

from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.envs.monitor import EpisodeMonitor
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import RunError
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
OFTEN = (
    "n_timesteps=320", "checkpoint.every_steps=64", "eval.every_steps=64",
    "checkpoint.every_minutes=null", "log.tensorboard=true", "normalize=true",
)  # fmt: skip
FULL = OSError(errno.ENOSPC, "No space left on device")


def _config(algo="ppo", *overrides):
    return tiny_config(algo, "tests/TinyReach-v0", *OFTEN, *overrides)


def _train(path, at_step, harm, config=None):
    """Train, doing harm after the evaluation of a step; return the run's directory and result."""
    config = config or _config()
    run_dir = start_run(path, config)

    def after_evaluation(record, _is_best):
        if record["step"] == at_step:
            harm(run_dir)

    return run_dir, ExpManager(config, run_dir, on_evaluation=after_evaluation).train()


LOGS = ("tensorboard", "monitor", "metrics.jsonl", "evaluations.jsonl")


def _remove(path):
    """Remove it; a checkpoint may be written into it meanwhile."""
    while path.exists():
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("name", LOGS)
def test_logs_that_are_deleted_end_no_training(tmp_path, name, caplog):
    run_dir, result = _train(tmp_path, 128, lambda run: _remove(run.path / name))
    assert result.state == "finished"
    assert run_dir.read_status()["state"] == "finished"
    assert run_dir.checkpoints().load_newest().step == 320
    assert load_bundle(run_dir.final).about["step"] == 320
    if name in ("tensorboard", "monitor"):
        # Files that stay open; the others are made again.
        (said,) = [r.message for r in caplog.records if name in r.message]
        assert "training goes on" in said


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_checkpoints_that_are_deleted_are_written_again(tmp_path, algo):
    config = _config(algo)
    run_dir, result = _train(tmp_path, 192, lambda run: _remove(run.path / "checkpoints"), config)
    assert result.state == "finished"
    assert run_dir.checkpoints().load_newest().step == 320


def test_what_a_log_lacks_is_said(tmp_path, monkeypatch, caplog):
    from rlzoo_plus.training.callbacks import evaluation_callback as evaluation
    from rlzoo_plus.training.callbacks import outputs

    real = {module: module.append_records for module in (evaluation, outputs)}
    for module, append in real.items():

        def append_or_fail(path, records, append=append):
            records = list(records)
            if any(64 < record["step"] <= 192 for record in records):
                raise FULL
            append(path, records)

        monkeypatch.setattr(module, "append_records", append_or_fail)
    run_dir, result = _train(tmp_path, -1, None)
    assert result.state == "finished"
    said = [record.message for record in caplog.records]
    assert sum("metrics.jsonl cannot be written" in text for text in said) == 1
    assert any("metrics.jsonl lacks rows of the steps 96 to 192" in text for text in said)
    lost = [text for text in said if "evaluations.jsonl lacks step" in text]
    assert len(lost) == 2
    assert [record["step"] for record in evaluations(run_dir)] == [64, 256, 320]
    assert {r["step"] for r in read_records(run_dir.metrics_file)}.isdisjoint({96, 128, 192})


def test_tensorboard_that_cannot_be_made_is_left_out(tmp_path, monkeypatch, caplog):
    def refuse(folder):
        raise FULL

    monkeypatch.setattr("rlzoo_plus.training.callbacks.outputs.TensorBoardOutputFormat", refuse)
    _, result = _train(tmp_path, -1, None)
    assert result.state == "finished"
    assert any("tensorboard/ cannot be written" in record.message for record in caplog.records)


def test_an_export_that_cannot_be_written_ends_no_training(tmp_path, monkeypatch, caplog):
    from stable_baselines3.common.base_class import BaseAlgorithm

    def refuse(*args, **kwargs):
        raise FULL

    monkeypatch.setattr(BaseAlgorithm, "save", refuse)
    _, result = _train(tmp_path, -1, None, _config("ppo", "export.sb3_zip=true"))
    assert result.state == "finished"
    assert any("best_sb3 cannot be written" in record.message for record in caplog.records)


def _assert_told(caught, run_dir, words):
    text = str(caught.value)
    assert words in text
    assert "No space left" in text
    status = run_dir.read_status()
    assert (status["state"], status["message"]) == ("failed", text)


def test_a_best_policy_that_cannot_be_written_ends_the_run_and_leaves_the_one_before(
    tmp_path, monkeypatch
):
    from rlzoo_plus.agents import policy

    real, calls = policy.save_bundle, []

    def save(path, bundle):
        calls.append(path)
        if len(calls) > 1:
            raise FULL
        real(path, bundle)

    monkeypatch.setattr(policy, "save_bundle", save)
    config = _config()
    with pytest.raises(RunError) as caught:
        _train(tmp_path, -1, None, config)
    run_dir = RunDir(tmp_path)
    _assert_told(caught, run_dir, f"{calls[-1]} cannot be written")
    assert load_bundle(run_dir.best).about["step"] == 64
    assert run_dir.checkpoints().load_newest() is not None
    monkeypatch.undo()
    assert ExpManager(config, run_dir).train().inexact_since is None


def test_a_last_checkpoint_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch):
    from rlzoo_plus.artifacts.checkpoint import CheckpointStore

    real = CheckpointStore.save

    def save(store, step, *args, **kwargs):
        if step == 320:
            raise FULL
        return real(store, step, *args, **kwargs)

    monkeypatch.setattr(CheckpointStore, "save", save)
    config = _config()
    with pytest.raises(RunError) as caught:
        _train(tmp_path, -1, None, config)
    run_dir = RunDir(tmp_path)
    _assert_told(caught, run_dir, "the last checkpoint cannot be written")
    assert run_dir.checkpoints().load_newest().step == 256
    monkeypatch.undo()
    result = ExpManager(config, run_dir).train()
    assert (result.state, result.inexact_since, result.num_timesteps) == ("finished", None, 320)


def test_a_status_that_cannot_be_written_hides_no_reason(tmp_path, monkeypatch, caplog):
    from rlzoo_plus.artifacts import run_dir as module

    config = _config()
    run_dir = start_run(tmp_path, config)
    real = module.write_json

    def write(path, value):
        if path.name == "status.json":
            raise FULL
        real(path, value)

    monkeypatch.setattr(module, "write_json", write)
    with pytest.raises(RunError, match=r"status\.json cannot be written: .*No space left"):
        ExpManager(config, run_dir).train()
    assert any("status.json cannot be written" in record.message for record in caplog.records)


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of two megabytes; return its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _fill(folder):
    with (folder / "ballast").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


def test_a_disk_that_is_full_ends_the_run_with_one_line_and_it_goes_on_exactly(small_disk):
    config = _config()
    run_path = small_disk / "run"
    with pytest.raises(RunError, match="cannot be written") as caught:
        _train(run_path, 128, lambda run: _fill(small_disk), config)
    run_dir = RunDir(run_path)
    assert "\n" not in str(caught.value)
    assert load_bundle(run_dir.best).about["step"] <= 128
    assert run_dir.checkpoints().load_newest().step in (64, 128)
    (small_disk / "ballast").unlink()
    result = ExpManager(config, run_dir).train()
    assert (result.state, result.inexact_since, result.num_timesteps) == ("finished", None, 320)


def test_a_disk_that_is_full_for_a_while_ends_nothing(small_disk):
    config = _config("ppo", "eval.every_steps=128")
    run_dir = start_run(small_disk / "run", config)

    def fill_and_clear(record, _is_best):
        if record["step"] == 128:
            _fill(small_disk)
        else:
            (small_disk / "ballast").unlink(missing_ok=True)

    manager = ExpManager(config, run_dir, on_evaluation=fill_and_clear)
    # Whether the second evaluation is the best is not the point here.
    with patch("rlzoo_plus.training.callbacks.evaluation_callback.save_weights"):
        result = manager.train()
    assert result.state == "finished"
    assert run_dir.checkpoints().load_newest().step == 320


def test_a_monitor_remembers_no_more_than_its_last_hundred_episodes(tmp_path):
    env = EpisodeMonitor(make_env(tiny_config().env), tmp_path / "0.monitor.csv")
    infos = []
    for _ in range(300):
        env.reset()
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            done = terminated or truncated
        infos.append(info["episode"])
    env.close()
    assert len(env.get_episode_rewards()) == 100
    assert len(env.get_episode_lengths()) == len(env.get_episode_times()) == 100
    rows = (tmp_path / "0.monitor.csv").read_text().splitlines()[2:]
    assert [float(row.split(",")[0]) for row in rows] == [info["r"] for info in infos]
    assert env.get_episode_rewards()[-1] == pytest.approx(infos[-1]["r"], abs=1e-6)
