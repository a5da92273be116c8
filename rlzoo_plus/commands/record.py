"""`rlzoo-plus record`: a video of a policy, or of all checkpoints of a run in sequence."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.commands.arguments import positive, run_parser
from rlzoo_plus.runs.run import Run


def main(arguments: list[str]) -> int:
    """Record a video and print its path; return the exit code."""
    parser = run_parser(
        "record",
        "Record a video of a trained policy.",
        "outputs/cartpole_bullet/ppo/... --out cartpole.mp4",
    )
    add = parser.add_argument
    add("--out", type=Path, help="a .mp4 or .gif (default: RUN/videos/<which>.mp4)")
    add("--seconds", type=positive(float), default=10.0, help="length (default 10)")
    add("--all", action="store_true", help="all checkpoints, then the best, --seconds each")
    options = parser.parse_args(arguments)
    path, n_frames = Run.open(options.run, trust=options.trust).film(
        options.out,
        which=options.which,
        seconds=options.seconds,
        seed=options.seed,
        deterministic=not options.stochastic,
        all_checkpoints=options.all,
    )
    print(f"{path}  ({n_frames} frames)")
    return 0
