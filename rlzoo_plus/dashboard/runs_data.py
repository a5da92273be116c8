"""What the pages show of all runs, and of one, as plain data for JSON."""

from __future__ import annotations

import contextlib
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.progress import read_progress
from rlzoo_plus.analysis.run_list import duration
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.analysis.variants import differing_keys, settings_labels, shown_value
from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import INTERRUPTED, RUNNING, RunDir
from rlzoo_plus.artifacts.secrets import is_secret, redact
from rlzoo_plus.artifacts.untrusted import printable, read_plain_file
from rlzoo_plus.dashboard.annotations import read_annotations
from rlzoo_plus.dashboard.series_data import MEAN_RETURN, logged_names
from rlzoo_plus.dashboard.source import Source

MOST_VIDEO_BYTES = 2**28
_POINTS_OF_A_SPARK, _DIGITS = 24, 5
_MOST_SETTINGS_OF_A_VARIANT = 80
_LARGEST_COMMAND_BYTES = 2**16
PRUNED = "pruned"
# Said by the columns env and algo.
_SAID = {"env.name": "env.name", "env.id": "env.name", "env.packages": "env.name"}
_SAID |= {"algo.name": "algo.name", "algo.packages": "algo.name"}
_TRIAL = re.compile(r"/trials/(\d{1,12})(/|$)")
_VIDEO = re.compile(r"[\w.+-]{1,100}\.mp4")
_SHORT = {
    **{"learning_rate": "lr", "batch_size": "batch", "buffer_size": "buffer"},
    **{"gradient_steps": "grad_steps", "gradient_clip": "clip", "total_timesteps": "steps"},
}


def runs_data(source: Source, *, all_of_them: bool = False) -> dict[str, Any]:
    """Return all runs and their variants, and how many runs are still to be read."""
    runs = source.runs(all_of_them=all_of_them)
    entries = list(runs.values())
    by_variant: dict[str, RunEntry] = {run.variant: run for run in entries}
    values = [run.values for run in by_variant.values()]
    keys = [key for key in differing_keys(values) if not _is_said(key, values)]
    keys = keys[:_MOST_SETTINGS_OF_A_VARIANT]
    variants = {
        name[:8]: {key: _plain(key, run.values[key]) for key in keys if key in run.values}
        for name, run in by_variant.items()
    }
    parents = {run_id: source.parent_of(run) for run_id, run in runs.items()}
    # Names say what differs within a folder: there, somebody has varied it.
    inside: dict[Path, dict[str, Any]] = defaultdict(dict)
    for run_id, (parent, _) in parents.items():
        inside[parent][runs[run_id].variant] = runs[run_id].values
    labels = {parent: settings_labels(values) for parent, values in inside.items()}
    rows = []
    for run_id, run in runs.items():
        parent, kind = parents[run_id]
        if kind == "folder" and len(inside[parent]) > 1 and parent != source.folder:
            kind = "sweep"
        trial = _TRIAL.search(run.summary.path.as_posix()) if kind == "study" else None
        label = labels[parent][run.variant]
        name = variant_name(run.algo, label) if trial is None else f"trial {int(trial[1])}"
        rows.append(
            {
                "id": run_id,
                "name": name,
                "folder": "." if parent == source.folder else source.shown(parent),
                "kind": kind,
                "parent": source.id_of(parent),
                "path": source.shown(run.summary.path),
                **_run_data(run, is_trial=trial is not None),
            }
        )
    studies = [{"id": key, "name": source.shown(path)} for key, path in source.studies().items()]
    return {
        "place": printable(source.url or source.folder),
        "left": source.index.n_left,
        "keys": keys,
        "variants": variants,
        "runs": rows,
        "studies": studies,
    }


