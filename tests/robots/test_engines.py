"""How an engine is chosen, and that nothing but an engine imports one."""

import subprocess
import sys
from pathlib import Path

import pytest

import robots
from robots import engines
from robots.engines import BULLET, EngineError, chosen_engine, make_simulation
from robots.engines.bullet.simulation import BulletSimulation
from robots.robot import RobotSpec
from robots.simulation import Physics
from robots.world import World, WorldSpec

CARTPOLE = RobotSpec("cartpole.urdf", action_scale=10.0, actuated="slider_to_cart")


@pytest.fixture
def installed(monkeypatch):
    """Return a function that sets which packages of engines are installed."""

    def set_installed(*packages):
        engines._default.cache_clear()
        monkeypatch.setattr(engines, "find_spec", lambda name: name if name in packages else None)

    yield set_installed
    monkeypatch.undo()
    engines._default.cache_clear()


@pytest.mark.parametrize("name", ["gazebo", "", "Bullet", 3])
def test_an_unknown_engine_is_refused_with_those_there_are(name):
    with pytest.raises(ValueError, match=rf"engine={name!r} is unknown.*bullet, mujoco"):
        make_simulation(name)


def test_an_engine_that_is_not_installed_names_its_extra(installed):
    installed("pybullet")
    with pytest.raises(EngineError, match=r"engine='mujoco' needs mujoco.*rlzoo-plus\[mujoco\]"):
        chosen_engine("mujoco")


def test_the_default_is_the_first_engine_that_is_installed(installed, caplog):
    installed("pybullet", "mujoco")
    assert chosen_engine(None) == "bullet"
    assert caplog.text == ""
    installed("mujoco")
    assert [chosen_engine(None), chosen_engine(None)] == ["mujoco", "mujoco"]
    assert caplog.text.count("engine=mujoco, since pybullet is not installed") == 1


def test_without_any_engine_all_of_them_are_named(installed):
    installed()
    with pytest.raises(EngineError, match=r"rlzoo-plus\[bullet\].*or.*rlzoo-plus\[mujoco\]"):
        chosen_engine(None)


def test_a_package_whose_search_fails_is_not_installed(monkeypatch):
    def fail(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(engines, "find_spec", fail)
    with pytest.raises(EngineError, match="needs pybullet"):
        chosen_engine(BULLET)


def test_an_engine_is_made_with_what_it_is_given():
    simulation = make_simulation("bullet", Physics(substeps=3), hold_torques=True, draws=False)
    assert isinstance(simulation, BulletSimulation)
    assert (simulation.engine, simulation.substeps, simulation.draws) == ("bullet", 3, False)
    simulation.close()


def test_an_unknown_renderer_is_refused():
    with pytest.raises(ValueError, match="renderer='blender' is unknown"):
        make_simulation("bullet", renderer="blender")


def test_a_copy_of_a_world_has_its_engine():
    world = World(WorldSpec(), CARTPOLE, engine="bullet")
    copy = world.copy()
    assert copy.simulation.engine == "bullet"
    for one in (world, copy):
        one.simulation.close()


def test_tasks_import_no_engine():
    folder = Path(robots.__file__).parent
    modules = [f"robots.{file.stem}" for file in folder.glob("*.py") if file.stem != "__init__"]
    code = (
        f"import sys, importlib\nfor name in {modules}: importlib.import_module(name)\n"
        "print([name for name in ('pybullet', 'pybullet_data', 'mujoco') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
