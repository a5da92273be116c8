"""One door: the room `rlzoo_plus.fast` makes trainings faster, and they do without it as well."""

import ast
import os
import shutil
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.training import tiny_config

from rlzoo_plus import accelerators, fast
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.fast.private_names import PRIVATE_NAMES

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["eval.every_steps=null", "report.video=false", "report.plot=false", "seed=1"]
PPO = ["algo=ppo", "env=cartpole", "n_timesteps=512"]
_OFF_POLICY = ["env=pendulum", "n_timesteps=300", "algo.hyperparams.learning_starts=100"]
# Eight algorithms, the environments of PyBullet that are stepped natively, and user settings.
TRAININGS = {
    "ppo": [*PPO, "normalize=true"],
    "a2c": ["algo=a2c", "env=hopper_bullet", "n_envs=2", "n_timesteps=320"],
    "trpo": ["algo=trpo", "env=cartpole_bullet", "n_timesteps=512", "algo.hyperparams.n_steps=64"],
    "dqn": ["algo=dqn", "env=cartpole", "n_timesteps=1200"],
    **{name: [f"algo={name}", *_OFF_POLICY] for name in ("sac", "td3", "ddpg", "tqc")},
}
# As in a version of torch without the module on which recordings depend.
_LACKING = "import sys, stable_baselines3\nsys.modules['torch.utils._python_dispatch'] = None"


@pytest.fixture
def fresh():
    """Let the door be tried anew, and again after the test."""
    caches = (accelerators._door, accelerators._why_out)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def copy_without_room(folder):
    """Copy the package without the room; return the copy's root."""
    left_out = shutil.ignore_patterns("__pycache__", "fast")
    for name in ("rlzoo_plus", "robots", "hydra_plugins", "conf"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    return folder


def command(root, folder, *words, before=""):
    """Run a command line of one copy of the package; return what it printed."""
    code = f"{before}\nfrom rlzoo_plus.commands.dispatch import entry_point\nentry_point()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def train(root, run_dir, *overrides, before=""):
    words = ("train", *overrides, *SHORT, f"run_dir={run_dir}")
    return command(root, run_dir.parent, *words, before=before)


def test_nothing_else_imports_the_room():
    found = []
    for file in (ROOT / "rlzoo_plus").rglob("*.py"):
        if "fast" in file.relative_to(ROOT).parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                names = [f"{base}{alias.name}." for alias in node.names]
                found += [file.name for name in names if name.startswith("rlzoo_plus.fast.")]
    assert found == []


@pytest.mark.parametrize(("name", "file", "test"), PRIVATE_NAMES)
def test_private_names_are_still_there(name, file, test):
    module, _, path = name.partition(":")
    attrgetter(path)(import_module(module))
    assert all((ROOT / place).is_file() for place in (f"rlzoo_plus/fast/{file}", test))


@pytest.mark.usefixtures("fresh")
def test_it_stays_out_for_versions_that_it_was_not_tested_with(monkeypatch, caplog):
    monkeypatch.setitem(fast.TESTED, "torch", ("1.9.",))
    config = tiny_config("ppo", "CartPole-v1")
    for _ in range(2):
        assert accelerators.mixins(config) == []
    (base, *_) = accelerators.NATIVE_WORLDS
    assert accelerators.native_worlds(type("Env", (), {"__module__": base})) is None
    (line,) = [r.getMessage() for r in caplog.records if "not accelerated" in r.getMessage()]
    assert "it was tested with torch 1.9.*" in line


@pytest.mark.usefixtures("fresh")
def test_what_it_alone_can_do_is_refused_in_one_line_where_it_stays_out(monkeypatch):
    monkeypatch.setattr(fast, "TESTED", {"stable-baselines3": ("1.",)})
    config = tiny_config("ppo", "CartPole-v1", "fast=true")
    with pytest.raises(ConfigError, match=r"^fast=true: .*stable-baselines3.*Leave fast=false\.$"):
        accelerators.require(config)


def test_a_setting_that_was_removed_may_stand_in_stored_configurations_unless_it_is_on():
    stored = tiny_config("ppo", "CartPole-v1").model_dump()
    config = RunConfig.model_validate({**stored, "fast_math": False})
    assert config.model_dump() == stored
    assert "fast_math" not in config.whole()
    with pytest.raises(ValidationError, match=r"fast_math was removed\. Use fast=true or .*"):
        RunConfig.model_validate({**stored, "fast_math": True})


@pytest.mark.training
def test_a_library_that_lacks_a_part_ends_no_training(tmp_path):
    code, text = train(ROOT, tmp_path / "run", *PPO, before=_LACKING)
    assert code == 0, text
    assert text.count("trainings are not accelerated") == 1
    assert "Traceback" not in text


@pytest.mark.slow
def test_a_run_is_trained_resumed_evaluated_and_swept_without_the_room(tmp_path):
    without = copy_without_room(tmp_path / "copy")
    sweep = ("train", "-m", *PPO, *SHORT, "seed=1,2", "infra=debug")
    for n_lines, words in (
        (1, ("train", *PPO, *SHORT, "run_dir=run")),
        (1, ("resume", "run", "n_timesteps=1024")),
        (0, ("evaluate", "run", "--episodes", "2")),
        (1, sweep),
    ):
        code, text = command(without, tmp_path, *words)
        assert code == 0, text
        line = "trainings are not accelerated: this installation has no rlzoo_plus.fast"
        assert text.count(line) == n_lines, text
        assert "Traceback" not in text


@pytest.mark.slow
def test_weights_are_the_same_without_the_room(tmp_path):
    without = copy_without_room(tmp_path / "copy")
    for name, overrides in TRAININGS.items():
        runs = [tmp_path / f"{name}-{kind}" for kind in ("with", "without")]
        for root, run_dir in zip((ROOT, without), runs, strict=True):
            code, text = train(root, run_dir, *overrides)
            assert code == 0, text
            assert ("not accelerated" in text) == (root is without), text
        assert run_digests(RunDir(runs[0])) == run_digests(RunDir(runs[1])), name


def test_an_edited_file_of_stable_baselines3_is_another_version(fresh, monkeypatch):
    # Whichever versions are installed.
    monkeypatch.setattr(fast, "TESTED", {})
    assert not fast.why_not_tested()
    read_bytes = Path.read_bytes

    def edited(path):
        return read_bytes(path) + (b"#" if path.name == "ppo.py" else b"")

    monkeypatch.setattr(Path, "read_bytes", edited)
    assert "not those of their version" in fast.why_not_tested()
