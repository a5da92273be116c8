"""Fixtures of the robot tests; importing ``robots`` registers its environments."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import pytest
from continuing import actions_for, play
from continuing import cartpole as make_cartpole

import robots
from robots.cartpole import SimpleRobotEnv

RunPython = Callable[[str], subprocess.CompletedProcess[str]]

robots.register_robots()


@pytest.fixture
def run_python() -> RunPython:
    """Return a function that runs code in a fresh interpreter without a display."""
    root = Path(robots.__file__).resolve().parents[1]
    environ = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environ["PYTHONPATH"] = str(root)

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env=environ,
            cwd=root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def cartpole() -> Iterator[gymnasium.Env]:
    """Return a cart-pole, closed after the test."""
    env = gymnasium.make("robots/CartPoleBalance-v0")
    yield env
    env.close()


@pytest.fixture
def underway() -> Iterator[SimpleRobotEnv]:
    """Return a cart-pole in the middle of an episode."""
    env = make_cartpole()
    env.reset(seed=1)
    play(env, actions_for(env)[:50])
    yield env
    env.close()
