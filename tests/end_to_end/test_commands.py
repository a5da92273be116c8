"""Whole commands in processes of their own, as a user types them."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest
from support.processes import PLUS, ROOT, commands_in, environ_of_tests, wait_for

TRAIN = [sys.executable, str(ROOT / "train.py")]
QUICK = [
    "report.video=false", "report.plot=false", "device=cpu", "log.tensorboard=false",
    "eval.episodes=2", "network.net_arch=[8]",
]  # fmt: skip
PPO = ["algo.hyperparams.n_steps=64", "algo.hyperparams.batch_size=32"]

pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path):
    # Output and errors apart; no window, even where there is a display.
    environ = environ_of_tests(OMP_NUM_THREADS="1")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        environ.pop(name, None)
    with commands_in(tmp_path, env=environ, stderr=subprocess.PIPE) as start_it:
        yield start_it


@pytest.fixture
def call(start):
    def _call(*words, code=0):
        process = start(*words)
        out, err = process.communicate(timeout=150)
        assert process.returncode == code, f"{out[-2000:]}\n{err[-3000:]}"
        return out, err

    return _call


def _status(path):
    try:
        return json.loads((path / "status.json").read_text())
    except (OSError, ValueError):
        return {}


def _wait_until_training(run, process):
    # The first row after the two of the head: an episode has ended.
    def trains():
        files = list((run / "monitor").glob("*.csv"))
        return bool(files) and all(len(f.read_text().splitlines()) > 3 for f in files)

    wait_for(trains, process)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 75), (signal.SIGINT, 130)],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_signal_ends_the_run_with_a_checkpoint_that_can_be_evaluated(
    tmp_path, start, call, number, code
):
    run = tmp_path / "run"
    process = start(*TRAIN, *QUICK, *PPO, "n_timesteps=10000000", "normalize=true", "run_dir=run")
    _wait_until_training(run, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert _status(run)["state"] == "interrupted"
    assert not (run / "result.json").exists()
    step = max(int(path.name) for path in (run / "checkpoints").iterdir())
    assert step == _status(run)["num_timesteps"]
    out, _ = call(*PLUS, "evaluate", "run", "--which", step, "--episodes", 2, "--json")
    assert json.loads(out)["step"] == step


def test_ctrl_c_ends_a_run_with_processes_as_cleanly(tmp_path, start):
    # A terminal sends SIGINT to the workers too.
    run = tmp_path / "run"
    process = start(
        *TRAIN, *QUICK, *PPO, "n_timesteps=10000000", "n_envs=2", "vec_env=subproc", "run_dir=run",
        start_new_session=True,
    )  # fmt: skip
    _wait_until_training(run, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err[-2000:]
    assert _status(run)["state"] == "interrupted"
    assert list((run / "checkpoints").iterdir())


def test_a_terminal_that_is_closed_ends_the_run_with_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    words = ["n_timesteps=10000000", "n_envs=2", "vec_env=subproc", "run_dir=run"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*TRAIN, *QUICK, *PPO, *words],
        cwd=tmp_path, env=environ_of_tests(OMP_NUM_THREADS="1"),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        os.close(theirs)
        os.set_blocking(ours, False)
        _wait_until_training(run, process)
        os.close(ours)  # as sshd does when the connection is lost
        assert process.wait(timeout=60) == 75
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert _status(run)["message"] == "stopped by SIGHUP"
    steps = [int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit()]
    assert max(steps) == _status(run)["num_timesteps"]


def test_two_runs_started_at_the_same_instant_get_two_directories(tmp_path, start):
    command = [*TRAIN, *QUICK, *PPO, "n_timesteps=64", "seed=4"]
    processes = [start(*command) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=150)
        assert process.returncode == 0, err
    runs = list((tmp_path / "outputs" / "cartpole_bullet" / "ppo").iterdir())
    assert len(runs) == 2
    assert all(_status(run)["state"] == "finished" for run in runs)
    first, second = ((run / "evaluations.jsonl").read_bytes() for run in runs)
    assert first == second


def test_two_runs_given_the_same_directory_do_not_share_it(tmp_path, start):
    command = [*TRAIN, *QUICK, *PPO, "n_timesteps=64", "run_dir=run"]
    processes = [start(*command) for _ in range(2)]
    codes = []
    for process in processes:
        process.communicate(timeout=150)
        codes.append(process.returncode)
    assert sorted(codes) == [0, 2]


def test_the_module_is_the_same_as_the_console_script(call):
    out, _ = call(*PLUS)
    assert "-m rlzoo_plus VERB" in out
    assert "rlzoo-plus" in call(*PLUS, "--version")[0]


def test_a_pipe_to_a_worker_that_breaks_is_no_success(call):
    code = (
        "import sys, types\n"
        "from rlzoo_plus.commands import dispatch\n"
        "def main(arguments):\n"
        "    raise BrokenPipeError(32, 'Broken pipe')\n"
        "sys.modules['broken_verb'] = types.SimpleNamespace(main=main)\n"
        "dispatch.VERBS['broken'] = ('broken_verb', '')\n"
        "sys.exit(dispatch.run('broken', []))\n"
    )
    call(sys.executable, "-c", code, code=1)
