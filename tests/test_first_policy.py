"""What the benchmark of the first policy reads from `make train`."""

import subprocess

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


def test_the_table_has_medians_and_ranges():
    rounds = [dict.fromkeys(("clone", *STAGES, "total"), seconds) for seconds in (1.0, 2.0, 4.0)]
    rows = table({"HEAD": rounds}).splitlines()
    assert rows[0] == "| [s] | HEAD |"
    assert rows[-1] == "| total | 2.0 (1.0 to 4.0) |"
    assert len(rows) == 2 + len(STAGES) + 2
