"""Which rows of `python -m benchmarks.resume_matrix` are run, and what it says of a wrong name."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.processes import ROOT


@pytest.fixture
def matrix():
    """Return a function: arguments of the benchmark to exit code, output and errors."""

    def run(*arguments):
        command = [sys.executable, "-m", "benchmarks.resume_matrix", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_name_of_no_row_is_a_mistake_that_names_the_rows(matrix):
    code, out, err = matrix("--only", "ppo goal", "--only", "nowhere")
    assert (code, out) == (2, "")
    assert "--only nowhere" in err
    assert "ppo cart-pole" in err
    assert "Traceback" not in err


def test_a_list_holds_the_chosen_commands_and_no_verdict(matrix):
    code, out, _ = matrix("--list", "--only", "ppo goal", "--only", "OU noise")
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[:3] for line in lines] == [
        ["rlzoo-plus", "verify-resume", "algo=ppo"],
        ["rlzoo-plus", "verify-resume", "algo=td3"],
    ]
    assert "'algo.action_noise={type: ou, std: 0.2}'" in lines[1]


def test_without_names_all_rows_are_chosen(matrix):
    code, out, _ = matrix("--list")
    assert code == 0
    of_sbx = 0 if find_spec("sbx") is None else 7
    assert len(set(out.splitlines())) == 59 + of_sbx
