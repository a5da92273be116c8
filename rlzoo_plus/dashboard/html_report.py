"""A report of runs as one HTML file: it needs no network, runs no script, and loads nothing.

Names, values and messages of runs come from elsewhere: every text is escaped, and a content
security policy forbids what escaping might miss. Plots are images, in which SVG runs no script.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rlzoo_plus import __version__
from rlzoo_plus.analysis.charts import profile_figure, scores_figure
from rlzoo_plus.analysis.comparison_report import compare_sides
from rlzoo_plus.analysis.curves import curves_figure
from rlzoo_plus.analysis.estimates import few_seeds_text, shown
from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.run_list import COLUMNS, DAMAGED, DIED, cells
from rlzoo_plus.analysis.scores import Side, latest_of_each_seed, make_sides
from rlzoo_plus.analysis.style import rendered
from rlzoo_plus.analysis.tables import HEADS, score_rows
from rlzoo_plus.analysis.variants import differing_keys, shown_value
from rlzoo_plus.artifacts.run_dir import FAILED
from rlzoo_plus.artifacts.secrets import redact, values_of_variables
from rlzoo_plus.artifacts.untrusted import printable, read_json, read_plain_file
from rlzoo_plus.errors import ConfigError

_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
_MOST_LINES, _MOST_ROWS, _MOST_KEYS, _MOST_COLUMNS = 12, 1000, 100, 12
_MOST_SIDES, _MOST_MACHINES, _MOST_VIDEOS = 10, 20, 12
# Of one video, and of all: a browser holds the whole file in memory, base64 being a third longer.
LARGEST_VIDEO_BYTES, LARGEST_VIDEOS_BYTES = 2**24, 2**26
_VIDEOS = {".mp4": "video/mp4", ".gif": "image/gif"}
_ABOUT = ("git", "python", "packages", "engine", "machine")
_EMBEDDED = re.compile(r'(src="data:[^"]*")')
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 76rem; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: 0; overflow-wrap: anywhere; }
h2 { margin-top: 2.4rem; font-size: 1.25rem; border-bottom: 1px solid #ddd; }
th { white-space: nowrap; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #eee;
  vertical-align: top; overflow-wrap: anywhere; max-width: 34rem; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
img, video { max-width: 100%; height: auto; }
figure { display: inline-block; margin: 0 1rem 1rem 0; max-width: 30rem; vertical-align: top; }
.faint { color: #666; } .note { background: #fff6dd; padding: .4rem .8rem; }
"""


