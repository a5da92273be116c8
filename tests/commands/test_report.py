"""The commands that a run suggests at its end."""

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.train import _saved_policy


@pytest.mark.parametrize(
    ("saved", "option"),
    [
        (("best", "final"), ""),
        (("final", "checkpoints/000000000300"), " --which final"),
        (("checkpoints/000000000100", "checkpoints/000000000300"), " --which 300"),
        ((), ""),
    ],
)
def test_the_suggested_policy_is_one_that_was_saved(tmp_path, saved, option):
    for name in saved:
        (tmp_path / name).mkdir(parents=True)
    assert _saved_policy(RunDir(tmp_path)) == option
