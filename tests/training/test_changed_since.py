"""A run that goes on with something changed says so, and what it was."""

import importlib
import json
import shutil
import sys

import pytest
from support.resuming import StopAfter
from support.training import start_run, tiny_config

from rlzoo_plus.artifacts.atomic import read_about
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.compare import outcome_values
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
REACH = "tests/TinyReach-v0"
SHORT = ("n_timesteps=192", "eval.every_steps=64", "log.tensorboard=true")


def _config(algo="ppo", *overrides):
    return tiny_config(algo, REACH, *SHORT, *overrides)


def _stopped(path, config, iterations=3):
    """Train for some iterations, as if it had been stopped; return the run."""
    run_dir = start_run(path, config)
    assert ExpManager(config, run_dir, StopAfter(iterations)).train().state == "interrupted"
    return run_dir


@pytest.mark.parametrize(
    ("algo", "override", "reason"),
    [
        ("ppo", "algo.hyperparams.gamma=0.5", "algo.hyperparams.gamma was 0.99, is 0.5"),
        ("ppo", "algo.hyperparams.max_grad_norm=inf", "is inf"),
        ("ppo", "env.kwargs.discrete=false", "env.kwargs.discrete was not set, is False"),
        ("ppo", "stop.reward_threshold=1e9", "stop.reward_threshold was None"),
        ("sac", "algo.hyperparams.train_freq=8", "algo.hyperparams.train_freq was 4, is 8"),
    ],
)
def test_a_configuration_edited_between_is_not_exact(tmp_path, algo, override, reason):
    run_dir = _stopped(tmp_path / "run", _config(algo), 9 if algo == "sac" else 3)
    result = ExpManager(_config(algo, override), run_dir).train()
    assert (result.exact, result.inexact_since) == (False, result.resumed_at[0])
    assert any(reason in because for because in result.inexact_because), result.inexact_because


def test_an_edited_hyperparameter_is_in_force_after_the_resume(tmp_path):
    # The checkpoint's own gamma would overwrite it silently.
    run_dir = _stopped(tmp_path / "run", _config())
    changed = _config("ppo", "algo.hyperparams.gamma=0.5", "checkpoint.every_steps=32")
    ExpManager(changed, run_dir).train()
    assert run_dir.checkpoints().load_newest().state["agent"]["attributes"]["gamma"] == 0.5


def test_what_decides_nothing_may_change_and_the_run_stays_exact(tmp_path):
    run_dir = _stopped(tmp_path / "run", _config())
    changed = ("checkpoint.every_steps=64", "export.sb3_zip=true", "run_dir=x", "vec_env=dummy")
    result = ExpManager(_config("ppo", *changed), run_dir).train()
    assert result.exact, result.inexact_because


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("network.net_arch=[9]", "network.net_arch was [8], is [9]"),
        ("n_envs=2", "n_envs was 1, is 2"),
        ("normalize=true", "normalize.observation was not set, is True"),
        ("algo=a2c", "algo.name was ppo, is a2c"),
    ],
)
def test_what_cannot_be_put_back_is_one_clear_error(tmp_path, override, told):
    run_dir = _stopped(tmp_path / "run", _config())
    algo = override.removeprefix("algo=") if override.startswith("algo=") else "ppo"
    with pytest.raises(ConfigError) as caught:
        ExpManager(_config(algo, override), run_dir).train()
    assert told in str(caught.value)
    assert "Change it back in config.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_seed_is_refused_since_it_would_do_nothing(tmp_path):
    run_dir = _stopped(tmp_path / "run", _config())
    with pytest.raises(ConfigError, match="begun with seed=0") as caught:
        ExpManager(_config("ppo", "seed=7"), run_dir).train()
    assert "seed=7" in str(caught.value)
    assert ExpManager(_config(), run_dir).train().exact


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("algo.hyperparams.gamma=0.5", "the hash of the configuration was "),
        ("n_timesteps=256", "extended from 192 to 256 steps"),
    ],
)
def test_a_checkpoint_without_the_values_is_compared_by_its_hash(tmp_path, override, reason):
    run_dir = _stopped(tmp_path / "run", _config())
    _edit_manifest(run_dir, lambda about: about.pop("config"))
    result = ExpManager(_config("ppo", override), run_dir).train()
    assert len(result.inexact_because) == 1
    assert result.inexact_because[0].startswith(reason)


