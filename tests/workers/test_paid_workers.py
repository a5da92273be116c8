"""Workers on machines that are paid for: notices, budgets, and the run that a launch is for."""

import os
from dataclasses import replace

import pytest
from support.imds import instance_metadata
from support.processes import PLUS, commands_in, environ_of_tests, output_of, wait_for
from support.training import tiny_config
from support.workers import (
    QUICK,
    SWEEP,
    make_worker,
    press,
    run_record,
    state_of,
    submit,
    take,
    task_record,
    when,
)

from rlzoo_plus.artifacts.result import NO_DIFFERENCE
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.attempts import Machine, read_attempts
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.launches import Launches
from rlzoo_plus.store.lease import reopen
from rlzoo_plus.workers.host import Host, find_host
from rlzoo_plus.workers.spot_notice import VARIABLE

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs sessions")
TARGETS = (
    *(f"rlzoo_plus.testing.jobs:{name}" for name in ("say", "fail", "wait")),
    "support.jobs:ignore_stop",
)
JOB = "0d9d7a5e-6bd2-4a61-9cbb-6e5fc6e2a7d1"
LONG = ("n_timesteps=1536", "checkpoint.every_steps=64", "eval.every_steps=128")


@pytest.fixture
def store(folder):
    return folder


@pytest.fixture
def worker(store, tmp_path):
    return lambda **options: make_worker(
        store, tmp_path / "here", **{"targets": TARGETS, "slots": 1, **options}
    )


@pytest.fixture
def instance(monkeypatch):
    monkeypatch.setattr("rlzoo_plus.workers.spot_notice.LOOK_S", 0.05)
    with instance_metadata() as made:
        yield made


def _says(number):
    return task_record(f"a/b/{number}", "say", word=number)


def _waits(file, **more):
    return {**task_record("a/b/1", "wait", file=str(file)), **more}


def _dear(buys_s, usd=0.01):
    """Return a machine of which a share buys so many seconds."""
    return Host(machine=Machine(usd_per_hour=usd * 3600.0 / buys_s))


# Notices.


@pytest.mark.parametrize("and_signal", [False, True])
def test_a_notice_releases_the_runs_as_a_signal_does(store, worker, tmp_path, instance, and_signal):
    """A SIGTERM that follows is the machine's own, no second one."""
    file = tmp_path / "file"
    (key,) = submit(store, _waits(file))
    host = find_host(store, SWEEP, spot=True, environ=instance.environ)

    def interrupt():
        instance.interrupt()
        if and_signal:
            wait_for(lambda: host.is_noticed)
            press()

    when(file.is_file, interrupt)
    assert worker(host=host).run() == 75
    record = state_of(store, key)
    assert (record["state"], record["code"]) == ("released", 75)
    assert file.read_text() == "stopped"
    assert record["attempts"][0].items() >= {"machine": "c7a.large", "end": "released"}.items()


def test_what_does_not_stop_is_killed_before_the_machine_goes(store, worker, tmp_path, instance):
    file = tmp_path / "file"
    record = task_record("a/b/1", "support.jobs:ignore_stop", file=str(file))
    (key,) = submit(store, record)
    host = find_host(store, SWEEP, spot=True, environ=instance.environ)
    when(file.is_file, lambda: instance.interrupt(in_s=10.0))
    assert worker(host=host).run() == 75
    assert state_of(store, key).items() >= {"state": "released", "code": -9}.items()


