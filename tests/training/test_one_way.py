"""One way through a run: few frames of ours lie between the verb `train` and what a run does."""

import sys
from pathlib import Path

import pytest
from stable_baselines3.common.base_class import BaseAlgorithm
from support.training import OFF_POLICY, SMALL, TINY

import rlzoo_plus
from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.commands import train
from rlzoo_plus.training.resume.snapshot import RunSnapshot

OURS = str(Path(rlzoo_plus.__file__).parent)
OPTIONS = (
    *("env.id=tests/TinyReach-v0", "eval.every_steps=32", "checkpoint.every_steps=32"),
    *("eval.beside=never", "report.plot=false", "report.video=false"),
)
# Where it happens, and the most frames of ours that may be on the stack then.
LIMITS = {
    "an agent is built": (BaseAlgorithm, "__init__", 6),
    "an evaluation acts": (Policy, "predict", 12),
    "a checkpoint is taken": (RunSnapshot, "take", 12),
}


def frames_of_ours():
    """Return the functions of the package that have been entered, from the verb on."""
    frame, found = sys._getframe(2), []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(OURS):
            found.append(f"{Path(code.co_filename).name} {code.co_name}")
        frame = frame.f_back
    return found[::-1]


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_run_is_few_frames_below_the_verb(algo, in_process, monkeypatch):
    deepest = {what: [] for what in LIMITS}

    def watch(what, owner, name):
        original = getattr(owner, name)

        def watched(*args, **kwargs):
            deepest[what] = max(frames_of_ours(), deepest[what], key=len)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    for what, (owner, name, _) in LIMITS.items():
        watch(what, owner, name)
    small = SMALL.get(algo, OFF_POLICY)
    arguments = [f"algo={algo}", "run_dir=run", *TINY, *small, *OPTIONS]
    assert train.main(arguments) == 0
    for what, (_, _, most) in LIMITS.items():
        assert deepest[what][:1] == ["train.py main"], what
        assert len(deepest[what]) <= most, f"{what}: {' > '.join(deepest[what])}"
