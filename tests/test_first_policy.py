"""The set-up of `make train`, and what the benchmark of the first policy reads from it."""

import os
import signal
import subprocess
import sys

from support.processes import wait_for

from benchmarks.first_policy import STAGES, table
from benchmarks.processes import ROOT


def test_make_train_prints_where_each_stage_begins(tmp_path):
    command = ["make", "--dry-run", "train", f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    begins = [
        next(number for number, line in enumerate(lines) if text in line)
        for text in STAGES.values()
    ]
    assert begins == sorted(set(begins))


def test_the_set_up_compiles_in_the_background_and_leaves_whole_modules_when_killed(tmp_path):
    lib, started = tmp_path / "lib", tmp_path / "started"
    for folder in (lib, tmp_path / "bin"):
        folder.mkdir()
    names = [f"module_{number}" for number in range(400)]
    for name in names:
        (lib / f"{name}.py").write_text("values = [" + "1, " * 2000 + "]\n")
    # pip does nothing here; what compiles says its process and its priority, and begins late.
    python = tmp_path / "bin" / "python"
    says = f"echo $$ $(nice) > {started}; sleep 1; exec {sys.executable} -m compileall -q {lib}"
    python.write_text(f'#!/bin/sh\ncase "$*" in *compileall*) {says};; esac\n')
    python.chmod(0o755)
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("PYTHONPYCACHEPREFIX", None)
    command = ["make", f"{tmp_path}/.ready", f"VENV={tmp_path}"]
    subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=True)
    assert not list(lib.rglob("*.pyc")), "the command waited"
    wait_for(lambda: list(lib.rglob("*.pyc")))
    process, priority = map(int, started.read_text().split())
    os.kill(process, signal.SIGKILL)
    assert priority == 19
    assert 0 < len(list(lib.rglob("*.pyc"))) < len(names)
    imports = f"import sys; sys.path.insert(0, {str(lib)!r}); import {', '.join(names)}"
    subprocess.run([sys.executable, "-c", imports], env=environ, check=True)


def test_the_table_has_medians_and_ranges():
    rounds = [dict.fromkeys(("clone", *STAGES, "total"), seconds) for seconds in (1.0, 2.0, 4.0)]
    rows = table({"HEAD": rounds}).splitlines()
    assert rows[0] == "| [s] | HEAD |"
    assert rows[-1] == "| total | 2.0 (1.0 to 4.0) |"
    assert len(rows) == 2 + len(STAGES) + 2
