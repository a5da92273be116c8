"""The policies that come with the package: `trained/NAME` names one anywhere, and none is changed.

In a checkout the folder is beside conf/, where each name is a path, too; in an installation it is
inside of the package.
"""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.artifacts.run_dir import OUTPUTS, RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.errors import ConfigError, unknown_name

TRAINED = "trained"


def trained_dir() -> Path:
    """Return the folder of the shipped policies, which an installation may be without."""
    return conf_dir().with_name(TRAINED)


def shipped_names() -> list[str]:
    """Return the names of the shipped policies, without `trained/`."""
    return sorted(file.parent.name for file in trained_dir().glob("[!.]*/config.yaml"))


def shipped_path(name: str) -> Path | None:
    """Return the run, or the folder of its best policy, that `trained/NAME` names; else None.

    Raises:
        ConfigError: It begins like such a name, and there is none.
    """
    first, *rest = name.rstrip("/").split("/")
    if first != TRAINED or not rest:
        return None
    names = shipped_names()
    if rest[0] in names and rest[1:] in ([], ["best"]):
        return trained_dir().joinpath(*rest)
    if not names:
        raise ConfigError(f"{printable(name)}: rlzoo_plus was installed without {TRAINED}/.")
    known = [f"{TRAINED}/{known}" for known in names]
    listed_by = f"rlzoo-plus ls {TRAINED}"
    raise ConfigError(unknown_name("trained policy", printable(name), known, listed_by))


def name_of_shipped(path: Path) -> str | None:
    """Return `trained/NAME` of what a path is in, None if it is not a shipped one's."""
    place, folder = path.resolve(), trained_dir().resolve()
    if folder not in place.parents:
        return None
    return f"{TRAINED}/{place.relative_to(folder).parts[0]}"


def refuse_to_change(path: Path) -> None:
    """Refuse to write to the directory of a run that came with the package.

    Raises:
        ConfigError: It is one.
    """
    if name := name_of_shipped(path):
        raise ConfigError(
            f"{name} comes with rlzoo_plus and is not changed. Start a run of your own from it, "
            f"with init_from={name}."
        )


def folder_of_new_files(run: RunDir) -> Path:
    """Return where plots, videos and exports of a run go: its directory, or below outputs/."""
    name = name_of_shipped(run.path)
    return run.path if name is None else OUTPUTS / name
