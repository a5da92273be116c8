"""Registries map names in a configuration to objects.

A name is that of a shipped object, the dotted path of an object of the user (`my_module.MyClass`,
in the current folder or installed), or an entry point of an installed package in the group
`rlzoo_plus.<kind>`.

Shipped objects are import paths until they are loaded, so that a configuration is checked without
torch. Only what a name asks for is imported, and entry points are read only for a name that is not
shipped. `config.own_code` decides whether a configuration may import at all.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlzoo_plus.errors import HELP, ConfigError, unknown_name
from rlzoo_plus.given import given, is_given
from rlzoo_plus.synonyms import elsewhere

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OURS = Path(__file__).resolve().parent
_STDLIB = Path(re.__file__).parents[1]
# Of modules whose package has another name at the package index.
_PIP_NAMES = {
    **{"cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn"},
    **{"skimage": "scikit-image", "yaml": "pyyaml", "Box2D": "'gymnasium[box2d]'"},
    **{"ale_py": "'rlzoo-plus[atari]'", "mujoco": "'rlzoo-plus[mujoco]'"},
    **{"panda_gym": "'rlzoo-plus[panda]'", "OpenGL": "PyOpenGL", "dm_control": "dm_control"},
    **{"pybullet": "'rlzoo-plus[bullet]'", "google": "protobuf"},
    "pybullet_envs_gymnasium": "'rlzoo-plus[bullet]'",
}
# Keys that list what other libraries have as classes, and that is a key of its own here.
_LISTS = ("env.wrappers", "callbacks")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class Registry(dict[str, Any]):
    """The objects of one kind: shipped names with their `module:attribute`, or with an object."""

    def __init__(
        self,
        kind: str,
        key: str,
        shipped: Mapping[str, Any] | None = None,
        *,
        bases: Iterable[str] = (),
        methods: Iterable[str] = (),
    ) -> None:
        """Make a registry.

        Args:
            kind: Kind of object, e.g. `features_extractor`; part of the group of entry points.
            key: Configuration key that chooses one, for errors.
            shipped: The objects of this package by name.
            bases: Classes as `module:Class`; a class of the user must inherit from one.
            methods: Methods that a class of the user must have, if there are no bases.
        """
        super().__init__(shipped or {})
        self.kind, self.key = kind, key
        self._bases, self._methods = tuple(bases), tuple(methods)

    def is_own(self, name: str) -> bool:
        """Tell whether a name imports something that is neither shipped nor registered."""
        name = self._short(name)
        return name not in self and ("." in name or name in self._installed())

    def module_of(self, name: str) -> str:
        """Return the module that a name of the user's imports; nothing is imported."""
        return name.rpartition(".")[0] if "." in name else self._installed()[name].module

    def check_name(self, name: str) -> None:
        """Check that a name can belong to an object; imports nothing.

        Raises:
            ConfigError: It is neither in the mapping, nor a dotted path, nor installed.
        """
        if self._short(name) not in self and not self.is_own(name):
            if not self and not self._installed():
                raise ConfigError(f"{self.key}: {name} is not a dotted path. {self._rule()}")
            meant = elsewhere(name) if self.key in _LISTS else None
            names = [*self, *self._installed()]
            known = unknown_name(self.key, name, names, HELP, meant)
            raise ConfigError(f"{known} One of your own is a dotted path: my_module.MyClass.")

    def load(self, name: str) -> Any:
        """Return the object of a name; what is not shipped is checked, but not called.

        Raises:
            ConfigError: There is none, its import fails, or it is of another kind.
        """
        if is_given(name):
            return self._ready(f"{self.key}: {name}", given(name, self.key))
        self.check_name(name)
        if (name := self._short(name)) in self:
            shipped = self[name]
            if not isinstance(shipped, str):
                return shipped
            module, _, attribute = shipped.partition(":")
            return getattr(importlib.import_module(module), attribute)
        where = f"{self.key}: {name}"
        if "." in name:
            module, _, attribute = name.rpartition(".")
            if not module:
                raise ConfigError(f"{where} is not a dotted path. {self._rule()}")
            return self._checked(where, vars(import_user_module(where, module)).get(attribute))
        entry = self._installed()[name]
        try:
            found = entry.load()
        # The package is not ours: it may raise anything.
        except (Exception, SystemExit) as error:
            raise _import_error(where, entry.value, error) from error
        return self._checked(where, found)

    def register(self, name: str, found: type) -> None:
        """Add a class of the user under a name without a dot.

        Raises:
            ConfigError: The name is taken, or the class is of another kind.
        """
        where = f"{self.key}: {name}"
        if not name.isidentifier():
            raise ConfigError(f"{where} must be a plain name, e.g. my_{self.kind}.")
        if self.get(name, found) is not found:
            raise ConfigError(f"{where} is taken by {self[name]}. Choose another name.")
        self[name] = self._checked(where, found)

    def _short(self, name: str) -> str:
        """Return the shipped name of a class that is named by its dotted path, or the name."""
        paths = ((short, path) for short, path in self.items() if isinstance(path, str))
        return next((short for short, path in paths if path.replace(":", ".") == name), name)

    def name_of_class(self, found: Any) -> str | None:
        """Return the shipped or registered name of a class, None if it has none."""
        for name, known in self.items():
            module, _, attribute = known.partition(":") if isinstance(known, str) else ("", "", "")
            if found is known or found is getattr(sys.modules.get(module), attribute, self):
                return name
        return None

    def _ready(self, where: str, found: Any) -> Any:
        """Return what makes a given object: a class or a function does, others are there."""
        if isinstance(found, type):
            return self._checked(where, found)
        if callable(found) and hasattr(found, "__code__"):
            return found
        self._checked(where, type(found))
        return partial(_same, found)

    def _installed(self) -> Mapping[str, EntryPoint]:
        return _entry_points(f"rlzoo_plus.{self.kind}")

    def _checked(self, where: str, found: Any) -> Any:
        if found is None:
            raise ConfigError(f"{where} is not in its module. {self._rule()}")
        # A class that inherits from one of them has imported it.
        paths = (base.split(":") for base in self._bases)
        bases = tuple(b for m, name in paths if (b := getattr(sys.modules.get(m), name, None)))
        if not isinstance(found, type) or (self._bases and not issubclass(found, bases)):
            what = _names(self._bases) or "class"
            raise ConfigError(f"{where} is not a {what}. {self._rule()}")
        missing = [m for m in self._methods if not callable(getattr(found, m, None))]
        if missing:
            raise ConfigError(f"{where} has no method {', '.join(missing)}. {self._rule()}")
        return found

    def _rule(self) -> str:
        if self._bases:
            owners = " or ".join(sorted({base.partition(".")[0] for base in self._bases}))
            rule = f"Name a class that inherits from {owners}'s {_names(self._bases)}"
        elif self._methods:
            rule = f"Name a class with the methods {', '.join(self._methods)}"
        else:
            rule = "Name a class"
        return f"{rule}, e.g. my_module.MyClass."


