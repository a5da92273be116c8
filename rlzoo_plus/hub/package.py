"""Makes what is sent to the Hub of a run: policies, recorded episodes, video, curve, ONNX, card.

Everything is written to a folder first. Of the run's own files, what names this machine is left
out: paths, the process, stores and trackers, and differences of code that was not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlzoo_plus.artifacts.atomic import DamagedFolderError, read_folder, write_atomic, write_json
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.checkpoint import CHUNK_FOLDER
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import open_plain
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.hub.card import card, part_of
from rlzoo_plus.hub.repository import (
    BUNDLES,
    CARD,
    CHECKPOINTS,
    CURVE,
    ONNX,
    RUN_FILES,
    VIDEO,
    largest_of,
)
from rlzoo_plus.policies.verification import EPISODES, record_evaluation
from rlzoo_plus.runs.run import Run

VIDEO_S = 10.0
# Places of this machine; none of them decides the outcome.
PLACES = ("run_dir", "sweep", "store", "tracker", "init_from")
_PROVENANCE = (
    *(
        "python",
        "packages",
        "machine",
        "engine",
        "environment",
        "seed_streams",
        "config_hash",
        "imported",
    ),
)
_BLOCK = 2**20


@dataclass
class Package:
    """A folder that is to be sent."""

    folder: Path
    evaluation: dict[str, Any]  # What `Run.evaluate` returned for the recorded episodes
    notes: list[str] = field(default_factory=list)  # What could not be made

    def files(self) -> dict[str, Path]:
        """Return the files by name; no other than those that a repository may hold."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        named = {path.relative_to(self.folder).as_posix(): path for path in paths}
        assert all(largest_of(name, state=True) for name in named), sorted(named)
        return named


def make_package(
    run: Run,
    repo: str,
    folder: Path,
    *,
    episodes: int = 20,
    video: bool = True,
    state: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Package:
    """Write a run's package to an empty folder.

    Args:
        run: The run, or a bundle.
        repo: Its name on the Hub, for the card.
        folder: An empty folder.
        episodes: How many held-out episodes are recorded.
        video: Record one.
        state: Add the newest checkpoint, with which the run can be resumed.
        say: Called with what is done next, which can take a while.

    Raises:
        ConfigError: The run has no policy, it is damaged, or it needs trust.
    """
    run.require_trust()
    which, is_bundle = run.which, run.status == "bundle"
    _copy_policies(run, folder, is_bundle=is_bundle)
    run_dir = None if is_bundle else run.run_dir
    if run_dir is not None:
        copy_run(run_dir, run.config, folder)
        if state:
            _copy_state(run_dir, folder)
    elif state:
        raise ConfigError("--state: a bundle has no checkpoint. Name its run.")
    say(f"recording {episodes} held-out episodes")
    package = Package(
        folder, record_evaluation(run, folder / EPISODES, episodes, which=_named(run))
    )
    if run_dir is not None and run_dir.evaluations_file.is_file():
        _try(package, "curve", lambda: run.plot(folder / CURVE))
    if video:
        say("recording a video")
        options: dict[str, Any] = {"which": _named(run), "seconds": VIDEO_S}
        _try(package, "video", lambda: run.record_video(folder / VIDEO, **options))
    say("writing ONNX")
    _try(package, "ONNX file", lambda: run.export("onnx", folder / ONNX, _named(run)))
    made = {path.name for path in folder.iterdir()}
    text = card(repo, run.config, run_dir, which, package.evaluation, made, has_state=state)
    write_atomic(folder / CARD, text)
    return package


def _named(run: Run) -> str | None:
    return None if run.status == "bundle" else run.which


def _try(package: Package, what: str, make: Callable[[], Any]) -> None:
    """Make a part that not every run can have; note why there is none."""
    try:
        make()
    except ConfigError as error:
        package.notes.append(f"no {what}: {error}")


def _copy_policies(run: Run, folder: Path, *, is_bundle: bool) -> None:
    assert run.path is not None
    named = {which: run.path / which for which in BUNDLES}
    sources = {"best": run.path} if is_bundle else {w: p for w, p in named.items() if p.is_dir()}
    try:
        for which, source in sources.items():
            load_bundle(source)
            if source.is_file():
                raise ConfigError(f"{source}: unpack the zip, and name its folder.")
            copy_folder(source, folder / which)
    except DamagedFolderError as error:
        raise ConfigError(f"no usable policy: {error}.") from error
    if not sources:
        raise ConfigError(f"{run.path} has no policy yet: it was neither evaluated nor finished.")


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder with a manifest, with every byte checked."""
    target.mkdir(parents=True)
    files = {*read_folder(source)[0], "MANIFEST.json"}
    for name in files:
        _copy(source / name, target / name)


def _copy(source: Path, target: Path) -> None:
    """Copy a plain file; a link is refused."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_plain(source) as file, target.open("xb") as copy:
            while part := file.read(_BLOCK):
                copy.write(part)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source} cannot be sent: it {error}.") from error


def copy_run(
    run: RunDir, config: RunConfig, folder: Path, names: Collection[str] = RUN_FILES
) -> None:
    """Copy the small files of a run without what names this machine; of others, those in names."""
    public = config.model_copy(update=dict.fromkeys(PLACES))
    text = yaml.safe_dump(public.model_dump(mode="json"), sort_keys=False)
    write_atomic(folder / "config.yaml", text)
    known = run.read_provenance()
    git = part_of(known, "git")
    said = {name: known[name] for name in _PROVENANCE if name in known}
    said["git"] = {name: git[name] for name in ("commit", "dirty") if name in git}
    write_json(folder / "provenance.json", said)
    status = {name: value for name, value in run.read_status().items() if name != "pid"}
    write_json(folder / "status.json", status)
    for name in names:
        if not (folder / name).exists() and (run.path / name).is_file():
            _copy(run.path / name, folder / name)


def _copy_state(run: RunDir, folder: Path) -> None:
    """Copy the newest whole checkpoint, with its chunks, and the monitors' files."""
    newest = run.checkpoints().load_newest()
    if newest is None:
        raise ConfigError(f"--state: {run.path} has no checkpoint.")
    target = folder / CHECKPOINTS
    copy_folder(newest.path, target / newest.path.name)
    for name in {name for index in newest.chunks.values() for name in index.names}:
        _copy(run.path / CHECKPOINTS / CHUNK_FOLDER / name, target / CHUNK_FOLDER / name)
    others = [run.cut_rows_file, *sorted(run.monitor.glob("*.monitor.csv"))]
    for file in others:
        if file.is_file():
            _copy(file, folder / file.relative_to(run.path))
