"""`rlzoo-plus identify`: fit a robot's physics to a log of commands and joint states."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.replay import run_of
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load


def main(arguments: list[str]) -> int:
    """Fit, print and write; return the exit code."""
    parser = command_parser(
        "identify",
        "Fit mass, motor strength, damping and friction of joints, armature and latency of a robot "
        "to a log, by least squares over short segments, on the engine of env.kwargs.engine. Says "
        "what the log cannot tell. Writes an experiment file with the values and a randomization "
        "to train with, and a plot beside it. LOG is a CSV with a line for each control step: "
        "position/JOINT, velocity/JOINT, and action/0 ... as the environment takes them or "
        "target/JOINT in units; time or episode where there are gaps. Or episodes that evaluate "
        "has saved. The overrides, and --config-dir, are those of train.",
        "log.csv env=cartpole_swingup env.kwargs.engine=mujoco --known mass=1.2",
        usage="rlzoo-plus identify LOG env=... [KEY=VALUE ...] [--known NAME=VALUE] "
        "[--out FILE.yaml] [--run RUN] [--trust] [--json]",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("log", metavar="LOG", help="a CSV, a saved episode or a folder of them")
    known_help = "known already, so not fitted: mass=1.2, joint_damping/JOINT=0.1; again for more"
    add("--known", action="append", default=[], metavar="NAME=VALUE", help=known_help)
    out, out_help = Path("experiment/identified.yaml"), "default: experiment/identified.yaml"
    add("--out", type=Path, default=out, metavar="FILE.yaml", help=out_help)
    add("--run", metavar="RUN", help=f"that played the saved episodes: {RUN_HELP}")
    add("--trust", action="store_true", help="import that run's own packages and wrappers")
    add("--json", action="store_true", help="print one JSON object")
    add("overrides", nargs="*", help=SUPPRESS)
    options, more = parser.parse_known_intermixed_args(arguments)
    overrides, out = [*options.overrides, *more], options.out
    if "=" in options.log or not any(word.startswith("env=") for word in overrides):
        raise ConfigError("name a log and its robot: rlzoo-plus identify log.csv env=...")
    spec = load(overrides).env
    from rlzoo_plus.identify.identification import data, identify, table

    fit, notes = identify(
        Path(options.log), spec, options.known, out=out, command=["identify", *arguments],
        run_of=lambda file, about: run_of(file, about, options.run, trust=options.trust),
    )  # fmt: skip
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if options.json:
        found = data(fit)
        print(json.dumps({**found, "file": str(out), "plot": str(out.with_suffix(".png"))}))
        return 0
    print(table(fit))
    print(f"{printable(out, LONGEST_LINE)}\n{printable(out.with_suffix('.png'), LONGEST_LINE)}")
    if out.parent.name == "experiment":
        words = f"--config-dir {out.parent.parent} experiment={out.stem} {' '.join(overrides)}"
        tell(f"train with it: rlzoo-plus train {words}")
    return 0
