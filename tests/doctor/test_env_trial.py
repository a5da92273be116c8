"""Environments are tried in a process that they may crash; the command lives, and says it."""

import subprocess

import pytest
from support.processes import PLUS, commands_in, environ_of_tests
from support.training import start_run, tiny_config

from rlzoo_plus.envs.fit import inspect_env
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.sweeps.refusals import Refusals, Tried, try_environments
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
ENDS = {
    "sys.exit": "cannot be made: SystemExit: 0",
    "os._exit": "ended with exit code 0",
    "SIGSEGV": "was killed by SIGSEGV",
    "SIGKILL": "was killed by SIGKILL",
}


def _fatal(how, where="make", *overrides):
    kwargs = f"env.kwargs={{how: {how}, where: {where}}}"
    return tiny_config("ppo", "tests/TinyFatal-v0", kwargs, *overrides)


def test_each_environment_is_answered_for_whatever_the_others_do():
    good = tiny_config()
    wrong = tiny_config("dqn")
    configs = [good, *(_fatal(how) for how in ENDS), wrong, _fatal("os._exit", "reset"), good]
    found = [tried.errors for tried in try_environments(configs)]
    assert len(found) == len(configs)
    assert found[0] == found[-1] == []
    for (reason,), words in zip(found[1:5], ENDS.values(), strict=True):
        assert reason.startswith("env.id=tests/TinyFatal-v0")
        assert words in reason
        assert "\n" not in reason
    assert "dqn cannot act in Box" in found[5][0]
    assert "made, reset and stepped ended with exit code 0" in found[6][0]


def test_an_environment_is_tried_once_for_all_that_share_it(monkeypatch):
    tried = []
    monkeypatch.setattr(
        "rlzoo_plus.sweeps.refusals.try_environments",
        lambda configs: [tried.append(config.env.id) or Tried() for config in configs],
    )
    known = Refusals()
    known.try_environments([tiny_config(), tiny_config("ppo", "tests/TinyReach-v0", "seed=1")])
    assert known.of(tiny_config("ppo", "tests/TinyReach-v0", "seed=2")) == []
    assert tried == ["tests/TinyReach-v0"]


def test_sys_exit_in_an_environment_that_is_looked_at_here_is_a_mistake():
    with pytest.raises(ConfigError, match="raises SystemExit: 0"):
        inspect_env(_fatal("sys.exit", "reset"))


def test_sys_exit_in_a_training_fails_the_run(tmp_path):
    config = _fatal("sys.exit", "step")
    run_dir = start_run(tmp_path, config)
    with pytest.raises(RunError, match=r"^the environment called sys\.exit\(0\)\.$"):
        ExpManager(config, run_dir).train()
    status = run_dir.read_status()
    assert (status["state"], status["message"]) == (
        "failed", "the environment called sys.exit(0).",
    )  # fmt: skip


@pytest.fixture
def start(tmp_path):
    with commands_in(tmp_path, env=environ_of_tests(), stderr=subprocess.PIPE) as start_it:
        yield start_it


WORDS = (
    "algo=ppo", "env.packages=[support.tiny_envs]", "env=gym", "env.id=tests/TinyFatal-v0",
    "tuned=none", "n_timesteps=64", "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16",
)  # fmt: skip


@pytest.mark.parametrize(
    "verb", [("train", "-m", "seed=1,2"), ("doctor", "--no-probe"), ("train",)], ids=" ".join
)
def test_a_command_whose_environment_leaves_answers_with_one_line(start, tmp_path, verb):
    how = "sys.exit" if verb == ("train",) else "os._exit"
    process = start(*PLUS, *verb, *WORDS, f"+env.kwargs={{how: {how}, where: make}}")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2, err[-2000:]
    assert "env.id=tests/TinyFatal-v0" in out + err
    assert "Traceback" not in out + err
    assert not list(tmp_path.glob("outputs/**/status.json"))
