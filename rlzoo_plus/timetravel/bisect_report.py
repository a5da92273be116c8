"""What `bisect` shows: a short text about the update it found, and a JSON file with all of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.artifacts.atomic import map_leaves, write_json
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.timetravel.bisection import Finding
from rlzoo_plus.timetravel.update_probe import Range, Update

_MOST_LAYERS = 6


def text_of(found: Finding) -> str:
    """Return the finding as text: where it is, and what changed around it."""
    where = f"iteration {found.iteration:,}, step {found.step:,}"
    if not found.iteration:
        head = f"{found.condition}: before the first update"
    elif found.held_in == "update":
        head = f"{found.condition}: first after the update of {where}"
    elif found.held_in == "log":
        head = f"{found.condition}: first in the log after the update of {where}"
    else:
        last = found.updates[-1] if found.updates else None
        during = last is not None and last.raised is not None
        head = f"{found.condition}: {'in' if during else 'after'} the update of {where}"
    if found.value is not None:
        head += f", where it is {found.value:.6g}"
    lines = [head]
    lines += [f"the run ended: {printable(found.message)}"] if found.message else []
    if not found.is_first:
        lines.append("it may have held before that checkpoint: --from-start looks at every update")
    replays = f"{found.replays} replay{'s' if found.replays > 1 else ''}"
    lines.append(
        f"{replays} of {found.replayed:,} updates, from step {found.start:,}; "
        f"{found.checkpoints} checkpoints read; {found.compared:,} logged values the same"
    )
    if found.updates:
        lines += ["", *aligned(list(_rows(found.updates)))]
    return "\n".join(lines)


def write_report(found: Finding, path: Path) -> None:
    """Write the finding as JSON; NaN and infinities are texts."""
    write_json(path, map_leaves(asdict(found), _as_json))


def _as_json(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _rows(updates: list[Update]) -> Iterator[tuple[str, ...]]:
    yield "", *(f"iteration {update.iteration:,}" for update in updates)
    for name in updates[-1].learning_rates:
        yield f"learning rate, {name}", *(_short(u.learning_rates[name]) for u in updates)
    for name in sorted({name for u in updates for name in u.values if name.startswith("train/")}):
        yield name, *(_short(u.values.get(name)) for u in updates)
    for name in updates[-1].batch:
        yield f"batch, {name}", *(_range(u.batch.get(name)) for u in updates)
    yield "gradient steps", *(str(u.gradient_steps) for u in updates)
    for name in _most(updates[-1], lambda u, n: u.gradients[n].largest_norm, "gradients"):
        yield f"gradient norm, {name}", *(_gradient(u, name) for u in updates)
    for name in _most(updates[-1], lambda u, n: u.weights[n].largest_change, "weights"):
        yield f"weights, {name}", *(_weight(u, name) for u in updates)


def _most(update: Update, size: Any, part: str) -> list[str]:
    """Return the parameters with the largest numbers, those that are not finite first."""

    def rank(name: str) -> tuple[bool, float]:
        value = size(update, name)
        is_lost = not math.isfinite(value) or (
            update.gradients[name].not_finite_at is not None
            if part == "gradients"
            else bool(update.weights[name].not_finite)
        )
        return is_lost, value if math.isfinite(value) else 0.0

    return sorted(getattr(update, part), key=rank, reverse=True)[:_MOST_LAYERS]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _range(found: Range | None) -> str:
    if found is None or not found.count:
        return "-"
    lost = f", {found.not_finite:,} of {found.count:,} not finite" if found.not_finite else ""
    return f"{found.low:.4g} to {found.high:.4g}{lost}"


def _gradient(update: Update, name: str) -> str:
    found = update.gradients.get(name)
    if found is None:
        return "-"
    lost = "" if found.not_finite_at is None else f", not finite at step {found.not_finite_at}"
    return f"{found.largest_norm:.4g}{lost}"


def _weight(update: Update, name: str) -> str:
    found = update.weights.get(name)
    if found is None:
        return "-"
    lost = f", {found.not_finite:,} not finite" if found.not_finite else ""
    return f"norm {found.norm:.4g}, change {found.largest_change:.4g}{lost}"
