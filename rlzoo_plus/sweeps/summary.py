"""The outcome of a sweep: a robust mean over seeds for each algorithm, environment and setting."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.estimates import Estimate, estimate, few_seeds_text, shown
from rlzoo_plus.analysis.tables import markdown_table
from rlzoo_plus.analysis.variants import settings_labels, variant_key, variant_values
from rlzoo_plus.artifacts.atomic import write_atomic, write_json
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.sweeps.states import JobState, JobView, tell_causes

_HEADS = (
    *("environment", "algorithm", "settings", "done", "failed", "open"),
    *("best", "final", "best run"),
)
# Environment, algorithm, and the variant's key.
_Key = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """All seeds of one algorithm with one set of values on one environment."""

    env: str  # name of the environment
    algo: str  # name of the algorithm
    settings: str  # the values that differ from other rows of this algorithm and environment
    n_done: int  # number of finished runs
    n_failed: int  # number of failed runs
    n_open: int  # number of runs that wait or run
    best: Estimate | None  # over the mean returns of the best evaluations, None if nothing is known
    # Over the mean returns of the last evaluations, None if nothing is known.
    final: Estimate | None
    best_run: str | None  # path of the run with the highest mean return, below the sweep
    time_s: float  # training time of all of them together [s]


def summarise(views: list[JobView]) -> list[Row]:
    """Return a row for each algorithm, environment and setting, in the order of the jobs."""
    groups: dict[_Key, list[JobView]] = {}
    variants: dict[_Key, dict[str, Any]] = {}
    for view in views:
        config = view.job.config
        values = variant_values(config.model_dump(mode="json"))
        key = (str(config.env.name), config.algo.name, variant_key(values))
        variants.setdefault(key, values)
        groups.setdefault(key, []).append(view)
    settings = settings_labels(variants)
    rows = []
    for key, group in groups.items():
        done = [view for view in group if view.state is JobState.DONE]
        known = [(view.best, view.job.key) for view in done if view.best is not None]
        n_failed = sum(view.state is JobState.FAILED for view in group)
        rows.append(
            Row(
                env=key[0],
                algo=key[1],
                settings=settings[key],
                n_done=len(done),
                n_failed=n_failed,
                n_open=len(group) - len(done) - n_failed,
                best=estimate([view.best for view in done]),
                final=estimate([view.final for view in done]),
                best_run=max(known)[1] if known else None,
                time_s=round(sum(view.time_s or 0.0 for view in done), 3),
            )
        )
    return rows


def write_summary(sweep: Path, views: list[JobView], rows: list[Row]) -> list[Path]:
    """Write sweep.json, summary.csv and summary.md; return their paths."""
    files = [sweep / "sweep.json", sweep / "summary.csv", sweep / "summary.md"]
    write_json(files[0], as_data(sweep, views, rows))
    text, table = io.StringIO(), as_table(rows)
    writer = csv.DictWriter(text, list(table[0]) if table else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomic(files[1], text.getvalue())
    write_atomic(files[2], _markdown(sweep, views, rows))
    return files


def as_data(sweep: Path | str, views: list[JobView], rows: list[Row]) -> dict[str, Any]:
    """Return the state of a sweep as plain data."""
    return {
        "sweep": str(sweep),
        "counts": {str(state): sum(v.state is state for v in views) for state in JobState},
        "jobs": [job_data(view) for view in views],
        "summary": [asdict(row) for row in rows],
    }


def job_data(view: JobView) -> dict[str, Any]:
    """Return the state and results of a job as plain data."""
    config = view.job.config
    return {
        "path": view.job.key,
        "env": config.env.name,
        "algo": config.algo.name,
        "seed": config.seed,
        "state": str(view.state),
        "reason": view.reason,
        "steps": view.progress.steps,
        "n_timesteps": config.n_timesteps,
        "steps_per_s": view.progress.rate,
        "best": view.best,
        "final": view.final,
        "time_s": view.time_s,
        "command": view.job.command,
    }


def few_seeds_note(rows: list[Row]) -> str | None:
    """Return a warning if a row is over too few seeds, None if none is."""
    return few_seeds_text([row.best.n for row in rows if row.best is not None])


def as_table(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the rows with plain columns, those of summary.csv."""
    parts = ("iqm", "low", "high", "lowest", "highest")
    table = []
    for row in rows:
        record = asdict(row)
        behind = {key: record.pop(key) for key in ("best_run", "time_s")}
        for which, each in (("best", row.best), ("final", row.final)):
            del record[which]
            record |= {f"{which}_{part}": getattr(each, part, None) for part in parts}
        table.append(record | behind)
    return table


def _cells(row: Row) -> list[str]:
    cells = [row.env, row.algo, row.settings, row.n_done, row.n_failed, row.n_open]
    cells += [shown(row.best), shown(row.final), row.best_run or ""]
    return [str(cell).replace("|", "\\|") for cell in cells]


def _markdown(sweep: Path, views: list[JobView], rows: list[Row]) -> str:
    lines = [
        f"# Sweep {printable(sweep.name)}",
        "",
        "Mean returns of evaluations: interquartile mean over seeds [95 % bootstrap interval].",
        *([note] if (note := few_seeds_note(rows)) else []),
        "",
        *markdown_table(_HEADS, map(_cells, rows)),
    ]
    failed = [view for view in views if view.state is JobState.FAILED]
    if failed:
        lines += ["", "## Failed", ""]
        lines += [f"- {line}" for line in tell_causes((v.reason for v in failed), len(views))]
        lines += ["", *(f"- `{view.job.key}`: {view.reason}" for view in failed)]
    return "\n".join(lines) + "\n"
