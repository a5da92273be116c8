"""What goes wrong in a user's own module is told in one line that names the file."""

import pytest

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.imports import import_user_class, import_user_module

MODULES = {
    "mine_syntax": ("def f(:\n", r"SyntaxError.*mine_syntax\.py, line 1"),
    "mine_import": ("import nowhere_at_all\n", r"nowhere_at_all.*mine_import\.py, line 1"),
    "mine_raise": ("\nraise RuntimeError('boom\\nsecond')\n", r"boom \(mine_raise\.py, line 2"),
    "mine_exit": ("import sys\nsys.exit(3)\n", r"SystemExit: 3 \(mine_exit\.py, line 2"),
    "mine_empty": ("assert False\n", r"AssertionError \(mine_empty\.py, line 1"),
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", list(MODULES))
def test_a_module_that_breaks_names_its_file_and_line(module, name):
    text, message = MODULES[name]
    module(name, text)
    with pytest.raises(ConfigError, match=rf"env\.packages: {name}.*{message}") as caught:
        import_user_module("env.packages", name)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["", ".", ".x", "a b", "a/b", "a.", "x-y", "a\nb", "a;b"])
def test_what_is_no_module_s_name_is_never_imported(name):
    with pytest.raises(ConfigError, match="not the name of a module"):
        import_user_module("env.packages", name)


def test_a_missing_module_is_told_from_one_that_misses_another(module):
    module("mine_import", "import nowhere_at_all\n")
    with pytest.raises(ConfigError, match=r"no module not_here.*PYTHONPATH"):
        import_user_module("env.packages", "not_here.deep")


def test_only_a_class_of_the_right_kind_is_returned(module):
    module("mine_classes", "class A(Exception): pass\nclass B: pass\ndef f(): raise OSError\n")
    assert import_user_class("key", "mine_classes.A", Exception).__name__ == "A"
    for name in ("B", "f", "missing", "__name__"):
        with pytest.raises(ConfigError, match=f"mine_classes.{name} is not"):
            import_user_class("key", f"mine_classes.{name}", Exception)
