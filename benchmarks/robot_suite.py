"""Every robot task with its shipped values on three seeds: table, curves, videos.

    python -m benchmarks.robot_suite [--tasks kuka_reach ...] [--seeds 0 1 2] [--workers 2]
                                     [--out FOLDER] [--pictures FOLDER]

Each task is a sweep over the seeds, one thread a run; what is there already is not trained again.
The best policy of each run then plays 100 held-out episodes. Writes suite.json into the folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.trained import call, config_of, curve_of, evaluate, result_of, train_seeds

# The algorithm whose shipped values count for the task.
TASKS = {
    "cartpole_bullet": "ppo",
    "cartpole_swingup": "ppo",
    "double_pendulum": "ppo",
    "cartpole_camera": "ppo",
    "kuka_reach": "ppo",
    "franka_push": "her",
    "a1_walk": "ppo",
    "vision60_walk": "ppo",
    "husky_drive": "ppo",
    "racecar_drive": "ppo",
    "halfcheetah": "ppo",
}
HEADER = """\
| task | algorithm | steps | minutes | best return, each seed | success | threshold | solved |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Train what is missing, evaluate, record, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("outputs/robot_suite"))
    parser.add_argument("--pictures", type=Path, help="folder for curves and videos as well")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report = options.out / "suite.json"
    known = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    print(HEADER, flush=True)
    for task in options.tasks:
        words = [f"env={task}", f"algo={TASKS[task]}"]
        runs = train_seeds(options.out / task, options.seeds, options.workers, words)
        known[task] = _figures(task, runs)
        report.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(_row(task, known[task]), flush=True)
        if options.pictures is not None:
            _record(task, runs[0], options.pictures)
    if options.pictures is not None:
        _draw(known, options.pictures / "curves.png")


def _figures(task: str, runs: list[Path]) -> dict[str, Any]:
    """Return what the table says about a task, and the curves."""
    results = [result_of(run) for run in runs]
    best = [evaluate(run, "best", 100) for run in runs]
    return {
        "algo": TASKS[task],
        "steps": max(result["num_timesteps"] for result in results),
        "minutes": [round(result["training_time_s"] / 60, 2) for result in results],
        "returns": [round(figures["mean_return"], 2) for figures in best],
        "success": [figures["success_rate"] for figures in best],
        "solved_return": config_of(runs[0])["env"]["solved_return"],
        "curves": [curve_of(run) for run in runs],
    }


def _row(task: str, figures: dict[str, Any]) -> str:
    threshold = figures["solved_return"]
    solved = sum(value >= threshold for value in figures["returns"])
    rates = [rate for rate in figures["success"] if rate is not None]
    success = f"{min(rates):.0%} to {max(rates):.0%}" if rates else ""
    minutes = f"{min(figures['minutes']):.1f} to {max(figures['minutes']):.1f}"
    returns = ", ".join(f"{value:.1f}" for value in figures["returns"])
    cells = (task, figures["algo"], f"{figures['steps']:,}", minutes, returns, success)
    count = len(figures["returns"])
    return f"| {' | '.join(map(str, cells))} | {threshold:g} | {solved} of {count} |"


def _record(task: str, run: Path, pictures: Path) -> None:
    """Record a few seconds of the best policy as a small GIF."""
    pictures.mkdir(parents=True, exist_ok=True)
    video = pictures / f"{task}.gif"
    call("record", str(run), "--seconds", "6", "--out", str(video))
    _shrink(video)


def _shrink(video: Path) -> None:
    """Halve the pictures a second, make them small, and give them 160 colours."""
    from PIL import Image, ImageSequence

    with Image.open(video) as original:
        duration = original.info["duration"]
        frames = [
            frame.convert("RGB").resize((300, 200), Image.Resampling.LANCZOS)
            for number, frame in enumerate(ImageSequence.Iterator(original))
            if number % 2 == 0
        ]
    # One palette for all, so that what stands still is not stored again.
    palette = frames[0].quantize(160)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(
        video, save_all=True, append_images=small[1:], duration=2 * duration, loop=0, optimize=True
    )


def _draw(tasks: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the curves of all seeds, one panel a task, with the threshold."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 3
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.7 * rows), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    for number, (task, figures) in enumerate(tasks.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.set_title(f"{task} ({figures['algo']})", fontsize=11, loc="left")
        for seed, curve in enumerate(figures["curves"]):
            steps = [step / 1000 for step, _ in curve]
            axes.plot(steps, [value for _, value in curve], label=f"seed {seed}", linewidth=1.5)
        axes.axhline(figures["solved_return"], color="#8A8A8A", linestyle="--", linewidth=1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("thousand steps", fontsize=9)
        axes.tick_params(labelsize=9)
    figure.savefig(path)


if __name__ == "__main__":
    main()
