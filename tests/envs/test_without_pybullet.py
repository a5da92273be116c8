"""Where PyBullet is not installed, everything that does not need it works."""

import os
import subprocess
import sys

import pytest

# Stands for a Python without wheels of PyBullet.
WITHOUT = """
import sys
MISSING = ("pybullet", "pybullet_data", "pybullet_envs_gymnasium", "panda_gym")
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
RUN = "from rlzoo_plus.commands.dispatch import entry_point; entry_point()"


def run_without(folder, *words):
    """Run the command where PyBullet is missing; return exit code and output."""
    (folder / "sitecustomize.py").write_text(WITHOUT)
    environ = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.training
def test_an_environment_of_gymnasium_is_trained_and_resumed(tmp_path):
    words = ("algo=ppo", "env=cartpole", "report.video=false", "run_dir=run", "eval.episodes=1")
    code, said = run_without(tmp_path, "train", *words, "n_timesteps=512")
    assert code == 0, said
    code, said = run_without(tmp_path, "resume", "run", "n_timesteps=1024")
    assert code == 0, said


@pytest.mark.training
def test_an_environment_of_gymnasium_is_inspected(tmp_path):
    code, said = run_without(tmp_path, "inspect", "env=cartpole", "--seconds", "0.1")
    assert code == 0, said


@pytest.mark.training
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("train", "algo=ppo", "env=cartpole_bullet", "env.kwargs.engine=bullet"), "bullet"),
        (("train", "algo=ppo", "env=panda_reach"), "panda"),
        (("inspect", "env=cartpole_bullet", "env.kwargs.engine=bullet"), "bullet"),
    ],
)
def test_a_robot_names_the_extra_that_brings_pybullet(words, extra, tmp_path):
    code, said = run_without(tmp_path, *words)
    assert code == 2
    assert said.count("error:") == 1
    assert f"pip install 'rlzoo-plus[{extra}]'" in said
    assert "Traceback" not in said


@pytest.mark.training
def test_a_model_of_pybullet_names_the_command_that_fetches_it(tmp_path):
    code, said = run_without(tmp_path, "new-robot", "mine", "--urdf", "r2d2.urdf")
    assert code == 2
    assert "`python -m robots.engines.models` fetches it" in said
    assert "Traceback" not in said


@pytest.mark.training
@pytest.mark.parametrize("verb", ["train", "inspect"])
def test_a_robot_on_mujoco_without_its_model_names_the_command_too(verb, tmp_path):
    words = ("env=cartpole_bullet", "env.kwargs.engine=mujoco")
    code, said = run_without(tmp_path, verb, *words)
    assert code == 2
    assert "fetch PyBullet's with `python -m robots.engines.models`" in said
    assert "Traceback" not in said
