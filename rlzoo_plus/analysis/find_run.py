"""Finds and reads the run that a user names as RUN, and asks for trust where it needs code."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from rlzoo_plus.analysis.run_list import find_runs, started_at
from rlzoo_plus.analysis.shipped_runs import shipped_path
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import is_bundle, load_bundle
from rlzoo_plus.artifacts.run_dir import OUTPUTS, RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.config.own_code import Use, import_packages, own_code
from rlzoo_plus.config.references import variables_in
from rlzoo_plus.config.resolve import load_stored
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.trusted import how_to_trust, import_trusted, left_to_trust
from rlzoo_plus.errors import ConfigError, closest
from rlzoo_plus.registry import Registry

# Gymnasium's adapters for old Gym: their arguments name a module to import.
IMPORTING_IDS = ("GymV21Environment-v0", "GymV26Environment-v0")
LATEST = "latest"
# What copies a run to the cache and returns its folder, by the scheme of its URL, or for a model of
# a registry; rooms beside the core are optional.
_COPIES = Registry(
    "copies",
    "RUN",
    {
        "s3": "rlzoo_plus.store.cache:cached_run",
        "hf": "rlzoo_plus.hub.copies:copy_of",
        "model": "rlzoo_plus.models.model_copies:copy_of",
    },
)
_MODEL = re.compile(
    r"(?:(?!hf://).*/models/|models/)?[A-Za-z0-9][\w.-]*@[a-z0-9][a-z0-9_-]*", re.ASCII
)
_MOST_SHOWN = 10


@dataclass(frozen=True)
class Place:
    """Where a run, or one of its policies, is."""

    path: Path  # A run directory; or a bundle outside of one, as a folder or a zip
    which: str = "best"  # The policy that was named: `best`, `final` or the step of a checkpoint
    is_bundle: bool = False  # Whether it is a bundle
    # Of the run in S3 or on the Hub that it is a copy of, without checkpoints; empty if it is none
    url: str = ""

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy of a run in S3 or on the Hub."""
        return bool(self.url)

    @property
    def is_version(self) -> bool:
        """Whether it is a version of a model in a registry."""
        return _MODEL.fullmatch(self.url) is not None


def find_place(name: str | Path, wanted: str | None = None) -> Place:
    """Return what a user means by RUN.

    Args:
        name: A run directory, or a folder in it that holds a policy; a bundle, as a folder or a
            zip; `latest`, the run below outputs/ that was started last; or the end of the path of
            one run below outputs/; `trained/NAME`, a run that comes with the package; or the URL
            of a run in S3 or on the Hugging Face Hub (`hf://org/name@revision`), or a model of a
            registry (`NAME@production`, `NAME@3`), which is copied to the cache.
        wanted: The policy that is to be played; empty for the best, or the final one where there
            is no best. `latest` is then the newest run that has it.

    Raises:
        ConfigError: There is no such run, or several match.
        RunError: A store cannot be reached.
    """
    text = str(name)
    if _MODEL.fullmatch(text) and not os.path.lexists(text):
        return _copied(text, "model")
    scheme, separator, _ = text.partition("://")
    if separator and scheme in _COPIES:
        return _copied(text, scheme)
    path = Path(name)
    if not os.path.lexists(path):
        path = _find_by_name(str(name), wanted)
    inside = _policy_inside(path)
    if inside is not None:
        return inside
    if path.is_file() and path.suffix == ".zip":
        return Place(path, is_bundle=True)
    shown = printable(path)
    if not path.is_dir():
        hint = f" Did you mean {LATEST!r}?" if closest(str(name), [LATEST]) else ""
        raise ConfigError(
            f"{shown}: no such directory.{hint} `rlzoo-plus runs` lists the runs there are."
        )
    # exists() is false for a broken link.
    if os.path.lexists(RunDir(path).config_file):
        return Place(path)
    for folder in (path, path / "best"):
        if is_bundle(folder):
            return Place(folder, is_bundle=True)
    raise ConfigError(
        f"{shown} holds no run: config.yaml is missing. `rlzoo-plus runs {shown}` lists the "
        "runs below it."
    )


def _copied(url: str, scheme: str) -> Place:
    """Return the copy of the run, the bundle or the model that a URL or NAME@ALIAS names."""
    try:
        found = find_place(_COPIES.load(scheme)(url))
    except DamagedFolderError as error:
        raise ConfigError(f"{printable(url)} is damaged: {error}.") from error
    except ModuleNotFoundError as error:
        room = (error.name or "").removeprefix("rlzoo_plus.").partition(".")[0]
        if room not in ("hub", "models"):
            raise
        raise ConfigError(
            f"{printable(url)}: rlzoo_plus was installed without its {room}/."
        ) from None
    return replace(found, url=url)


