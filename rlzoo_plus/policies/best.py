"""Finds the best run of a store: a shortlist by the figures on record, then held-out episodes.

What runs recorded is only used to choose which policies play: the highest of many figures is high
by chance, too. Every figure that is reported comes from fresh episodes, the same for all.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np

from rlzoo_plus.analysis.find_run import Place
from rlzoo_plus.analysis.progress import numbers_of
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.analysis.statistics import Statistic, iqm, stratified_bootstrap_ci
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import LARGEST_STEP
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.runs.run import Run
from rlzoo_plus.store.cache import copy_of_run
from rlzoo_plus.store.contract import ArtifactStore, is_name, open_store
from rlzoo_plus.store.lease import ENDED, FINISHED, RELEASED, RUNNING
from rlzoo_plus.store.live import LiveRecord, LiveRecords
from rlzoo_plus.store.mirror import RUNS
from rlzoo_plus.store.submissions import split_sweep_url

# Of an evaluation's record, and of what each episode is worth.
METRICS = {"iqm": "iqm_return", "mean": "mean_return", "success": "success_rate"}
# An interval from fewer says little.
FEWEST_EPISODES = 20
_STATES = (RUNNING, RELEASED, *ENDED)
_MOST_SHOWN, _LONGEST_NAME = 8, 60
# A shortlisted run that cannot be played makes room for the next, so many times for each place.
_TRIES = 3


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class Candidate:
    """A finished run, as its worker recorded it; nothing of it is checked."""

    run: str  # Its name in the store
    algo: str  # Its name
    env: str  # Its name
    seed: int | None  # None if it is not recorded
    steps: int | None  # Environment steps taken, None if they are not recorded
    recorded: float  # The metric of its best evaluation while it was trained


@dataclass(frozen=True)
class Played:
    """A candidate and what its policy reached here."""

    candidate: Candidate  # What is on record
    which: str  # The policy that played: `best`, or `final` where no best one was kept
    # The metric's value of each episode, in the order of their seeds, shape (n,)
    values: np.ndarray
    score: Interval  # The metric over the episodes
    # How far it is behind the first: the first's metric minus its own, with the interval of paired
    # episodes; None for the first
    behind: Interval | None = None


@dataclass(frozen=True)
class Best:
    """The best run of a store."""

    store: ArtifactStore
    metric: str  # A key of `METRICS`
    played: list[Played]  # The runs that played, best first
    n_tied: int  # How many of the first ones cannot be told apart; 1 if the first is the best
    winner: Played  # The first, or the one of those tied with the best record
    notes: list[str] = field(default_factory=list)  # What else to know, a line each


def find_best(
    url: str,
    *,
    algo: str | None = None,
    env: str | None = None,
    metric: str = "iqm",
    top: int = 3,
    episodes: int = 100,
    trust: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Best:
    """Find the best finished run of one environment in a store or in a sweep.

    Args:
        url: `STORE` or `STORE/SWEEP`.
        algo: Only runs of this algorithm.
        env: Only runs on this environment; needed where there are several.
        metric: `iqm`, `mean` (of returns) or `success` (the rate).
        top: How many runs play, the best ones by their records.
        episodes: How many each plays: held-out ones, the same for all.
        trust: Import what this project does not ship where a run needs it.
        say: Called with lines on how far it is.

    Raises:
        ConfigError: No run matches, none can be played, or one needs trust.
        StoreError: The store cannot be read.
    """
    if metric not in METRICS:
        raise ConfigError(f"metric={printable(metric)} is none of {', '.join(METRICS)}.")
    if top < 1 or episodes < FEWEST_EPISODES:
        least = f"must be at least 1 and {FEWEST_EPISODES}"
        raise ConfigError(f"top={top} and episodes={episodes} {least}.")
    store, records = _read(url)
    matching = _matching(records, {"algo": algo, "env": env}, store.url)
    ranked = _ranked(matching, metric)
    others = Counter(_state(record) for record in matching if record.state != FINISHED)
    also = f"; not finished: {_counted(others)}" if others else ""
    n_finished = len(matching) - others.total()
    say(f"{n_finished} finished run{'s' * (n_finished != 1)} on {ranked[0].env}{also}")
    played: list[Played] = []
    environments: list[dict[str, Any]] = []
    notes: list[str] = []
    for candidate in ranked[: top * _TRIES]:
        if len(played) == top:
            break
        say(f"playing {episodes} held-out episodes with {candidate.run}")
        try:
            path = copy_of_run(store, candidate.run)
            place = Place(path, url=f"{store.url}/{RUNS}/{candidate.run}")
            run = Run(place, trust=trust)
            _check_record(candidate, run)
        except (ConfigError, RunError, DamagedFolderError) as error:
            notes.append(f"left out: {candidate.run}: {one_line(error)}")
            continue
        # Without this run, another one would be called the best.
        run.require_trust()
        try:
            played.append(_play(run, candidate, metric, episodes))
            environments.append(run.config.env.model_dump())
        # ValueError: a policy that does not fit its environment.
        except (ValueError, RunError) as error:
            notes.append(f"left out: {candidate.run}: {one_line(error)}")
    if not played:
        raise ConfigError(f"{printable(url)}: no run can be played. {notes[0]}.")
    differing = [key for key in environments[0] if len({str(e[key]) for e in environments}) > 1]
    if differing:
        notes.append(f"their environments differ ({', '.join(differing)}), so figures do, too")
    return _compare(store, metric, played, notes)


def _read(url: str) -> tuple[ArtifactStore, dict[str, LiveRecord]]:
    """Return the store at a URL, which may name a sweep in it, and the records of its runs."""
    store = open_store(url)
    records = LiveRecords(store).read()
    if not records:
        with contextlib.suppress(ConfigError):
            parent, sweep = split_sweep_url(url)
            store = open_store(parent)
            records = LiveRecords(store, sweep).read()
    if not records:
        raise ConfigError(f"{printable(url)} has no runs. `rlzoo-plus ls STORE` lists them.")
    return store, records


def _matching(
    records: Mapping[str, LiveRecord], wanted: Mapping[str, str | None], url: str
) -> list[LiveRecord]:
    """Return the records of the wanted runs, which are all on one environment."""
    known = [r for r in records.values() if all(_text(r, name) for name in wanted)]
    given = {name: value for name, value in wanted.items() if value is not None}
    found = [r for r in known if all(_text(r, name) == given[name] for name in given)]
    there = _counted(Counter(f"algo={_text(r, 'algo')} env={_text(r, 'env')}" for r in known))
    if not any(record.state == FINISHED for record in found):
        asked = " ".join(f"{name}={printable(value)}" for name, value in given.items())
        raise ConfigError(
            f"{printable(url)} has no finished run{asked and f' of {asked}'}. "
            + (f"There are: {there}." if there else "Its records name no environments.")
        )
    if len({_text(record, "env") for record in found}) > 1:
        raise ConfigError(f"{printable(url)}: name one environment, env=NAME. There are: {there}.")
    return found


def _ranked(records: list[LiveRecord], metric: str) -> list[Candidate]:
    """Return the finished runs with a figure on record, the highest first."""
    found = []
    for record in records:
        evaluation = numbers_of(record.record.get("best")) or numbers_of(record.record.get("final"))
        recorded = evaluation.get(METRICS[metric])
        is_sound = recorded is not None and (metric != "success" or 0 <= recorded <= 1)
        if record.state == FINISHED and recorded is not None and is_sound and is_name(record.run):
            seed, steps = (_whole(record.record.get(name)) for name in ("seed", "steps"))
            algo, env = _text(record, "algo"), _text(record, "env")
            found.append(Candidate(record.run, algo, env, seed, steps, recorded))
    if not found:
        raise ConfigError(f"none of the finished runs has a {METRICS[metric]} on record.")
    return sorted(found, key=lambda candidate: (-candidate.recorded, candidate.run))


def _whole(value: object) -> int | None:
    number = finite(value)
    # A larger one is none that anybody counted.
    return None if number is None or abs(number) > LARGEST_STEP else int(number)


def _text(record: LiveRecord, name: str) -> str:
    value = record.record.get(name)
    return printable(value, _LONGEST_NAME) if isinstance(value, str) else ""


def _counted(counts: Counter[str]) -> str:
    shown = [f"{name} ({count})" for name, count in counts.most_common(_MOST_SHOWN)]
    return ", ".join(shown + ["..."] * (len(counts) > _MOST_SHOWN))


def _state(record: LiveRecord) -> str:
    return record.state if record.state in _STATES else "damaged"


def _check_record(candidate: Candidate, run: Run) -> None:
    config = run.config
    if (config.algo.name, str(config.env.name)) != (candidate.algo, candidate.env):
        own = f"{printable(config.algo.name)} on {printable(config.env.name)}"
        raise ConfigError(f"its record says {candidate.algo} on {candidate.env}, and it is {own}")


def _play(run: Run, candidate: Candidate, metric: str, episodes: int) -> Played:
    which = "best" if run.run_dir.best.is_dir() else "final"
    record = run.evaluate(episodes, which=which)
    values = record["successes"] if metric == "success" else record["returns"]
    if None in values:
        raise ConfigError("its environment does not report success")
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ConfigError("a return is not finite")
    statistic = _statistic(metric)
    low, high = stratified_bootstrap_ci([array], statistic)
    return Played(candidate, which, array, Interval(statistic(array), low, high))


def _compare(store: ArtifactStore, metric: str, played: list[Played], notes: list[str]) -> Best:
    """Order what was played, and see which of the first ones cannot be told apart."""
    statistic = _statistic(metric)
    first, *rest = sorted(played, key=lambda p: (-p.score.value, -p.candidate.recorded))
    ordered = [first]
    for other in rest:
        # Both columns are resampled together: episode by episode, they began alike.
        pairs = np.stack([first.values, other.values], axis=1)
        low, high = stratified_bootstrap_ci(
            [pairs], lambda drawn: statistic(drawn[:, 0]) - statistic(drawn[:, 1])
        )
        behind = Interval(first.score.value - other.score.value, low, high)
        ordered.append(replace(other, behind=behind))
    tied = [first, *takewhile(lambda p: p.behind is not None and p.behind.low <= 0, ordered[1:])]
    winner = max(tied, key=lambda p: p.candidate.recorded)
    return Best(store, metric, ordered, len(tied), winner, notes)


def _statistic(metric: str) -> Statistic:
    return iqm if metric == "iqm" else np.mean
