"""Hardware rendering without a display: PyBullet's EGL plugin, tried in a process of its own."""

import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pybullet

from robots.client import Client

_PLUGIN = "_eglRendererPlugin"
_TRIAL = """
import sys, pybullet
pybullet.connect(pybullet.DIRECT)
loaded = pybullet.loadPlugin(sys.argv[1], sys.argv[2])
pybullet.getCameraImage(8, 8, renderer=pybullet.ER_BULLET_HARDWARE_OPENGL)
print("LOADED", loaded)
"""


class RendererError(RuntimeError):
    """EGL was asked for on a machine that has none."""


@cache
def egl_problem() -> str | None:
    """Return why EGL cannot be used on this machine, None if it can.

    Without a device the plugin ends the whole process, so a process of its own tries it first.
    """
    library = _library()
    if library is None:
        return "this build of PyBullet has no plugin eglRenderer"
    command = [sys.executable, "-c", _TRIAL, library, _PLUGIN]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "making a picture with EGL did not end within a minute"
    loaded = trial.stdout.partition("LOADED ")[2].split()
    if trial.returncode or not loaded or int(loaded[0]) < 0:
        return "EGL found no device that makes pictures"
    return None


def load_egl(client: Client) -> None:
    """Let a world make its pictures with EGL.

    Raises:
        RendererError: If this machine cannot.
    """
    problem = egl_problem()
    if problem is not None:
        raise RendererError(
            f"renderer='egl' cannot be used: {problem}. Use renderer='tiny', or install a driver "
            "with EGL, for example the package libegl1."
        )
    client.bind(pybullet.loadPlugin)(_library(), _PLUGIN)
    client.hardware_pictures = True


def _library() -> str | None:
    found = find_spec("eglRenderer")
    return None if found is None else found.origin
