"""Fixtures for commands: one that is answered in this process, and runs as a process left them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.begun_runs import base, begin, make, spoil  # noqa: F401 - fixtures

from rlzoo_plus.commands import dispatch


@pytest.fixture
def answer(in_process, capsys):
    """Return a function: verb and arguments to exit code and everything that was printed."""

    def answer_it(verb, *arguments):
        try:
            code = dispatch.run(verb, list(arguments))
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return answer_it
