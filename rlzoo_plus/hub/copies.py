"""Brings repositories of the Hub: whole, or not at all, with every size and hash checked."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from rlzoo_plus.analysis.find_run import Place, read_config
from rlzoo_plus.artifacts.atomic import DamagedFolderError, write_json
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM, ALGORITHMS
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.hub.client import SCHEME, Client, HubError, RemoteFile, Repository, UnreachableError
from rlzoo_plus.hub.repository import (
    BUNDLES,
    CHECKPOINTS,
    LARGEST_BYTES,
    holds_policy,
    largest_of,
    largest_of_agent,
)
from rlzoo_plus.sb3.saved_agents import Wanted, import_agent
from rlzoo_plus.store.cache import cache_base, hash_of
from rlzoo_plus.store.contract import in_parallel

_ORIGIN = "hub.json"
_PATIENCE_S = 600.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pulled:
    """What was brought."""

    path: Path  # The run directory, or a folder with `best/`
    commit: str  # The revision that it is
    step: int | None  # That it can be resumed from; None without a checkpoint
    left: list[str]  # Files of the repository that stayed there


@dataclass(frozen=True)
class Agent:
    """What a user says about an agent of Stable-Baselines3; it wins over its files."""

    algo: str | None = None
    env: str | None = None
    zip: str | None = None  # Its file, if there are several


def copy_of(url: str) -> Path:
    """Bring a repository's policies here, unless that commit is here; return their folder.

    Raises:
        ConfigError: It holds no policy, or a damaged one.
        HubError: There is no such repository, or a request failed.
    """
    place, client = Repository.parse(url), Client()
    folder = cache_base() / "hub" / hash_of(f"{client.endpoint}/{place.repo}")
    try:
        commit = place.commit or client.commit_of(place)
    except UnreachableError as error:
        here = sorted(folder.glob("*/[!.]*/"), key=lambda path: path.stat().st_mtime)
        if not here:
            raise
        known = f"{SCHEME}{place.repo}@{here[-1].parent.name}"
        raise UnreachableError(f"{error} A copy from before is here: {known}") from None
    path = folder / commit / place.repo.rpartition("/")[2]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock", timeout=_PATIENCE_S):
        if not path.is_dir():
            pull(replace(place, revision=commit), path, client=client)
    return path


def pull(
    place: Repository,
    path: Path,
    *,
    state: bool = False,
    agent: Agent | None = None,
    client: Client | None = None,
    note: Callable[[str], None] = log.warning,
) -> Pulled:
    """Bring a repository; the directory appears when it is whole.

    Args:
        place: Which one, and which revision.
        path: A directory that does not exist.
        state: Bring what resuming needs, too.
        agent: What is known of an agent of Stable-Baselines3.
        client: The Hub.
        note: Called with each note for the user.

    Raises:
        ConfigError: It holds no policy, a damaged one, or one that is larger than what is read.
        HubError: There is no such repository, or a request failed.
    """
    client = client or Client()
    # All files are those of one commit, whatever is pushed meanwhile.
    commit = place.commit or client.commit_of(place)
    fixed = replace(place, revision=commit)
    listed = client.files(fixed)
    is_ours = holds_policy(listed)
    wanted = _wanted(fixed, listed, path, is_ours=is_ours, state=state)
    path.parent.mkdir(parents=True, exist_ok=True)
    files = Path()
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.pull-", dir=path.parent) as name:
            files, made = Path(name) / "files", Path(name) / "run"
            in_parallel(
                lambda file: client.download(fixed, file, files / file.name), wanted.values()
            )
            if is_ours:
                made, step = files, _check(files, state=state)
            else:
                _import(fixed, files, made, agent or Agent(), note)
                step = None
            write_json(made / _ORIGIN, {"repository": place.repo, "commit": commit})
            made.rename(path)
    except (DamagedFolderError, ConfigError) as error:
        # It may name files that are gone by then.
        shown = str(error).replace(f"{files}/", "").replace(str(files), "its folder").rstrip(".")
        raise ConfigError(f"{fixed}: {shown}.") from error
    except OSError as error:
        raise HubError(f"{path} cannot be written: {error.strerror}") from error
    return Pulled(path, commit, step, sorted(set(listed) - set(wanted)))


def _wanted(
    place: Repository, listed: Mapping[str, RemoteFile], path: Path, *, is_ours: bool, state: bool
) -> dict[str, RemoteFile]:
    """Return the files that are brought.

    Raises:
        ConfigError: One is too large, all are, or there is no policy.
    """
    wanted = {}
    for name, file in listed.items():
        largest = largest_of(name, state=state) if is_ours else largest_of_agent(name)
        if largest is None:
            continue
        if file.size > largest:
            raise ConfigError(
                f"{place}: {name} has {file.size:,} bytes, and at most {largest:,} are read. "
                "Nothing was brought."
            )
        wanted[name] = file
    if not is_ours and not any(name.endswith(".zip") for name in wanted):
        raise ConfigError(
            f"{place} holds neither a policy of rlzoo_plus (best/MANIFEST.json) nor a zip of "
            "Stable-Baselines3. `rlzoo-plus hub search` finds some."
        )
    there = next(parent for parent in path.absolute().parents if parent.is_dir())
    total, free = sum(file.size for file in wanted.values()), shutil.disk_usage(there).free
    if total > min(LARGEST_BYTES, free):
        raise ConfigError(f"{place} has {total:,} bytes; {free:,} are free here.")
    return wanted


def _check(folder: Path, *, state: bool) -> int | None:
    """Check every byte of policies and checkpoints; return the step to resume from, if any.

    Raises:
        DamagedFolderError: One is damaged.
        ConfigError: The configuration is.
    """
    for which in BUNDLES:
        if (folder / which).is_dir():
            load_bundle(folder / which)
    if RunDir(folder).config_file.is_file():
        read_config(Place(folder))
    steps = CheckpointStore(folder / CHECKPOINTS).steps() if state else []
    for step in steps:
        CheckpointStore(folder / CHECKPOINTS).verify(step)
    return max(steps, default=None)


def _import(
    place: Repository, files: Path, made: Path, agent: Agent, note: Callable[[str], None]
) -> None:
    """Make a run directory of an agent of Stable-Baselines3, by the reader of `import-sb3`.

    Raises:
        ConfigError: Its files say too little, or are none that are read.
    """
    zips = sorted(files.glob("*.zip"))
    chosen = [file for file in zips if file.name == agent.zip] if agent.zip else zips
    agents = [file for file in chosen if _stem(file)[0]] or chosen
    if len(agents) != 1:
        names = ", ".join(file.name for file in zips)
        raise ConfigError(f"it holds several zips: {printable(names)}. Name one with --zip.")
    algo, env = _stem(agents[0])
    is_described = (files / "args.yml").is_file()
    wanted = Wanted(
        agents[0],
        algo=agent.algo or (None if is_described else algo),
        env=agent.env or (None if is_described else env),
        output=made,
    )
    import_agent(wanted, f"rlzoo-plus hub pull {place}", note)


def _stem(file: Path) -> tuple[str | None, str | None]:
    """Return algorithm and environment of a file that is called as those of the RL Zoo."""
    algo, _, env = file.stem.partition("-")
    algo = ALGORITHM_OF_STEM.get(algo, algo)
    return (algo, env) if algo in ALGORITHMS and env else (None, None)
