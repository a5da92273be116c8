"""Fixtures for the doctor: commands, URDFs of our own, and the modules written for them."""

import sys
from importlib import import_module, invalidate_caches
from itertools import count
from pathlib import Path

import gymnasium
import pytest
import support.tiny_envs  # noqa: F401
from support.processes import call, start  # noqa: F401

from rlzoo_plus.doctor.new_robot.choice import choose_task
from rlzoo_plus.doctor.new_robot.falling import Pole
from rlzoo_plus.doctor.new_robot.mjcf import read_mjcf
from rlzoo_plus.doctor.new_robot.survey import survey
from rlzoo_plus.doctor.new_robot.text import NewRobot, write_robot
from rlzoo_plus.doctor.new_robot.urdf import read_urdf

sys.path.insert(0, str(Path(__file__).parents[1] / "robots"))

_NUMBERS = count()

_LINK = """<link name="{name}"><inertial><mass value="1"/>
<inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
<collision><geometry><box size="0.2 0.2 0.2"/></geometry></collision></link>"""
_JOINT = """<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>
<axis xyz="0 1 0"/><origin xyz="0.3 0 0"/>{limit}</joint>"""
LIMIT = '<limit lower="-1" upper="2" effort="3" velocity="4"/>'


def urdf_text(*joints, extra=""):
    """Return a chain of boxes: one joint for each (name, kind, limit)."""
    parts = [_LINK.format(name="link0")]
    for i, (name, kind, limit) in enumerate(joints):
        parts.append(_LINK.format(name=f"link{i + 1}"))
        parent, child = f"link{i}", f"link{i + 1}"
        parts.append(_JOINT.format(name=name, kind=kind, parent=parent, child=child, limit=limit))
    return f'<?xml version="1.0"?><robot name="chain">{"".join(parts)}{extra}</robot>'


@pytest.fixture
def chain(tmp_path):
    """Return a function that writes a chain of boxes and returns the path of its URDF."""

    def write(*joints, name="chain.urdf", extra=""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(urdf_text(*joints, extra=extra))
        return path

    return write


@pytest.fixture
def generate(tmp_path, monkeypatch):
    """Return a function that writes a robot's files, imports the module and makes it."""
    made = []
    monkeypatch.syspath_prepend(tmp_path)

    def make(urdf, *, mode="position", base="auto", rest=(), forward="x", task=None):
        file = read_mjcf(str(urdf)) if str(urdf).endswith(".xml") else read_urdf(str(urdf))
        robot = survey(file, rest)
        is_free = robot.stands_free if base == "auto" else base == "free"
        # Python keeps modules by name.
        name = f"generated_{next(_NUMBERS)}"
        task, target = choose_task(
            task or ("walk" if is_free else "posture"), file, robot, is_free=is_free
        )
        if not isinstance(target, Pole):
            robot = robot.without(file.undriven)
        new = NewRobot(name, tmp_path, mode, is_free, forward, task, target)
        write_robot(new, file, robot)
        invalidate_caches()
        module = import_module(name)
        env = gymnasium.make(new.env_id, disable_env_checker=True)
        made.append(env)
        return module, env.unwrapped

    yield make
    for env in made:
        env.close()