def _find_by_name(name: str, wanted: str | None) -> Path:
    """Return the run that `latest`, the end of its path below outputs/ or `trained/NAME` names."""
    runs = find_runs([OUTPUTS]) if OUTPUTS.is_dir() else []
    if name == LATEST:
        if not runs:
            raise ConfigError(f"{LATEST}: there is no run below {OUTPUTS} yet.")
        return _latest(sorted(runs, key=started_at, reverse=True), wanted)
    end = name.rstrip("/")
    paths = [run.path for run in runs if end and str(run.path).endswith(end)]
    found = [path for path in paths if str(path).endswith(f"/{end}")]
    if not found and (shipped := shipped_path(name)) is not None:
        return shipped
    found = found or paths
    if len(found) < 2:
        return found[0] if found else Path(name)
    shown = "".join(f"\n  {printable(path)}" for path in found[:_MOST_SHOWN])
    more = f"\n  ... and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    raise ConfigError(
        f"{printable(name)}: {len(found)} runs below {OUTPUTS} end like this:{shown}{more}\n"
        "Give more of the path."
    )


def _latest(runs: list[RunDir], wanted: str | None) -> Path:
    """Return the first run that has the policy that is wanted."""
    if wanted is None:
        return runs[0].path
    names = (wanted,) if wanted else ("best", "final")
    found = next((run for run in runs if any(map(run.has_policy, names))), None)
    if found is not None:
        return found.path
    text = f"{LATEST}: no run below {OUTPUTS} has a {' or '.join(names)} policy yet."
    for run in runs:
        if steps := run.checkpoints().steps():
            raise ConfigError(f"{text} Name a checkpoint: {run.path} --which {steps[-1]}.")
    raise ConfigError(f"{text} `rlzoo-plus runs` lists the runs there are.")


def _policy_inside(path: Path) -> Place | None:
    """Return the run whose policy is in this folder, None if it is no such folder."""
    parent, name = path.absolute().parent, path.name
    is_checkpoint = parent.name == "checkpoints"
    run = parent.parent if is_checkpoint else parent
    if not path.is_dir() or not RunDir(run).config_file.is_file():
        return None
    shown = path.parent.parent if is_checkpoint else path.parent
    if is_checkpoint and name.isascii() and name.isdigit():
        return Place(shown, str(int(name)))
    return Place(shown, name) if name in ("best", "final") else None


def read_config(place: Place) -> RunConfig:
    """Read the configuration of a run or of a bundle."""
    run = RunDir(place.path)
    file = place.path if place.is_bundle else run.config_file
    try:
        found = load_bundle(place.path).config if place.is_bundle else run.read_config()
        return load_stored(found)
    except (DamagedFolderError, ValueError, OSError) as error:
        raise ConfigError(f"{printable(file)} is damaged: {one_line(error)}.") from error


def require_trust(
    config: RunConfig, path: str | Path, *, trust: bool, to_train: bool = False, url: str = ""
) -> None:
    """Import the code that a run names and this project does not ship, if the user trusts it.

    `path` and `url`, if it is a copy of a run in a store, are for the message. To train, its
    callbacks, tracker and store count, too.
    """
    if trust or not foreign_code_of(config, to_train=to_train):
        import_packages(config)
        return
    if foreign := _needs_trust_of(config, to_train=to_train):
        raise ConfigError(
            f"{printable(url or path)} needs what rlzoo_plus does not ship: "
            f"{printable(', '.join(foreign))}. If you know where the run comes from, add --trust "
            f"to import it (trust=True in Python).{how_to_trust(foreign, config, Path(path))}"
        )
    import_trusted(config, "train" if to_train else "play")


def _needs_trust_of(config: RunConfig, *, to_train: bool = True) -> list[str]:
    """Return what of `foreign_code_of` the user's trust file does not cover."""
    foreign = foreign_code_of(config, to_train=to_train)
    use: Use = "train" if to_train else "play"
    covered = {*own_code(config, use)}.difference(left_to_trust(config, use))
    return [name for name in foreign if name not in covered]


def trust_option(config: RunConfig, *, to_train: bool) -> str:
    """Return ` --trust` if a command about a run needs it, else nothing."""
    try:
        return " --trust" if _needs_trust_of(config, to_train=to_train) else ""
    except ConfigError:
        # The next command tells what is wrong.
        return " --trust"


def foreign_code_of(config: RunConfig, *, to_train: bool = True) -> list[str]:
    """Return what a run would import that this project does not ship.

    To train it, not only to evaluate it, where it sends metrics and files counts, too.
    """
    names = own_code(config, "play")
    names += [f"the variable {name}" for name in variables_in(config.env.model_dump())]
    names += [config.env.id] if config.env.id in IMPORTING_IDS else []
    if to_train:
        names += own_code(config)
        names += [f"the variable {name}" for name in variables_in(config.callbacks)]
        names += [] if config.tracker is None else [f"tracker {config.tracker.name}"]
        names += [] if config.store is None else [f"store {config.store}"]
    return list(dict.fromkeys(names))


def stored_config(run_dir: RunDir) -> RunConfig:
    """Read the configuration that a run was started with."""
    try:
        return read_config(Place(run_dir.path))
    except ConfigError as error:
        raise ConfigError(
            f"{error} restart=true starts a new run and moves this one aside."
        ) from error