def test_a_checkpoint_holds_no_text_that_may_be_a_secret(tmp_path):
    config = _config().model_copy(
        update={
            "env": _config().env.model_copy(
                update={
                    "kwargs": {"api": "hunter2", "n": 3},
                    "wrappers": [{"my.Wrapper": {"url": "hunter2"}}],
                }
            )
        }
    )
    values = outcome_values(config)
    assert "hunter2" not in json.dumps(values)
    assert values["env.kwargs.n"] == 3
    changed = values["env.kwargs.api"]
    assert changed.startswith("sha256:")


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl", "monitor/0.monitor.csv"])
def test_records_that_were_cut_make_a_run_inexact(tmp_path, name):
    run_dir = _stopped(tmp_path / "run", _config(), 5)
    file = run_dir.path / name
    file.write_bytes(file.read_bytes()[:20])
    result = ExpManager(_config(), run_dir).train()
    assert result.exact is False
    assert result.inexact_because == [f"{name} was cut short: records are missing"]


def test_a_best_policy_that_was_deleted_makes_a_run_inexact(tmp_path):
    run_dir = _stopped(tmp_path / "run", _config(), 5)
    shutil.rmtree(run_dir.best)
    result = ExpManager(_config(), run_dir).train()
    (reason,) = result.inexact_because
    assert reason.startswith("best/ of step ")
    assert reason.endswith(" is missing or damaged")


def _edit_manifest(run_dir: RunDir, edit) -> None:
    """Write the newest checkpoint again with another manifest."""
    from rlzoo_plus.artifacts.atomic import read_folder, write_folder

    store = run_dir.checkpoints()
    folder = store.root / f"{store.steps()[-1]:012d}"
    files, about = read_folder(folder)
    assert about == read_about(folder)
    edit(about)
    write_folder(folder, files, about)


ROBOT = """
import gymnasium as gym
import numpy as np
from support.tiny_envs import TinyReach
from {name}_weights import WEIGHT

class Mine(TinyReach):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, WEIGHT * reward, *rest

gym.register("{name}/Mine-v0", entry_point=Mine, max_episode_steps=20)
"""


@pytest.fixture
def robot(tmp_path, monkeypatch):
    """Return a folder with an environment of the user's own, its name, and a way to forget it."""
    import gymnasium as gym

    name = f"mine_{abs(hash(str(tmp_path))):x}"
    (tmp_path / f"{name}.py").write_text(ROBOT.format(name=name))
    (tmp_path / f"{name}_weights.py").write_text("WEIGHT = 1.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget():
        """Be a new process, as far as this robot goes."""
        sys.modules.pop(name, None)
        sys.modules.pop(f"{name}_weights", None)
        gym.registry.pop(f"{name}/Mine-v0", None)
        importlib.invalidate_caches()

    yield tmp_path, name, forget
    forget()


def _of_mine(name, *overrides):
    return tiny_config(
        "ppo", f"{name}/Mine-v0", f"env.packages=[{name}]", *SHORT, "eval.episodes=1", *overrides
    )


@pytest.mark.parametrize(
    ("file", "text", "reasons"),
    [
        ("NAME_weights.py", "WEIGHT = 3.0", ["module NAME_weights.py was changed"]),
        ("arm.urdf", "<robot name='longer'/>", ["model arm.urdf was changed"]),
        ("notes.txt", "", []),
    ],
)
def test_code_and_models_that_were_changed_are_named(tmp_path, robot, file, text, reasons):
    folder, name, forget = robot
    (folder / "arm.urdf").write_text("<robot/>")
    run_dir = _stopped(tmp_path / "run", _of_mine(name))
    forget()
    (folder / file.replace("NAME", name)).write_text(text)
    result = ExpManager(_of_mine(name), run_dir).train()
    expected = [reason.replace("NAME", name) for reason in reasons]
    # What follows from a change, such as a row that differs, comes after it.
    assert result.inexact_because[: len(reasons) or None] == expected
    assert f"module {name}.py was changed" not in result.inexact_because


def test_code_that_is_edited_while_it_trains_counts_as_it_was_imported(tmp_path, robot):
    folder, name, forget = robot

    class EditLate(StopAfter):
        """The user saves the file while the run, which goes on with the old code, is training."""

        def begin_iteration(self):
            (folder / f"{name}_weights.py").write_text("WEIGHT = 3.0")
            super().begin_iteration()

    run_dir = start_run(tmp_path / "run", _of_mine(name))
    ExpManager(_of_mine(name), run_dir, EditLate(3)).train()
    forget()
    result = ExpManager(_of_mine(name), run_dir).train()
    assert f"module {name}_weights.py was changed" in result.inexact_because


@pytest.mark.slow
def test_a_robot_in_processes_of_its_own_is_looked_at_there(tmp_path, robot):
    folder, name, _ = robot
    (folder / "arm.urdf").write_text("<robot/>")
    config = _of_mine(name, "vec_env=subproc")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAfter(3)).train()
    code = run_dir.checkpoints().load_newest().about["code"]
    assert {f"module {name}.py", f"module {name}_weights.py", "model arm.urdf"} <= code.keys()
