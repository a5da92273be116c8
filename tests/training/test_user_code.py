"""What counts as the user's own code, by what name it goes, and what counts as a change of it."""

import importlib
import sys

import pytest

from rlzoo_plus.envs import user_code as user_code_module
from rlzoo_plus.envs.user_code import code_changes, user_code, user_models

MESH = '<robot name="arm"><link name="a"><mesh filename="meshes/a.obj"/></link></robot>'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a folder on the search path; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def _write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _again(name):
    """Import a module as a new process would."""
    del sys.modules[name]
    importlib.invalidate_caches()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        return importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before


def test_modules_outside_the_installation_count_and_others_do_not(project):
    _write(project, "mine_one.py", "x = 1")
    _write(project, "mine_pkg/__init__.py", "")
    _write(project, "mine_pkg/part.py", "y = 1")
    importlib.import_module("mine_one")
    importlib.import_module("mine_pkg.part")
    found = user_code()
    mine = {key for key in found if "mine" in key}
    assert mine == {
        "module mine_one.py", "module mine_pkg/__init__.py", "module mine_pkg/part.py"
    }  # fmt: skip
    assert not any("numpy/" in key or "rlzoo_plus/" in key or "json/" in key for key in found)


def test_a_changed_module_is_named(project):
    file = _write(project, "mine_two.py", "x = 1")
    importlib.import_module("mine_two")
    before = user_code()
    file.write_text("x = 22")
    assert code_changes(before, user_code()) == []  # this process runs what it imported
    _again("mine_two")
    assert code_changes(before, user_code()) == ["module mine_two.py was changed"]


def test_a_module_that_is_imported_late_is_compared_by_its_file(project):
    file = _write(project, "mine_pkg3/late.py", "x = 1")
    _write(project, "mine_pkg3/__init__.py", "raise SystemExit('must not run')")
    import hashlib

    before = {"module mine_pkg3/late.py": hashlib.sha256(b"x = 1").hexdigest()[:16]}
    assert code_changes(before, {}) == []
    file.write_text("x = 2")
    assert code_changes(before, {}) == ["module mine_pkg3/late.py was changed"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b.py", "", "x/\x1b[2J.py", "."])
def test_a_forged_name_is_passed_over(name):
    assert code_changes({f"module {name}": "0"}, {}) == []


def test_what_a_module_of_the_user_imports_counts_by_its_version(project):
    _write(project, "mine_four.py", "import yaml\ndef late():\n    from PIL import Image")
    importlib.import_module("mine_four")
    importlib.import_module("PIL")
    found = user_code()
    assert found["package yaml"].split(".")[0].isdigit()
    assert "package PIL" in found
    assert code_changes({"package yaml": "5.0"}, {"package yaml": "6.0"}) == [
        "package yaml was 5.0, is 6.0"
    ]


def test_an_installed_package_that_is_named_counts_with_its_files():
    importlib.import_module("panda_gym")
    version = user_code(["panda_gym"])["package panda_gym"]
    assert "+" in version


def test_models_beside_a_module_count_with_their_meshes(project):
    _write(project, "mine_five/__init__.py", "")
    _write(project, "mine_five/assets/arm.urdf", MESH)
    mesh = _write(project, "mine_five/assets/meshes/a.obj", "mtllib a.mtl\nv 0 0 0")
    _write(project, "mine_five/assets/meshes/a.mtl", "map_Kd skin.png")
    picture = _write(project, "mine_five/assets/meshes/skin.png", "red")
    importlib.import_module("mine_five")
    before = user_models()
    mesh.write_text("v 1 1 1\nmtllib a.mtl")
    picture.write_text("blue")
    assert code_changes(before, user_models()) == [
        "model mine_five/assets/meshes/a.obj was changed",
        "model mine_five/assets/meshes/skin.png was changed",
    ]


def test_a_model_elsewhere_counts_if_it_is_named_or_loaded(project):
    from robots.engines.bullet.simulation import BulletSimulation

    named = _write(project, "far/away/named.xml", "<mujoco/>")
    loaded = _write(project, "far/off/loaded.urdf", '<robot name="a"><link name="b"/></robot>')
    simulation = BulletSimulation()
    simulation.load_urdf(str(loaded))
    simulation.close()
    models = user_models([str(named), "no/such/file.urdf"])
    assert {"model far/away/named.xml", "model far/off/loaded.urdf"} <= models.keys()


def test_runs_and_outputs_below_a_module_are_not_searched(project):
    _write(project, "mine_six.py", "")
    for folder in ("outputs/a", "run", ".hidden"):
        _write(project, f"{folder}/model.xml", "<a/>")
    _write(project, "run/config.yaml", "")
    (project / "run" / "checkpoints").mkdir()
    importlib.import_module("mine_six")
    assert not [key for key in user_models() if key.endswith("model.xml")]


def test_an_object_that_only_says_it_is_a_module_is_passed_over(project, monkeypatch):
    class Pretender:
        __slots__ = ()
        __class__ = type(sys)

    monkeypatch.setitem(sys.modules, "pretender.lib", Pretender())
    assert "module pretender.lib" not in user_code([])


def test_no_distribution_is_searched_for_what_comes_with_python(project, monkeypatch):
    monkeypatch.setattr(user_code_module.metadata, "packages_distributions", None)
    user_code_module._version.cache_clear()
    assert user_code_module._version("json") == "unknown"
    with pytest.raises(TypeError):
        user_code_module._version("no_distribution_brings_this")