@pytest.mark.training
def test_a_run_whose_machine_is_taken_away_goes_on_elsewhere_bit_for_bit(store, tmp_path, instance):
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    (key,) = submit(store, run_record(tiny_config("ppo", "tests/TinyReach-v0", *LONG)))
    host = find_host(store, SWEEP, spot=True, usd_per_hour=1.0, environ=instance.environ)
    when(lambda: len(RunDir(first / key).checkpoints().steps()) >= 2, instance.interrupt)
    assert make_worker(store, first, host=host).run() == 75
    stopped = state_of(store, key)
    assert stopped["state"] == "released"
    told = []
    assert make_worker(store, second, tell=told.append).run() == 0
    assert told[0].startswith(f"{key} goes on from step ")
    report = state_of(store, key)
    assert (report["state"], report["algo"], report["steps"]) == ("finished", "ppo", 1536)
    assert report["exact"] == NO_DIFFERENCE
    listed, spent = read_attempts(report)
    assert [a.end for a in listed] == ["released", "finished"]
    assert [a.machine for a in listed] == ["c7a.large", None]
    assert 0 == listed[0].step < listed[1].step <= stopped["steps"]
    assert (spent.attempts, len(spent.processors)) == (2, 1)
    # The second machine costs nothing.
    assert spent.usd == listed[0].usd > 0.0
    other = open_store(tmp_path / "other")
    submit(other, run_record(tiny_config("ppo", "tests/TinyReach-v0", *LONG)))
    assert make_worker(other, whole).run() == 0
    assert run_digests(RunDir(second / key)) == run_digests(RunDir(whole / key))


# Budgets.


def test_a_run_that_does_not_stop_is_killed_before_its_share_is_spent(store, worker, tmp_path):
    file = tmp_path / "file"
    record = task_record("a/b/1", "support.jobs:ignore_stop", file=str(file))
    (key,) = submit(store, {**record, "max_usd": 0.01})
    assert worker(host=_dear(4.0)).run() == 0
    assert state_of(store, key).items() >= {"state": "cancelled", "code": -9}.items()
    assert state_of(store, key)["spent"]["usd"] < 0.01


def test_a_share_is_for_all_attempts_and_a_larger_one_goes_on(store, worker, tmp_path):
    file = tmp_path / "file"
    (key,) = submit(store, _waits(file, max_usd=0.01))
    assert worker(host=_dear(4.0)).run() == 0
    stopped = state_of(store, key)
    assert stopped["state"] == "cancelled"
    assert stopped["reason"].startswith("budget: $0.00")
    assert stopped["reason"].endswith(" of $0.0100 are spent")
    spent = stopped["spent"]
    assert 0.0075 <= spent["usd"] < 0.01
    assert reopen(store, f"{SWEEP}/{key}")
    file.unlink()
    assert worker(host=_dear(4.0)).run() == 0
    assert not file.exists()
    assert state_of(store, key).items() >= {"state": "cancelled", "spent": spent}.items()
    submit(store, _waits(file, max_usd=0.02))
    assert reopen(store, f"{SWEEP}/{key}")
    when(file.is_file, press)
    assert worker(host=_dear(4.0)).run() == 75
    assert spent["usd"] < state_of(store, key)["spent"]["usd"] < 0.02


@pytest.mark.parametrize("share", [0, -1, "1", True, float("inf"), [1]])
def test_a_share_that_is_none_is_refused(store, worker, caplog, share):
    submit(store, {**_says(1), "max_usd": share})
    assert worker().run() == 1
    assert "no amount above 0" in caplog.text


# The run of a launch.


def _launch(store, *keys):
    return Launches(store, SWEEP).add(keys, {"name": "aws_batch"}).name


def _host(store, launch, index=None):
    job = JOB if index is None else f"{JOB}:{index}"
    environ = {"AWS_BATCH_JOB_ID": job, VARIABLE: "http://127.0.0.1:9"}
    return find_host(store, SWEEP, launch=launch, environ=environ)


@pytest.mark.parametrize(("index", "taken"), [(None, 2), (0, 2), (1, 1)])
def test_a_job_takes_its_run_alone(store, worker, index, taken):
    keys = submit(store, *map(_says, range(4)))
    host = _host(store, _launch(store, keys[2], keys[1]), index)
    assert worker(host=host).run() == 0
    states = [state_of(store, key).get("state") for key in keys]
    assert [number for number, state in enumerate(states) if state] == [taken]
    record = state_of(store, keys[taken])
    assert record["worker"].startswith(
        f"batch-{JOB}_" if index is None else f"batch-{JOB}_{index}_"
    )


