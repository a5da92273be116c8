"""Hashes of the user's code that this process has imported, and of the robot models beside it.

Installed code is known by its version. Other code (modules in the working directory, on
PYTHONPATH, or of an editable install) can change at any time: its files are hashed, and so are
the robot models beside them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
import site
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from rlzoo_plus.artifacts.provenance import PACKAGES, package_version
from rlzoo_plus.artifacts.untrusted import printable

_OURS = Path(__file__).resolve().parents[2]
MODULE, SCRIPT, MODEL, PACKAGE = "module", "script", "model", "package"
MODEL_SUFFIXES = (".urdf", ".sdf", ".xml", ".mjcf", ".xacro", ".obj", ".stl", ".dae", ".mtl")
# Folders of many files, none of which is a model.
_NOT_SEARCHED = ("outputs", "node_modules", "__pycache__")
_DEEPEST, _MOST_ENTRIES = 3, 5000
_LARGEST_TEXT_BYTES, _LARGEST_HASHED_BYTES = 2**24, 2**30
# A model names its meshes and textures in attributes, a material its images on lines.
_REFERENCE = re.compile(
    rb"""(?:file|filename|url)\s*=\s*["']([^"']+)["']|^(?:mtllib|map_\w+)\s+(\S+)""", re.MULTILINE
)
# Simulators that an environment of Gymnasium's own uses, by the name of their module.
_SIMULATORS = ("mujoco", "Box2D", "ale_py")
# Versions of these are in `numeric_fingerprint`.
_VERSIONED = {name.replace("-", "_") for name in PACKAGES}
_OF_THE_SITE = ("sitecustomize", "usercustomize")


def user_code(named: Iterable[str] = ()) -> dict[str, str]:
    """Return hashes of the user's modules by file, and versions of the packages they import.

    The configuration names further top-level packages; they are hashed even if installed.
    """
    found: dict[str, str] = {}
    imported = {name for name in _SIMULATORS if name in sys.modules}
    for name, module in _user_modules():
        imported |= module.imports
        # A key that does not depend on the path of a project.
        *above, last = name.split(".")
        folders = [*above, last] if module.file.stem == "__init__" else above
        key = f"{MODULE} {'/'.join([*folders, module.file.name])}"
        is_script = name in ("__main__", "__mp_main__")
        found[f"{SCRIPT} {module.file.name}" if is_script else key] = module.digest
    for name in sorted((imported | set(named)) - _VERSIONED):
        place = _place_of(sys.modules.get(name))
        if place is not None and place.is_installed:
            tree = f"+{_hash_package(place.file)}" if name in named else ""
            found[f"{PACKAGE} {name}"] = _version(name) + tree
    return found


def user_models(named: Iterable[str] = ()) -> dict[str, str]:
    """Return hashes of the model files beside the user's modules, and of those loaded or named.

    They are read at each call, since a new environment loads them again. A path that the
    configuration names need not exist.
    """
    folders = {module.file.parent for _, module in _user_modules()}
    # A folder inside another one is searched with it.
    roots = [folder for folder in folders if not any(above in folders for above in folder.parents)]
    files = {file for root in roots for file in _models_below(root)}
    simulation = sys.modules.get("robots.simulation")
    loaded = () if simulation is None else simulation.LOADED_MODELS
    files |= {Path(path).resolve() for path in (*loaded, *named) if os.path.isfile(path)}
    files = with_references(files)
    return {f"{MODEL} {_label(f)}": _hash(f) for f in sorted(files) if not is_installed(f)}


def with_references(files: set[Path]) -> set[Path]:
    """Return model files with the meshes and textures that they name."""
    found, pending = set(files), list(files)
    while pending:
        new = set(_references(pending.pop())) - found
        found |= new
        pending += new
    return found


def code_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the changes of user code, a text for each file or package.

    A module that only one process has loaded counts only if its file is there and differs: another
    command may load more than training needs, and some modules are imported late.

    Args:
        before: Of the process that wrote a checkpoint; untrusted.
        now: Of this process.
    """
    changes = []
    for key, old in before.items():
        kind, _, name = key.partition(" ")
        new = now.get(key)
        if new is None and kind == MODULE:
            new = _hash_of_unloaded(name)
        if new is not None and new != old:
            text = f"{key} was {old}, is {new}" if kind == PACKAGE else f"{key} was changed"
            changes.append(printable(text))
    return changes


class _Place(NamedTuple):
    """The origin of a module."""

    file: Path  # with links resolved
    is_installed: bool  # with Python, a package, or this project
    digest: str = ""  # of a user's module when it was first seen, soon after its import
    imports: frozenset[str] = frozenset()  # top-level names that a user's module imports


# A module keeps the code of its import, whatever happens to its file later.
_places: WeakKeyDictionary[ModuleType, _Place | None] = WeakKeyDictionary()


def _user_modules() -> Iterator[tuple[str, _Place]]:
    for name, module in list(sys.modules.items()):
        place = _place_of(module)
        if place is not None and not place.is_installed and name not in _OF_THE_SITE:
            yield name, place


