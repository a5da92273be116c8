"""What a sweep of many jobs costs besides its training: time and memory of the controller.

The jobs are instant: they write that they are finished, in the process of the command
(`infra=debug`). Measured are the first output, the start of the first job, the whole command, the
peak of its memory, the same command again, `sweep status`, and a sweep whose jobs are all wrong.

    python -m benchmarks.sweep_planning [--jobs 10000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import ONE_THREAD, ROOT

_CHILD = "--child"


@dataclass(frozen=True)
class Measured:
    """What one command took.

    Attributes:
        first_word_s: Until it printed anything [s].
        planned_s: Until it said how many jobs it runs [s], None if it never did.
        whole_s: Until it ended [s].
        cpu_s: Time of the processor that it took [s].
        memory_mib: The most memory that it held [MiB].
    """

    first_word_s: float
    planned_s: float | None
    whole_s: float
    cpu_s: float
    memory_mib: float

    def __str__(self) -> str:
        planned = "" if self.planned_s is None else f"first job after {self.planned_s:.1f} s, "
        return (
            f"first word after {self.first_word_s:.1f} s, {planned}whole {self.whole_s:.1f} s "
            f"({self.cpu_s:.1f} s of CPU), {self.memory_mib:.0f} MiB"
        )


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == [_CHILD]:
        sys.exit(_child(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args().jobs
    sweep = ["train", "-m", "infra=debug", f"seed=range(0,{jobs})"]
    values = [f"seed=range(0,{jobs // 100})", f"algo.hyperparams.gamma={_gammas(0.9)}"]
    wrong = [f"seed=range(0,{jobs // 100})", f"algo.hyperparams.gamma={_gammas(1.5)}"]
    with tempfile.TemporaryDirectory() as folder:
        for name, command in (
            ("all new", sweep),
            ("the same again", sweep),
            ("sweep status", ["sweep", "status", "default"]),
            ("seeds and 100 values", ["train", "-m", "infra=debug", "sweep=values", *values]),
            ("all of them wrong", ["train", "-m", "infra=debug", "sweep=wrong", *wrong]),
        ):
            print(f"{jobs} jobs, {name}: {_measure(command, Path(folder))}", flush=True)


def _gammas(first: float) -> str:
    return ",".join(f"{first + number / 10_000:.4f}" for number in range(100))


def _measure(command: list[str], folder: Path) -> Measured:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **ONE_THREAD}
    started = time.perf_counter()
    first = planned = None
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sweep_planning", _CHILD, *command],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        first = first or time.perf_counter() - started
        if line.startswith("sweep ") and " at once" in line:
            planned = time.perf_counter() - started
    _, _, usage = os.wait4(process.pid, 0)
    whole = time.perf_counter() - started
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(first or whole, planned, whole, cpu, usage.ru_maxrss / 1024)


def _child(arguments: list[str]) -> int:
    """Run a command whose jobs are instant."""
    from rlzoo_plus.commands import dispatch
    from rlzoo_plus.runs import train_job as job

    job.run_job = _instant  # type: ignore[assignment]
    return dispatch.run(arguments[0], arguments[1:])


def _instant(data: dict[str, dict[str, object]]) -> int:
    config = data["config"]
    path = Path(str(config["run_dir"]))
    path.mkdir(parents=True, exist_ok=True)
    score = {"mean_return": float(zlib.crc32(path.name.encode()) % 100)}
    result = {"best": score, "final": score, "training_time_s": 0.1}
    status = {"state": "finished", "n_timesteps": config["n_timesteps"]}
    # A run waits until the disk has them, which would be measured here.
    (path / "result.json").write_text(json.dumps(result))
    (path / "status.json").write_text(json.dumps(status))
    return 0


if __name__ == "__main__":
    main()
