"""The trust file: which code of the user may be imported for any run, without `--trust`.

It lists absolute paths of modules and folders, one a line, in the user's own configuration folder.
A name in a run is trusted if every file that its import runs is one of them, so a run cannot bring
a module of a trusted name.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_file
from rlzoo_plus.config.own_code import (
    Use,
    import_own_classes,
    interpreters_of,
    named_modules,
    packages_of,
)
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import import_user_module, is_module_name

_LARGEST_BYTES = 2**16
_INIT = "__init__.py"
_HEAD = "# Written by `rlzoo-plus trust`: code that is imported for any run, without --trust.\n"


def trust_file() -> Path:
    """Return where the trust file is, or would be."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative path would lead into the working directory, which may be somebody else's run.
    home = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return home / "rlzoo_plus" / "trusted"


def trusted_paths() -> list[Path]:
    """Return the paths in the trust file, none if there is no file.

    Raises:
        ConfigError: Others may have written it, or it is damaged.
    """
    file = trust_file()
    if not os.path.lexists(file):
        return []
    for path in (file, file.parent):
        problem = _writable_by_others(path, groups=True)
        if problem:
            raise ConfigError(f"{printable(file)} is not used: {problem}.")
    try:
        lines = read_plain_file(file, _LARGEST_BYTES).decode().split("\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{printable(file)} cannot be read: {one_line(error)}.") from error
    texts = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    for text in texts:
        if not os.path.isabs(text):
            raise ConfigError(
                f"{printable(file)}: {printable(text)} is not an absolute path. Remove the line; "
                "`rlzoo-plus trust` adds paths."
            )
    return [Path(text) for text in texts]


def add_trusted(path: Path) -> bool:
    """Add a module or a folder to the trust file; return False if it is there.

    Raises:
        ConfigError: It is none of the user's own code, or others can change it.
    """
    shown, library = printable(path), Path(sysconfig.get_path("stdlib")).resolve()
    if not path.exists():
        raise ConfigError(f"{shown} does not exist.")
    if not path.is_dir() and (path.is_symlink() or not path.is_file()):
        raise ConfigError(
            f"{shown} is a link or a special file. Name a module's file, or a folder."
        )
    path = path.resolve()
    installed = {"site-packages", "dist-packages"}
    if path.name in installed or (path.is_relative_to(library) and not installed & {*path.parts}):
        raise ConfigError(f"{shown} is not code of yours. Name a package or a module.")
    if "\n" in str(path) or str(path).strip() != str(path):
        raise ConfigError(f"{shown}: its name has a line break, or a space at its end.")
    if problem := _writable_by_others(path):
        raise ConfigError(f"{shown} is not trusted: {problem}.")
    known = trusted_paths()
    if path in known:
        return False
    _write([*known, path])
    return True


def remove_trusted(path: Path) -> bool:
    """Remove a path from the trust file; return False if it is not there.

    Raises:
        ConfigError: The file is not used.
    """
    known = trusted_paths()
    left = [entry for entry in known if entry not in (path, path.resolve())]
    if len(left) < len(known):
        _write(left)
    return len(left) < len(known)


def _write(paths: Iterable[Path]) -> None:
    mask = os.umask(0o077)
    try:
        write_atomic(trust_file(), _HEAD + "".join(f"{path}\n" for path in paths))
    finally:
        os.umask(mask)


def path_of_module(name: str) -> Path | None:
    """Return what to trust so that a module is trusted; nothing is imported.

    It is the folder of a package, or the file of a module; None if there is none of that name.
    """
    files = _files_run_by(name)
    if files:
        file = _real(files[-1])
        return file.parent if file.name.startswith("__init__.") else file
    top = _find(name, None) if is_module_name(name) and "." not in name else None
    # A folder without __init__.py.
    places = list(top.submodule_search_locations or []) if top is not None else []
    return Path(places[0]).resolve() if len(places) == 1 else None


def left_to_trust(config: RunConfig, use: Use = "train") -> list[str]:
    """Return what of `own_code` the trust file does not cover; nothing is imported.

    Raises:
        ConfigError: The trust file is not used.
    """
    named = named_modules(config, use)
    entries = [path.resolve() for path in trusted_paths()] if named else []
    left = (n for n, module in named if not _is_trusted(module, entries))
    return list(dict.fromkeys([*interpreters_of(config, use), *left]))


