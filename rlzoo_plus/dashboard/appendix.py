"""A paper's appendix: hyperparameters that differ from the library's, seeds, hours, versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.analysis.tables import markdown_cell, markdown_table, tex_table, tex_text
from rlzoo_plus.analysis.variants import shown_value
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError

_HYPERPARAMS = "algo.hyperparams."
_SECTIONS = ("algo.", "network.", "normalize", "env.wrappers", "env.frame_stack")
# What the library does not choose; told in any case.
_ALWAYS = ("n_timesteps", "n_envs")
_NOT_SETTINGS = ("algo.name", "algo.packages")
_MOST_VALUES, _MOST_KINDS = 4, 10
_AT_DEFAULT = "*"

Defaults = Callable[[str], Mapping[str, Any]]


def appendix(runs: Sequence[RunEntry], kind: str, defaults_of: Defaults) -> str:
    """Return the appendix as `.tex` or `.md`.

    Args:
        runs: Finished ones count.
        kind: `.tex` or `.md`.
        defaults_of: Gives the arguments of an algorithm's constructor with their defaults; empty
            for an algorithm that is not known.
    """
    counted = sorted((run for run in runs if run.is_finished and run.values), key=_algo)
    if not counted:
        raise ConfigError("no run is finished yet. Let the runs go on first.")
    columns = {algo: list(found) for algo, found in groupby(counted, key=_algo)}
    settings = _settings(columns, {algo: defaults_of(algo) for algo in columns})
    effort = [
        ["runs", *(str(len(found)) for found in columns.values())],
        ["seeds", *(_seeds(found) for found in columns.values())],
        ["environments", *(_listed(run.env for run in found) for found in columns.values())],
        ["training time of all runs [h]", *(_hours(found) for found in columns.values())],
    ]
    is_told = any(cell.endswith(_AT_DEFAULT) for row in settings for cell in row)
    caption = "Hyperparameters that differ from the defaults of the library, and what was run."
    caption += f" {_AT_DEFAULT}: the default of the algorithm." if is_told else ""
    if any("lin_" in cell for row in settings for cell in row):
        caption += " lin_x: linear from x to 0 over the training."
    heads, facts = ["", *columns], _facts(counted)
    if kind == ".tex":
        groups = [[list(map(tex_text, row)) for row in group] for group in (settings, effort)]
        aligned = "l" * len(heads)
        text = tex_table(
            aligned, list(map(tex_text, heads)), groups, tex_text(caption), "hyperparameters"
        )
        return text + "".join(f"\n{tex_text(fact)}\n" for fact in facts)
    rows = [list(map(markdown_cell, row)) for row in (*settings, *effort)]
    lines = [markdown_cell(caption), "", *markdown_table(list(map(markdown_cell, heads)), rows)]
    return (
        "\n".join([*lines, *(line for fact in facts for line in ("", markdown_cell(fact)))]) + "\n"
    )


def _algo(run: RunEntry) -> str:
    return run.algo


def _settings(
    columns: Mapping[str, Sequence[RunEntry]], defaults: Mapping[str, Mapping[str, Any]]
) -> list[list[str]]:
    """Return a row for each key that differs from the default for one of the algorithms."""
    keys = dict.fromkeys(key for runs in columns.values() for run in runs for key in run.values)
    rows = []
    for key in keys:
        if key not in _ALWAYS and (key in _NOT_SETTINGS or not key.startswith(_SECTIONS)):
            continue
        name = key.removeprefix(_HYPERPARAMS)
        cells, is_told = [], key in _ALWAYS
        for algo, runs in columns.items():
            found = [run for run in runs if key in run.values]
            known = defaults[algo] if key.startswith(_HYPERPARAMS) else {}
            at_default = [
                _is_same(run.values[key], known[name]) if name in known else _is_unset(key, run)
                for run in found
            ]
            is_told |= not all(at_default)
            cell = _values(key, found) if found else "-"
            cells.append(cell + _AT_DEFAULT if found and all(at_default) else cell)
        if is_told:
            rows.append([name, *cells])
    return rows


def _is_same(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        default = [getattr(part, "value", part) for part in default]
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)


def _is_unset(key: str, run: RunEntry) -> bool:
    """Return whether a key leaves to the library what it does."""
    value = run.values[key]
    if key.startswith("normalize") and value is False:
        return True
    return value in (None, "auto", [], {}) or (key == "env.frame_stack" and value == 1)


def _values(key: str, runs: Sequence[RunEntry]) -> str:
    """Return the values of a key, with their environments where those decide."""
    envs: dict[str, list[str]] = {}
    for run in runs:
        envs.setdefault(shown_value(key, run.values[key]), []).append(run.env)
    if len(envs) > _MOST_VALUES:
        return f"{len(envs)} values"
    named = [(text, sorted(set(found))) for text, found in envs.items()]
    is_decided = sum(len(found) for _, found in named) == len({run.env for run in runs})
    if len(named) == 1 or not is_decided:
        return ", ".join(text for text, _ in named)
    return ", ".join(f"{text} ({', '.join(found)})" for text, found in named)


def _seeds(runs: Sequence[RunEntry]) -> str:
    """Return the seeds of some runs, neighbours as a range: `0 to 4, 7`."""
    seeds = sorted({run.summary.seed for run in runs if run.summary.seed is not None})
    parts = []
    for _, group in groupby(enumerate(seeds), key=lambda pair: pair[1] - pair[0]):
        found = [seed for _, seed in group]
        parts.append(f"{found[0]} to {found[-1]}" if len(found) > 2 else ", ".join(map(str, found)))
    return ", ".join(parts) or "-"


def _hours(runs: Sequence[RunEntry]) -> str:
    known = [finite(run.run.read_result().get("training_time_s")) for run in runs]
    if None in known:
        return "-"
    return f"{sum(seconds or 0.0 for seconds in known) / 3600:.3g}"


def _listed(texts: Iterable[str]) -> str:
    found = sorted(set(texts))
    more = f" and {len(found) - _MOST_VALUES} more" if len(found) > _MOST_VALUES else ""
    return ", ".join(found[:_MOST_VALUES]) + more


def _facts(runs: Sequence[RunEntry]) -> list[str]:
    """Return sentences on the versions and the machines of the runs, each kind once."""
    tellers = {"Software": _software, "Code": _code, "Machine": _machine}
    counts: dict[str, Counter[str]] = {what: Counter() for what in tellers}
    for run in runs:
        about = run.run.read_provenance()
        for what, tell in tellers.items():
            counts[what][tell(about)] += 1
    facts = []
    for what, found in counts.items():
        for text, count in found.most_common(_MOST_KINDS):
            some = f" ({count} of {len(runs)} runs)" if len(found) > 1 else ""
            facts.append(f"{what}{some}: {text or 'not recorded'}.")
        if len(found) > _MOST_KINDS:
            facts.append(f"{what}: {len(found) - _MOST_KINDS} more.")
    return facts


def _software(about: Mapping[str, Any]) -> str:
    packages = about.get("packages")
    parts = [f"Python {printable(about['python'], 40)}"] if about.get("python") else []
    if isinstance(packages, Mapping):
        known = packages.items()
        parts += [f"{printable(k, 60)} {printable(v, 60)}" for k, v in known if isinstance(v, str)]
    if isinstance(engine := about.get("engine"), str):
        parts.append(f"physics engine {printable(engine, 60)}")
    return ", ".join(parts[:40])


def _code(about: Mapping[str, Any]) -> str:
    git = about.get("git")
    if not isinstance(git, Mapping) or not isinstance(git.get("commit"), str):
        return ""
    return f"commit {printable(git['commit'][:12])}" + (" with changes" if git.get("dirty") else "")


def _machine(about: Mapping[str, Any]) -> str:
    machine = about.get("machine")
    if not isinstance(machine, Mapping):
        return ""
    cores = machine.get("cores")
    names = ("processor", "architecture", "system", "gpu")
    parts = [printable(machine[name], 80) for name in names if machine.get(name)]
    parts += [f"{cores} cores"] if type(cores) is int else []
    return ", ".join(parts)
