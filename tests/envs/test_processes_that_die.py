"""Environments in processes that are killed, break or end: the run hears of it, and never hangs."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support.processes import environ_of_tests, is_gone, wait_for
from support.training import start_run, tiny_config

from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
PROCESSES = ("n_envs=2", "vec_env=subproc")
# Far more than it takes, and far less than for ever.
AT_MOST_S = 10.0


@pytest.fixture
def make():
    """Return a function that makes two environments in processes; they are closed in the end."""
    made = []

    def make_it(env="tests/TinyReach-v0", *overrides):
        made.append(make_train_env(tiny_config("ppo", env, *PROCESSES, *overrides), 5))
        return made[-1]

    yield make_it
    for venv in made:
        venv.close()


def _kill(venv, rank, number=signal.SIGKILL):
    process = venv.processes[rank]
    os.kill(process.pid, number)
    process.join()
    return process.pid


CALLS = {
    "reset": lambda venv: venv.reset(),
    "step": lambda venv: venv.step(np.zeros((2, 1), np.float32)),
    "env_method": lambda venv: venv.env_method("episode_state"),
    "get_attr": lambda venv: venv.get_attr("rewards"),
    "set_attr": lambda venv: venv.set_attr("spare", 1),
}


@pytest.mark.parametrize(("call", "rank"), list(zip(CALLS, (0, 1, 0, 1, 1), strict=True)))
def test_a_killed_process_is_named_whatever_is_asked_of_it(make, call, rank):
    venv = make()
    venv.reset()
    pid = _kill(venv, rank)
    with pytest.raises(RunError) as caught:
        CALLS[call](venv)
    text = str(caught.value)
    assert text.startswith(f"the process of environment {rank} (pid {pid}) was killed by SIGKILL")
    assert "out of memory" in text
    begun = time.monotonic()
    venv.close()
    assert time.monotonic() - begun < AT_MOST_S
    assert all(is_gone(process.pid) for process in venv.processes)


def test_a_process_that_is_killed_in_the_middle_of_a_step_is_noticed(make):
    venv = make()
    venv.reset()
    os.kill(venv.processes[1].pid, signal.SIGSTOP)
    venv.step_async(np.zeros((2, 1), np.float32))
    _kill(venv, 1)
    with pytest.raises(RunError, match=r"environment 1 .* SIGKILL"):
        venv.step_wait()
    venv.close()
    assert all(is_gone(process.pid) for process in venv.processes)


def test_closing_ends_a_process_that_does_not_answer_and_one_that_is_gone(make, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.envs.subproc._CLOSING_S", 0.5)
    venv = make()
    venv.reset()
    _kill(venv, 0)
    os.kill(venv.processes[1].pid, signal.SIGSTOP)
    begun = time.monotonic()
    venv.close()
    assert time.monotonic() - begun < AT_MOST_S
    assert all(is_gone(process.pid) for process in venv.processes)


def test_a_healthy_close_lets_the_environments_close_themselves(make):
    venv = make()
    venv.reset()
    venv.step_async(np.zeros((2, 1), np.float32))
    venv.close()
    assert [process.exitcode for process in venv.processes] == [0, 0]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("sys.exit", r"called sys.exit\(0\)"),
        ("os._exit", "ended by itself, with exit code 0"),
        ("SIGSEGV", "was killed by SIGSEGV"),
    ],
)
@pytest.mark.parametrize("where", ["make", "reset"])
def test_an_environment_that_ends_its_process_is_told(make, how, words, where):
    if (how, where) == ("sys.exit", "make"):
        pytest.skip("a mistake of the configuration, wherever it is made")
    with pytest.raises(RunError, match=f"environment 0 .*{words}"):
        make("tests/TinyFatal-v0", f"env.kwargs={{how: {how}, where: {where}}}").reset()


def test_an_error_in_an_environment_is_told(make):
    venv = make("tests/TinyBroken-v0")
    venv.reset()
    for _ in range(19):
        venv.step(np.zeros((2, 1), np.float32))
    with pytest.raises(RunError, match=r"step\(\) raises RuntimeError: the gearbox broke"):
        venv.step(np.zeros((2, 1), np.float32))


def test_a_mistake_in_the_configuration_stays_one(make):
    with pytest.raises(ConfigError, match="no_such_argument"):
        make("tests/TinyReach-v0", "+env.kwargs.no_such_argument=1")


def test_a_run_whose_process_dies_fails_with_the_reason_and_goes_on(tmp_path, monkeypatch):
    often = ("n_timesteps=256", "checkpoint.every_steps=64", "eval.every_steps=64")
    config = tiny_config("ppo", "tests/TinyReach-v0", *PROCESSES, *often)
    run_dir, made = start_run(tmp_path, config), []

    def kill_one(record, _is_best):
        if record["step"] >= 128:
            _kill(made[0], 1)

    monkeypatch.setattr(
        "rlzoo_plus.training.exp_manager.make_train_env",
        lambda *args: made.append(make_train_env(*args)) or made[-1],
    )
    with pytest.raises(RunError, match="environment 1"):
        ExpManager(config, run_dir, on_evaluation=kill_one).train()
    status = run_dir.read_status()
    assert status["state"] == "failed"
    assert status["message"].startswith("the process of environment 1")
    # The evaluation comes before the checkpoint of the same step.
    assert run_dir.checkpoints().load_newest().step == 64
    result = ExpManager(config, run_dir).train()
    assert (result.state, result.inexact_since, result.resumed_at) == ("finished", None, [64])


def test_a_process_that_dies_while_a_run_is_restored_blames_no_checkpoint(tmp_path, monkeypatch):
    from rlzoo_plus.training.resume import env_state

    config = tiny_config("ppo", "tests/TinyReach-v0", *PROCESSES, "checkpoint.every_steps=64")
    run_dir, made = start_run(tmp_path, config), []
    ExpManager(config, run_dir).train()
    monkeypatch.setattr(
        "rlzoo_plus.training.exp_manager.make_train_env",
        lambda *args: made.append(make_train_env(*args)) or made[-1],
    )
    real = env_state.restore_envs
    monkeypatch.setattr(
        env_state, "restore_envs", lambda *args, **kw: _kill(made[0], 1) and real(*args, **kw)
    )
    longer = config.model_copy(update={"n_timesteps": 256})
    with pytest.raises(RunError, match=r"^the process of environment 1"):
        ExpManager(longer, run_dir).train()


def test_the_death_of_an_evaluating_process_is_noticed():
    venv = make_eval_env(tiny_config().env, 2, "subproc")
    _kill(venv, 1)
    with pytest.raises(RunError, match="environment 1"):
        venv.env_method("set_episode_seeds", [31])
    venv.close()


ENDLESS = """
import sys, time
from support.training import tiny_config
from rlzoo_plus.envs.factory import make_eval_env

if __name__ == "__main__":
    stuck = "env.kwargs={how: stuck, at_step: 1}"
    venv = make_eval_env(tiny_config("ppo", "tests/TinyFatal-v0", stuck).env, 2, "subproc")
    venv.reset()
    if sys.argv[1] == "stuck":
        venv.step_async([[0.0], [0.0]])
    print(*[process.pid for process in venv.processes], flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("when", ["waiting", "stuck"])
def test_no_process_outlives_a_run_that_is_killed(tmp_path, when):
    (tmp_path / "start.py").write_text(ENDLESS, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "start.py"), when]
    with subprocess.Popen(command, env=environ_of_tests(), stdout=subprocess.PIPE) as run:
        pids = [int(word) for word in run.stdout.readline().split()]
        assert len(pids) == 2
        run.kill()
    wait_for(lambda: all(map(is_gone, pids)), timeout_s=AT_MOST_S)
