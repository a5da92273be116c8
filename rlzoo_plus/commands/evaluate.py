"""`rlzoo-plus evaluate`: the return of a saved policy over held-out episodes."""

from __future__ import annotations

import json
from argparse import Namespace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import rlzoo_plus
from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import open_to_play, positive, run_parser
from rlzoo_plus.envs.engine import is_same_engine
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.episode import check_free


def main(arguments: list[str]) -> int:
    """Evaluate and print; return the exit code."""
    parser = run_parser(
        "evaluate",
        "Evaluate a trained policy on held-out episodes, in the run's own environment. Nothing is "
        "written to the run.",
        "outputs/cartpole_bullet/ppo/... env.kwargs.force_n=5 --save-episodes episodes",
    )
    add = parser.add_argument
    add(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="env.kwargs.* and env.time_limit change the environment, eval.metrics measures more",
    )
    add("--episodes", type=positive(int), default=100, help="how many to play (default 100)")
    add("--n-envs", type=positive(int), default=10, help="environments in parallel (default 10)")
    add("--save-episodes", type=Path, metavar="DIR", help="keep each episode, for replay, inspect")
    add(
        "--shares",
        choices=("idle", "random"),
        help="of many agents: what each adds to its team's return, against one that does nothing "
        "or acts at random",
    )
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_intermixed_args(arguments)
    run = open_to_play(options.run, options)
    folder, play = options.save_episodes, run.evaluate
    if options.shares is not None:
        return _shares(run, options)
    if folder is not None:
        from rlzoo_plus.policies.verification import record_evaluation

        check_free(folder)
        play = partial(record_evaluation, run, folder, named=str(Path(str(run.path)).resolve()))
    record = play(
        options.episodes,
        which=options.which,
        seed=options.seed,
        deterministic=not options.stochastic,
        n_envs=options.n_envs,
        overrides=options.overrides,
    )
    print(json.dumps(record) if options.json else _table(record, run.config.env.max_return))
    if folder is not None and not options.json:
        episodes = counted(record["episodes"], "episode")
        print(f"saved           {episodes} in {printable(folder)}")
    return 0


def _shares(run: rlzoo_plus.Run, options: Namespace) -> int:
    """Print the share of each agent; return the exit code."""
    if options.save_episodes is not None:
        raise ConfigError("--save-episodes with --shares: leave one of them out.")
    # As light as the others: teams need PettingZoo.
    shares = import_module("rlzoo_plus.teams.team_shares")
    record = shares.measure_shares(
        run,
        options.episodes,
        instead=options.shares,
        which=options.which,
        seed=options.seed,
        deterministic=not options.stochastic,
        overrides=options.overrides,
    )
    print(json.dumps(record) if options.json else shares.shares_table(record))
    return 0


def _table(record: dict[str, Any], max_return: float | None) -> str:
    returns, lengths = record["returns"], record["episode_lengths"]
    mode = "deterministic" if record["deterministic"] else "stochastic"
    rows = [("policy", f"{record['which']} of {record['run']}, saved at step {record['step']:,}")]
    if record["overrides"]:
        rows.append(("changed", f"{' '.join(record['overrides'])}; not as it was trained"))
    engine, trained = record["engine"], record["trained_engine"]
    if not is_same_engine(engine, trained):
        rows.append(("engine", f"{engine}; it was trained with {trained}"))
    if record["other_environment"]:
        rows.append(
            ("environment", f"another than in training: {'; '.join(record['other_environment'])}")
        )
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
