"""`rlzoo-plus pull`: bring a run from a store, one by its name, or the best."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.analysis.find_run import Place, read_config, trust_option
from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.cache import split_run_url
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.pull import pull_run

if TYPE_CHECKING:
    from rlzoo_plus.policies.best import Best, Played
    from rlzoo_plus.store.contract import ArtifactStore

_FILTERS = ("algo", "env")
_LABELS = {"iqm": "IQM return", "mean": "mean return", "success": "success rate"}
_RIGHT = ("seed", "steps", "recorded")


def main(arguments: list[str]) -> int:
    """Bring a run here and print its directory."""
    options = _parse(arguments)
    if options.to is not None:
        _check_free(options.to)
    if not options.best:
        url, name = split_run_url(options.run)
        _pull(open_store(url), name, options)
        return 0
    from rlzoo_plus.policies.best import find_best

    best = find_best(
        options.run,
        **_filters(options.filters),
        metric=options.metric,
        top=options.top,
        episodes=options.episodes,
        trust=options.trust,
        say=(lambda _: None) if options.json else print,
    )
    if options.json:
        path, step = _bring(best.store, best.winner.candidate.run, options)
        print(json.dumps({**_as_json(best), "path": str(path), "step": step}, indent=2))
    else:
        _print(best)
        _pull(best.store, best.winner.candidate.run, options)
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "pull",
        "Bring a run from a store: logs and policies, with --state also what resuming needs. Every "
        "byte of policies and checkpoints is checked, and nothing is executed. With --best, the "
        "finished runs with the best figures on record play the same held-out episodes here, and "
        "the best of them is brought.",
        "s3://my-bucket/lab --best algo=sac env=panda_reach",
    )
    add = parser.add_argument
    add(
        "run",
        metavar="STORE/runs/NAME",
        help="as `rlzoo-plus runs STORE` prints it; with --best: STORE or STORE/SWEEP",
    )
    add("filters", nargs="*", metavar="KEY=VALUE", help="with --best: algo=..., env=...")
    add("--to", type=Path, metavar="DIR", help="the run directory (default: outputs/NAME)")
    add("--state", action="store_true", help="bring checkpoints, too")
    add("--best", action="store_true", help="find the best run")
    best = parser.add_argument_group("with --best")
    add = best.add_argument
    add(
        "--metric",
        choices=tuple(_LABELS),
        help="interquartile mean or mean of returns, or success rate (default: iqm)",
    )
    add("--top", type=positive(int), help="how many runs play (default 3)")
    add("--episodes", type=positive(int), help="how many each plays (default 100)")
    add("--trust", action="store_true", help="import the runs' own packages and wrappers")
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_intermixed_args(arguments)
    of_best = (options.filters, options.json, options.metric, options.top, options.episodes)
    if not options.best and any(of_best):
        parser.error("KEY=VALUE, --metric, --top, --episodes and --json need --best")
    options.metric, options.top = options.metric or "iqm", options.top or 3
    options.episodes = options.episodes or 100
    return options


def _filters(given: list[str]) -> dict[str, str]:
    filters = {}
    for text in given:
        key, separator, value = text.partition("=")
        if key not in _FILTERS or not separator or not value:
            raise ConfigError(f"{printable(text)}: runs are chosen by algo=NAME and env=NAME.")
        filters[key] = value
    return filters


def _check_free(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists. Choose another directory: --to DIR.")


def _bring(store: ArtifactStore, name: str, options: argparse.Namespace) -> tuple[Path, int | None]:
    """Bring a run; return its directory and the step that it can be resumed from."""
    path = options.to or OUTPUTS / name
    _check_free(path)
    try:
        return path, pull_run(store, name, path, state=options.state)
    except DamagedFolderError as error:
        raise ConfigError(f"{printable(name)} in {store.url} is damaged: {error}.") from error


def _trust_option(path: Path, *, to_train: bool) -> str:
    """Return the option that a command about a run needs, or nothing."""
    try:
        return trust_option(read_config(Place(path)), to_train=to_train)
    except ConfigError:
        return ""


def _pull(store: ArtifactStore, name: str, options: argparse.Namespace) -> None:
    path, step = _bring(store, name, options)
    print(path)
    if options.best:
        words = f"{shlex.quote(str(path))}{_trust_option(path, to_train=False)}"
        tell(f"next: rlzoo-plus enjoy {words}\n      rlzoo-plus export {words}")
    if step is not None:
        words = f"{shlex.quote(str(path))}{_trust_option(path, to_train=True)}"
        tell(f"next: rlzoo-plus resume {words}   (from step {step:,})")
    elif options.state:
        print("it has no checkpoint, so it cannot be resumed")


def _print(best: Best) -> None:
    here = f"{_LABELS[best.metric]} here (95% interval)"
    columns = ("algo", "seed", "steps", "recorded", here, "behind the first", "run")
    print("\n".join(aligned([columns, *map(_row, best.played)], _RIGHT)))
    for note in best.notes:
        print(f"note: {note}")
    first, winner = best.played[0], best.winner
    if best.n_tied == 1:
        print(f"best: {first.candidate.run}")
        return
    names = " and ".join(played.candidate.run for played in best.played[: best.n_tied])
    print(
        f"{names} cannot be told apart: the interval of their difference contains 0.\n"
        f"taken: {winner.candidate.run}, the best of them by record"
    )


def _row(played: Played) -> tuple[str, ...]:
    known = played.candidate
    return (
        known.algo,
        "-" if known.seed is None else str(known.seed),
        "-" if known.steps is None else f"{known.steps:,}",
        f"{known.recorded:.4g}",
        str(played.score),
        "-" if played.behind is None else str(played.behind),
        known.run,
    )


def _as_json(best: Best) -> dict[str, Any]:
    return {
        "store": best.store.url,
        "metric": best.metric,
        "winner": best.winner.candidate.run,
        "tied": [played.candidate.run for played in best.played[: best.n_tied]],
        "runs": [
            {
                **asdict(played.candidate),
                "which": played.which,
                "score": asdict(played.score),
                "behind": None if played.behind is None else asdict(played.behind),
                "values": played.values.tolist(),
            }
            for played in best.played
        ],
        "notes": best.notes,
    }
