"""Sweeps that are submitted to a store: added once, watched, brought home, left alone by Ctrl-C."""

import io
import os
import signal
import threading
from collections import Counter

import pytest
from rich.console import Console
from support.pretended_worker import fail, finish, wait_for_request, worker_in_a_thread
from support.processes import wait_for
from support.training import make_config

import rlzoo_plus as rz
from rlzoo_plus.agents.policy import load_run_policy
from rlzoo_plus.analysis.progress import Progress
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.train_multirun import main
from rlzoo_plus.store.cache import store_of
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import STOP, ask, list_leases
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.sweeps.launchers.launcher import LauncherOptions
from rlzoo_plus.sweeps.launchers.workers import WorkersLauncher, WorkersSettings
from rlzoo_plus.sweeps.ledger import open_sweep
from rlzoo_plus.sweeps.refusals import _check_infra
from rlzoo_plus.sweeps.states import JobState, JobView, look_at
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.sweeps.sweep_view import SweepView

TINY = [
    "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "tuned=none", "device=cpu",
    "network.net_arch=[8]", "eval.episodes=2", "algo.hyperparams.n_steps=32",
    "algo.hyperparams.batch_size=16", "n_timesteps=64", "infra=workers", "infra.look_s=0.1",
    "sweep=mine",
]  # fmt: skip


@pytest.fixture
def url(store, tmp_path, monkeypatch):
    """Return the URL of an empty store, of each kind; the working directory is the test's own."""
    monkeypatch.chdir(tmp_path)
    return store.url


@pytest.fixture
def folder(folder, tmp_path, monkeypatch):
    """Return an empty store in a folder; the working directory is the test's own."""
    monkeypatch.chdir(tmp_path)
    return folder.url


def train(url, *words):
    return main(["-m", *TINY, f"store={url}", *words])


def submissions(url):
    return [len(each.records) for each in Submissions(open_store(url), "mine").read()]


def states():
    views = look_at(open_sweep("mine").read())
    return [view.state for view in views]


def test_runs_are_trained_by_a_worker_and_come_home(url, capsys):
    with worker_in_a_thread(open_store(url), "mine") as taken:
        assert train(url, "seed=1,2") == 0
    assert len(taken) == 2
    text = capsys.readouterr().out
    assert f"submitted 2 runs to {url}/mine" in text.replace("\n", "")
    assert f"rlzoo-plus worker {url}/mine --trust" in text.replace("\n", "")
    assert states() == [JobState.DONE] * 2
    runs = rz.Sweep.open("mine")
    assert [view.best for view in runs.views()] == [1.0, 2.0]
    assert [run.config.seed for run in runs] == [1, 2]
    assert store_of(runs.path) == f"{url}/mine"
    with pytest.raises(rz.ConfigError, match="Its policies are not here"):
        load_run_policy(RunDir(runs[0].path))


def test_what_is_submitted_says_nothing_of_this_machine(folder):
    assert train(folder, "seed=1", "infra.wait=false", "infra.memory_gib=2") == 0
    record = next(iter(Submissions(open_store(folder), "mine").records().values()))
    config = record["config"]
    assert not {"run_dir", "sweep", "store"} & set(config)
    assert config["infra"]["name"] == "local"
    assert config["infra"]["memory_gib"] == 2
    assert record["about"]["version"] == rz.__version__


def test_the_same_command_adds_what_is_missing(folder, capsys):
    for words in (["seed=1"], ["seed=1"], ["seed=1,2"]):
        assert train(folder, *words, "infra.wait=false") == 0
    text = capsys.readouterr().out
    assert submissions(folder) == [1, 1]
    assert "submitted 0 runs" in text
    assert "1 were there already" in text
    assert "next: rlzoo-plus sweep status|cancel mine" in text


def test_what_is_finished_here_is_not_submitted_again(folder, capsys):
    with worker_in_a_thread(open_store(folder), "mine"):
        train(folder, "seed=1")
    assert train(folder, "seed=1") == 0
    assert submissions(folder) == [1]
    assert "1 of 1 jobs were done already" in capsys.readouterr().out


def test_a_failed_run_is_told_and_tried_again_by_the_same_command(folder, capsys):
    store = open_store(folder)
    with worker_in_a_thread(store, "mine", fail):
        assert train(folder, "seed=1") == 1
    text = capsys.readouterr().out
    assert "failed: the gearbox broke" in text
    assert states() == [JobState.FAILED]
    assert next(iter(rz.Sweep.open("mine").failed.values())) == "the gearbox broke"
    assert "gearbox" in (rz.Sweep.open("mine")._jobs[0].path / "log.txt").read_text()
    with worker_in_a_thread(store, "mine"):
        assert train(folder, "seed=1") == 0
    assert "1 of them may be taken again" in capsys.readouterr().out
    assert states() == [JobState.DONE]


def test_a_run_that_cannot_come_home_is_told(folder, capsys, tmp_path):
    def act(job):
        place = tmp_path / "outputs" / "sweeps" / "mine" / job.record["job"]
        place.mkdir(parents=True)
        (place / "config.yaml").symlink_to(tmp_path)
        return finish(job)

    with worker_in_a_thread(open_store(folder), "mine", act):
        assert train(folder, "seed=1") == 1
    assert "config.yaml is a link" in capsys.readouterr().out.replace("\n", " ")


