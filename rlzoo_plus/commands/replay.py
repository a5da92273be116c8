"""`rlzoo-plus replay`: play saved episodes again, and check each step."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlzoo_plus
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import RUN_HELP, positive, require_display
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.episode import episode_files, load_episode

if TYPE_CHECKING:
    from rlzoo_plus.policies.episode import Episode
    from rlzoo_plus.policies.replay import PlayedStep


def main(arguments: list[str]) -> int:
    """Replay and print; return 0 if every episode is exactly as it was saved, else 1."""
    parser = command_parser(
        "replay",
        "Play saved episodes again, in the environment of their run, and check each reward, its "
        "terms and the last observation: they must be the same bit for bit. Prints the first step "
        "that differs; exit code 0: all are the same, 1: one differs.",
        "episodes/episode-0000.json --video episode.mp4",
    )
    add = parser.add_argument
    add("path", type=Path, metavar="FILE|DIR", help="from evaluate --save-episodes: one, or all")
    add("--run", metavar="RUN", help=f"{RUN_HELP} (default: the run the file names, or lies in)")
    add("--trust", action="store_true", help="import the run's own packages and wrappers")
    add("--render", action="store_true", help="show it in a window")
    add("--speed", type=positive(float), default=1.0, help="of the window: 1 (default) is real")
    add("--video", type=Path, metavar="FILE", help="write one episode as .mp4 or .gif")
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    files = episode_files(options.path)
    if options.video is not None and len(files) > 1:
        raise ConfigError(f"--video shows one episode, and there are {len(files)}. Name its file.")
    if options.render:
        require_display("replay --render", "write a video instead: --video episode.mp4")
    rows = []
    for file in files:
        episode, about = load_episode(file)
        run = run_of(file, about, options.run, trust=options.trust)
        row = _replay(run, episode, about, options)
        rows.append({"file": str(file), **row})
        if not options.json:
            print(f"{printable(file)}: {row['text']}")
    n_same = sum(row["is_same"] for row in rows)
    if options.json:
        print(json.dumps({"episodes": rows, "same": n_same, "different": len(rows) - n_same}))
    elif len(rows) > 1:
        print(f"{n_same} of {len(rows)} episodes are exactly the same")
    return 0 if n_same == len(rows) else 1


def run_of(file: Path, about: dict[str, Any], name: str | None, *, trust: bool) -> rlzoo_plus.Run:
    """Open the run that played a saved episode.

    `about` is what the file says about what played it, `name` the run that the user names, if any.
    """
    if name is not None:
        return rlzoo_plus.Run.open(name, trust=trust, other_env=True)
    around = next((p for p in file.resolve().parents if RunDir(p).config_file.is_file()), None)
    named = Path(about.get("run", ""))
    if around is None and not (about.get("run") and named.exists()):
        raise ConfigError(
            f"{printable(file)}: the run that played it, {printable(named)}, is not there. "
            "Name it with --run RUN."
        )
    if any("${" in override for override in about["overrides"]) and not trust:
        raise ConfigError(
            f"{printable(file)} was played with {printable(' '.join(about['overrides']))}, which "
            "reads your variables. If you know where it comes from, add --trust."
        )
    # Each step is compared: that it is another environment shows there.
    return rlzoo_plus.Run.open(around or named, trust=trust, other_env=True)


def _replay(
    run: rlzoo_plus.Run, episode: Episode, about: dict[str, Any], options: Any
) -> dict[str, Any]:
    from rlzoo_plus.policies.replay import replay
    from rlzoo_plus.training import evaluation, media

    config, _ = run.changed_config(about["overrides"])
    mode = "human" if options.render else "rgb_array" if options.video else None
    frames: list[Any] = []
    with evaluation.one_torch_thread(), contextlib.closing(run.env(1, mode, config=config)) as venv:
        fps = media.steps_per_second(venv)
        watch: Callable[[PlayedStep], None] | None = None
        if options.render:

            def watch(step: PlayedStep) -> None:
                time.sleep(1.0 / fps / options.speed)
        elif options.video:

            def watch(step: PlayedStep) -> None:
                if step.end is None:
                    text = f"seed {episode.seed}   step {len(frames) + 1}"
                    frames.append(
                        media.caption(media.rendered(venv), f"{text}   reward {step.reward:.3f}")
                    )

        found = replay(episode, venv, watch)
    if options.video:
        media.write_video(iter(frames), options.video, fps)
    steps = f"{episode.n_steps} steps, return {episode.episode_return:.2f}"
    return {
        "seed": episode.seed,
        "n_steps": episode.n_steps,
        "return": episode.episode_return,
        "is_same": found is None,
        "difference": None if found is None else found.data(),
        "text": f"the same, {steps}" if found is None else f"differs at {found}",
    }
