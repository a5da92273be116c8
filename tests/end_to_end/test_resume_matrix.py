"""Which rows of `python -m benchmarks.resume_matrix` are run, and what it says of a wrong name."""

import sys
from importlib.util import find_spec

import pytest

from benchmarks.resume_matrix import main


@pytest.fixture
def matrix(monkeypatch, capsys):
    """Return a function: arguments of the benchmark to exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["resume_matrix", *arguments])
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def test_a_name_of_no_row_is_a_mistake_that_names_the_rows(matrix):
    code, out, err = matrix("--only", "ppo goal", "--only", "nowhere")
    assert (code, out) == (2, "")
    assert "--only nowhere" in err
    assert "ppo cart-pole" in err


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
    assert len(set(out.splitlines())) == 93 + of_sbx