def _is_said(key: str, values: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a setting follows from the name of the environment or of the algorithm."""
    if key not in _SAID:
        return False
    by_name = defaultdict(set)
    for each in values:
        by_name[str(each.get(_SAID[key]))].add(str(each.get(key)))
    return all(len(found) == 1 for found in by_name.values())


def _run_data(run: RunEntry, *, is_trial: bool) -> dict[str, Any]:
    about = run.summary
    data: dict[str, Any] = {
        "state": about.state,
        "reason": printable(run.reason),
        "algo": run.algo,
        "env": run.env,
        "seed": about.seed,
        "variant": run.variant[:8],
        "steps": about.steps,
        "of": about.n_timesteps and max(about.n_timesteps, about.steps or 0),
        "best": rounded(about.best),
        "final": rounded(about.final),
        "time": about.wall_time_s and round(about.wall_time_s),
        "started": about.started_at,
        "spark": _spark(run),
        **asdict(read_annotations(run.run)),
    }
    if about.state == INTERRUPTED:
        data["reason"] = printable(run.run.read_status().get("message") or "")
        # A trial ends by a signal, or by its pruner.
        if is_trial and data["reason"] and not data["reason"].startswith("stopped by "):
            data["state"] = PRUNED
    if about.state == RUNNING:
        progress = read_progress(run.run)
        total = max(about.n_timesteps or 0, progress.steps)
        left = progress.left_s(total) if total else None
        data |= {"steps": progress.steps, "of": total or None, "rate": rounded(progress.rate)}
        data |= {"left": None if left is None else duration(left)}
    return data


def run_data(source: Source, run_id: str) -> dict[str, Any]:
    """Return the details of one run: all settings, metrics, videos, checkpoints, commands."""
    entry = source.entry(run_id)
    directory = source.directory(run_id, bring=True)
    place = source.address(entry.summary.path)
    provenance = directory.read_provenance()
    git = provenance.get("git")
    code = git if isinstance(git, Mapping) else {}
    facts = {
        "directory": place,
        "python": provenance.get("python"),
        "engine": provenance.get("engine"),
        "commit": code.get("commit"),
        "evaluations": len(entry.evaluations),
    }
    return {
        "id": run_id,
        "settings": {k: shown_value(k, v, 400) for k, v in sorted(entry.values.items())},
        "facts": {name: printable(value) for name, value in facts.items() if value is not None},
        "metrics": [MEAN_RETURN, *(n for n in logged_names(directory) if n != MEAN_RETURN)],
        "videos": [path.name for path in videos(directory)],
        "checkpoints": _checkpoints(directory),
        "command": _command(directory),
        "commands": [
            f"rlzoo-plus enjoy {printable(place)}",
            f"rlzoo-plus record {printable(place)}",
            f"tensorboard --logdir {printable(directory.tensorboard)}",
        ],
    }


def videos(run: RunDir) -> list[Path]:
    """Return the videos of a run, the best policy's first."""
    found = []
    for path in run.videos.glob("*.mp4") if run.videos.is_dir() else ():
        # A link in somebody else's run must not lead out of it.
        with contextlib.suppress(OutsideError):
            check_inside(run.path, path)
            if _VIDEO.fullmatch(path.name) and path.is_file():
                found.append(path)
    small = (path for path in found if path.stat().st_size <= MOST_VIDEO_BYTES)
    return sorted(small, key=lambda path: (path.stem != "best", path.name))


def variant_name(algo: str, label: str) -> str:
    """Return a variant as a person would say it: `sac lr=1e-3, net_arch=[64,64]`."""
    words = []
    for word in label.split(" ") if label else ():
        key, separator, value = word.partition("=")
        section, dot, last = key.rpartition(".")
        words.append(f"{section}{dot}{_SHORT.get(last, last)}{separator}{_short_number(value)}")
    return f"{algo} {', '.join(words)}".rstrip()


def _short_number(text: str) -> str:
    """Return 0.0003 as 3e-4, and other texts as they are."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if math.isfinite(value) and 0 < abs(value) < 0.01:
            mantissa, _, exponent = f"{value:.3e}".partition("e")
            short = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
            return short if len(short) < len(text) else text
        if len(text) > _DIGITS + 2 and "." in text:
            return f"{value:.{_DIGITS}g}"
    return text


def rounded(value: float | None) -> float | None:
    """Return a number with few digits, None for what is not finite."""
    known = finite(value)
    return None if known is None else float(f"{known:.{_DIGITS + 1}g}")


def _spark(run: RunEntry) -> list[list[float | None]]:
    kept: Sequence[Any] = run.evaluations
    if len(kept) > _POINTS_OF_A_SPARK:
        step = (len(kept) - 1) / (_POINTS_OF_A_SPARK - 1)
        kept = [kept[round(step * i)] for i in range(_POINTS_OF_A_SPARK)]
    return [[each.step for each in kept], [rounded(each.mean_return) for each in kept]]


def _plain(key: str, value: Any) -> Any:
    """Return a number as it is, and all else as text; a secret is blanked."""
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and not is_secret(key, value)
    ):
        return value if finite(value) is not None and abs(value) < 2**53 else str(value)
    return shown_value(key, value)


def _checkpoints(run: RunDir) -> list[int]:
    try:
        return list(run.checkpoints().steps())
    except (OSError, ValueError):
        # In an untrusted run, folders can have any name.
        return []


def _command(run: RunDir) -> str:
    try:
        text = read_plain_file(run.command_file, _LARGEST_COMMAND_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
    return "\n".join(redact(printable(line, 2000)) for line in text.splitlines()[-20:])
