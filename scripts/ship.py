"""Make an entry of trained/ of finished runs: the policy, what it earns, a video, a curve.

    python -m scripts.ship RUN [RUN ...] [--as NAME]     # seeds of one task
    python -m scripts.ship                               # the table in docs/trained.md alone

Of several runs the one with the best evaluation during its training is taken: held-out episodes
choose nothing. NAME is by default that of the environment, with the engine unless it is Bullet. The
same run gives the same files. Prints a line for each entry; exit code 1: it does not verify.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image

import rlzoo_plus as rz
from rlzoo_plus.analysis.shipped_runs import TRAINED, trained_dir
from rlzoo_plus.artifacts.atomic import write_atomic, write_json
from rlzoo_plus.envs.engine import engine_of
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.hub.package import PLACES, copy_folder, copy_run
from rlzoo_plus.policies.shipped_table import OTHER_ENGINE, markdown, read_shipped, shipped_policies
from rlzoo_plus.policies.verification import EPISODES, record_evaluation, verify
from rlzoo_plus.training.media import ONE_WAY, record_video, repeatable
from robots.engines import BULLET, ENGINES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "trained.md"
N_EPISODES, N_OTHER, N_VERIFIED = 100, 30, 10
# Of one entry (all are below 10 MB, as the tests check), and of its video.
LARGEST_BYTES, LARGEST_VIDEO_BYTES = 900_000, 150_000
FILES = ("config.yaml", "command.txt", "provenance.json", "status.json", "result.json")
VIDEO_S, VIDEO_WIDTH, QUALITIES = 8.0, 320, ("26", "30", "34", "38")
COLOURS = 48
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
# Paths that only one machine has.
_PATH = re.compile(rb"(?<![\w.])/(?:home|root|work|tmp|Users|mnt|var|opt|srv|private)/")


def main() -> int:
    """Make the entry, and the table anew; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", metavar="RUN", help="finished runs of one task")
    parser.add_argument("--as", dest="name", metavar="NAME", help="below trained/")
    options = parser.parse_args()
    code = 0
    try:
        if options.runs:
            code = _ship([rz.Run.open(run) for run in options.runs], options.name)
        policies = shipped_policies()
    except ConfigError as error:
        raise SystemExit(f"error: {error}") from error
    table = f"\n{markdown(policies)}\n\n"
    write_atomic(PAGE, _TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8")))
    total = sum(one.size_bytes for one in policies)
    print(f"{len(policies)} policies, {total / 1e6:.2f} MB; {PAGE.relative_to(ROOT)} is up to date")
    return code


def _ship(runs: list[rz.Run], name: str | None) -> int:
    run = best_of(runs)
    engine = engine_of(run.config.env)
    named = [run.config.env.name, None if engine == BULLET else engine]
    name = (name or "_".join(filter(None, named))).removeprefix(f"{TRAINED}/")
    if not re.fullmatch("[a-z0-9_]+", name):
        raise ConfigError(f"{name!r} is no name: small letters, digits and _, as in a1_walk_mujoco")
    folder = trained_dir() / name
    with tempfile.TemporaryDirectory() as made:
        make_entry(run, Path(made))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    found, one = verify(rz.Run.open(folder), first=N_VERIFIED), read_shipped(folder)
    print(f"{TRAINED}/{name}: {one.score}, success {one.success_rate}, {one.size_bytes:,} bytes, "
          f"seed {one.seed} of {len(runs)}; {found.text.partition(':')[0]}, "
          f"{'bit for bit' if found.is_exact else found.text}")  # fmt: skip
    return 0 if found.holds else 1


def best_of(runs: list[rz.Run]) -> rz.Run:
    """Return the run with the best evaluation during its training."""
    for run in runs:
        if run.status != "finished" or not run.run_dir.best.is_dir():
            raise ConfigError(f"{run.path} is {run.status}. Ship finished runs with a best policy.")
    tasks = {(run.config.env.id, str(run.config.env.kwargs), run.config.algo.name) for run in runs}
    if len(tasks) > 1:
        raise ConfigError("the runs differ in more than their seed. Ship those of one task.")
    return max(runs, key=lambda run: (run.result or {})["best"]["mean_return"])


def make_entry(run: rz.Run, folder: Path) -> None:
    """Write everything that is shipped of a run to an empty folder, and check it.

    Raises:
        ConfigError: It is too large, or names this machine.
    """
    copy_folder(run.run_dir.best, folder / "best")
    copy_run(run.run_dir, run.config, folder, (*FILES, "evaluations.jsonl"))
    write_atomic(folder / "command.txt", _commands(run.run_dir.command_file.read_text()))
    record_evaluation(run, folder / EPISODES, N_EPISODES, which="best", hashed=True)
    if (other := _on_other_engine(run)) is not None:
        write_json(folder / OTHER_ENGINE, other)
    _draw_video(run, folder / "videos" / "best.mp4")
    _draw_curve(run, folder / "plots" / "learning_curve.png")
    check(folder)


def _commands(text: str) -> str:
    """Return command lines without the places of this machine."""
    lines = ([*shlex.split(line)] for line in text.splitlines())
    kept = ([word for word in line if word.partition("=")[0] not in PLACES] for line in lines)
    return "".join(f"{shlex.join(line)}\n" for line in kept)


def _on_other_engine(run: rz.Run) -> dict[str, Any] | None:
    """Return what the policy earns on another physics engine, None where it is no robot's."""
    engine = engine_of(run.config.env)
    if engine is None:
        return None
    other = next(name for name in ENGINES if name != engine)
    found = run.evaluate(N_OTHER, which="best", overrides=[f"env.kwargs.engine={other}"])
    names = ("engine", "episodes", "mean_return", "std_return", "success_rate", "returns")
    return {name: found[name] for name in names}


def _draw_video(run: rz.Run, path: Path) -> None:
    """Record a video, and make it smaller until it is small enough."""
    full = path.with_name("full.mp4")
    label = f"{run.config.algo.name}, best"
    with repeatable():
        record_video(run.config, [(label, run.policy("best"))], full, seconds=VIDEO_S)
    for quality in QUALITIES:
        _shrink(full, path, quality)
        if path.stat().st_size <= LARGEST_VIDEO_BYTES:
            break
    full.unlink()


def _shrink(full: Path, path: Path, quality: str) -> None:
    with av.open(str(full)) as source, av.open(str(path), "w", format="mp4") as target:
        seen = source.streams.video[0]
        height = round(VIDEO_WIDTH * seen.height / seen.width / 2) * 2
        options = {"crf": quality, "preset": "veryslow", **ONE_WAY}
        rate = Fraction(seen.average_rate or 30)
        stream = target.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = VIDEO_WIDTH, height, "yuv420p"
        for frame in _pictures(source.decode(video=0), (VIDEO_WIDTH, height)):
            target.mux(stream.encode(frame))
        target.mux(stream.encode())


def _pictures(frames: Any, size: tuple[int, int]) -> Iterator[av.VideoFrame]:
    for frame in frames:
        small = Image.fromarray(frame.to_ndarray(format="rgb24")).resize(size, Image.Resampling.BOX)
        yield av.VideoFrame.from_ndarray(np.asarray(small), format="rgb24")


def _draw_curve(run: rz.Run, path: Path) -> None:
    """Draw the learning curve at half its size, with few colours."""
    run.plot(path)
    with Image.open(path) as drawn:
        half = (drawn.width // 2, drawn.height // 2)
        small = drawn.convert("RGB").resize(half, Image.Resampling.LANCZOS)
    small.quantize(COLOURS).save(path, optimize=True)


def check(folder: Path) -> None:
    """Refuse what is too large, or names a place of this machine."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if size > LARGEST_BYTES:
        parts = ", ".join(f"{f.relative_to(folder)} {f.stat().st_size:,}" for f in files)
        raise ConfigError(f"{folder} has {size:,} bytes, {LARGEST_BYTES:,} are allowed: {parts}")
    for file in files:
        if found := _PATH.search(file.read_bytes()):
            raise ConfigError(f"{file} names a place of this machine: {found[0]!r}")


if __name__ == "__main__":
    sys.exit(main())
