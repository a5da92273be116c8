"""`rlzoo-plus evaluate`: the return of a saved policy over held-out episodes."""

from __future__ import annotations

import json
from typing import Any

from rlzoo_plus.commands.arguments import positive, run_parser
from rlzoo_plus.runs.run import Run


def main(arguments: list[str]) -> int:
    """Evaluate and print; return the exit code."""
    parser = run_parser(
        "evaluate",
        "Evaluate a trained policy on held-out episodes, in the run's own environment.",
        "outputs/cartpole_bullet/ppo/... env.kwargs.force_n=5",
    )
    add = parser.add_argument
    add(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="env.kwargs.* changes the environment, eval.metrics measures more",
    )
    add("--episodes", type=positive(int), default=100, help="how many to play (default 100)")
    add("--n-envs", type=positive(int), default=10, help="environments in parallel (default 10)")
    add("--json", action="store_true", help="print one JSON object")
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
    mode = "deterministic" if record["deterministic"] else "stochastic"
    rows = [("policy", f"{record['which']} of {record['run']}, saved at step {record['step']:,}")]
    if record["overrides"]:
        rows.append(("changed", f"{' '.join(record['overrides'])}; not as it was trained"))
    rows += [
        ("episodes", f"{record['episodes']}, {mode}"),
        ("mean return", f"{record['mean_return']:.2f} +- {record['std_return']:.2f}"),
        ("IQM return", f"{record['iqm_return']:.2f}"),
        ("lowest, highest", f"{min(returns):.2f}, {max(returns):.2f}"),
        ("mean length", f"{sum(lengths) / len(lengths):.1f} steps"),
    ]
    if record["success_rate"] is not None:
        rows.append(("success rate", f"{100 * record['success_rate']:.0f}%"))
    if max_return:
        rows.append(("of the maximum", f"{100 * record['mean_return'] / max_return:.1f}%"))
    metrics = {k: v for k, v in record["metrics"].items() if k != "mean_episode_length"}
    rows += [(name, f"{value:.4g}") for name, value in metrics.items()]
    width = max(16, *(len(name) + 2 for name, _ in rows))
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows)
