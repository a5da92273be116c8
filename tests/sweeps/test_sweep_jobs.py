"""Names by content, the ledger, who is at work, and what is said of a job."""

import json
import math
from pathlib import Path

import pytest
from support.training import make_config, tiny_config

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps import ledger
from rlzoo_plus.sweeps.controller import job_spec
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.sweeps.ledger import Ledger, open_sweep
from rlzoo_plus.sweeps.presence import Presence, ask_to_stop, living_controllers
from rlzoo_plus.sweeps.states import JobState, explain_end, look_at, read_progress
from rlzoo_plus.sweeps.sweep_job import load_job, make_job, sweep_dir


def job_of(sweep, *overrides):
    config = tiny_config("ppo", "tests/TinyReach-v0", *overrides)
    return make_job(config.model_copy(update={"sweep": str(sweep)}))


def test_a_name_lies_below_outputs_and_a_path_is_a_path():
    assert sweep_dir(None) == Path("outputs/sweeps/default")
    assert sweep_dir("mine") == Path("outputs/sweeps/mine")
    assert sweep_dir("./mine/x") == Path("mine/x")
    assert sweep_dir("/tmp/x") == Path("/tmp/x")


def test_a_job_is_named_by_its_content(tmp_path):
    job = job_of(tmp_path, "seed=3")
    assert job.key == f"tests-tinyreach-v0/ppo/{config_hash(job.config)}-s3"
    assert job.config.run_dir == str(job.path)


def test_threads_are_one_in_a_sweep_unless_they_are_given():
    assert make_job(make_config("algo=sac")).config.num_threads == 1
    assert make_job(make_config("algo=sac", "num_threads=2")).config.num_threads == 2
    assert (
        make_job(make_config("algo=sac")).key
        == make_job(make_config("algo=sac", "num_threads=1")).key
    )


def test_the_ledger_gives_the_jobs_back_wherever_the_sweep_lies(tmp_path):
    jobs = [job_of(tmp_path / "a", f"seed={seed}") for seed in range(3)]
    Ledger(tmp_path / "a").add(jobs)
    (tmp_path / "a").rename(tmp_path / "b")
    found = list(Ledger(tmp_path / "b").read().jobs.values())
    assert [job.key for job in found] == [job.key for job in jobs]
    assert found[0].path == tmp_path / "b" / jobs[0].key


def test_a_job_is_written_down_once(tmp_path):
    book, job = Ledger(tmp_path), job_of(tmp_path)
    book.add([job])
    book.add([job])
    assert len(book.path.read_text().splitlines()) == 1


def test_an_infinite_value_reaches_the_job_and_stays_in_the_ledger(tmp_path):
    job = job_of(tmp_path, "algo.hyperparams.max_grad_norm=inf")
    data = json.loads(json.dumps(job_spec(job, "a:b").data))
    assert data["config"]["algo"]["hyperparams"]["max_grad_norm"] == math.inf
    book = Ledger(tmp_path)
    # As it was written before: the job is added again, as what it is.
    append_records(book.path, [{"event": "added", **job.record()}])
    assert 'max_grad_norm": null' in book.path.read_text()
    book.add([job])
    book.add([job])
    assert len(book.path.read_text().splitlines()) == 2
    assert book.read().jobs[job.key].config == job.config


def test_a_torn_last_line_loses_nothing_else(tmp_path):
    book = Ledger(tmp_path)
    book.add([job_of(tmp_path), job_of(tmp_path, "seed=1")])
    data = book.path.read_bytes()
    book.path.write_bytes(data[:-20])
    book.add([job_of(tmp_path), job_of(tmp_path, "seed=1")])
    assert len(book.read().jobs) == 2


@pytest.mark.parametrize("key", ["../../x", "/etc/a/b", "a/../b", "a/b", "a//b", 3, "a/b/.."])
def test_a_ledger_that_names_a_place_outside_is_refused(tmp_path, key):
    with pytest.raises(ConfigError, match="no run of this sweep"):
        load_job(tmp_path, {**job_of(tmp_path).record(), "job": key})


def test_a_sweep_that_is_not_there_is_said_with_those_that_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger(sweep_dir("mine")).add([job_of(sweep_dir("mine"))])
    with pytest.raises(ConfigError, match="There are: mine"):
        open_sweep("yours")
    assert open_sweep("mine").sweep == sweep_dir("mine")


def test_states_come_from_the_run_directories(tmp_path):
    jobs = [job_of(tmp_path, f"seed={seed}") for seed in range(4)]
    book = Ledger(tmp_path)
    book.add(jobs)
    jobs[1].run_dir.write_status("finished", n_timesteps=64)
    book.write(ledger.FAILED, jobs[2], reason="killed by SIGKILL")
    jobs[3].path.mkdir(parents=True)
    with jobs[3].run_dir.lock as lock:
        lock.acquire()
        views = look_at(book.read())
    assert [view.state for view in views] == [
        *(JobState.WAITING, JobState.DONE, JobState.FAILED, JobState.RUNNING)
    ]
    assert views[2].reason == "killed by SIGKILL"


def test_a_job_that_was_started_again_has_not_failed(tmp_path):
    book, job = Ledger(tmp_path), job_of(tmp_path)
    book.add([job])
    book.write(ledger.FAILED, job, reason="x")
    book.write(ledger.STARTED, job)
    assert look_at(book.read())[0].state is JobState.WAITING


def test_the_reason_of_a_failure_is_one_line(tmp_path):
    job = job_of(tmp_path)
    assert explain_end(JobEnd(-9), job.run_dir) == "killed by SIGKILL"
    assert explain_end(JobEnd(-9, "used 3 GiB"), job.run_dir) == "used 3 GiB"
    job.path.mkdir(parents=True)
    (job.path / "log.txt").write_text("--- now\nerror: device=cuda is not here\n\n")
    assert explain_end(JobEnd(2), job.run_dir) == "exit code 2: error: device=cuda is not here"
    job.run_dir.write_status("failed", message="RuntimeError: two\nlines")
    assert "\n" not in explain_end(JobEnd(1), job.run_dir)


def test_progress_is_read_from_the_ends_of_the_files(tmp_path):
    run = RunDir(tmp_path)
    records = [{"ts": 10.0 + i, "step": 100 * i, "key": "k", "value": 1.0} for i in range(2000)]
    run.metrics_file.write_text("".join(json.dumps(r) + "\n" for r in records) + '{"ts": 1')
    run.evaluations_file.write_text('{"step": 5, "mean_return": 2.5}\n')
    progress = read_progress(run)
    assert progress.steps == 199_900
    assert progress.rate == pytest.approx(100.0)
    assert progress.mean_return == 2.5
    assert progress.left_s(200_900) == pytest.approx(10.0)


def test_a_controller_is_known_while_it_works_and_can_be_asked_to_stop(tmp_path):
    assert ask_to_stop(tmp_path) == 0
    with Presence(tmp_path) as first, Presence(tmp_path):
        assert len(living_controllers(tmp_path)) == 2
        assert not first.is_asked_to_stop()
        assert ask_to_stop(tmp_path) == 2
        assert first.is_asked_to_stop()
    assert living_controllers(tmp_path) == []
    assert list(tmp_path.rglob("*.*")) == []
