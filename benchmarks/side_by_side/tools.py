"""The tools that are compared, how each is started, and what a process took."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import ONE_THREAD, ROOT
from benchmarks.side_by_side.cases import Case, values_of, write_sb3_file, write_zoo_file

ZOO_VERSION = "2.9.2"
ZOO = ROOT / "build" / f"rl_zoo3-{ZOO_VERSION}"
OURS, FAST, HALF, ZOO_DEFAULT, ZOO_ONE, SB3 = (
    "rlzoo_plus",
    "rlzoo_plus, fast",
    "rlzoo_plus, bfloat16",
    "rl_zoo3",
    "rl_zoo3, 1 thread",
    "SB3",
)
_PLAIN = Path(__file__).with_name("plain_sb3.py")
_MIB = 2**20


@dataclass(frozen=True)
class Took:
    """What a command took, with all its processes.

    Attributes:
        wall_s: Wall-clock time [s].
        cpu_s: Processor time [s].
        memory_mib: Largest memory of one process [MiB].
    """

    wall_s: float
    cpu_s: float
    memory_mib: float


@dataclass(frozen=True)
class Tool:
    """A tool under one setting.

    Attributes:
        name: Its name in the table.
        train: Returns the command that trains a case for some steps, given a folder for files.
        help: The command that prints its help.
        environ: Its environment variables.
    """

    name: str
    train: Callable[[Case, int, Path], list[str]]
    help: list[str]
    environ: Mapping[str, str]


def run(commands: Iterable[list[str]], environ: Mapping[str, str], cores: set[int]) -> Took:
    """Run commands at once, in an empty folder each, on these cores; return what all took.

    Raises:
        SystemExit: One failed.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
        started = []
        for number, command in enumerate(commands):
            place = Path(folder) / str(number)
            place.mkdir()
            started.append((command, place, start(command, place, variables, cores)))
        cpu_s = memory = 0.0
        for command, place, process in started:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output = (place / "output.txt").read_text(errors="replace")[-3000:]
                raise SystemExit(f"{' '.join(command)} failed:\n{output}")
            cpu_s += usage.ru_utime + usage.ru_stime
            memory = max(memory, usage.ru_maxrss * 1024 / _MIB)
    return Took(time.perf_counter() - began, cpu_s, memory)


def start(
    command: list[str], place: Path, variables: dict[str, str], cores: set[int]
) -> subprocess.Popen[bytes]:
    """Start a command in a folder on these cores; what it prints goes to its output.txt."""
    with (place / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, cwd=place, env=variables, stdout=output, stderr=output)
    # Its children, and the threads that it starts later, inherit them.
    os.sched_setaffinity(process.pid, cores)
    return process


def tools() -> list[Tool]:
    """Return all tools; installs rl_zoo3 in a virtual environment of its own if it is missing."""
    python = _install_zoo()
    zoo_help = [str(python), "-m", "rl_zoo3.train", "--help"]
    our_help = [sys.executable, str(ROOT / "train.py"), "--help"]
    return [
        Tool(OURS, _ours, our_help, {}),
        Tool(FAST, _fast, [], {}),
        Tool(HALF, _half, [], {}),
        Tool(ZOO_DEFAULT, _zoo, zoo_help, {}),
        Tool(ZOO_ONE, _zoo, zoo_help, ONE_THREAD),
        Tool(SB3, _sb3, [], ONE_THREAD),
    ]


def _ours(case: Case, steps: int, _folder: Path) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *case.overrides, f"n_timesteps={steps}"]


def _fast(case: Case, steps: int, folder: Path) -> list[str]:
    return [*_ours(case, steps, folder), "fast=true"]


def _half(case: Case, steps: int, folder: Path) -> list[str]:
    return [*_ours(case, steps, folder), "fast=bfloat16"]


def _zoo(case: Case, steps: int, folder: Path) -> list[str]:
    values = values_of(case)
    command = [str(ZOO / "bin" / "python"), "-m", "rl_zoo3.train", "--algo", case.algo]
    command += ["--env", values["env"], "--n-timesteps", str(steps), "--device", "cpu"]
    command += ["--seed", "0", "--conf-file", str(write_zoo_file(case, folder))]
    if values["packages"]:
        command += ["--gym-packages", *values["packages"]]
    if values["env_kwargs"]:
        pairs = (f"{name}:{value!r}" for name, value in values["env_kwargs"].items())
        command += ["--env-kwargs", *pairs]
    if case.saves is None:
        return [*command, "--eval-freq", "-1"]
    every, episodes = str(case.saves), str(case.episodes)
    return [*command, "--eval-freq", every, "--save-freq", every, "--eval-episodes", episodes]


def _sb3(case: Case, steps: int, folder: Path) -> list[str]:
    return [sys.executable, str(_PLAIN), str(write_sb3_file(case, folder)), str(steps)]


def _install_zoo() -> Path:
    """Return the interpreter of rl_zoo3's environment: the same versions as ours."""
    python, done = ZOO / "bin" / "python", ZOO / ".installed"
    if done.is_file():
        return python
    print(f"installing rl_zoo3 {ZOO_VERSION} into {ZOO.relative_to(ROOT)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(ZOO)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (torch,) = (line for line in constraints if line.startswith("torch=="))
    subprocess.run([*install, torch], check=True)
    packages = [f"rl-zoo3=={ZOO_VERSION}", "pybullet-envs-gymnasium", "pybullet"]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), *packages], check=True)
    done.touch()
    return python
