"""The layout of a run directory."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from rlzoo_plus.artifacts import run_dir as module
from rlzoo_plus.artifacts.run_dir import FINISHED, INTERRUPTED, RUNNING, RunDir, new_run_dir


def test_a_new_directory_names_environment_algorithm_and_seed(tmp_path):
    run = new_run_dir(tmp_path, "cartpole", "ppo", 0)
    assert run.path.is_dir()
    assert run.path.parent == tmp_path / "cartpole" / "ppo"
    assert run.path.name.endswith("-s0")


def test_twenty_runs_that_start_at_the_same_instant_get_twenty_directories(tmp_path):
    barrier = Barrier(20)

    def start(_):
        barrier.wait()
        return new_run_dir(tmp_path, "cartpole", "ppo", 0).path

    with ThreadPoolExecutor(20) as pool:
        paths = list(pool.map(start, range(20)))
    assert len(set(paths)) == 20
    assert all(path.is_dir() for path in paths)


def test_a_directory_that_cannot_be_made_is_an_error_and_no_endless_loop(tmp_path, monkeypatch):
    def refuse(self, *_, **__):
        raise FileExistsError

    parent = tmp_path / "e" / "a"
    parent.mkdir(parents=True)
    monkeypatch.setattr(module.Path, "mkdir", refuse)
    with pytest.raises(OSError, match=r"too many runs|File exists|^$"):
        new_run_dir(tmp_path, "e", "a", 0)


def test_start_writes_what_is_known_before_the_first_step(tmp_path):
    run = RunDir(tmp_path / "run")
    assert not run.exists()
    run.start({"seed": 0, "algo": {"name": "ppo"}}, "train.py seed=0", {"git": {}})
    assert run.exists()
    assert list(run.read_config().items()) == [("seed", 0), ("algo", {"name": "ppo"})]
    assert run.command_file.read_text() == "train.py seed=0\n"
    assert run.provenance_file.is_file()


def test_a_configuration_is_read_as_data_and_never_as_code(tmp_path):
    run = RunDir(tmp_path)
    run.config_file.write_text("!!python/object/apply:os.mkdir [made]\n")
    with pytest.raises(Exception, match="could not determine a constructor"):
        run.read_config()


@pytest.mark.parametrize("text", ["", "[1]", "text"])
def test_a_file_that_holds_no_configuration_is_refused(tmp_path, text):
    run = RunDir(tmp_path)
    run.config_file.write_text(text)
    with pytest.raises(ValueError, match="holds no configuration"):
        run.read_config()


def test_the_status_keeps_when_the_run_started(tmp_path):
    run = RunDir(tmp_path)
    run.write_status(RUNNING, n_timesteps=100)
    first = run.read_status()
    run.write_status(FINISHED, num_timesteps=100)
    last = run.read_status()
    assert last["started_at"] == first["started_at"]
    assert last["updated_at"] >= first["updated_at"]
    assert (last["state"], last["n_timesteps"], last["num_timesteps"]) == (FINISHED, 100, 100)


def test_the_time_between_two_processes_of_a_run_is_idle(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("rlzoo_plus.artifacts.run_dir.time.time", lambda: now[0])
    run = RunDir(tmp_path)
    for state, at, idle_s in (
        (RUNNING, 1000.0, None),
        (RUNNING, 1010.0, None),
        (INTERRUPTED, 1020.0, None),
        (RUNNING, 1320.0, 300.0),
        (FINISHED, 1330.0, 300.0),
        (RUNNING, 1430.0, 400.0),
    ):
        now[0] = at
        run.write_status(state)
        assert run.read_status().get("idle_s") == idle_s
    # Killed: what it wrote last counts.
    run.metrics_file.write_text("")
    os.utime(run.metrics_file, (1450.0, 1450.0))
    monkeypatch.setattr("rlzoo_plus.artifacts.run_dir.os.getpid", lambda: 1)
    now[0] = 1500.0
    run.write_status(RUNNING)
    assert run.read_status()["idle_s"] == 450.0


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
def test_a_damaged_status_reads_as_none(tmp_path, text):
    run = RunDir(tmp_path)
    run.status_file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert run.read_status() == {}
    run.write_status(RUNNING)
    assert run.read_status()["state"] == RUNNING


def test_a_result_comes_back(tmp_path):
    run = RunDir(tmp_path)
    assert run.read_result() == {}
    run.write_result({"state": FINISHED, "best": None})
    assert run.read_result() == {"state": FINISHED, "best": None}


def test_no_two_parts_of_a_run_share_a_path(tmp_path):
    run = RunDir(tmp_path)
    properties = [n for n, v in vars(RunDir).items() if isinstance(v, property)]
    paths = [getattr(run, name) for name in properties if name != "lock"]
    paths += [run.checkpoints().root, run.lock.path]
    assert len(paths) == len(set(paths))
    assert all(path.parent in (tmp_path, run.checkpoints().root) for path in paths)


@pytest.mark.parametrize("saved", [False, True])
def test_only_a_run_that_saved_nothing_can_be_discarded(tmp_path, saved):
    run = RunDir(tmp_path / "run")
    run.claim()
    run.write_status("failed")
    if saved:
        run.evaluations_file.write_text("{}\n")
    run.discard()
    assert run.path.exists() == run.status_file.is_file() == run.evaluations_file.is_file() == saved


def test_discarding_leaves_files_that_are_not_ours(tmp_path):
    run = RunDir(tmp_path)
    run.claim()
    (tmp_path / "notes.txt").write_text("mine")
    run.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
