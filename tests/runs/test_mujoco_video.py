"""MuJoCo draws on a machine without a display; what the user has set stays."""

import subprocess
import sys

import pytest
from support.processes import environ_of_tests

from rlzoo_plus.envs import single

_SHOW = """
from support.training import make_config
from rlzoo_plus.training.media import make_rendering_env, rendered
config = make_config("algo=ppo", "env.id=HalfCheetah-v5")
venv = make_rendering_env(config)
venv.reset()
image = rendered(venv)
assert image.shape == (480, 480, 3), image.shape
print(image.std())
"""


@pytest.mark.training
def test_half_cheetah_is_drawn_without_a_display():
    pytest.importorskip("mujoco", reason="needs rlzoo-plus[mujoco]")
    pytest.importorskip("imageio", reason="needs rlzoo-plus[mujoco]")
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")
    environ = {k: v for k, v in environ_of_tests().items() if k not in hidden}
    if not _has_a_library():
        pytest.skip("neither EGL nor OSMesa is installed")
    command = [sys.executable, "-c", _SHOW]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) > 10  # not one colour


def _has_a_library():
    import ctypes

    for name in ("libEGL.so.1", "libOSMesa.so.8"):
        try:
            return bool(ctypes.CDLL(name))
        except OSError:
            continue
    return False


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, "egl"),
        ({"DISPLAY": ":0"}, None),
        ({"WAYLAND_DISPLAY": "wayland-0"}, None),
        ({"MUJOCO_GL": "osmesa"}, "osmesa"),
        ({"MUJOCO_GL": ""}, ""),
    ],
)
def test_the_backend_is_chosen_only_where_nobody_has(monkeypatch, given, chosen):
    monkeypatch.setattr(single, "find_spec", lambda _: object())
    monkeypatch.setattr(single.ctypes, "CDLL", lambda _: None)
    monkeypatch.setattr(single.sys, "platform", "linux")
    monkeypatch.setattr(single.os, "environ", dict(given))
    single._draw_without_display.__wrapped__()
    assert single.os.environ.get("MUJOCO_GL") == chosen
    assert ("SDL_VIDEODRIVER" in single.os.environ) == (given.keys() <= {"MUJOCO_GL"})
