"""Which checkpoints stay, and that a full disk or a lost future costs no training."""

import errno
import json

import pytest
from support.resuming import StopAfter
from support.training import bundle_weights, start_run, tiny_config, train_run

from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback
from rlzoo_plus.training.exp_manager import ExpManager
from rlzoo_plus.training.resume import snapshot

pytestmark = pytest.mark.training
OFTEN = ("n_timesteps=320", "eval.every_steps=32", "checkpoint.every_minutes=null")


def _config(*overrides):
    return tiny_config("ppo", "tests/TinyReach-v0", *OFTEN, *overrides)


def _full(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_every_best_stays_besides_the_newest(tmp_path):
    config = _config("checkpoint.keep_best=true", "checkpoint.keep=1")
    run_dir, _ = train_run(tmp_path, config)
    records = [json.loads(line) for line in run_dir.evaluations_file.read_text().splitlines()]
    best, bests = float("-inf"), set()
    for record in records:
        if record["mean_return"] > best:
            best = record["mean_return"]
            bests.add(record["step"])
    store = run_dir.checkpoints()
    assert set(store.steps()) == bests | {320}
    assert all(store.load(step).kept_as == "best" for step in bests)


def test_milestones_stay_besides_the_newest(tmp_path):
    config = _config(
        "checkpoint.milestone_steps=96", "checkpoint.every_steps=32", "checkpoint.keep=2"
    )
    run_dir, _ = train_run(tmp_path, config)
    store = run_dir.checkpoints()
    kept = [step for step in store.steps() if store.load(step).kept_as == "milestone"]
    assert kept == [96, 192, 288]
    assert store.steps() == [96, 192, 288, 320]


def test_a_snapshot_that_fails_is_told_and_tried_again(tmp_path, monkeypatch, caplog):
    real, calls = snapshot.log_sizes, []

    def sizes(run_dir):
        calls.append(run_dir)
        return _full() if len(calls) == 1 else real(run_dir)

    monkeypatch.setattr(snapshot, "log_sizes", sizes)
    run_dir, result = train_run(tmp_path, _config("checkpoint.every_steps=160"))
    assert result.state == "finished"
    assert "no checkpoint at step 160" in caplog.text
    assert run_dir.checkpoints().steps()[0] == 192


def test_a_best_policy_of_lost_steps_stays_the_best_if_it_may_not_come_again(tmp_path, monkeypatch):
    config = _config("checkpoint.every_steps=160", "algo.hyperparams.learning_rate=0.0")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAfter(7)).train()
    lost = json.loads(json.dumps(load_bundle(run_dir.best).about))
    other, _ = train_run(tmp_path / "other", _config("seed=9"))
    _plant_better_best(run_dir, other, lost)
    weights = bundle_weights(run_dir.best)
    monkeypatch.setattr(snapshot, "differences", lambda *_: ["it is another machine"])
    result = ExpManager(config, run_dir).train()
    assert result.best["mean_return"] == 1e6
    assert {k: v.tolist() for k, v in bundle_weights(run_dir.best).items()} == {
        k: v.tolist() for k, v in weights.items()
    }


def _plant_better_best(run_dir, other, about):
    from rlzoo_plus.artifacts.bundle import Bundle, save_bundle

    found = load_bundle(other.best)
    better = {**about, "mean_return": 1e6}
    better.pop("schema", None)
    save_bundle(
        run_dir.best,
        Bundle(found.config, found.spaces, found.weights, found.normalization, better),
    )


def test_a_worse_policy_in_best_changes_nothing(tmp_path):
    config = _config()
    run_dir, result = train_run(tmp_path, config)
    venv = make_eval_env(config.env, 1)
    callback = EvaluationCallback(config, run_dir, venv)
    callback.best = {**result.best, "mean_return": 1e9}
    callback.keep_saved_best()
    assert callback.best["mean_return"] == 1e9
