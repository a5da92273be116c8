"""Finds the first update of a run after which a condition holds.

The log and the checkpoints say between which two checkpoints that was, by bisection. From the
earlier one the run is replayed, and the condition is checked after every update: halving that part
would begin each replay at the same checkpoint again.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.checkpoint import Checkpoint
from rlzoo_plus.artifacts.provenance import (
    PACKAGES,
    code_state,
    machine_fingerprint,
    package_version,
)
from rlzoo_plus.artifacts.records import parse_record
from rlzoo_plus.artifacts.run_dir import FAILED, RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_lines
from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.runs.run import Run
from rlzoo_plus.timetravel.branching import source_of
from rlzoo_plus.timetravel.condition import Condition
from rlzoo_plus.timetravel.replayed_run import not_exact, replay
from rlzoo_plus.timetravel.update_probe import Rows, Update, UpdateProbe

log = logging.getLogger(__name__)
_HERE = Path(__file__)
# Two runs can differ in these and still give the same numbers.
_WITHOUT_EFFECT = ("hydra-core", "omegaconf", "pydantic")


@dataclass(frozen=True)
class Finding:
    """The first update after which a condition holds."""

    run: str
    condition: str
    held_in: str  # `update`; `log`, a row after it; `error`, if the run raised in it or after it
    iteration: int  # of the update, from 1; 0: before the first
    step: int  # environment steps taken before the update
    value: float | None  # of the metric; None for `nan`
    message: str | None  # of the error that ended the run
    updates: list[Update]  # the one before, and this one
    start: int  # environment steps of the checkpoint before it; 0: the beginning of the run
    is_first: bool  # whether it is known not to have held before `start`
    checkpoints: int  # that were looked at
    replays: int
    replayed: int  # updates, in all replays
    compared: int  # logged values that were the same as the run's


@dataclass(frozen=True)
class _Log:
    """What the log of a run says about a condition."""

    held_at: int | None  # where the first row that meets it begins [bytes]
    held_step: int | None  # environment steps of that row
    last_step: int
    metrics: frozenset[str]
    low: float  # of the metric
    high: float


@dataclass
class _Search:
    """Replays parts of a run, and remembers how much that was."""

    parent: RunDir
    config: RunConfig
    condition: Condition
    after: int
    replays: int = 0
    replayed: int = 0
    compared: int = 0

    def look(self, start: Checkpoint | None, limit: int | None) -> _Seen:
        """Replay from a checkpoint to a step, or until the condition holds."""
        first = 0 if start is None else start.step
        probe = UpdateProbe(self.condition, self.after, limit, _rows(self.parent, first))
        message = replay(self.parent, self.config, start, probe)
        self.replays += 1
        self.replayed += probe.count
        self.compared += probe.compared
        return _Seen(start, probe, message)


@dataclass(frozen=True)
class _Seen:
    """What a replay has shown."""

    start: Checkpoint | None
    probe: UpdateProbe
    message: str | None

    @property
    def held_in(self) -> str:
        """Where the condition holds, empty if it does not."""
        lost = self.probe.condition.is_nan and self.message is not None
        return self.probe.held_in or ("error" if lost else "")

    @property
    def first(self) -> int:
        """Environment steps where it began."""
        return 0 if self.start is None else self.start.step

    @property
    def iteration(self) -> int:
        """That of its last update; else that of the checkpoint, 0 at the beginning of the run."""
        if self.probe.updates:
            return self.probe.updates[-1].iteration
        attributes = {} if self.start is None else self.start.state["agent"]["attributes"]
        return int(attributes.get("iterations", 0))


def bisect(run: Run, condition: Condition, after: int = 0, *, from_start: bool = False) -> Finding:
    """Find the first update after which a condition holds; nothing is written to the run.

    Where it holds, ends and holds again, and the log has not every update, the parts before are
    replayed as well, back to the first in which it does not hold.

    Args:
        run: Opened with trust, if it needs that.
        condition: What to look for.
        after: Environment steps before which it does not count.
        from_start: Replay from the seed, whatever checkpoints there are.

    Raises:
        ConfigError: It never holds, or the run cannot be replayed exactly.
        RunError: The replay failed.
    """
    parent, config = source_of(run), run.config
    run.require_trust(to_train=True, without_store=True)
    told = _read_log(parent, condition, after)
    if not condition.is_nan and told.metrics and condition.metric not in told.metrics:
        raise ConfigError(unknown_name("metric", condition.metric, told.metrics))
    start, end, looked_at = _bracket(parent, condition, after, told)
    start = None if from_start else start
    _check_exact(parent, start)
    search = _Search(parent, config, condition, after)
    seen = search.look(start, _limit(parent, told, end))
    if not seen.held_in:
        raise _never(seen, told, parent)
    is_all = condition.is_nan or _is_all_logged(config, condition.metric)
    seen, is_first = _look_before(seen, search, is_first=is_all)
    return _finding(seen, search, looked_at, is_first=is_first or seen.first <= after)


def _look_before(seen: _Seen, search: _Search, *, is_first: bool) -> tuple[_Seen, bool]:
    """Replay the parts before, where the condition may have held, and for the update before.

    Args:
        seen: Where it holds.
        search: What replays; log2(N) + 1 times at most, N being the updates until there.
        is_first: Whether it is known not to have held earlier.

    Returns:
        The first part where it holds, and whether it is known to be the first.
    """
    most = int(1 + math.log2(max(seen.iteration, 1)))
    while search.replays < most and not (is_first and len(seen.probe.updates) > 1):
        before = search.parent.checkpoints().load_newest(seen.first - 1)
        if before is None or before.schema < 2:
            break
        try:
            _check_exact(search.parent, before)
            earlier = search.look(before, seen.first)
        except ConfigError as error:
            log.info("what came before is not replayed: %s", error)
            break
        if not earlier.held_in:
            seen.probe.updates = [*earlier.probe.updates, *seen.probe.updates][-2:]
            return seen, True
        seen = earlier
    return seen, is_first or seen.start is None


def _finding(seen: _Seen, search: _Search, looked_at: int, *, is_first: bool) -> Finding:
    probe = seen.probe
    return Finding(
        run=str(search.parent.path),
        condition=str(search.condition),
        held_in=seen.held_in,
        iteration=seen.iteration,
        step=probe.updates[-1].step if probe.updates else seen.first,
        value=probe.held.get(search.condition.metric),
        message=seen.message,
        updates=probe.updates,
        start=seen.first,
        is_first=is_first,
        checkpoints=looked_at,
        replays=search.replays,
        replayed=search.replayed,
        compared=search.compared,
    )


def _never(seen: _Seen, told: _Log, run: RunDir) -> ConfigError:
    probe = seen.probe
    until = f" until step {probe.updates[-1].step:,}" if probe.updates else ""
    ended = "" if seen.message is None else f" It ended with: {printable(seen.message)}"
    logged = "" if told.low > told.high else f" Its log has {told.low:.6g} to {told.high:.6g}."
    return ConfigError(
        f"{probe.condition}: does not hold in {printable(run.path)} from step {seen.first:,}"
        f"{until}, in {probe.count} updates.{logged}{ended} Choose another condition or an earlier "
        "--after; --from-start looks at every update."
    )


def _is_all_logged(config: RunConfig, metric: str) -> bool:
    """Return whether each value of a metric has a row: then the log shows if it has held before."""
    is_on_policy = get_algorithm(config.algo.name).family is Family.ON_POLICY
    by_episode = is_on_policy or metric.startswith("rollout/")
    return metric.startswith("eval/") or (by_episode and config.log.interval == 1)


def _bracket(
    run: RunDir, condition: Condition, after: int, told: _Log
) -> tuple[Checkpoint | None, int | None, int]:
    """Return the newest checkpoint before which the condition has not held, by bisection.

    Returns:
        It, None for the beginning; the step of the next checkpoint, if the condition has held
        there; and how many were read.
    """
    store = run.checkpoints()
    steps, low, looked_at = store.steps(), -1, 0
    high, start = len(steps), None
    while high - low > 1:
        middle = (low + high) // 2
        looked_at += 1
        try:
            checkpoint = store.load(steps[middle])
        except DamagedFolderError:
            checkpoint = None
        if checkpoint is None or checkpoint.schema < 2:
            del steps[middle]
            high -= 1
        elif _has_held(checkpoint, condition, after, told):
            high = middle
        else:
            low, start = middle, checkpoint
    return start, steps[high] if high < len(steps) else None, looked_at


def _has_held(checkpoint: Checkpoint, condition: Condition, after: int, told: _Log) -> bool:
    """Return whether a checkpoint, or the log before it, shows the condition."""
    size = _mapping(checkpoint.about.get("logs")).get("metrics.jsonl", 0)
    if told.held_at is not None and told.held_at < size:
        return True
    try:
        # The values of the last update wait there for the next row.
        waiting = {k: float(v) for k, v in checkpoint.state["agent"]["logger"]["values"].items()}
    # Any part of it may be forged.
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{checkpoint.path} is damaged: {one_line(error)}.") from error
    return checkpoint.step >= after and condition.holds(waiting)


def _read_log(run: RunDir, condition: Condition, after: int) -> _Log:
    at, held_at, held_step, last, metrics = 0, None, None, 0, set()
    since: dict[str, int] = {}
    low, high = math.inf, -math.inf
    for line in _lines(run):
        record = parse_record(line.decode("utf-8", "replace")) or {}
        step, key = record.get("step"), record.get("key")
        if type(step) is int and isinstance(key, str):
            last = max(last, step)
            metrics.add(key)
            holds, value = condition.holds({key: record.get("value")}), finite(record.get("value"))
            if key == condition.metric and value is not None:
                low, high = min(low, value), max(high, value)
            # The update that a row tells of came after the row before.
            of_step = since.get(key, 0) if condition.is_of_update else step
            if held_at is None and of_step >= after and holds:
                held_at, held_step = at, step
            since[key] = step
        at += len(line) + 1
    return _Log(held_at, held_step, last, frozenset(metrics), low, high)


def _rows(run: RunDir, first: int) -> Rows:
    """Return the logged values after a step."""
    rows: dict[tuple[int, str], list[float | None]] = {}
    for line in _lines(run):
        record = parse_record(line.decode("utf-8", "replace")) or {}
        step, key, value = (record.get(name) for name in ("step", "key", "value"))
        if type(step) is int and step > first and isinstance(key, str):
            number = value if isinstance(value, (int, float)) else None
            rows.setdefault((step, key), []).append(number)
    return rows


def _lines(run: RunDir) -> Iterator[bytes]:
    """Yield the lines of the log of metrics, which may be missing or anybody's."""
    with contextlib.suppress(OSError, ValueError):
        yield from read_plain_lines(run.metrics_file)


