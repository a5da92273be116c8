"""`rlzoo-plus enjoy`: watch a policy in a window."""

from __future__ import annotations

import contextlib
import shlex
import time

from rlzoo_plus.commands.arguments import opened, positive, require_display, run_parser
from rlzoo_plus.commands.zoo_arguments import in_our_form
from rlzoo_plus.envs.seeding import held_out_seeds


def main(arguments: list[str]) -> int:
    """Play episodes in a window; return the exit code."""
    parser = run_parser(
        "enjoy", "Watch a trained policy in a window.", "outputs/cartpole_bullet/ppo/..."
    )
    add = parser.add_argument
    add("--episodes", type=positive(int), default=5, help="how many to play (default 5)")
    add("--speed", type=positive(float), default=1.0, help="1 (default) is real time")
    add("--no-window", action="store_true", help="play without a window, and print the returns")
    options = parser.parse_args(in_our_form("enjoy", arguments))
    if not options.no_window:
        require_display(
            "enjoy", f"record a video instead: rlzoo-plus record {shlex.quote(str(options.run))}"
        )
    run, policy = opened(options)

    from rlzoo_plus.training import evaluation, media

    mode, played = (None if options.no_window else "human"), 0
    with contextlib.closing(run.env(render_mode=mode)) as venv:
        venv.env_method("set_episode_seeds", held_out_seeds(options.episodes, options.seed))
        step_s = 0.0 if mode is None else 1.0 / media.steps_per_second(venv)
        begun = time.monotonic()
        for step in evaluation.play(policy, venv, deterministic=not options.stochastic):
            time.sleep(max(0.0, step_s / options.speed - (time.monotonic() - begun)))
            begun = time.monotonic()
            if step.done[0]:
                played += 1
                episode = step.infos[0]["episode"]
                print(f"episode {played}: return {episode['r']:.2f} in {episode['l']} steps")
            if played == options.episodes:
                break
    return 0
