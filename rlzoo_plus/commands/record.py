"""`rlzoo-plus record`: a video of policies, or of all checkpoints of a run in sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rlzoo_plus
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.commands.arguments import (
    RUN_HELP,
    WHICH_HELP,
    add_trust,
    not_negative,
    open_to_play,
    positive,
)
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.commands.zoo_arguments import in_our_form
from rlzoo_plus.errors import ConfigError

_WORST_OF = 20


def main(arguments: list[str]) -> int:
    """Record a video and print its path; return the exit code."""
    parser = command_parser(
        "record",
        "Record a video of a trained policy; of several, side by side, playing the same held-out "
        "episodes.",
        "outputs/cartpole_bullet/ppo/... --out cartpole.mp4 --overlay",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help=f"{RUN_HELP}; a bundle; s3://..., hf://org/name")
    add("--which", help=WHICH_HELP)
    add_trust(parser)
    add("--seed", type=not_negative, default=0, help="chooses other held-out episodes (default 0)")
    add("--stochastic", action="store_true", help="act with exploration")
    add("--out", type=Path, help="a .mp4 or .gif (default: RUN/videos/<which>.mp4)")
    add("--seconds", type=positive(float), default=10.0, help="length (default 10)")
    add("--all", action="store_true", help="all checkpoints, then the best, --seconds each")
    overlay_help = "show step, action, reward and its terms, value and end beside the picture"
    add("--overlay", action="store_true", help=overlay_help)
    worst_help = f"of so many held-out episodes (default {_WORST_OF}), show the worst first"
    add("--worst", nargs="?", type=positive(int), const=_WORST_OF, metavar="N", help=worst_help)
    options = parser.parse_args(in_our_form("record", arguments))
    runs = [open_to_play(run, options) for run in options.runs]
    common = {"seconds": options.seconds, "seed": options.seed}
    common["deterministic"] = not options.stochastic
    if len(runs) == 1 and not options.overlay and options.worst is None:
        path, n_frames = runs[0].record_video(
            options.out, which=options.which, all_checkpoints=options.all, **common
        )
    elif options.all:
        raise ConfigError("--all shows one run without --overlay and --worst. Leave these out.")
    else:
        path = options.out or _default_out(runs, options.which)
        n_frames = _record(runs, options.which, path, options.overlay, options.worst, common)
    print(f"{path}  ({n_frames} frames)")
    return 0


def _record(
    runs: list[rlzoo_plus.Run],
    which: str | None,
    out: Path,
    overlay: bool,
    worst: int | None,
    common: dict[str, Any],
) -> int:
    from rlzoo_plus.policies.video import Shown, record_policies

    shown = []
    for run in runs:
        run.require_trust()
        policy = run.policy(which)
        label = f"{run.config.algo.name}, {which or run.which}, step {policy.step or 0:,}"
        shown.append(Shown(run, policy, f"{label}, seed {run.config.seed}"))
    return record_policies(shown, out, overlay=overlay, worst_of=worst or 0, **common)


def _default_out(runs: list[rlzoo_plus.Run], which: str | None) -> Path:
    if len(runs) > 1:
        raise ConfigError("--out names the video of several runs, e.g. --out side_by_side.mp4.")
    path = runs[0].folder / "videos" / f"{which or runs[0].which}-explained.mp4"
    check_inside(runs[0].folder, path)
    return path
