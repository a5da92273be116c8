"""From a clone to the first policy: `make train` in new clones, stage by stage.

    python -m benchmarks.first_policy [--rounds 3] [--commits HEAD ...] [--save FILE]

Each round clones every commit into an empty folder and calls `make train` there, in another order
each time. What it leaves is checked: a policy with at least 95 % of the highest return, the curve,
and a video. Packages come from wherever pip is configured to find them; downloads are part of the
time, since caches (of pip, of compiled plugins, of fonts) are empty.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import av

from benchmarks.processes import ROOT
from rlzoo_plus.artifacts.provenance import machine_fingerprint

# By stage, a part of the line that make prints when it begins.
STAGES = {
    "virtual environment, pip": " -m venv ",
    "PyTorch": "^torch==",
    "other packages": " -c constraints.txt ",
    "training, curve, video": "train.py",
}
SOLVED = 0.95 * 500


def main() -> None:
    """Measure, print a table, and save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", nargs="+", default=["HEAD"])
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the numbers as JSON")
    options = parser.parse_args()
    commits = {name: _commit(name) for name in options.commits}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in commits}
    for number in range(options.rounds):
        for name in list(commits) if number % 2 == 0 else reversed(list(commits)):
            rounds[name].append(measure(commits[name]))
            print(f"round {number + 1}, {name}: {rounds[name][-1]}", flush=True)
    print(table(rounds))
    if options.save is not None:
        processor = machine_fingerprint()["processor"]
        about = {"processor": processor, "cores": len(os.sched_getaffinity(0))}
        about |= {"date": datetime.now(UTC).date().isoformat(), "python": platform.python_version()}
        report: dict[str, Any] = {**about, "commits": commits, "rounds": rounds}
        options.save.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure(commit: str) -> dict[str, float]:
    """Return what each stage took [s], and the mean return of the final policy.

    Raises:
        SystemExit: The command failed, or something is missing.
    """
    with tempfile.TemporaryDirectory(prefix="first-policy-") as folder:
        clone = Path(folder) / "clone"
        began = time.perf_counter()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run(["git", "-C", str(clone), "checkout", "--quiet", commit], check=True)
        marks = {"clone": began}
        for line in _train(clone, Path(folder) / "cache"):
            for stage, text in STAGES.items():
                if text in line and stage not in marks:
                    marks[stage] = time.perf_counter()
        ended = time.perf_counter()
        if missing := STAGES.keys() - marks.keys():
            raise SystemExit(f"make train did not print when it began: {', '.join(missing)}")
        stops = [*list(marks.values())[1:], ended]
        took = {stage: stop - marks[stage] for stage, stop in zip(marks, stops, strict=True)}
        found = {**took, "total": ended - began, "return": _final_return(clone)}
        return {name: round(value, 2) for name, value in found.items()}


def _train(clone: Path, cache: Path) -> Iterator[str]:
    """Run `make train` with an empty cache; yield each line that it prints."""
    seen: list[str] = []
    with subprocess.Popen(
        ["make", "train"],
        cwd=clone,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            seen.append(line)
            yield line
    if process.returncode:
        raise SystemExit(f"make train failed:\n{''.join(seen[-40:])}")


def _final_return(clone: Path) -> float:
    """Return the mean return of the last policy; the curve and the video must be there, too."""
    (run,) = (path.parent for path in clone.glob("outputs/*/*/*/result.json"))
    final = json.loads((run / "result.json").read_text(encoding="utf-8"))["final"]["mean_return"]
    if not (run / "plots" / "learning_curve.png").stat().st_size:
        raise SystemExit("the curve is empty")
    with av.open(str(run / "videos" / "best.mp4")) as video:
        n_frames = sum(1 for _ in video.decode(video=0))
    if n_frames < 2 or final < SOLVED:
        raise SystemExit(f"a video of {n_frames} frames, and a mean return of {final}")
    return float(final)


def table(rounds: dict[str, list[dict[str, float]]]) -> str:
    """Return a Markdown table of the medians, with the lowest and the highest [s]."""
    rows = ["| [s] | " + " | ".join(rounds) + " |", "|---|" + "---|" * len(rounds)]
    for stage in ("clone", *STAGES, "total"):
        cells = []
        for found in rounds.values():
            values = [one[stage] for one in found]
            cells.append(f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        rows.append(f"| {stage} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _commit(name: str) -> str:
    found = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{name}^{{commit}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise SystemExit(f"--commits {name}: no such commit. Name one that `git log` shows.")
    return found.stdout.strip()


if __name__ == "__main__":
    main()
