"""`rlzoo-plus inspect`: show an environment, or step through an episode of a trained policy."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from rlzoo_plus.commands.arguments import (
    RUN_HELP,
    WHICH_HELP,
    add_trust,
    not_negative,
    open_to_play,
    positive,
)
from rlzoo_plus.commands.replay import run_of
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.commands.zoo_arguments import in_our_form
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.policies.episode import episode_files, load_episode
from rlzoo_plus.runs.load import load


def main(arguments: list[str]) -> int:
    """Print what is found, or step through an episode; return the exit code."""
    parser = command_parser(
        "inspect",
        "Show an environment before it is trained, under random actions: its spaces and its speed; "
        "for a robot built with this project also joints, masses, reward terms and why episodes "
        "end. The overrides, and --config-dir, are those of train. With a RUN instead, or an "
        "episode that evaluate has saved: step through an episode of the policy, with the entries "
        "of the observation by name, action, reward terms and value. Enter shows the next step, s "
        "jumps to the largest changes of reward or value, e to the end.",
        "outputs/cartpole_bullet/ppo/...   or: rlzoo-plus inspect env=cartpole_bullet",
        usage="rlzoo-plus inspect [--picture FILE] [--seconds SECONDS] [--json] [KEY=VALUE ...]\n"
        "       rlzoo-plus inspect RUN|FILE [--which WHICH] [--episode N] [--seed SEED] "
        "[--stochastic] [--trust] [--json]\n"
        "       rlzoo-plus inspect RUN --actions ROWS [--json]",
        allow_abbrev=False,
    )
    add = parser.add_argument
    picture_help = "write a .png: the start, and the state after random actions"
    add("--picture", type=Path, metavar="FILE", help=picture_help)
    add("--seconds", type=positive(float), default=2.0, help="time for random actions (default 2)")
    add("--json", action="store_true", help="print JSON, for programs")
    of_run = parser.add_argument_group("of a run", f"RUN: {RUN_HELP}; or FILE: a saved episode")
    add = of_run.add_argument
    add("--which", help=WHICH_HELP)
    add("--episode", type=positive(int), default=1, help="which held-out episode (default 1)")
    add("--seed", type=not_negative, default=0, help="chooses other held-out episodes (default 0)")
    add("--stochastic", action="store_true", help="act with exploration")
    actions_help = "print the last so many rows of the run's action log (log.actions=true)"
    add("--actions", type=positive(int), metavar="ROWS", help=actions_help)
    add_trust(parser)
    options, overrides = parser.parse_known_args(arguments)
    if overrides and "=" not in overrides[0] and not overrides[0].startswith(("-", "~", "+")):
        if overrides[1:]:
            parser.error(f"unrecognized arguments: {' '.join(overrides[1:])}")
        if options.actions is not None:
            return _print_actions(open_to_play(overrides[0], options).actions(), options)
        return _step_through(overrides[0], options)
    from rlzoo_plus.doctor import inspection

    if options.picture is not None:
        inspection.check_path(options.picture)
    spec = load(in_our_form("inspect", overrides)).env
    found = inspection.inspect_env(spec, options.seconds)
    if options.json:
        print(json.dumps(inspection.as_data(found), indent=2))
    else:
        inspection.print_inspection(make_console(), found)
    if options.picture is not None:
        inspection.make_picture(spec, options.picture)
        if not options.json:
            print(f"wrote {options.picture}")
    return 0


def _print_actions(found: dict[str, Any], options: Namespace) -> int:
    """Print the last rows of an action log."""
    columns = {name: values[-options.actions :].tolist() for name, values in found.items()}
    if options.json:
        print(json.dumps(columns))
        return 0
    print(*(name.rjust(8) for name in columns), sep="  ")
    for row in zip(*columns.values(), strict=True):
        print(*(_cell(value).rjust(8) for value in row), sep="  ")
    return 0


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_cell, value))
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _step_through(name: str, options: Namespace) -> int:
    from rlzoo_plus.policies import stepping

    if Path(name).is_file() and Path(name).suffix in (".json", ".npz"):
        (file,) = episode_files(Path(name))
        episode, about = load_episode(file)
        run = run_of(file, about, None, trust=options.trust)
        views = stepping.views_of_file(run, episode, run.changed_config(about["overrides"])[0])
    else:
        run = open_to_play(name, options)
        run.require_trust()
        policy = run.policy(options.which)
        seed = held_out_seeds(options.episode, options.seed)[-1]
        episode, views = stepping.views_of_run(
            run, policy, seed, deterministic=not options.stochastic
        )
    if options.json:
        print(json.dumps(stepping.as_data(episode, views)))
    elif sys.stdin.isatty():
        stepping.step_through(views, input, print)
    else:
        print(stepping.table(views))
    return 0
