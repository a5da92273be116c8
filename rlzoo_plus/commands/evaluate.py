"""`rlzoo-plus evaluate`: the return of a saved policy over episodes it has never seen."""

from __future__ import annotations

import json
from typing import Any

from rlzoo_plus.commands.arguments import positive, run_parser
from rlzoo_plus.runs.run import Run


def main(arguments: list[str]) -> int:
    """Evaluate and print; return the exit code."""
    parser = run_parser(
        "evaluate",
        "Measure a trained policy over held-out episodes, with the run's own environment chain.",
        "rlzoo-plus evaluate outputs/cartpole_bullet/ppo/... env.kwargs.force_n=5",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="env.kwargs.* to play in another environment, eval.metrics to measure more",
    )
    parser.add_argument("--episodes", type=positive(int), default=100, help="default 100")
    parser.add_argument("--n-envs", type=positive(int), default=10, help="side by side, default 10")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_intermixed_args(arguments)
    run = Run.open(options.run, trust=options.trust)
    record = run.evaluate(
        options.episodes,
        which=options.which,
        seed=options.seed,
        deterministic=not options.stochastic,
        n_envs=options.n_envs,
        overrides=options.overrides,
    )
    print(json.dumps(record) if options.json else _table(record, run.config.env.max_return))
    return 0


def _table(record: dict[str, Any], max_return: float | None) -> str:
    returns, lengths = record["returns"], record["episode_lengths"]
    rows = [
        ("policy", f"{record['which']} of {record['run']}, saved at step {record['step']:,}"),
        ("episodes", f"{record['episodes']}, {_mode(record)}"),
        ("mean return", f"{record['mean_return']:.2f} +- {record['std_return']:.2f}"),
        ("IQM return", f"{record['iqm_return']:.2f}"),
        ("lowest, highest", f"{min(returns):.2f}, {max(returns):.2f}"),
        ("mean length", f"{sum(lengths) / len(lengths):.1f} steps"),
    ]
    if record["overrides"]:
        rows.insert(1, ("changed", f"{' '.join(record['overrides'])}; not as it was trained"))
    if record["success_rate"] is not None:
        rows.append(("success rate", f"{100 * record['success_rate']:.0f}%"))
    if max_return:
        rows.append(("of the maximum", f"{100 * record['mean_return'] / max_return:.1f}%"))
    metrics = dict(record["metrics"])
    del metrics["mean_episode_length"]
    rows += [(name, f"{value:.4g}") for name, value in metrics.items()]
    width = max(16, *(len(name) + 2 for name, _ in rows))
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows)


def _mode(record: dict[str, Any]) -> str:
    return "deterministic" if record["deterministic"] else "stochastic"
