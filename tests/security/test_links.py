"""Nothing is written to or removed from another place through a link in a directory."""

import os

import pytest
from support.evil_sweeps import make_sweep, stopped

from rlzoo_plus.artifacts.inside import OutsideError, check_inside, check_plain, open_to_append
from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir, RunLock
from rlzoo_plus.commands import dispatch
from rlzoo_plus.runs.plan import plan_run
from rlzoo_plus.sweeps.controller import Controller
from rlzoo_plus.sweeps.launchers.debug import DebugLauncher
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.states import JobState

MINE = "mine\n"


@pytest.fixture
def victim(tmp_path):
    """Return a folder outside of what is attacked, with files that must stay as they are."""
    folder = tmp_path / "victim"
    (folder / "deep").mkdir(parents=True)
    for name in ("precious", "metrics.jsonl", "deep/precious"):
        (folder / name).write_text(MINE)
    yield folder
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*")}
    assert found == {"precious", "metrics.jsonl", "deep", "deep/precious"}
    assert all(path.read_text() == MINE for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def sweep(tmp_path):
    """Return a sweep with one job that waits."""
    make_sweep(tmp_path / "s")
    return tmp_path / "s"


def job_of(sweep):
    (job,) = Ledger(sweep).read().jobs.values()
    return job


def link_parent(job, victim, level):
    """Put a link to the victim in place of the job's folder, or of one of those above it."""
    place = (job.path, job.path.parent, job.path.parents[1])[level]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(victim)


def test_a_path_without_links_is_inside(tmp_path):
    (tmp_path / "a").mkdir()
    check_inside(tmp_path, tmp_path / "a" / "b" / "c")


def test_the_named_directory_itself_may_be_a_link(tmp_path):
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    check_inside(tmp_path / "link", tmp_path / "link" / "a")
    check_plain(tmp_path / "link")


@pytest.mark.parametrize("place", ["a", "a/b", "a/b/c"])
def test_a_link_anywhere_on_the_way_is_refused(tmp_path, place):
    path = tmp_path / "root" / place
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path)
    with pytest.raises(OutsideError, match="is a link"):
        check_inside(tmp_path / "root", tmp_path / "root" / "a" / "b" / "c")


def test_a_way_back_is_not_inside(tmp_path):
    with pytest.raises(OutsideError, match="not below"):
        check_inside(tmp_path, tmp_path / "a" / ".." / ".." / "b")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere")])
@pytest.mark.parametrize("place", ["x", "checkpoints/x", "checkpoints/chunks/x", "best/x"])
def test_an_odd_entry_at_any_depth_is_found(tmp_path, make, place):
    path = tmp_path / "run" / place
    path.parent.mkdir(parents=True)
    make(path)
    with pytest.raises(OutsideError, match=r"x is a link"):
        check_plain(tmp_path / "run")


def test_the_links_that_a_tracker_keeps_are_its_own(tmp_path):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "latest-run").symlink_to("run-1")
    check_plain(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda p: p.symlink_to("precious"), os.mkdir])
def test_only_a_plain_file_is_appended_to(tmp_path, make):
    (tmp_path / "precious").write_text(MINE)
    make(tmp_path / "log.txt")
    with pytest.raises(OutsideError, match=r"log\.txt is a link"):
        open_to_append(tmp_path / "log.txt")
    with pytest.raises(OutsideError):
        append_records(tmp_path / "log.txt", [{"a": 1}])
    assert (tmp_path / "precious").read_text() == MINE


def test_a_lock_is_not_taken_through_a_link(tmp_path, victim):
    (tmp_path / ".lock").symlink_to(victim / "precious")
    with pytest.raises(OutsideError):
        RunLock(tmp_path / ".lock").acquire()


@pytest.mark.parametrize("make", [DebugLauncher, lambda: LocalLauncher(1)])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_job_whose_folder_is_elsewhere_fails_and_writes_nothing_there(sweep, victim, make, level):
    job = job_of(sweep)
    link_parent(job, victim, level)
    controller = Controller(Ledger(sweep), [job], make(), target="rlzoo_plus.testing.jobs:finish")
    assert controller.run() == 1
    (entry,) = controller.entries
    assert entry.state is JobState.FAILED
    assert "is a link" in entry.reason


@pytest.mark.parametrize("name", ["log.txt", "metrics.jsonl", ".lock", "monitor/0.monitor.csv"])
@pytest.mark.parametrize("make", [DebugLauncher, lambda: LocalLauncher(1)])
def test_a_job_with_a_linked_file_fails_and_the_file_behind_it_stays(sweep, victim, make, name):
    job = job_of(sweep)
    (job.path / name).parent.mkdir(parents=True)
    (job.path / name).symlink_to(victim / "precious")
    controller = Controller(Ledger(sweep), [job], make(), target="rlzoo_plus.testing.jobs:finish")
    assert controller.run() == 1


@pytest.mark.parametrize("level", [0, 1, 2])
def test_prune_removes_nothing_outside_of_the_sweep(in_process, sweep, victim, level, capsys):
    job = job_of(sweep)
    link_parent(job, victim if level == 0 else victim.parent, level)
    assert dispatch.run("sweep", ["prune", str(sweep), "--yes"]) == 1
    assert "left alone" in capsys.readouterr().out
    assert job.key in Ledger(sweep).read().jobs


def test_prune_removes_a_run_with_a_link_in_it_and_not_what_it_leads_to(in_process, sweep, victim):
    job = job_of(sweep)
    job.path.mkdir(parents=True)
    (job.path / "checkpoints").symlink_to(victim)
    assert dispatch.run("sweep", ["prune", str(sweep), "--yes"]) == 0
    assert not job.path.exists()


@pytest.mark.parametrize("verb", ["resume", "cancel", "prune", "status", "retry-failed"])
def test_a_linked_folder_of_controllers_is_refused(in_process, sweep, victim, verb, capsys):
    (sweep / ".controllers").symlink_to(victim)
    if verb == "retry-failed":
        Ledger(sweep).write("failed", job_of(sweep))
    assert dispatch.run("sweep", [verb, str(sweep)]) == 2
    assert "is a link" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["resume", "cancel", "prune", "status", "retry-failed"])
def test_a_linked_ledger_is_refused(in_process, sweep, verb, capsys):
    (sweep / "ledger.jsonl").rename(sweep / "taken")
    (sweep / "ledger.jsonl").symlink_to("taken")
    assert dispatch.run("sweep", [verb, str(sweep)]) == 2
    assert "is a link" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "monitor", "tensorboard", "checkpoints", "checkpoints/chunks", "best"],
)
@pytest.mark.parametrize("has_begun", [True, False])
def test_train_in_a_directory_with_a_link_is_refused(tmp_path, victim, name, has_begun):
    job = make_sweep(tmp_path / "s")
    run = stopped(job) if has_begun else RunDir(job.path)
    (run.path / name).parent.mkdir(parents=True, exist_ok=True)
    (run.path / name).symlink_to(victim)
    with pytest.raises(OutsideError, match=f"{name} is a link"):
        plan_run(job.config)


def test_restart_moves_no_run_of_another_place_aside(tmp_path, victim):
    from rlzoo_plus.sweeps.multirun import _restarted

    job = make_sweep(tmp_path / "s", "restart=true")
    (victim.parent / "elsewhere" / job.path.name).mkdir(parents=True)
    job.path.parent.parent.mkdir(parents=True)
    job.path.parent.symlink_to(victim.parent / "elsewhere")
    with pytest.raises(OutsideError):
        _restarted(job)
