"""What is printed of a registry: versions, moves of aliases, and what differs between two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.models.model_records import AliasRecord, VersionRecord
from rlzoo_plus.models.model_store import ModelStore


def rows_of(store: ModelStore, name: str) -> list[dict[str, Any]]:
    """Return a row for each version of a model, for `table` and for JSON."""
    named, retired = store.named(name), store.retired(name)
    rows = []
    for number in store.versions(name):
        record = store.version(name, number)
        aliases = [alias for alias, moved in named.items() if moved.version == number]
        mean = record.evaluation.get("mean_return")
        rows.append(
            {
                "model": name,
                "version": number,
                **{key: getattr(record, key) for key in ("algo", "env", "step")},
                "mean_return": mean if isinstance(mean, (int, float)) else None,
                **{key: printable(getattr(record, key)) for key in ("time", "who", "why")},
                "aliases": aliases,
                # What an alias names is not retired.
                "retired": number in retired and not aliases,
            }
        )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table."""
    heads = ("model", "algo", "env", "step", "mean return", "registered", "state")
    cells = [
        (
            f"{row['model']}@{row['version']}",
            *(printable(row[key], 60) for key in ("algo", "env")),
            f"{row['step']:,}",
            "-" if row["mean_return"] is None else f"{row['mean_return']:.4g}",
            row["time"][:16],
            _state(row),
        )
        for row in rows
    ]
    return "\n".join(aligned([heads, *cells], ("step", "mean return")))


def model(rows: Sequence[Mapping[str, Any]], moves: Mapping[str, Sequence[AliasRecord]]) -> str:
    """Return the versions of a model, and every move of its aliases."""
    lines = [
        f"{row['model']}@{row['version']}  {row['time'][:16]}  {row['who']}  {_state(row)}".rstrip()
        for row in rows
    ]
    for alias, records in moves.items():
        lines += ["", alias, *(f"  {move(record)}" for record in records)]
    return "\n".join(lines)


def move(record: AliasRecord) -> str:
    """Return a move of an alias as a line."""
    before = "" if record.before is None else f" (was {record.before})"
    text = f"{record.number}. {record.action} to {record.version}{before} {record.time[:19]} by "
    text += record.who + (f": {record.why}" if record.why else "")
    text += f"; FORCED: {record.forced}" if record.forced is not None else ""
    return printable(text, 1000)


def version(name: str, record: VersionRecord, moved: AliasRecord | None) -> str:
    """Return all that is known of a version; `moved` is what named it, if an alias did."""
    of_env = (record.environment or {}).get("version", "not recorded")
    scores = (f"{k} {v:.4g}" for k, v in record.evaluation.items() if isinstance(v, (int, float)))
    rows = [
        ("version", f"{name}@{record.number}" + (f", {move(moved)}" if moved else "")),
        ("policy", f"{record.which} of {record.origin}, step {record.step:,}"),
        ("registered", f"{record.time} by {record.who}"),
        ("why", record.why or "-"),
        ("algorithm", record.algo),
        ("environment", f"{record.env}, version {of_env}"),
        ("evaluation", ", ".join(scores)),
        ("content", record.content),
    ]
    for file, entry in sorted(record.files.items()):
        rows.append((f"  {file}", f"{entry.size:,} bytes, SHA-256 {entry.sha256}"))
    width = max(len(title) for title, _ in rows) + 2
    return "\n".join(f"{title:<{width}}{printable(text)}" for title, text in rows)


def differing(names: Sequence[str], found: Mapping[str, tuple[Any, Any]]) -> str:
    """Return what differs between two versions as a table."""
    if not found:
        return "nothing that decides an outcome, and no score, differs"
    cells = [
        (printable(key, 90), *(printable(value, 60) for value in values))
        for key, values in found.items()
    ]
    return "\n".join(aligned([("", *names), *cells]))


def _state(row: Mapping[str, Any]) -> str:
    return ", ".join([*row["aliases"], *(["retired"] if row["retired"] else [])])
