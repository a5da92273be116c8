"""`rlzoo-plus record`: a film of a policy, or of all checkpoints of a run one after the other."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.commands.arguments import positive, run_parser
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.runs.media import film
from rlzoo_plus.runs.open import one_torch_thread, open_config, open_run

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.artifacts.run_dir import RunDir


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
    one_torch_thread()
    run, config = open_config(options.run, trust=options.trust)
    policies = list(_policies(run, options))
    name = "all" if options.all else options.which
    out = options.out or run.videos / f"{name}.mp4"
    if options.out is None:
        check_inside(run.path, out)
    count = film(
        config,
        policies,
        out,
        seconds=options.seconds,
        seed=options.seed,
        deterministic=not options.stochastic,
    )
    print(f"{out}  ({count} pictures)")
    return 0


def _policies(run: RunDir, options: Namespace) -> Iterator[tuple[str, Policy]]:
    names = [options.which]
    if options.all:
        names = [str(step) for step in run.checkpoints().steps()]
        names += ["best"] if run.best.is_dir() else []
        if not names:
            raise ConfigError(f"{run.path} has saved nothing yet.")
    for name in names:
        opened = open_run(str(run.path), name, trust=options.trust)
        prefix = "" if name.isdigit() else f"{name}, "
        yield f"{opened.config.algo.name}, {prefix}step {opened.step:,}", opened.policy