def html_report(title: str, runs: Sequence[RunEntry], folders: Iterable[Path] = ()) -> str:
    """Return the report as HTML.

    Damaged runs are listed with their reason, and so are the failed jobs of folders that are
    sweeps.
    """
    secrets = values_of_variables()
    sides, notes = make_sides({"": runs})
    parts = [
        _overview(title, runs),
        _section("Failures", _failures(runs, folders)),
        _section("Learning curves", _curves(runs, sides)),
        _section("Scores", _scores(sides)),
        _section("Comparison", _comparison(sides)),
        _section("Best and worst seed", _videos(sides)),
        _section("Configuration", _configuration(runs)),
        _section("Provenance", _provenance(runs)),
        _section("Runs", _runs(runs)),
        _section("Left out of the scores", _list(notes)),
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    body = "".join(parts)
    # Every second piece is a picture or a video.
    pieces = _EMBEDDED.split(body)
    pieces[::2] = [redact(piece, secrets) for piece in pieces[::2]]
    return head + "".join(pieces) + "</body>\n</html>\n"


def _overview(title: str, runs: Sequence[RunEntry]) -> str:
    counts = Counter(run.summary.state for run in runs)
    told = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return (
        f"<h1>{_text(title)}</h1>\n<p>{len(runs)} runs: {_text(told)}.</p>\n"
        f'<p class="faint">rlzoo-plus {_text(__version__)}, {when}</p>\n'
    )


def _failures(runs: Sequence[RunEntry], folders: Iterable[Path]) -> str:
    rows = [
        (run.summary.state, str(run.summary.path), run.reason)
        for run in runs
        if run.summary.state in (FAILED, DIED, DAMAGED)
    ]
    listed = {Path(path).resolve() for _, path, _ in rows}
    for folder in folders:
        jobs = read_json(folder / "sweep.json").get("jobs")
        for job in jobs if isinstance(jobs, list) else []:
            if not isinstance(job, Mapping) or job.get("state") != FAILED:
                continue
            path = folder / printable(job.get("path"))
            # A job may fail before it makes a run.
            if path.resolve() not in listed:
                rows.append((FAILED, str(path), printable(job.get("reason"))))
    return _table(("state", "run", "reason"), rows[:_MOST_ROWS]) if rows else ""


def _curves(runs: Sequence[RunEntry], sides: Sequence[Side]) -> str:
    drawn = [run for run in runs if run.evaluations]
    if not drawn:
        return "<p>No run has an evaluation yet.</p>\n"
    drawn, _ = latest_of_each_seed(drawn)
    note, by_score = "", _ranked(sides)
    variants = {(run.algo, run.variant) for run in drawn}
    if len(variants) > _MOST_LINES and by_score:
        seeds = [by_seed for side in by_score[:_MOST_LINES] for by_seed in side.runs.values()]
        best = {run.variant for by_seed in seeds for run in by_seed.values()}
        drawn = [run for run in drawn if run.variant in best]
        note = f"<p>The {_MOST_LINES} variants with the highest final score are shown.</p>\n"
    try:
        return note + _picture(curves_figure(drawn, among=runs), "learning curves")
    except ConfigError as error:
        return _note(str(error))


def _scores(sides: Sequence[Side]) -> str:
    if not sides:
        return "<p>No run is finished yet.</p>\n"
    found = score_rows(sides)
    rows = [
        (env, name, str(n), shown(a, with_n=False), shown(b, with_n=False))
        for env, name, n, a, b in found
    ]
    text = _table(HEADS, rows[:_MOST_ROWS])
    few = few_seeds_text([n for _, _, n, *_ in found])
    text += _note(few) if few else ""
    if 1 < len(sides) <= _MOST_LINES:
        text += _picture(scores_figure(sides), "final scores")
        # If there is none, the comparison says why.
        with contextlib.suppress(ConfigError):
            text += _picture(profile_figure(sides), "performance profile")
    return text


def _comparison(sides: Sequence[Side]) -> str:
    if len(sides) < 2:
        return ""
    told = ""
    if len(sides) > _MOST_SIDES:
        sides = _ranked(sides)[:_MOST_SIDES]
        told = f"<p>The {_MOST_SIDES} variants with the highest final score are compared.</p>\n"
    try:
        report = compare_sides(sides)
    except ConfigError as error:
        return _note(str(error))
    rows = []
    for pair in report.pairs:
        for row in pair.rows:
            found, is_last = row.comparison, row is pair.rows[-1]
            interval = "-" if found.low is None else f"[{found.low:+.4g}, {found.high:+.4g}]"
            p = "-" if pair.p_holm is None else f"{pair.p_holm:.2g}"
            more = {0: "", None: "-"}.get(pair.more_seeds, f"about {pair.more_seeds}")
            rows.append(
                (
                    *(pair.first, pair.second, row.env),
                    *(f"{found.difference:+.4g}", interval, f"{found.probability:.2f}"),
                    *((p, pair.decision, more) if is_last else ("", "", "")),
                )
            )
    heads = ("first", "second", "environment", "difference of IQM", "95 %", "P(first higher)")
    text = told + _table((*heads, "p (Holm)", "decision", "more seeds"), rows)
    return text + "".join(map(_note, report.warnings))


def _videos(sides: Sequence[Side]) -> str:
    figures: list[str] = []
    notes: list[str] = []
    size = 0
    for side in sides:
        for env, by_seed in side.runs.items():
            ranked = sorted(by_seed.values(), key=lambda run: run.summary.final or 0.0)
            ends = {"best": ranked[-1], "worst": ranked[0]} if ranked[1:] else {"best": ranked[0]}
            for which, run in ends.items():
                what = f"{side.name} on {env}, {which} seed ({run.summary.seed})"
                what += f": {run.summary.final:.4g}"
                if (video := _video_of(run)) is None:
                    continue
                if len(figures) == _MOST_VIDEOS:
                    return "".join(figures) + _list([*notes, "More videos are left out."])
                try:
                    data = read_plain_file(video, LARGEST_VIDEO_BYTES)
                except (OSError, ValueError) as error:
                    notes.append(f"{what}: {video.name} is left out: {error}")
                    continue
                size += len(data)
                if size > LARGEST_VIDEOS_BYTES:
                    notes.append(f"{what}: left out, all videos would be too large")
                    continue
                figures.append(_figure(data, _VIDEOS[video.suffix], what))
    if not figures and not notes:
        return "<p>No run has a video. <code>rlzoo-plus record RUN</code> makes one.</p>\n"
    return "".join(figures) + _list(notes)


def _video_of(run: RunEntry) -> Path | None:
    folder = run.run.videos
    if folder.is_symlink() or not folder.is_dir():
        return None
    found = sorted(path for path in folder.iterdir() if path.suffix in _VIDEOS)
    # The run itself writes best.mp4.
    return next((path for path in found if path.stem == "best"), found[-1] if found else None)


def _figure(data: bytes, kind: str, caption: str) -> str:
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    media = f'<video controls loop src="{source}"></video>'
    if kind.startswith("image/"):
        media = f'<img alt="{_text(caption)}" src="{source}">'
    return f"<figure>{media}<figcaption>{_text(caption)}</figcaption></figure>\n"


def _configuration(runs: Sequence[RunEntry]) -> str:
    variants: dict[str, RunEntry] = {}
    for run in runs:
        if run.values:
            variants.setdefault(run.variant, run)
    members = list(variants.values())
    if not members:
        return ""
    if len(members) == 1:
        return _details("All keys that affect results", members[0].values)
    keys = differing_keys([run.values for run in members])
    columns = members[:_MOST_COLUMNS]
    names = [f"{run.algo} on {run.env}" for run in columns]
    rows = [(key, *(_value_of(key, run.values) for run in columns)) for key in keys]
    text = _table(("key", *names), rows[:_MOST_KEYS])
    text += _left_out(len(members) - len(columns), "variants")
    common = {k: v for k, v in members[0].values.items() if k not in keys}
    return text + _details("Keys that all variants share", common)


def _details(title: str, values: Mapping[str, Any]) -> str:
    rows = [(key, _value_of(key, values)) for key in values]
    inside = _table(("key", "value"), rows)
    return f"<details><summary>{_text(title)}</summary>\n{inside}</details>\n"


def _provenance(runs: Sequence[RunEntry]) -> str:
    found: dict[str, list[str]] = {}
    for run in runs[:_MOST_ROWS]:
        about = run.run.read_provenance()
        kept = {key: about[key] for key in _ABOUT if about.get(key)}
        git = kept.get("git")
        if isinstance(git, Mapping):
            kept["git"] = {key: git.get(key) for key in ("commit", "dirty")}
        text = json.dumps(kept, sort_keys=True)
        found.setdefault(text, []).append(str(run.summary.path))
    rows = []
    for text, paths in list(found.items())[:_MOST_MACHINES]:
        about = json.loads(text)
        told = [_value(about.get(key, "-")) for key in _ABOUT]
        rows.append((str(len(paths)), *told, paths[0]))
    heads = ("runs", "code", "Python", "packages", "engine", "machine", "e.g.")
    return _table(heads, rows) + _left_out(len(found) - len(rows), "kinds")


def _runs(runs: Sequence[RunEntry]) -> str:
    rows = [(*cells(run.summary), run.reason) for run in runs[:_MOST_ROWS]]
    return _table((*COLUMNS, "reason"), rows) + _left_out(len(runs) - len(rows), "runs")


def _left_out(count: int, what: str) -> str:
    return f"<p>{count:,} more {what} are left out.</p>\n" if count > 0 else ""


def _ranked(sides: Sequence[Side]) -> list[Side]:
    def highest(side: Side) -> float:
        return max(score for env in side.runs for score in side.scores(env, "final"))

    return sorted(sides, key=highest, reverse=True)


def _picture(figure: Any, what: str) -> str:
    data = base64.b64encode(rendered(figure, "svg")).decode()
    return f'<p><img alt="{_text(what)}" src="data:image/svg+xml;base64,{data}"></p>\n'


def _section(title: str, content: str) -> str:
    return f"<h2>{_text(title)}</h2>\n{content}" if content else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{_text(head)}</th>" for head in heads)]
    lines += ["".join(map(_cell, row)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table>\n{body}\n</table></div>\n'


def _cell(text: str) -> str:
    is_number = text[:1] in "+-0123456789" and len(text) < 40
    return f'<td class="number">{_text(text)}</td>' if is_number else f"<td>{_text(text)}</td>"


def _list(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(text)}</li>\n" for text in texts[:_MOST_ROWS])
    return f"<ul>\n{items}</ul>\n" if items else ""


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>\n'


def _value_of(key: str, values: Mapping[str, Any]) -> str:
    return shown_value(key, values.get(key, "-"), 400)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _text(text: object) -> str:
    """Return text that is shown as it is, without control characters."""
    return escape(printable(text, 2000), quote=True)
