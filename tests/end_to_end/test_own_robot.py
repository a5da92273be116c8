"""A robot of a stranger's own: from a URDF to a trained policy, without touching the package."""

import json
import os
import shutil

import pytest
from support.processes import PLUS, ROOT

EXAMPLE = ROOT / "examples" / "own_robot"
SHORT = [
    "algo=ppo", "n_envs=2", "n_timesteps=2048", "algo.hyperparams.n_steps=256",
    "algo.hyperparams.batch_size=64", "algo.hyperparams.n_epochs=2", "network.net_arch=[16]",
    "eval.episodes=2", "eval.every_steps=1024", "num_threads=1", "device=cpu", "run_dir=run",
    "report.plot=false", "report.video=false", "log.tensorboard=false", "normalize=true",
]  # fmt: skip

MINITAUR_STANDS = ["--rest", "motor_.*=1.57", "--rest", "knee_.*=-2.18"]

pytestmark = [pytest.mark.training, pytest.mark.slow]


def _train_and_evaluate(call, folder, name):
    """Train a few thousand steps in the folder of a robot; check the run, and evaluate it."""
    call(*PLUS, "train", "--config-dir", "conf", f"env={name}", *SHORT)
    result = json.loads((folder / "run" / "result.json").read_text())
    refused = call(*PLUS, "evaluate", "run", "--episodes", 2, code=2)
    assert "--trust" in refused
    text = call(*PLUS, "evaluate", "run", "--episodes", 2, "--trust", "--json")
    record = json.loads(text.splitlines()[-1])
    assert len(record["returns"]) == 2
    return result


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("my_r2d2", ["--urdf", "r2d2.urdf", "--mode", "velocity", "--forward", "y"]),
        ("my_minitaur", ["--urdf", "quadruped/minitaur.urdf", *MINITAUR_STANDS]),
        ("my_pole", ["--urdf", "cartpole.urdf"]),
        ("my_tracker", ["--urdf", "kuka_iiwa/model.urdf", "--task", "track"]),
    ],
)
def test_a_new_robot_is_inspected_trained_and_evaluated(tmp_path, call, name, options):
    call(*PLUS, "new-robot", name, *options)
    seen = call(*PLUS, "inspect", "--config-dir", "conf", f"env={name}", "--picture", "look.png",
                "--seconds", "0.5")  # fmt: skip
    assert "note:" not in seen
    assert (tmp_path / "look.png").stat().st_size > 1000
    result = _train_and_evaluate(call, tmp_path, name)
    assert result["num_timesteps"] == 2048


def test_a_robot_in_another_folder_is_found_by_pythonpath(tmp_path, start):
    place = tmp_path / "elsewhere"
    environ = {"PYTHONPATH": f"{ROOT}:{place}"}
    words = ["new-robot", "far_robot", "--urdf", "r2d2.urdf", "--directory", place]
    assert start(*PLUS, *words).wait(60) == 0
    run = start(
        *PLUS, "inspect", "--config-dir", place / "conf", "env=far_robot", "--seconds", "0.1",
        env={**os.environ, **environ},
    )  # fmt: skip
    assert "far_robot/FarRobot-v0" in run.communicate(timeout=60)[0]


def test_the_example_trains_as_its_readme_says(tmp_path, call):
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    result = _train_and_evaluate(call, tmp_path, "r2d2")
    assert result["num_timesteps"] == 2048
