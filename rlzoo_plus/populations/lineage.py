"""The way of the best member as a file, and the same training from that file, bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.find_run import foreign_code_of
from rlzoo_plus.artifacts.atomic import DamagedFolderError, write_json
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable, read_json
from rlzoo_plus.config.own_code import UntrustedError
from rlzoo_plus.config.resolve import load_stored
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.populations.member_job import begin_branch
from rlzoo_plus.populations.members import Members
from rlzoo_plus.populations.population import Population
from rlzoo_plus.runs.train_job import run_job

SCHEDULE = "schedule.json"
_MOST_PARTS = 1000
# Where and how a run is kept is not part of the schedule.
_PLACE = ("run_dir", "sweep", "store", "hpo")


def write_schedule(members: Members, population: Population) -> Path:
    """Write how the best member was trained: a configuration from each step on.

    Raises:
        ConfigError: No member has reached the end, or its policy is gone.
    """
    best = population.best()
    if best is None:
        raise ConfigError(f"{population.folder}: no member has reached the end yet.")
    parts = [
        {
            "from_step": task.parent_step,
            "config": members.config(task.overrides, task.run).model_dump(exclude={*_PLACE}),
        }
        for task in population.lineage(best.run)
    ]
    digest = weights_digest(RunDir(members.path(best.run)))
    content = {"score": best.score, "run": best.run, "weights_sha256": digest, "parts": parts}
    path = population.folder / SCHEDULE
    write_json(path, content)
    return path


def weights_digest(run: RunDir) -> str:
    """Return a hash of the weights at the end of a run.

    Raises:
        ConfigError: It has none.
    """
    try:
        weights = load_bundle(run.final).weights
    except (DamagedFolderError, OSError) as error:
        raise ConfigError(f"{printable(run.path)}: no final policy: {one_line(error)}.") from error
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + b"\0" + weights[name].tobytes())
    return digest.hexdigest()


def train_schedule(
    file: Path, folder: Path, *, trust: bool, told: Callable[[str], None] = lambda _: None
) -> Path:
    """Train by a schedule, from the first step on; return the directory of the last run.

    A folder that has some of the runs goes on with them.

    Args:
        file: What `write_schedule` has written; it may be somebody else's.
        folder: Gets a run for each part: `0`, `1`, ...
        trust: Import what this project does not ship.
        told: Called with a line for each part.

    Raises:
        ConfigError: The file is damaged, or needs trust.
        RunError: A part ends early, or the weights at the end are others.
    """
    content, parts = _read(file)
    starts = [int(step) for step, _ in parts]
    previous: RunConfig | None = None
    for number, (start, config) in enumerate(parts):
        run = config.model_copy(update={"run_dir": str(folder / str(number))})
        _require_trust(file, run, trust=trust)
        until = starts[number + 1] if number + 1 < len(parts) else None
        told(f"part {number}: from step {start:,}")
        _train_part(run, until, previous, start)
        previous = run
    last = folder / str(len(parts) - 1)
    if weights_digest(RunDir(last)) != content.get("weights_sha256"):
        raise RunError(
            f"{last}: other weights than {file} says. On another machine, or with other versions, "
            "results differ in their last bits."
        )
    return last


def _read(file: Path) -> tuple[dict[str, Any], list[tuple[int, RunConfig]]]:
    if not file.is_file():
        raise ConfigError(f"schedule={printable(file)}: no such file.")
    try:
        content = read_json(file)
        parts = content["parts"]
        if not isinstance(parts, list) or not 0 < len(parts) <= _MOST_PARTS:
            raise ValueError("it has no parts")
        place = dict.fromkeys(_PLACE)
        found = [(part["from_step"], load_stored({**part["config"], **place})) for part in parts]
        steps = [step for step, _ in found]
        if any(type(step) is not int for step in steps) or steps != sorted(steps) or steps[0] != 0:
            raise ValueError("its steps are not in order")
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"schedule={printable(file)} is damaged: {one_line(error)}.") from error
    return content, found


def _require_trust(file: Path, config: RunConfig, *, trust: bool) -> None:
    foreign = foreign_code_of(config)
    if foreign and not trust:
        raise UntrustedError(
            f"schedule={printable(file)} needs code that is not ours: "
            f"{printable(', '.join(foreign))}. If you know where it comes from, add --trust."
        )


def _train_part(config: RunConfig, until: int | None, parent: RunConfig | None, start: int) -> None:
    """Train one run until the step that the next one begins at."""
    data: dict[str, Any] = {"config": config.model_dump(), "command": "rlzoo-plus train schedule="}
    if parent is not None:
        above = {"parent": parent.run_dir, "parent_config": parent.model_dump()}
        begin_branch({**data, **above, "parent_step": start})

    def watch(record: Any, stop: Any) -> None:
        if until is not None and record["step"] >= until:
            stop.reason = "the next part begins"

    run, wanted = RunDir(Path(str(config.run_dir))), config.n_timesteps if until is None else until
    if until is None or until not in run.checkpoints().steps():
        run_job(data, watch=watch)
    reached = run.read_status().get("num_timesteps")
    if not isinstance(reached, int) or reached < wanted:
        raise RunError(f"{run.path}: ended at step {reached}, before {wanted:,}. See its log.")
