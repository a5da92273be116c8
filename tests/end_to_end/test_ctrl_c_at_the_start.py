"""Ctrl-C while processes start: the command ends at once, without a traceback or a process left."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.processes import PLUS, commands_in, environ_of_tests, wait_for

pytestmark = pytest.mark.slow
WORDS = (
    "env=cartpole_bullet", "algo=ppo", "tuned=none", "n_timesteps=10000000", "report.video=false",
    "num_threads=1",
)  # fmt: skip
CODES = {signal.SIGINT: 130, signal.SIGTERM: 75}


@pytest.fixture
def start(tmp_path):
    environ = environ_of_tests(OMP_NUM_THREADS="1")
    with commands_in(tmp_path, env=environ, stderr=subprocess.PIPE) as start_it:
        yield start_it


def _group(leader):
    """Return the processes of a process group that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def _assert_ends(process, number, limit_s=20.0):
    begun = time.monotonic()
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    assert time.monotonic() - begun < limit_s
    # Before a run has begun, the command ends by the signal itself, which a shell shows as 130.
    assert process.returncode in (CODES[number], -number), err[-2000:]
    assert "Traceback" not in out + err
    wait_for(lambda: not _group(process.pid), timeout_s=limit_s)


@pytest.mark.parametrize("number", CODES)
def test_a_run_is_stopped_while_its_processes_start(start, number):
    words = ("n_envs=6", "vec_env=subproc", "run_dir=run")
    process = start(*PLUS, "train", *WORDS, *words, start_new_session=True)
    # The command, multiprocessing's tracker, the server, and at least one environment.
    wait_for(lambda: len(_group(process.pid)) >= 4, process)
    _assert_ends(process, number)


def test_a_sweep_is_stopped_while_its_processes_start(start):
    process = start(*PLUS, "train", "-m", "seed=1,2,3", *WORDS, start_new_session=True)
    while len(_group(process.pid)) < 3 and process.poll() is None:
        time.sleep(0.01)
    time.sleep(1.0)
    _assert_ends(process, signal.SIGINT)
