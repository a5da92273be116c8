"""A user's folder may have modules with the names of ours."""

import subprocess
import sys

import pytest


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "robots").mkdir()
    (tmp_path / "robots" / "__init__.py").write_text("raise SystemExit('theirs')\n")
    return tmp_path


def run(folder, *words):
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.training
def test_a_folder_of_the_name_robots_hides_ours_neither_here_nor_from_worker_processes(folder):
    words = [
        "algo=ppo", "env=cartpole_bullet", "n_envs=2", "vec_env=subproc", "n_timesteps=64",
        "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "eval.episodes=1",
        "report.plot=false", "report.video=false", "tuned=none", "log.tensorboard=false",
    ]  # fmt: skip
    code, text = run(folder, "-m", "rlzoo_plus", "train", *words)
    assert code == 0, text
    assert "theirs" not in text


@pytest.mark.training
def test_a_module_of_the_users_robots_is_answered_with_the_name_that_is_taken(folder):
    code, text = run(
        folder, "-m", "rlzoo_plus", "train", "env.id=Mine-v0", "env.packages=[robots.mine]"
    )
    assert code == 2
    assert "`robots` is a package of rlzoo_plus: give yours another name" in text


def test_another_robots_that_was_imported_first_is_named(folder):
    (folder / "robots" / "__init__.py").write_text("")
    code, text = run(folder, "-c", "import robots, rlzoo_plus")
    assert code == 1
    assert f"{folder}/robots/__init__.py was imported as `robots`" in text


def test_our_robots_are_found_wherever_they_are_imported_from(folder):
    code, text = run(folder, "-c", "import rlzoo_plus, robots.cartpole; print(robots.ROBOT_IDS)")
    assert code == 0, text
    assert "CartPoleBalance" in text
