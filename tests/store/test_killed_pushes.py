"""A push that is killed at any moment leaves a store that restores the run, exactly."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import environ_of_tests
from support.resuming import StopAfter
from support.stores import url_of
from support.training import start_run, tiny_config, train_run

from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.mirror import SENT_FILE, RunMirror
from rlzoo_plus.store.pull import pull_run

pytestmark = pytest.mark.slow

RUN = "sweep/a"
N_KILLS = 20
_ALGOS = {"sac": 8, "ppo": 2}

# Started once, as Python is slow to start: forks a process that pushes, for each line it reads.
_PUSHER = """
import os, shutil, sys
from pathlib import Path
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.mirror import SENT_FILE, RunMirror
import rlzoo_plus.store.s3
url, states, done = sys.argv[1], sorted(Path(sys.argv[2]).iterdir()), Path(sys.argv[3])
print("ready", flush=True)
for line in sys.stdin:
    first = int(line)
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("gone", flush=True)
        continue
    for number in range(first, len(states)):
        if number > first:
            shutil.copy(states[number - 1] / SENT_FILE, states[number] / SENT_FILE)
        RunMirror(open_store(url), "sweep/a", states[number]).push()
        with done.open("a") as file:
            file.write(f"{number}\\n")
    os._exit(0)
"""


class Pusher:
    """Pushes the states of a run one after another, in processes that can be killed."""

    def __init__(self, url, states, done):
        command = [sys.executable, "-c", _PUSHER, url, str(states), str(done)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, env=environ_of_tests(), **pipes)
        assert self._read() == "ready"

    def push(self, first, killed_after_s=None):
        """Push from a state on; kill that after a time, and wait for its end."""
        self._process.stdin.write(f"{first}\n")
        self._process.stdin.flush()
        pid = int(self._read())
        if killed_after_s is not None:
            time.sleep(killed_after_s)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._read() == "gone"

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _read(self):
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module", params=_ALGOS)
def grown(request, tmp_path_factory):
    """Return the states of a growing run, a directory each, and that run uninterrupted."""
    from rlzoo_plus.training.exp_manager import ExpManager

    folder = tmp_path_factory.mktemp(request.param)
    config = tiny_config(request.param, "tests/TinyReach-v0", "n_timesteps=256")
    whole, _ = train_run(folder / "whole", config)
    run = start_run(folder / "run", config)
    states = folder / "states"
    for number in range(100):
        result = ExpManager(config, run, StopAfter(_ALGOS[request.param])).train()
        shutil.copytree(run.path, states / f"{number:02d}")
        if result.state == "finished":
            break
    assert number >= 3
    return config, states, whole


def _step(state):
    return max(CheckpointStore(state / "checkpoints").steps())


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_killed_push_leaves_a_store_that_restores(kind, grown, tmp_path, monkeypatch):
    from rlzoo_plus.training.exp_manager import ExpManager

    config, states, whole = grown
    paths, draw = sorted(states.iterdir()), random.Random(f"{kind} {states.parent.name}")
    for path in paths:
        (path / SENT_FILE).unlink(missing_ok=True)
    steps = [_step(path) for path in paths]
    done = tmp_path / "done"
    done.touch()
    restored = set()
    with url_of(kind, tmp_path, monkeypatch) as url:
        began = time.monotonic()
        RunMirror(open_store(f"{url}/timed"), RUN, paths[0]).push()
        one_s = time.monotonic() - began
        (paths[0] / SENT_FILE).unlink()
        pusher = Pusher(url, states, done)
        try:
            last, n_kills, n_partial = -1, 0, 0
            # One kill at least is between the first checkpoint and the last.
            while n_kills < N_KILLS or (not restored and n_kills < 5 * N_KILLS):
                if last == len(paths) - 1:
                    # All is there: begin again with another run of the store.
                    last = -1
                    url = url + "x"
                    pusher.close()
                    pusher = Pusher(url, states, done)
                    done.write_text("")
                first = last + 1
                if first and (paths[last] / SENT_FILE).exists():
                    shutil.copy(paths[last] / SENT_FILE, paths[first] / SENT_FILE)
                pusher.push(first, draw.uniform(0.0, 2.0 * one_s))
                n_kills += 1
                finished = [int(line) for line in done.read_text().split()]
                last = max(finished, default=-1)
                store = open_store(url)
                is_too_early = last < 0 and not any(store.list("state/"))
                is_too_late = last == len(paths) - 1
                one_s *= 1.3 if is_too_early else 0.7 if is_too_late else 1.0
                if is_too_early:
                    continue
                back = tmp_path / f"back{n_kills}"
                step = pull_run(store, RUN, back)
                n_partial += step is not None and step not in [steps[number] for number in finished]
                if last >= 0:
                    assert step >= steps[last]
                if step is not None:
                    assert step in steps
                    CheckpointStore(back / "checkpoints").load(step)
                    if step not in restored and step < steps[-1]:
                        restored.add(step)
                        _check_goes_on(ExpManager, config, back, whole)
                shutil.rmtree(back)
            pusher.push(last + 1 if last + 1 < len(paths) else last)
            assert pull_run(open_store(url), RUN, tmp_path / "end") == steps[-1]
        finally:
            pusher.close()
    assert restored, "no kill was after the first checkpoint"
    leftovers = [path for path in Path(tmp_path).rglob("*.pull-*")]
    assert not leftovers


def _check_goes_on(manager, config, path, whole):
    """Resume a restored run, and compare its end bit for bit with the uninterrupted one."""
    result = manager(config, RunDir(path)).train()
    assert result.state == "finished"
    assert result.exact, result.inexact_because
    expected, found = run_digests(whole), run_digests(RunDir(path))
    differing = sorted(k for k in expected | found if expected.get(k) != found.get(k))
    assert not differing, differing
