"""The same sweep with more steps extends the runs that it has; with fewer it is refused."""

import json
import shutil

import pytest
from support.training import tiny_config

import rlzoo_plus as rz
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.multirun import place_longer
from rlzoo_plus.sweeps.sweep_job import make_job, sweep_dir

TINY = [
    "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "tuned=none", "device=cpu",
    "network.net_arch=[8]", "eval.episodes=2", "log.tensorboard=false", "report.plot=false",
    "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "infra=debug",
]  # fmt: skip


@pytest.fixture(scope="module")
def config():
    return tiny_config("ppo", "tests/TinyReach-v0")


@pytest.fixture
def job_of(config, tmp_path):
    """Return a function: number of steps and other values to a job of a sweep."""

    def make(n_timesteps, **values):
        values = {"n_timesteps": n_timesteps, "sweep": str(tmp_path / "s"), **values}
        changed = config.model_copy(update=values)
        job = make_job(changed)
        return make_job(changed, f"rlzoo-plus train run_dir={job.path}")

    return make


def begun(*jobs):
    """Write the jobs into their sweep's ledger, and a configuration into each directory."""
    Ledger(jobs[0].sweep).add(jobs)
    for job in jobs:
        job.run_dir.start(job.config.model_dump(mode="json"), "", {})
    return jobs


def test_a_longer_job_gets_the_directory_of_the_shorter_run(job_of):
    short, other = begun(job_of(100), job_of(100, seed=1))
    placed = place_longer([job_of(200), job_of(200, seed=1), job_of(200, seed=2)])
    assert [job.path for job in placed.jobs] == [short.path, other.path, job_of(200, seed=2).path]
    assert placed.jobs[0].config.n_timesteps == 200
    assert placed.jobs[0].config.run_dir == str(short.path)
    assert placed.jobs[0].command == short.command
    assert "runs of 100 steps are extended" in placed.notes()[0]
    Ledger(short.sweep).add(placed.jobs)
    again = place_longer([job_of(200), job_of(200, seed=1)])
    assert [job.path for job in again.jobs] == [short.path, other.path]
    assert again.notes() == again.mistakes == []


def test_a_shorter_job_is_refused_and_the_run_stays(job_of):
    begun(job_of(100))
    placed = place_longer([job_of(50)])
    assert "n_timesteps=50" in placed.mistakes[0]
    assert "at least 100" in placed.mistakes[0]


def test_the_length_that_a_run_had_before_is_shorter_too(job_of):
    begun(job_of(100))
    Ledger(job_of(100).sweep).add(place_longer([job_of(200)]).jobs)
    assert "at least 200" in place_longer([job_of(100)]).mistakes[0]
    # Also beside others, where it would share the directory of the longer run.
    assert "at least 200" in place_longer([job_of(100), job_of(400)]).mistakes[0]


def test_a_restarted_job_may_be_shorter(job_of):
    (short,) = begun(job_of(100))
    placed = place_longer([job_of(50, restart=True)])
    assert (placed.mistakes, placed.notes()) == ([], [])
    assert placed.jobs[0].path == short.path


def test_lengths_of_one_command_are_runs_of_their_own(job_of):
    begun(job_of(100))
    jobs = [job_of(100), job_of(200)]
    placed = place_longer(jobs)
    assert [job.path for job in placed.jobs] == [job.path for job in jobs]
    assert placed.notes() == placed.mistakes == []


def test_another_setting_is_another_run(job_of, config):
    begun(job_of(100))
    hyperparams = {**config.algo.hyperparams, "gamma": 0.5}
    job = job_of(200, algo=config.algo.model_copy(update={"hyperparams": hyperparams}))
    assert place_longer([job]).jobs == [job]


def test_the_sweep_without_a_name_extends_nothing(job_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun(job_of(100, sweep=None))
    job = job_of(200, sweep=None)
    assert job.sweep == sweep_dir(None)
    assert place_longer([job]).jobs == [job]


def test_workers_extend_no_runs_and_it_is_said(job_of, config):
    begun(job_of(100))
    job = job_of(200, infra=config.infra.model_copy(update={"name": "workers"}))
    placed = place_longer([job])
    assert placed.jobs == [job]
    assert "workers extend no runs" in placed.notes()[0]


@pytest.mark.training
def test_a_finished_sweep_is_extended_as_resume_extends_a_run(in_process, capsys):
    def sweep(*values, **more):
        return rz.sweep([*TINY, *values], sweep="mine", seed=(0, 1), **more)

    runs = sweep("n_timesteps=64")
    first = runs[0].run_dir
    before = json.loads(first.result_file.read_text())
    shutil.copytree(first.path, in_process / "alone")

    def interrupt(run):
        raise KeyboardInterrupt

    # It is broken off after the first run; the other one is what is missing.
    with pytest.raises(KeyboardInterrupt):
        sweep("n_timesteps=128", on_end=interrupt)
    assert [run.result["num_timesteps"] for run in rz.Sweep.open("mine")[:]] == [128, 64]
    extended = first.result_file.stat().st_mtime_ns
    assert "runs of 64 steps are extended from their last checkpoints" in capsys.readouterr().out
    longer = sweep("n_timesteps=128")
    assert "1 of 2 jobs were done already" in capsys.readouterr().out
    assert first.result_file.stat().st_mtime_ns == extended
    assert [run.path for run in longer] == [run.path for run in runs]
    results = [run.result for run in longer]
    assert [result["num_timesteps"] for result in results] == [128, 128]
    assert [result["resumed_at"] for result in results] == [[64], [64]]
    assert all("extended from 64 to 128 steps" in str(r["inexact_because"]) for r in results)
    alone = rz.Run.open(in_process / "alone", trust=True)
    alone.resume(n_timesteps=128, quiet=True)
    assert run_digests(alone.run_dir) == run_digests(first)
    # The outcome of the first steps stays.
    assert json.loads((first.path / "result-64.json").read_text()) == before
    with pytest.raises(rz.ConfigError, match=r"n_timesteps=64: .*at least 128"):
        sweep("n_timesteps=64")
    assert len(rz.Sweep.open("mine")) == 2