def _place_of(module: object) -> _Place | None:
    # Not isinstance() alone: objects can claim to be modules, as cffi's do.
    if not issubclass(type(module), ModuleType) or not isinstance(module, ModuleType):
        return None
    if module not in _places:
        name = vars(module).get("__file__")
        file = _resolved(name) if isinstance(name, str) else None
        if file is None:
            _places[module] = None
        elif is_installed(file):
            _places[module] = _Place(file, is_installed=True)
        else:
            _places[module] = _Place(file, False, _hash(file), frozenset(_imports(file)))
    return _places[module]


def _resolved(name: str) -> Path | None:
    """Return the path of a file without links, None if there is no such file.

    With one look at the disk for most: thousands of modules share a few hundred folders.
    """
    try:
        mode = os.lstat(name).st_mode
        if stat.S_ISREG(mode):
            folder, last = os.path.split(name)
            return Path(_real_folder(folder), last)
        return Path(name).resolve() if os.path.isfile(name) else None
    except (OSError, ValueError):
        return None


_real_folder = functools.cache(os.path.realpath)


def is_installed(file: Path) -> bool:
    """Return whether a file belongs to Python, a package or this project."""
    return _is_installed_folder(file.parent) or file in _installed_roots()


@functools.cache
def _is_installed_folder(folder: Path) -> bool:
    is_in_site = {"site-packages", "dist-packages"} & set(folder.parts)
    return bool(is_in_site) or any(map(folder.is_relative_to, _installed_roots()))


@functools.cache
def _installed_roots() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    names = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    names += [*site.getsitepackages(), site.getusersitepackages()]
    ours = [_OURS, *(_OURS.parent / name for name in ("robots", "hydra_plugins", "train.py"))]
    return tuple(dict.fromkeys([*(Path(name).resolve() for name in names), *ours]))


def _imports(file: Path) -> Iterator[str]:
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _hash_of_unloaded(name: str) -> str | None:
    """Find a module's file without importing anything, and hash it; None if there is none."""
    *above, last = name.split("/")
    stem = last.partition(".")[0]
    parts = above if stem == "__init__" else [*above, stem]
    if not parts or not all(part.isidentifier() for part in parts):
        return None
    places: Iterable[str] | None = None
    file: str | None = None
    for number in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: number + 1]), places)  # type: ignore[arg-type]
        if spec is None:
            return None
        places, file = spec.submodule_search_locations, spec.origin
    return _hash(Path(file)) if file is not None and os.path.isfile(file) else None


def _models_below(root: Path) -> Iterator[Path]:
    """Yield model files in a folder and a few levels below it; of a huge tree, the first."""
    pending, n_entries = [(root, 0)], 0
    while pending and n_entries < _MOST_ENTRIES:
        folder, depth = pending.pop(0)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        n_entries += len(entries)
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names or {"config.yaml", "checkpoints"} <= names:
            continue  # a virtual environment or a run
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _NOT_SEARCHED:
                continue
            if entry.name.lower().endswith(MODEL_SUFFIXES) and entry.is_file():
                yield Path(entry.path).resolve()
            elif depth < _DEEPEST and entry.is_dir(follow_symlinks=False):
                pending.append((Path(entry.path), depth + 1))


def _references(file: Path) -> Iterator[Path]:
    """Yield the files that a model or a material names, where they can be found."""
    try:
        is_text = file.suffix.lower() in MODEL_SUFFIXES and file.suffix.lower() != ".stl"
        if not is_text or file.stat().st_size > _LARGEST_TEXT_BYTES:
            return
        text = file.read_bytes()
    except OSError:
        return
    for match in _REFERENCE.finditer(text):
        name = (match[1] or match[2]).decode(errors="replace").partition("://")
        for folder in (file.parent, *file.parent.parents[:2]):
            candidate = folder / (name[2] or name[0])
            if os.path.isfile(candidate):
                yield candidate.resolve()
                break


def _label(file: Path) -> str:
    """Return a file's path below where modules are found, or its end."""
    roots = [Path(path or os.curdir).resolve() for path in [os.curdir, *sys.path]]
    inside = [file.relative_to(root).as_posix() for root in roots if file.is_relative_to(root)]
    return min(inside, key=len, default="/".join(file.parts[-2:]))


def _hash(file: Path) -> str:
    try:
        if (size := file.stat().st_size) > _LARGEST_HASHED_BYTES:
            return f"{size} bytes"
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:16]
    except OSError:
        return "unreadable"


def hash_all(files: Iterable[Path]) -> str:
    """Return one hash of the names and contents of files, in their order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}:{_hash(file)};".encode())
    return digest.hexdigest()


@functools.cache
def _hash_package(file: Path) -> str:
    """Return one hash of an installed package's modules."""
    is_package = file.stem == "__init__"
    files = sorted(file.parent.rglob("*.py"))[:_MOST_ENTRIES] if is_package else [file]
    return hash_all(files)[:8]


@functools.cache
def _version(name: str) -> str:
    """Return the version of the distribution that brings a module."""
    version = package_version(name)
    if version is not None or name in sys.stdlib_module_names:
        return version or "unknown"
    # Reads the files of all distributions, which takes most of a second.
    brought_by = metadata.packages_distributions().get(name)
    return (brought_by and package_version(brought_by[0])) or "unknown"
