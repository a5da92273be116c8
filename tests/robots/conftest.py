"""Fixtures of the robot tests; importing ``robots`` registers its environments.

Nothing is closed here: a simulation that a test drops closes itself.
"""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
from continuing import actions_for, play
from continuing import cartpole as make_cartpole

import robots

robots.register_robots()


def pytest_generate_tests(metafunc):
    """Give a test that asks for `env` each of the environments in its module's ENVS."""
    envs = getattr(metafunc.module, "ENVS", None)
    if envs and metafunc.cls is None and "env" in metafunc.fixturenames:
        metafunc.parametrize("env", envs, indirect=True)


@pytest.fixture
def env(request):
    """Return the environment of an id, or of a function that makes it."""
    make = request.param
    return make() if callable(make) else gymnasium.make(make).unwrapped


@pytest.fixture
def run_python():
    """Return a function that runs code in a fresh interpreter without a display."""
    root = Path(robots.__file__).resolve().parents[1]
    environ = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environ["PYTHONPATH"] = str(root)

    def run(code, **variables):
        return subprocess.run(
            [sys.executable, "-c", code],
            env=environ | variables,
            cwd=root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def underway():
    """Return a cart-pole in the middle of an episode."""
    env = make_cartpole()
    env.reset(seed=1)
    play(env, actions_for(env)[:50])
    return env