def test_an_array_may_begin_within_a_launch(store):
    launch = _launch(store, "a", "b", "c")
    assert _host(store, f"{launch}:1", 1).only == "c"
    with pytest.raises(ConfigError, match="this job is for number 3"):
        _host(store, f"{launch}:1", 2)


@pytest.mark.parametrize("launch", ["../x", "000001-00000000", "", "000001-00000000:x"])
def test_a_launch_that_is_not_there_is_a_mistake(store, launch):
    submit(store, _says(1))
    with pytest.raises(ConfigError, match="has no launch"):
        _host(store, launch)


def test_outside_of_batch_a_launch_restricts_nothing(store):
    host = find_host(store, SWEEP, launch=_launch(store, "a"), environ={})
    assert (host.only, host.watch) == (None, None)


def test_a_job_whose_run_has_ended_ends(store, worker):
    keys = submit(store, *map(_says, range(2)))
    take(store, keys[0]).beat("cancelled")
    assert worker(host=_host(store, _launch(store, *keys), 0)).run() == 0
    assert state_of(store, keys[1]) == {}


def test_a_job_takes_over_from_one_that_gives_no_sign(store, worker):
    (key,) = submit(store, _says(1))
    take(store, key)
    host, told = _host(store, _launch(store, key)), []
    quick = replace(QUICK, expires_s=2.0)
    assert worker(host=host, tell=told.append, times=quick).run() == 0
    assert told[0].startswith("waiting: other workers have 1 run")
    assert state_of(store, key)["state"] == "finished"
    # That the machine had to wait is counted, too.
    assert state_of(store, key)["spent"]["seconds"] >= 1.5


def test_a_job_does_not_wait_for_another_worker_that_is_alive(store, worker, tmp_path):
    (key,) = submit(store, _says(1))
    lease, told = take(store, key), []
    when(lambda: told, lease.beat)
    assert worker(host=_host(store, _launch(store, key)), tell=told.append).run() == 0
    assert state_of(store, key).items() >= {"worker": "another", "state": "running"}.items()


# The command.


@pytest.mark.training
def test_a_training_finds_no_credentials_and_its_worker_does(store, tmp_path):
    (tmp_path / "tell_environ.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "print('python has', *sorted(os.environ))\n"
        "text = Path('/proc/self/environ').read_text(errors='replace')\n"
        "print('the system has', *sorted(v.partition('=')[0] for v in text.split('\\0')))\n"
    )
    config = tiny_config().model_copy(update={"packages": ["tell_environ"]})
    keys = submit(store, run_record(tiny_config("a2c")), run_record(config))
    launch = _launch(store, *keys)
    with instance_metadata() as instance, commands_in(tmp_path) as start:
        environ = environ_of_tests(
            **instance.environ,
            AWS_BATCH_JOB_ID=f"{JOB}:1",
            AWS_ACCESS_KEY_ID="key",
            AWS_SECRET_ACCESS_KEY="secret",
            AWS_SESSION_TOKEN="token",
            AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="/v2/credentials",
            WANDB_API_KEY="mine",
        )
        environ["PYTHONPATH"] += os.pathsep + str(tmp_path)
        words = ("worker", f"{store.url}/{SWEEP}", "--trust", "--launch", launch)
        price = ("--usd-per-hour", "0.05")
        output_of(start(*PLUS, *words, *price, env=environ))
    assert state_of(store, keys[0]) == {}
    record = state_of(store, keys[1])
    assert record["state"] == "finished"
    assert record["attempts"][0].items() >= {"machine": "c7a.large", "end": "finished"}.items()
    assert record["spent"]["usd"] > 0.0
    assert record["worker"].startswith(f"batch-{JOB}_1_")
    log = (tmp_path / "outputs" / "workers" / SWEEP / keys[1] / "log.txt").read_text()
    for seen in ("python has", "the system has"):
        (line,) = {line for line in log.splitlines() if line.startswith(seen)}
        assert "AWS_" not in line
        assert "WANDB_API_KEY" in line
