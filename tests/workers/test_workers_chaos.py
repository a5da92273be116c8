"""A sweep of workers that are killed, with S3 that fails: bit for bit as if nothing had been."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import pytest
from support.chaos_worker import EXPIRES_S
from support.processes import PLUS, ROOT, commands_in, environ_of_tests, output_of, wait_for
from support.stores import s3_server
from support.training import assert_same_tree, bundle_weights

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.pull import pull_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.training,
    pytest.mark.skipif(os.name == "nt", reason="needs sessions"),
]
SWEEP, N_RUNS, N_WORKERS = "sweep", 4, 3
TINY = (
    *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "n_timesteps=8192"),
    *("algo.hyperparams.n_steps=128", "checkpoint.every_steps=256", "eval.every_steps=512"),
    *("eval.episodes=2", "log.tensorboard=false", "report.plot=false", "report.video=false"),
    f"seed=range(0,{N_RUNS})",
)


@dataclass(frozen=True)
class Put:
    """An object that the server has written.

    Attributes:
        at: When, in `time.monotonic` [s].
        name: Its name behind the store's prefix.
        process: The process that sent it, as its user agent says.
        record: Of a lease, what it says.
    """

    at: float
    name: str
    process: str
    record: dict


@pytest.fixture
def history(monkeypatch):
    """Return the list of all objects that the server writes from now on."""
    pytest.importorskip("moto", reason="needs the extra dev")
    from flask import request
    from moto.s3.models import S3Backend

    puts, put_object, lock = [], S3Backend.put_object, threading.Lock()

    def put_and_note(self, bucket_name, key_name, value, *args, **kwargs):
        with lock:
            done = put_object(self, bucket_name, key_name, value, *args, **kwargs)
            _, _, process = request.headers.get("User-Agent", "").partition("app/")
            name = key_name.partition("/")[2]
            record = json.loads(value) if name.startswith(f"live/{SWEEP}/") else {}
            puts.append(Put(time.monotonic(), name, process.partition(" ")[0], record))
        return done

    monkeypatch.setattr(S3Backend, "put_object", put_and_note)
    return puts


def test_every_run_is_trained_by_one_worker_at_a_time_bit_for_bit(tmp_path, monkeypatch, history):
    draw = random.Random(14)
    with s3_server(monkeypatch) as url, commands_in(tmp_path) as start:

        def submit():
            where = ("infra=workers", "infra.look_s=1", f"store={url}", f"sweep={SWEEP}")
            return start(*PLUS, "train", "-m", *TINY, *where)

        def work(number, attempt):
            process = f"worker-{number}-{attempt}"
            environ = environ_of_tests(AWS_SDK_UA_APP_ID=process, OMP_NUM_THREADS="1")
            # Two of them share a folder.
            folder, seed = tmp_path / f"folder-{number // 2}", 10 * number + attempt
            words = ("-m", "support.chaos_worker", f"{url}/{SWEEP}", folder, seed)
            with (tmp_path / f"{process}.log").open("w") as log:
                return process, start(sys.executable, *words, env=environ, stdout=log)

        submitter = submit()
        wait_for(lambda: any(p.name.startswith("submissions/") for p in history), submitter)
        submitter.send_signal(signal.SIGKILL)
        submitter.wait()
        workers = {number: work(number, 0) for number in range(N_WORKERS)}
        waiting = {number: draw.uniform(0.0, 4.0) for number in workers}
        # Killed at some moment after it has sent a checkpoint.
        killed = []
        while waiting:
            for number, after_s in list(waiting.items()):
                name, process = workers[number]
                sent = [
                    p.at
                    for p in list(history)
                    if p.process == name and p.name[-5:] == ".json" and p.name.startswith("state/")
                ]
                if sent and time.monotonic() > sent[0] + after_s:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    killed.append(name)
                    del waiting[number]
                    workers[number] = work(number, 1)
                else:
                    assert process.poll() is None, (tmp_path / f"{name}.log").read_text()
            time.sleep(0.02)
        for name, process in workers.values():
            log = tmp_path / f"{name}.log"
            assert process.wait(900) == 0, log.read_text()[-5000:]
        # The same command again finds everything done.
        assert "submitted 0 runs" in output_of(submit())
        store = open_store(url)
        runs = {p.name.removeprefix("live/")[:-5] for p in history if p.record}
        assert len(runs) == N_RUNS
        for run in runs:
            pull_run(store, run, tmp_path / "pulled" / run)

    assert len(killed) == N_WORKERS
    assert _takeovers(history) > 0
    logs = [(tmp_path / f"{name}.log").read_text() for name, _ in workers.values()]
    assert any("goes on from step" in log for log in logs)
    with commands_in(tmp_path) as start:
        where = ("infra=local", "infra.workers=2", "sweep=uninterrupted")
        output_of(start(*PLUS, "train", "-m", *TINY, *where))
    for run in sorted(runs):
        _, _, key = run.partition("/")
        expected = RunDir(tmp_path / "outputs" / "sweeps" / "uninterrupted" / key)
        found = RunDir(tmp_path / "pulled" / run)
        for which in ("best", "final"):
            assert_same_tree(
                bundle_weights(getattr(found, which)), bundle_weights(getattr(expected, which))
            )
        assert run_digests(found) == run_digests(expected)
        assert found.read_result()["exact"] is True


def _takeovers(history):
    """Check that only the owner of its lease writes a run; return how often that changed."""
    owners, changes = {}, 0
    for put in list(history):
        top, _, rest = put.name.partition("/")
        if put.record:
            run, before = put.name.removeprefix("live/")[:-5], owners.get(put.name[5:-5])
            worker, is_over = put.record["worker"], put.record["state"] != "running"
            if before is not None and before[0] != worker:
                changes += 1
                has_expired = put.at - before[3] > EXPIRES_S - 1.5
                assert before[2] or has_expired, f"{worker} took {run} from {before}"
            owners[run] = (worker, put.process, is_over, put.at)
        elif top in ("runs", "state"):
            run = "/".join(rest.split("/")[:4])
            worker, process, is_over, at = owners[run]
            assert put.process == process, f"{put} while {worker} had the run"
            assert not is_over
            assert put.at - at < EXPIRES_S
    return changes


# Two deaths of `python -m benchmarks.worker_deaths`, in training and in an evaluation.


@pytest.mark.parametrize("case", ["sac", "ppo, evaluation"])
def test_a_run_whose_processes_are_killed_names_them_and_goes_on_exactly(case):
    command = [sys.executable, "-m", "benchmarks.worker_deaths", case, "--kills", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    row = done.stdout.splitlines()[-1]
    assert row.startswith(f"| {case} | 2 |"), done.stdout + done.stderr
    # How long it took is the benchmark's matter: the machine of a test may be busy.
    assert row.endswith(("| 2 of 2 | 0 | 1 of 1 runs |", "| 2 of 2 | 0 | 2 of 2 runs |"))
