"""`rlzoo-plus record`: a film of a policy, or of all checkpoints of a run one after the other."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.commands.arguments import positive, run_parser
from rlzoo_plus.runs.run import Run


def main(arguments: list[str]) -> int:
    """Film and say where the film is; return the exit code."""
    parser = run_parser(
        "record",
        "Film a trained policy.",
        "rlzoo-plus record outputs/cartpole_bullet/ppo/... --out cartpole.mp4",
    )
    parser.add_argument("--out", type=Path, help="a .mp4 or .gif; default RUN/videos/<which>.mp4")
    parser.add_argument(
        "--seconds", type=positive(float), default=10.0, help="length, of each part; default 10"
    )
    parser.add_argument(
        "--all", action="store_true", help="all checkpoints, then the best, in one film"
    )
    options = parser.parse_args(arguments)
    path, n_frames = Run.open(options.run, trust=options.trust).film(
        options.out,
        which=options.which,
        seconds=options.seconds,
        seed=options.seed,
        deterministic=not options.stochastic,
        all_checkpoints=options.all,
    )
    print(f"{path}  ({n_frames} pictures)")
    return 0
