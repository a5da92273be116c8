"""`rlzoo-plus audit`: checks and searches the log of what a server decided."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from itertools import islice
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.audit_reading import counted, query, verify

_FIELDS = {"agent": "agent_id"} | {n: n for n in ("session", "version", "source", "event")}


def main(arguments: list[str]) -> int:
    """Run a sub-command; return the exit code."""
    options = _parse(arguments)
    return int(options.action(options))


def _verify(options: argparse.Namespace) -> int:
    found = verify(options.dir, options.head)
    for note in found.notes:
        tell(f"note: {printable(note)}")
    for mistake in found.mistakes:
        tell(f"changed: {printable(mistake)}")
    lost = f"; {found.lost} lost in crashes" if found.lost else ""
    dropped = f"; {found.dropped} decisions left out while the queue was full"
    tell(
        f"{found.lines:,} lines follow each other, up to number {found.last}{lost}"
        f"{dropped if found.dropped else ''}; the last has the hash {found.sha256}"
    )
    return 1 if found.mistakes else 0


def _query(options: argparse.Namespace) -> int:
    wanted = {
        field: value
        for name, field in _FIELDS.items()
        if (value := getattr(options, name)) is not None
    }
    since, until = _seconds(options.since, "--since"), _seconds(options.until, "--until")
    lines = query(
        *(options.dir, wanted),
        since=float("-inf") if since is None else since,
        until=float("inf") if until is None else until,
    )
    if options.count:
        for field, counts in counted(lines).items():
            for value, count in counts.most_common():
                tell(f"{field:<10}{count:>10,}  {printable(value)}")
        return 0
    for line in islice(lines, options.limit):
        tell(json.dumps(line))
    return 0


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigError(
            f"{option} {printable(text)} is no time. Write 2026-11-26 or 2026-11-26T18:30."
        ) from None


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "audit",
        "Check or search the audit log of `rlzoo-plus serve`. Each line holds the hash of the one "
        "before, so that a changed, missing or moved line is found.",
        "verify audit",
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    one = verbs.add_parser("verify", help="check every line; exit code 1 if one was changed")
    one.add_argument("dir", type=Path, metavar="DIR", help="what `serve --audit` was given")
    one.add_argument("--head", metavar="HASH", help="a hash that an earlier check has printed: "
        "also what was rewritten with all that follows is found")  # fmt: skip
    one.set_defaults(action=_verify)
    two = verbs.add_parser("query", help="print lines, as JSON")
    add = two.add_argument
    add("dir", type=Path, metavar="DIR", help="what `serve --audit` was given")
    for name in _FIELDS:
        add(f"--{name}", metavar="NAME", help=f"lines of this {name} only")
    add("--since", metavar="TIME", help="as 2026-11-26T18:30")
    add("--until", metavar="TIME", help="the same")
    add("--limit", type=positive(int), metavar="N", help="at most so many")
    add("--count", action="store_true", help="how many by version, source, agent and event")
    two.set_defaults(action=_query)
    return parser.parse_args(arguments)
