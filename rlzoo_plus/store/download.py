"""Brings what workers left in a store into the directories of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.inside import check_inside, open_to_append
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.resolve import load_stored
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.store.cache import LARGEST_LIGHT_BYTES, LIGHT_FILES
from rlzoo_plus.store.contract import ArtifactStore
from rlzoo_plus.store.mirror import RUNS
from rlzoo_plus.store.pull import get_all, pull_run

LOG = "log.txt"
# Written last: they say that everything before is there.
_LAST = ("result.json", "status.json")


def bring_run(
    store: ArtifactStore, run: str, path: Path, config: RunConfig, *, light: bool = False
) -> bool:
    """Bring a run's files without its checkpoints into its directory; return whether there are any.

    Files of the same name are replaced; what is only here stays. The configuration may be trusted
    here, so its copy in the store must not name other code. With `light`, only what a list of runs
    and a plot need is brought.

    Raises:
        StoreError: A request failed.
        DamagedFolderError: A policy in the store is damaged, or its configuration is another one.
        OutsideError: A link in the directory leads elsewhere.
    """
    if not light and next(iter(store.list(f"{RUNS}/{run}/")), None) is None:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as staging:
        here = Path(staging) / path.name
        if light:
            _get_light(store, run, here)
        else:
            pull_run(store, run, here, state=False)
        _check_code(here, config)
        found = sorted(os.listdir(here), key=lambda name: (name in _LAST, name))
        path.mkdir(exist_ok=True)
        for name in found:
            target = path / name
            check_inside(path, target)
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(here / name, target)
    return bool(found)


def append_log(store: ArtifactStore, run: str, path: Path) -> None:
    """Append the output of a job in the store to a file here.

    Raises:
        StoreError: A request failed.
        OutsideError: The file is a link.
    """
    found = store.get(f"{RUNS}/{run}/{LOG}", LARGEST_LIGHT_BYTES)
    if found is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(path) as file:
            file.write(found[0])


def _get_light(store: ArtifactStore, run: str, here: Path) -> None:
    here.mkdir()
    prefix, wanted = f"{RUNS}/{run}/", {}
    for entry in store.list(prefix):
        name = entry.name.removeprefix(prefix)
        if name in (*LIGHT_FILES, LOG) and entry.size <= LARGEST_LIGHT_BYTES:
            wanted[entry.name] = here / name
    get_all(store, wanted, LARGEST_LIGHT_BYTES)


def _check_code(here: Path, config: RunConfig) -> None:
    run = RunDir(here)
    if not run.config_file.exists():
        # It ended before it began.
        return
    try:
        named = own_code(load_stored(run.read_config()))
    except (OSError, ValueError) as error:
        raise DamagedFolderError(f"its configuration is damaged: {one_line(error)}") from error
    foreign = [name for name in named if name not in own_code(config)]
    if foreign:
        raise DamagedFolderError(
            f"its configuration in the store names other code: {printable(', '.join(foreign))}"
        )
