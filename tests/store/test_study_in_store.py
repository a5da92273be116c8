"""A study whose runs workers train: pruned through S3, its command killed, and gone on."""

import json
import os
import signal
import sys

import pytest
from support.processes import PLUS, ROOT, commands_in, environ_of_tests, output_of, wait_for
from support.stores import s3_server

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import CANCELLED, FINISHED
from rlzoo_plus.store.live import LiveRecords
from rlzoo_plus.store.pull import pull_run
from rlzoo_plus.tuning.objectives import run_metrics
from rlzoo_plus.tuning.stored_study import read_study_file
from rlzoo_plus.tuning.trials import TrialState

N_TRIALS, STEPS = 8, 10240
# The rate of learning decides: the first half of the trials learns nothing with it.
SPACE = """
defaults: [_study, _self_]
algo: ppo
n_trials: 8
pruner_options: {n_startup_trials: 2, n_warmup_steps: 0}
space:
  algo.hyperparams.learning_rate: tag(log, interval(1e-7, 3e-2))
retrain: {best: 1, seeds: 2, episodes: 5}
"""
WORDS = [
    "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "tuned=none",
    "eval.episodes=2", "eval.every_steps=512", "device=cpu", "log.tensorboard=false",
    "report.plot=false", f"n_timesteps={STEPS}", "algo.hyperparams.n_steps=128",
    "algo.hyperparams.batch_size=64", "network.net_arch=[8]", "checkpoint.every_steps=1024",
    "infra=workers", "infra.workers=2", "infra.look_s=0.2", "hpo.study=s",
]  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture
def url(monkeypatch):
    with s3_server(monkeypatch) as made:
        yield made


@pytest.fixture
def start(tmp_path, url):
    cache = str(tmp_path / "cache")
    with commands_in(tmp_path, env=environ_of_tests(XDG_CACHE_HOME=cache)) as start_it:
        yield start_it


@pytest.fixture
def study(tmp_path, url):
    """Return the words of the study's command."""
    own = tmp_path / "own" / "hpo"
    own.mkdir(parents=True)
    (own / "tiny.yaml").write_text(SPACE)
    return [*PLUS, "train", "-m", "--config-dir", own.parent, "hpo=tiny", *WORDS, f"store={url}"]


def start_worker(start, url, folder):
    words = [sys.executable, "-m", "support.worker_processes", url, "s", folder, "1"]
    return start(*words, cwd=ROOT / "tests", stdout=None)


def views(folder):
    return read_study_file(folder).study.trials()


def test_a_study_is_pruned_through_s3_and_goes_on_after_its_command_was_killed(
    start, study, url, tmp_path
):
    folder, store = tmp_path / "outputs" / "studies" / "s", open_store(url)
    workers = [start_worker(start, url, tmp_path / f"worker{number}") for number in range(2)]
    process = start(*study)

    def is_half_way():
        there = (folder / "study.json").is_file()
        over = [v for v in views(folder) if v.state in (TrialState.DONE, TrialState.PRUNED)]
        running = any(live.is_trained for live in LiveRecords(store, "s").read().values())
        return there and len(over) >= 3 and running

    wait_for(lambda: (folder / "study.json").is_file(), process)
    wait_for(is_half_way, process, 400.0)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {view.number: view for view in views(folder)}
    assert any(view.state is TrialState.RUNNING for view in before.values())

    text = output_of(start(*study))
    assert "was left by a dead process; it continues" in text
    for worker in workers:
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)

    after = {view.number: view for view in views(folder)}
    over = [v for v in after.values() if v.state in (TrialState.DONE, TrialState.PRUNED)]
    assert len(over) == N_TRIALS
    assert len({view.folder for view in over}) == N_TRIALS
    for view in before.values():
        if view.state in (TrialState.DONE, TrialState.PRUNED):
            assert after[view.number] == view
    live = LiveRecords(store, "s").read()
    pruned = [view for view in over if view.state is TrialState.PRUNED]
    stopped = [
        live[f"s/{v.folder}/s0"] for v in pruned if live[f"s/{v.folder}/s0"].state == CANCELLED
    ]
    assert stopped
    for record in stopped:
        assert record.record["steps"] < STEPS
        assert record.record["reason"].startswith("median at rung")
    for view in over:
        if view.state is TrialState.DONE:
            run = f"s/{view.folder}/s0"
            assert live[run].state == FINISHED
            pull_run(store, run, tmp_path / "pulled" / view.folder, state=False)
            metrics = run_metrics(RunDir(tmp_path / "pulled" / view.folder))
            assert view.values == (metrics["late_return"],)
    report = json.loads((folder / "report.json").read_text())
    (best,) = [best for best in report["best"] if best["number"] == report["winner"]]
    assert best["retrained"]["held_out"]["episodes"] == 5
    assert (tmp_path / "own" / "experiment" / "s_best.yaml").is_file()
