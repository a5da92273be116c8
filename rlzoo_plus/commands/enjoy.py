"""`rlzoo-plus enjoy`: watch a policy in a window."""

from __future__ import annotations

import os
import sys
import time

from rlzoo_plus.commands.arguments import opened, positive, run_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Play episodes in a window; return the exit code."""
    parser = run_parser(
        "enjoy",
        "Watch a trained policy in a window.",
        "rlzoo-plus enjoy outputs/cartpole_bullet/ppo/...",
    )
    parser.add_argument("--episodes", type=positive(int), default=5, help="default 5")
    parser.add_argument("--speed", type=positive(float), default=1.0, help="1 is real time")
    parser.add_argument(
        "--no-window", action="store_true", help="play without a window, and print the returns"
    )
    options = parser.parse_args(arguments)
    if not options.no_window:
        _need_display(options.run)
    run, policy = opened(options)

    from rlzoo_plus.envs.seeding import held_out_seeds
    from rlzoo_plus.evaluation import play

    mode = None if options.no_window else "human"
    venv = run.env(render_mode=mode)
    venv.env_method("set_episode_seeds", held_out_seeds(options.episodes, options.seed))
    metadata = venv.get_attr("metadata")[0] or {}
    step_s = 0.0 if mode is None else 1.0 / float(metadata.get("render_fps") or 30.0)
    steps = play(policy, venv, deterministic=not options.stochastic)
    played, begun = 0, time.monotonic()
    try:
        for step in steps:
            time.sleep(max(0.0, step_s / options.speed - (time.monotonic() - begun)))
            begun = time.monotonic()
            if step.done[0]:
                played += 1
                episode = step.infos[0]["episode"]
                print(f"episode {played}: return {episode['r']:.2f} in {episode['l']} steps")
            if played == options.episodes:
                break
    finally:
        venv.close()
    return 0


def _need_display(run: str) -> None:
    """Refuse before anything opens a window: PyBullet would kill the process."""
    on_linux = sys.platform.startswith("linux")
    if on_linux and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise ConfigError(
            "enjoy needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set. Film it "
            f"instead: rlzoo-plus record {run}"
        )
