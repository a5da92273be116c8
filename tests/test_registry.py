"""A name stands for a shipped object, the user's own, or an installed package's; else one line."""

import subprocess
import sys

import pytest

from rlzoo_plus import registry
from rlzoo_plus.config.catalog import WRAPPERS
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import Registry, import_user_module

MODULES = {
    "mine_syntax": ("def f(:\n", r"SyntaxError.*mine_syntax\.py, line 1"),
    "mine_import": ("import nowhere_at_all\n", r"nowhere_at_all.*mine_import\.py, line 1"),
    "mine_raise": ("\nraise RuntimeError('boom\\nsecond')\n", r"boom \(mine_raise\.py, line 2"),
    "mine_exit": ("import sys\nsys.exit(3)\n", r"SystemExit: 3 \(mine_exit\.py, line 2"),
    "mine_empty": ("assert False\n", r"AssertionError: assert False \(mine_empty\.py, line 1"),
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module; what is imported is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name, text: (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    for name in {name for name in sys.modules if name.startswith("mine_")} - before:
        del sys.modules[name]


@pytest.mark.parametrize("name", list(MODULES))
def test_a_module_that_breaks_names_its_file_and_line(module, name):
    text, message = MODULES[name]
    module(name, text)
    with pytest.raises(ConfigError, match=rf"env\.packages: {name}.*{message}") as caught:
        import_user_module("env.packages", name)
    assert len(str(caught.value).splitlines()) == 1


def test_a_library_that_replaces_sys_exit_is_not_where_a_module_has_ended(module, monkeypatch):
    before = sys.exit

    def exit(code=0):
        before(code)

    monkeypatch.setattr(sys, "exit", exit)
    module("mine_hooked", "import sys\nsys.exit(3)\n")
    with pytest.raises(ConfigError, match=r"SystemExit: 3 \(mine_hooked\.py, line 2"):
        import_user_module("env.packages", "mine_hooked")


@pytest.mark.parametrize("name", ["", ".", ".x", "a b", "a/b", "a.", "x-y", "a\nb", "a;b"])
def test_what_is_no_module_s_name_is_never_imported(name):
    with pytest.raises(ConfigError, match="not the name of a module"):
        import_user_module("env.packages", name)


def test_a_missing_module_is_told_from_one_that_misses_another(module):
    module("mine_import", "import nowhere_at_all\n")
    with pytest.raises(ConfigError, match=r"no module not_here.*PYTHONPATH"):
        import_user_module("env.packages", "not_here.deep")


def test_only_a_class_of_the_right_kind_is_returned_and_nothing_is_called(module):
    module("mine_classes", "class A(Exception): pass\nclass B: pass\ndef f(): raise OSError\n")
    errors = Registry("error", "key", bases=["builtins:Exception"])
    assert errors.load("mine_classes.A").__name__ == "A"
    for name in ("B", "f", "missing", "__name__"):
        with pytest.raises(ConfigError, match=rf"key: mine_classes\.{name} is not.*inherits from"):
            errors.load(f"mine_classes.{name}")


def test_a_class_that_inherits_from_nothing_needs_the_methods(module):
    module("mine_launchers", "class Whole:\n  def run(self): ...\nclass Half: run = 3\n")
    runners = Registry("runner", "runner", methods=["run"])
    assert runners.load("mine_launchers.Whole").__name__ == "Whole"
    with pytest.raises(ConfigError, match=r"mine_launchers\.Half has no method run"):
        runners.load("mine_launchers.Half")


def test_a_shipped_name_is_loaded_and_a_registered_object_returned():
    own = object()
    things = Registry("thing", "thing", {"path": "pathlib:Path", "own": own})
    assert things.load("path").__name__ == "Path"
    assert things.load("own") is own


def test_the_dotted_path_of_a_shipped_class_is_not_code_of_the_user():
    path = "sb3_contrib.common.wrappers.TimeFeatureWrapper"
    assert not WRAPPERS.is_own(path)
    assert WRAPPERS.load(path) is WRAPPERS.load("time_feature")
    assert WRAPPERS.is_own("sb3_contrib.common.wrappers.ActionMasker")


def test_an_unknown_name_gets_the_nearest_one_and_how_to_name_its_own():
    things = Registry("thing", "some.key", {"elephant": "pathlib:Path"})
    with pytest.raises(ConfigError, match=r"some\.key 'elefant'. Did you mean 'elephant'.*dotted"):
        things.check_name("elefant")


def test_where_nothing_is_shipped_a_plain_name_is_not_compared_with_nothing():
    with pytest.raises(ConfigError, match=r"some\.key: elefant is not a dotted path"):
        Registry("thing", "some.key").check_name("elefant")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package that offers `theirs` as a thing, and `broken`."""
    about = tmp_path / "their_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[rlzoo_plus.thing]\ntheirs = their_package:Thing\nbroken = their_package:Missing\n"
    )
    (tmp_path / "their_package.py").write_text("class Thing(Exception): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._entry_points.cache_clear()
    yield Registry("thing", "thing", {"ours": "pathlib:Path"}, bases=["builtins:Exception"])
    registry._entry_points.cache_clear()
    sys.modules.pop("their_package", None)


def test_an_installed_package_offers_an_object_under_a_name(installed):
    assert installed.is_own("theirs")
    assert installed.module_of("theirs") == "their_package"
    assert "their_package" not in sys.modules
    assert installed.load("theirs").__name__ == "Thing"


def test_an_installed_object_that_is_missing_is_an_error_of_one_line(installed):
    with pytest.raises(
        ConfigError, match=r"thing: broken: their_package:Missing cannot be imported"
    ):
        installed.load("broken")


def test_installed_names_are_suggested_too(installed):
    with pytest.raises(ConfigError, match=r"Did you mean 'theirs'"):
        installed.load("theirz")


def test_a_shipped_name_never_looks_for_installed_ones(monkeypatch):
    monkeypatch.setattr(registry, "_entry_points", None)
    Registry("thing", "thing", {"path": "pathlib:Path"}).load("path")


def test_a_module_in_the_current_folder_is_found_where_the_command_lies_elsewhere(tmp_path):
    (tmp_path / "mine_here.py").write_text("import mine_neighbour\nclass A(Exception): pass\n")
    (tmp_path / "mine_neighbour.py").write_text("")
    code = (
        "import sys; sys.path.remove('')\n"
        "from rlzoo_plus.registry import import_user_module\n"
        "print(import_user_module('key', 'mine_here').A.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["A"], done.stderr


def test_a_library_that_is_missing_is_not_taken_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "mine_library.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    with pytest.raises(ConfigError, match=r"no module mine_library\. Install it: pip"):
        import_user_module("env.packages", "mine_library", "Install it: pip")


def test_a_class_gets_a_name_of_its_own():
    mine = Registry("tracker", "tracker.name", {"shipped": "a:B"}, methods=["log"])
    good = type("Good", (), {"log": lambda self: None})
    mine.register("good", good)
    mine.register("good", good)
    assert mine.load("good") is good
    assert not mine.is_own("good")
    for name, found, message in (
        ("shipped", good, "is taken"),
        ("good", type("Other", (), {"log": print}), "is taken"),
        ("a.b", good, "plain name"),
        ("bad", type("Bad", (), {}), "no method log"),
    ):
        with pytest.raises(ConfigError, match=message):
            mine.register(name, found)