def test_a_cancelled_run_ends_the_waiting(folder, capsys):
    store = open_store(folder)
    key = []

    def cancel():
        wait_for(lambda: list_leases(store, "mine"))
        key.append(next(iter(Submissions(store, "mine").records())))
        ask(store, f"mine/{key[0]}", STOP, "sweep cancel")

    thread = threading.Thread(target=cancel)
    thread.start()
    with worker_in_a_thread(store, "mine", wait_for_request):
        assert train(folder, "seed=1") == 1
    thread.join()
    assert "cancelled: sweep cancel" in capsys.readouterr().out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_ends_the_waiting_and_nothing_else(folder, capsys, number, code):
    store = open_store(folder)
    before = signal.getsignal(number)

    def interrupt():
        wait_for(lambda: list_leases(store, "mine") and signal.getsignal(number) is not before)
        os.kill(os.getpid(), number)

    def train_on(job):
        while not is_over.wait(0.02):
            job.beat()
        return finish(job)

    is_over = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with worker_in_a_thread(store, "mine", train_on) as taken:
        assert train(folder, "seed=1") == code
        thread.join()
        text = capsys.readouterr().out
        assert "go on wherever workers train them" in text
        assert "sweep status|cancel mine" in text
        assert "sweep resume" not in text
        is_over.set()
        # The same command waits again.
        assert train(folder, "seed=1") == 0
    assert len(taken) == 1


def test_a_run_that_another_command_removes_is_not_waited_for(folder, monkeypatch, capsys):
    from rlzoo_plus.sweeps import submitting

    monkeypatch.setattr(submitting, "_REMOVED_S", 0.1)
    store = open_store(folder)

    def remove():
        submitted = Submissions(store, "mine")
        wait_for(submitted.records)
        key = next(iter(submitted.records()))
        submitted.add([{"event": "removed", "job": key}], {})

    thread = threading.Thread(target=remove)
    thread.start()
    assert train(folder, "seed=1") == 1
    thread.join()
    assert "another command removed it" in capsys.readouterr().out


def test_from_python_runs_are_given_to_the_caller_as_they_end(folder):
    seen = []
    with worker_in_a_thread(open_store(folder), "mine"):
        runs = rz.sweep([*TINY, f"store={folder}"], seed=(0, 1), quiet=True, on_end=seen.append)
    assert [run.config.seed for run in runs] == [0, 1]
    assert {run.config.seed for run in seen} == {0, 1}


def test_a_sweep_that_is_submitted_only_is_left_to_workers(folder):
    runs = rz.sweep([*TINY, f"store={folder}", "infra.wait=false"], seed=(0, 1), quiet=True)
    assert [view.state for view in runs.views()] == [JobState.WAITING] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "infra=workers needs a store"),
        (["store=s3://bucket/lab", "sweep=a b/c:d"], "cannot be the name of a sweep"),
        (["store=s3://bucket/lab", "infra.code=[nowhere]"], "there is no such folder"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("sweep=a b/c:d", "sweep='x/a?b'") for word in words]
    with pytest.raises(rz.ConfigError, match=said):
        main(["-m", *(w for w in TINY if not w.startswith("sweep=")), "seed=1,2", *words])
    assert list(tmp_path.iterdir()) == []


def test_weights_on_this_machine_are_not_for_workers_of_s3():
    config = make_config("infra=workers", "store=s3://bucket/lab")
    far = config.model_copy(update={"init_from": "/here/policy"})
    with pytest.raises(rz.ConfigError, match=r"init_from=/here/policy is a path of this machine"):
        _check_infra(far)
    _check_infra(far.model_copy(update={"store": "/shared/lab"}))


def test_code_that_cannot_be_sent_is_told_before_anything_is_written(folder, tmp_path):
    outside = tmp_path.parent / "elsewhere"
    outside.mkdir(exist_ok=True)
    with pytest.raises(rz.ConfigError, match=r"infra\.code"):
        train(folder, "seed=1", f"infra.code=[{outside}]")
    assert not (tmp_path / "outputs").exists()
    assert not list(open_store(folder).list("submissions/"))


def test_own_code_that_workers_lack_is_named_until_it_goes_along(
    folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_robots").mkdir()
    (tmp_path / "my_robots" / "__init__.py").touch()
    words = ("seed=1", "infra.wait=false", "env.packages=[support.tiny_envs,my_robots]")
    train(folder, *words)
    assert "workers need my_robots from here: infra.code=[my_robots]" in capsys.readouterr().out
    train(folder, *words, "infra.code=[my_robots]")
    assert "from here" not in capsys.readouterr().out


def test_runs_elsewhere_are_drawn_as_those_here():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    view = SweepView(lambda: console)
    job = make_job(make_config("sweep=mine"))
    options = LauncherOptions(WorkersSettings(), store="s3://bucket/lab", sweep="mine")
    launcher = WorkersLauncher(options)
    view.begin([job] * 3, launcher)
    with view:
        running = JobView(job, JobState.RUNNING, "", Progress(5000, 100.0, 12.5))
        view.show([running], Counter({JobState.RUNNING: 1, JobState.WAITING: 2}))
    text = console.file.getvalue()
    assert "for workers of" in text
    assert "2 waiting, 1 running" in text
    assert "5,000/41k" in text
