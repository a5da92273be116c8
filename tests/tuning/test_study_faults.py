"""Studies under fire: processes and servers that are killed in the middle of anything."""

import contextlib
import json
import random
import signal
import sys
import time

import pytest
from support.processes import commands_in

from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.trials import SURPLUS, TrialState

pytestmark = [pytest.mark.training, pytest.mark.slow]


@pytest.fixture
def workers(tmp_path, storage_name, settings):
    """Yield a function that starts a worker, and one that opens the study."""

    def changed(n_trials):
        return settings(
            storage=storage_name, n_trials=n_trials, retries=1000, sampler="random", heartbeat_s=1
        )

    with commands_in(tmp_path) as start:

        def start_worker(n_trials):
            file = tmp_path / "settings.json"
            file.write_text(changed(n_trials).model_dump_json())
            return start(sys.executable, "-m", "support.study_worker", tmp_path / "study", file)

        def open_it(n_trials):
            return Study.open("swing", tmp_path / "study", changed(n_trials), {"base": []})

        yield start_worker, open_it


def check(study, n_trials):
    """See that each trial was done once, in one attempt or several."""
    views = study.trials()
    done = [view for view in views if view.state is TrialState.DONE]
    assert len(done) == n_trials
    assert len({view.folder for view in done}) == n_trials
    ended = {TrialState.DONE, TrialState.REQUEUED, TrialState.INVALID}
    assert {view.state for view in views} <= ended
    for view in done:
        assert view.overrides == (f"x={view.params['x']}",)
        assert view.values == (view.params["x"],)
    # The queued values were tried once, by whoever in however many attempts.
    assert sum(view.params.get("x") == 0.5 for view in done) == 1


def told(processes):
    lines = [
        line for process in processes for line in process.communicate(timeout=120)[0].split("\n")
    ]
    records = []
    for line in lines:
        with contextlib.suppress(ValueError):
            records.append(json.loads(line))
    return [record["number"] for record in records if record["told"]]


def test_several_processes_share_a_study_without_loss_or_double(workers):
    start, open_it = workers
    processes = [start(20) for _ in range(3)]
    numbers = told(processes)
    assert [process.returncode for process in processes] == [0] * 3
    assert len(numbers) == len(set(numbers)) == 20
    check(open_it(20), 20)


def test_killed_processes_lose_and_double_no_trial(workers):
    start, open_it = workers
    chance = random.Random(0)
    processes = [start(25) for _ in range(2)]
    for process in processes:
        process.stdout.readline()
    for _ in range(6):
        time.sleep(chance.uniform(0.05, 0.4))
        victim = processes.pop(0)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        processes.append(start(25))
        processes[-1].stdout.readline()
    for process in processes:
        text, _ = process.communicate(timeout=120)
        assert process.returncode == 0, text
    check(open_it(25), 25)


@pytest.mark.parametrize("storage_name", ["postgresql"], indirect=True)
def test_a_killed_server_loses_and_doubles_no_trial(workers, postgres):
    start, open_it = workers
    processes = [start(40) for _ in range(2)]
    for process in processes:
        process.stdout.readline()
    for pause in (0.3, 0.5, 0.4):
        time.sleep(pause)
        postgres.kill()
        time.sleep(0.5)
        postgres.start()
    numbers = told(processes)
    assert [process.returncode for process in processes] == [0] * 2
    assert len(set(numbers)) == len(numbers)
    study = open_it(40)
    check(study, 40)
    kinds = {trial.user_attrs.get("kind") for trial in study.optuna_study.trials}
    # Nobody has died, so no attempt is lost; an answer that was lost may make a trial too many.
    assert kinds <= {None, SURPLUS}


@pytest.mark.parametrize("storage_name", ["postgresql"], indirect=True)
def test_a_reporter_outlives_a_server_that_restarts(workers, postgres):
    study = workers[1](3)
    asked = study.ask("one")
    reporter = study.reporter(asked.number)
    assert reporter.report(1.0, 1) is None
    postgres.kill()
    postgres.start()
    assert reporter.report(2.0, 2) is None
    assert study.trials()[0].intermediate == {1: 1.0, 2: 2.0}


@pytest.mark.parametrize("storage_name", ["postgresql"], indirect=True)
def test_a_reporter_gives_up_on_a_server_that_stays_away(workers, postgres, monkeypatch, caplog):
    monkeypatch.setattr("rlzoo_plus.tuning.trial_reporter._PATIENCE_S", 0.5)
    study = workers[1](3)
    asked = study.ask("one")
    reporter = study.reporter(asked.number)
    postgres.kill()
    try:
        started = time.monotonic()
        assert reporter.report(1.0, 1) is None
        assert time.monotonic() - started < 10
        assert "training continues" in caplog.text
    finally:
        postgres.start()
    assert reporter.report(2.0, 2) is None
    assert study.trials()[0].intermediate == {2: 2.0}