def import_trusted(config: RunConfig, use: Use) -> None:
    """Import what `left_to_trust` has found to be trusted, and check where its classes come from.

    A trusted module may import classes of others, which a run could name as its own.

    Raises:
        ConfigError: A class is not of a trusted module, or cannot be imported.
    """
    named = named_modules(config, use)
    # To act, a policy may need none of the packages that the run names: they were not checked.
    for name in packages_of(config):
        if (name, name) in named:
            import_user_module("packages", name)
    entries = [path.resolve() for path in trusted_paths()]
    for name, found in import_own_classes(config, use).items():
        if not _is_trusted(found.__module__, entries):
            raise ConfigError(
                f"{printable(name)} is a class of {printable(found.__module__)}, which is not in "
                f"{printable(trust_file())}. If you know where the run comes from, add --trust."
            )


def how_to_trust(names: Iterable[str], config: RunConfig, place: Path | None = None) -> str:
    """Return a sentence on how to trust names once for all runs; empty if that is not possible.

    Args:
        names: All that the run needs trust for.
        config: The configuration that they are in.
        place: The run: code that lies in it is not suggested.
    """
    module_of = dict(named_modules(config))
    if not set(names) <= set(module_of):
        return ""
    tops = dict.fromkeys(module_of[name].partition(".")[0] for name in names)
    found = [path_of_module(top) for top in tops]
    paths = [path for path in found if path is not None]
    inside = [path for path in paths if place is not None and path.is_relative_to(place.resolve())]
    if len(paths) < len(found) or inside:
        return ""
    trusted = {entry.stem for entry in trusted_paths()}
    if other := [path for path in paths if path.stem in trusted]:
        shown = printable(", ".join(map(str, other)))
        return f" This is not the code of that name that you trust: from here, it is {shown}."
    shown = printable(shlex.join(str(path) for path in paths))
    return f" Code of your own is trusted once for all runs: rlzoo-plus trust {shown}"


def _is_trusted(module: str, entries: Sequence[Path]) -> bool:
    files = _files_run_by(module) if entries else []
    return bool(files) and all(any(_covers(entry, file) for entry in entries) for file in files)


def _covers(entry: Path, file: Path) -> bool:
    """Tell whether an entry of the trust file, without links, covers a module's file.

    A package's folder covers its sub-packages; any other folder only the modules directly in it:
    what is pulled or unpacked below a working directory stays untrusted.
    """
    real = _real(file)
    # Beside a link, Python would read compiled code that need not be of this source.
    if real.is_symlink() or _writable_by_others(real) or _writable_by_others(real.parent):
        return False
    if entry in (real, real.parent):
        return True
    if entry not in real.parents:
        return False
    inner = real.relative_to(entry).parents
    return all((entry / folder / _INIT).is_file() for folder in inner)


def _real(file: Path) -> Path:
    """Return a file's path with the links in its folder followed, and not its own."""
    return file.parent.resolve() / file.name


def _files_run_by(module: str) -> list[Path]:
    """Return the files that importing a module runs, as Python finds them now; none if unknown."""
    if not is_module_name(module):
        return []
    files: list[Path] = []
    places: Sequence[str] | None = None
    parts = module.split(".")
    for depth in range(len(parts)):
        if depth and places is None:
            return []
        spec = _find(".".join(parts[: depth + 1]), places)
        if spec is None:
            return []
        places = spec.submodule_search_locations
        if spec.has_location and spec.origin:
            files.append(Path(spec.origin).absolute())
        elif places is None:
            # Built into Python, or made by a program.
            return []
    return files


def _find(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Find a module as an import would, which for its parents has run nothing."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, places)
        except (ImportError, AttributeError, ValueError, OSError):
            spec = None
        if spec is not None:
            return spec
    # As `registry.import_user_module`, which looks there last.
    return PathFinder.find_spec(name, [os.getcwd()]) if places is None else None


def _writable_by_others(path: Path, *, groups: bool = False) -> str:
    """Return how others could change a file or a folder, with the mend; empty if they cannot.

    Args:
        path: An absolute path.
        groups: Whether members of its group are others, too.
    """
    if not hasattr(os, "geteuid"):
        return ""
    mask = stat.S_IWOTH | (stat.S_IWGRP if groups else 0)
    real = _real(path)
    below: int | None = None
    for place in (real, *real.parents):
        try:
            about = place.lstat()
        except OSError as error:
            return one_line(error)
        shown = printable(place)
        # In a folder like /tmp, others cannot replace what is the user's.
        is_shared = bool(about.st_mode & stat.S_ISVTX) and below is not None
        if about.st_mode & mask and not is_shared and not stat.S_ISLNK(about.st_mode):
            return f"others can write to {shown}. Close it: chmod go-w {shown}"
        if is_shared and about.st_mode & stat.S_IWOTH and below not in (os.geteuid(), 0):
            return f"it is in {shown}, and belongs to somebody else"
        mask, below = stat.S_IWOTH, about.st_uid
    if real.lstat().st_uid not in (os.geteuid(), 0) and groups:
        return "it belongs to somebody else. Remove it"
    return ""