def _limit(run: RunDir, told: _Log, end: int | None) -> int | None:
    """Return the environment steps after which the run cannot have met the condition first."""
    if end is not None:
        return end
    if told.held_step is not None:
        return told.held_step
    status = run.read_status()
    if status.get("state") == FAILED:
        return None
    taken = status.get("num_timesteps")
    known = [told.last_step, *run.checkpoints().steps()]
    return max(known + ([taken] if type(taken) is int else [])) or None


def _check_exact(run: RunDir, start: Checkpoint | None) -> None:
    """Refuse a run that its files say cannot be replayed exactly.

    Raises:
        ConfigError: It was resumed inexactly, or, from its beginning, made with other versions.
    """
    newest = run.checkpoints().load_newest()
    said = run.read_result() or _mapping(newest.state.get("exactness") if newest else None)
    since = said.get("inexact_since")
    reasons = said.get("inexact_because") or said.get("because")
    reasons = reasons if isinstance(reasons, list) and reasons else ["it was resumed inexactly"]
    first = 0 if start is None else start.step
    if type(since) is int and (since == 0 or first < since):
        raise not_exact([f"since step {since:,}: {printable(text)}" for text in reasons])
    if start is None:
        provenance = run.read_provenance()
        if "branch" in provenance:
            raise ConfigError(
                f"{printable(run.path)}: is a branch, and begins at a checkpoint: there is no seed "
                "to replay it from. Leave --from-start out, or bisect its parent."
            )
        changed = _other_code(provenance)
        if changed:
            raise not_exact(changed, at_start=True)


def _other_code(provenance: Mapping[str, Any]) -> list[str]:
    """Return what differs from the machine, the libraries and the code of a run's beginning."""
    machine, packages = provenance.get("machine"), provenance.get("packages")
    before = {**_mapping(machine), **_mapping(packages)}
    now = {**machine_fingerprint(), **{name: package_version(name) for name in PACKAGES}}
    names = {*before} & {*now} - {*_WITHOUT_EFFECT, "cores", "system"}
    reasons = [
        printable(f"{name} was {before[name]}, is {now[name]}")
        for name in sorted(names)
        if before[name] != now[name]
    ]
    commit, here = _mapping(provenance.get("git")).get("commit"), code_state(_HERE).get("commit")
    if commit and here and commit != here:
        reasons.append(printable(f"the commit of rlzoo_plus was {commit}, is {here}"))
    return reasons


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
