"""`rlzoo-plus trust`: list, add and remove what may be imported for any run without `--trust`."""

from __future__ import annotations

import os
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.config.trusted import (
    add_trusted,
    path_of_module,
    remove_trusted,
    trust_file,
    trusted_paths,
)
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """List the trusted paths; or add or remove those that the arguments name."""
    parser = command_parser(
        "trust",
        "Trust code of your own once: evaluate, record, enjoy, resume and the like then import it "
        "for any run, without --trust. A package counts with its sub-packages, any other folder "
        "with the modules directly in it. Paths are kept, no names: a run cannot bring another "
        f"module of that name. They are in {trust_file()}, which only you may be able to write. "
        "Without arguments, list them.",
        "my_robots",
    )
    add = parser.add_argument
    what = "a package or module as after import, e.g. my_robots; or a path, e.g. ./my_robots.py"
    add("code", nargs="*", metavar="CODE", help=what)
    add("--remove", action="store_true", help="trust it no more")
    options = parser.parse_args(arguments)
    if options.remove and not options.code:
        raise ConfigError("--remove: name what to remove; `rlzoo-plus trust` lists all.")
    for code in options.code:
        if options.remove:
            _remove(code)
        else:
            path = _path_of(code)
            print(f"{printable(path)}: {'trusted' if add_trusted(path) else 'was trusted before'}")
    if not options.code:
        _list()
    return 0


def _list() -> None:
    paths = trusted_paths()
    for path in paths:
        print(f"{printable(path)}{'' if path.exists() else '  (missing)'}")
    if not paths:
        tell(f"nothing in {printable(trust_file())} yet. Add a package: rlzoo-plus trust my_robots")


def _path_of(code: str) -> Path:
    """Return the path of a package, a module, or a path as it was typed."""
    if os.sep in code or code.endswith(".py") or code in (".", ".."):
        return Path(os.path.abspath(code))
    path = path_of_module(code)
    if path is None:
        raise ConfigError(
            f"{printable(code)}: no module of this name is found from here. Install it, go to its "
            f"folder, or name its path: ./{printable(code)}"
        )
    return path


def _remove(code: str) -> None:
    """Remove an entry, also of a module that is no longer there."""
    named = [path for path in trusted_paths() if code in (path.name, path.stem)]
    found = named if len(named) == 1 else [_path_of(code)]
    for path in found:
        if not remove_trusted(path):
            raise ConfigError(f"{printable(path)} is not listed; see `rlzoo-plus trust`.")
        print(f"{printable(path)}: trusted no more")
