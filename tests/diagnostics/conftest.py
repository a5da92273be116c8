"""The commands' fixtures, and the supports of all tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

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