def _same(found: Any, *_: Any, **__: Any) -> Any:
    """Return an object that is there already, instead of making one."""
    return found


def is_module_name(text: str) -> bool:
    """Tell whether a text can be the dotted name of a module."""
    return _MODULE.fullmatch(text) is not None


def import_user_module(key: str, name: str, install: str | None = None) -> ModuleType:
    """Import a module that a configuration names, from the current folder or installed.

    Args:
        key: The key that names it, for the error.
        name: The module's dotted name.
        install: How to install it, None if it can only be the user's own.

    Raises:
        ConfigError: There is none, or its import fails; the text says where.
    """
    if not is_module_name(name):
        example = "Write it as after import, e.g. my_package.my_module"
        raise ConfigError(f"{key}: {name!r} is not the name of a module. {example}.")
    if install is None:
        # A missing library is never taken from the current folder.
        _find_in_current_folder(name.partition(".")[0])
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _import_error(key, name, error) from error
        how = install or "Install it; if it is a file of yours, name its folder in PYTHONPATH"
        top, _, rest = name.partition(".")
        if top == "robots" and not install:
            how = "`robots` is a package of rlzoo_plus: give yours another name, "
            how += f"e.g. my_robots.{rest}"
        raise ConfigError(f"{key}: there is no module {error.name}. {how}.") from error
    # The module is not ours: it may raise anything, and a script may end the process.
    except (Exception, SystemExit) as error:
        raise _import_error(key, name, error) from error


def where_raised(error: BaseException) -> str:
    """Return what was raised and where, in one line: `KeyError: 'x' (my_env.py, line 3)`.

    The line is that of the user's own code, if there is any, and not that of a library it called.
    An assertion without a text is shown itself. For a package that is missing, its name at the
    package index follows.
    """
    lines = str(error).splitlines()
    kind = type(error).__name__
    text = f"{kind}: {lines[0]}" if lines else kind
    if isinstance(error, SyntaxError):
        # Its text has the line.
        return text
    frames = []
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        # Weights & Biases replaces sys.exit by a function of its own.
        is_hook = isinstance(error, SystemExit) and frame.name == "exit"
        if not is_hook and not frame.filename.startswith("<") and not path.is_relative_to(_OURS):
            frames.append((path, frame))
    own = [(path, frame) for path, frame in frames if not _is_of_a_library(path)]
    for path, frame in (own or frames)[:1]:
        if isinstance(error, AssertionError) and not lines:
            text += f": {frame.line}"
        text += f" ({_shown(path)}, line {frame.lineno})"
    return text + how_to_install(error)


def how_to_install(error: BaseException) -> str:
    """Return how to install what an import lacks, as the end of a sentence; empty if unknown."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    top = error.name.partition(".")[0]
    if top in sys.stdlib_module_names or importlib.util.find_spec(top) is not None:
        return ""
    return f". Install it: pip install {_PIP_NAMES.get(top, top.replace('_', '-'))}"


def _is_of_a_library(path: Path) -> bool:
    return "site-packages" in path.parts or path.is_relative_to(_STDLIB)


def _shown(path: Path) -> str:
    """Return a path as the user would type it, from the current folder if it is below that."""
    here = Path.cwd()
    is_below = path.is_relative_to(here) and not _is_of_a_library(path)
    return str(path.relative_to(here)) if is_below else path.name


def _find_in_current_folder(top: str) -> None:
    """Let Python search the current folder, last, for a module that is nowhere else.

    The command's own search path begins with the folder of the script. The folder stays on the
    path: workers inherit it, and the module may import its neighbours late.
    """
    if top in sys.modules or importlib.util.find_spec(top) is not None:
        return
    here = Path.cwd()
    if (here / f"{top}.py").is_file() or (here / top).is_dir():
        sys.path.append(str(here))
        importlib.invalidate_caches()


@cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    # A slow import.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=group)}


def _import_error(key: str, name: str, error: BaseException) -> ConfigError:
    return ConfigError(f"{key}: {name} cannot be imported: {where_raised(error)}.")


def _names(paths: Iterable[str]) -> str:
    return " or ".join(path.partition(":")[2] for path in paths)
