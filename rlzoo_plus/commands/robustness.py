"""`rlzoo-plus robustness`: how the return degrades as the world changes."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TypeAlias

import rlzoo_plus
from rlzoo_plus.analysis.run_list import find_runs
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.arguments import (
    RUN_HELP,
    WHICH_HELP,
    add_trust,
    not_negative,
    open_to_play,
    positive,
)
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError

# Of more policies only the ranking is printed.
_MOST_TABLES = 3
# A policy: its label, its run and which of its policies.
_Candidate: TypeAlias = "tuple[str, rlzoo_plus.Run, str | None]"


def main(arguments: list[str]) -> int:
    """Measure, print and plot; return the exit code."""
    parser = command_parser(
        "robustness",
        "Play the same held-out episodes in changed worlds: mass, friction, damping, latency, "
        "noise, motor strength, pushes and the other physics engine for the shipped robots, noise "
        "and latency for other environments. Prints a table, the worst case and, of "
        "several runs, their ranking by it; plots a degradation curve for each change.",
        "outputs/cartpole_bullet/ppo/... --choose",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help=f"{RUN_HELP}; or a folder for all runs in it")
    add("--grid", type=Path, metavar="FILE", help="YAML: values by name (default: the shipped one)")
    add("--which", help=WHICH_HELP)
    choose_help = "the policy with the best worst case: of one run its checkpoints, else its runs"
    add("--choose", action="store_true", help=choose_help)
    add("--episodes", type=positive(int), default=20, help="in each world (default 20)")
    add("--n-envs", type=positive(int), default=10, help="environments in parallel (default 10)")
    add("--seed", type=not_negative, default=0, help="chooses other held-out episodes (default 0)")
    out_help = "default: RUN/plots/robustness.png; here for several runs"
    add("--out", type=Path, metavar="FILE.png", help=out_help)
    add_trust(parser)
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    from rlzoo_plus.policies import degradation, robustness

    if options.out is not None and options.out.suffix.lower() != ".png":
        raise ConfigError(f"--out {printable(options.out)}: plots are PNG files; end it in .png.")
    candidates = _candidates(options)
    for _, run, _ in candidates:
        run.require_trust()
    out = options.out or _default_out(candidates)
    changes = robustness.read_grid(options.grid or robustness.DEFAULT_GRID)
    found = []
    numbers = {"episodes": options.episodes, "seed": options.seed, "n_envs": options.n_envs}
    for label, run, which in candidates:
        if sys.stderr.isatty():
            print(f"{printable(label)}: {len(changes) + 1} worlds ...", file=sys.stderr)
        found.append(robustness.measure(run, which, changes, label=label, **numbers))
    paths = {label: (str(run.path), which or run.which) for label, run, which in candidates}
    best = robustness.ranked(found)[0]
    degradation.plot(found, out)
    if options.json:
        rows = [{**one.data(), "run": paths[one.label][0], "which": paths[one.label][1]}
                for one in robustness.ranked(found)]  # fmt: skip
        chosen = best.label if options.choose else None
        print(json.dumps({"policies": rows, "chosen": chosen, "plot": str(out)}))
        return 0
    if len(found) <= _MOST_TABLES:
        print("\n\n".join(f"{printable(one.label)}\n{degradation.table(one)}" for one in found))
    if len(found) > 1:
        table = degradation.ranking(found)
        print(f"\n{table}" if len(found) <= _MOST_TABLES else table)
    if options.choose:
        path, which = paths[best.label]
        print(f"chosen: {which} of {printable(path, LONGEST_LINE)}, worst case {best.worst}: "
              f"mean return {best.worst.mean_return:.4g}")  # fmt: skip
    print(printable(out, LONGEST_LINE))
    return 0


def _candidates(options: Namespace) -> list[_Candidate]:
    """Return the policies to compare."""
    names, which, choose = options.runs, options.which, options.choose
    runs = []
    for name in names:
        path = Path(name)
        is_folder = path.is_dir() and not os.path.lexists(RunDir(path).config_file)
        inside = find_runs([path]) if is_folder else []
        if inside:
            runs += [
                rlzoo_plus.Run.open(run.path, trust=options.trust, other_env=options.other_env)
                for run in inside
            ]
        else:
            runs.append(open_to_play(name, options))
    if len(runs) > 1 or not choose:
        labels = _labels([Path(str(run.path)) for run in runs])
        return [(label, run, which) for label, run in zip(labels, runs, strict=True)]
    (run,), run_dir = runs, runs[0].run_dir
    if which is not None:
        raise ConfigError("--choose compares all policies of a run. Leave out --which.")
    found = [str(step) for step in run_dir.checkpoints().steps()]
    found += [folder.name for folder in (run_dir.best, run_dir.final) if folder.is_dir()]
    if not found:
        raise ConfigError(f"{printable(run_dir.path)} has saved no policy to choose from.")
    return [(name, run, name) for name in found]


def _labels(paths: list[Path]) -> list[str]:
    """Return the ends of paths that tell them apart."""
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        labels = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    raise ConfigError(f"{printable(paths[0])} is named twice. Name each run once.")


def _default_out(candidates: list[_Candidate]) -> Path:
    runs = {str(run.path): run for _, run, _ in candidates}
    if len(runs) > 1:
        return Path("robustness.png")
    (run,) = runs.values()
    out = run.folder / "plots" / "robustness.png"
    check_inside(run.folder, out)
    return out
