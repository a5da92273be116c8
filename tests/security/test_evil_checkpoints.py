"""The policy of a checkpoint is taken with the same care as one of a bundle."""

import numpy as np
import pytest
from support.evil_files import DEEP, PICKLE
from support.forged import copy_run

from rlzoo_plus.agents.policy import load_run_policy
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def run(tmp_path):
    return RunDir(copy_run(tmp_path / "run"))


def save(run, edit=lambda state: None):
    """Save a checkpoint with the policy of the best bundle, changed."""
    bundle = load_bundle(run.best)
    state = {
        "spaces": bundle.spaces,
        "agent": {"parameters": {"policy": bundle.weights}},
        "normalizer": bundle.normalization,
    }
    edit(state)
    return run.checkpoints().save(7, state, {})


def test_a_good_checkpoint_acts_as_its_bundle(run):
    save(run)
    policy = load_run_policy(run, "7")
    best = load_run_policy(run, "best")
    observations = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(policy.predict(observations)[0], best.predict(observations)[0])
    assert policy.step == 7


EDITS = {
    "no spaces": lambda s: s.pop("spaces"),
    "no policy": lambda s: s["agent"]["parameters"].clear(),
    "an agent that is text": lambda s: s.update(agent="os.system"),
    "weights that are text": lambda s: s["agent"]["parameters"].update(policy="os.system"),
    "weights that are numbers": lambda s: s["agent"]["parameters"].update(policy={"a": 1}),
    "other weights": lambda s: s["agent"]["parameters"]["policy"].update(log_std=np.zeros(10**6)),
    "a huge space": lambda s: s["spaces"].update(
        observation={"type": "discrete", "n": 10**9, "start": 0}
    ),
    "a normalizer that is text": lambda s: s.update(normalizer="os.system"),
    "a normalizer of another shape": lambda s: s["normalizer"]["mean"].update({"": np.zeros(99)}),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_evil_checkpoint_is_a_user_error(run, name):
    save(run, EDITS[name])
    with pytest.raises(ConfigError) as error:
        load_run_policy(run, "7")
    assert str(error.value).isprintable()


@pytest.mark.parametrize("content", [PICKLE, DEEP.encode(), b""])
def test_a_changed_checkpoint_is_a_user_error(run, content):
    for file in save(run).iterdir():
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="damaged"):
        load_run_policy(run, "7")


@pytest.mark.parametrize("which", ["\u00b2", "\u0663", "-1", "../best", "9" * 5000, "7.5", ""])
def test_a_policy_that_cannot_be_named_so_is_a_user_error(run, which):
    with pytest.raises(ConfigError, match="must be best, final or the step"):
        load_run_policy(run, which)


def test_folders_with_odd_names_do_not_hide_the_error(run):
    (run.path / "checkpoints" / "\u00b2").mkdir(parents=True)
    with pytest.raises(ConfigError, match="has no checkpoint at step 7"):
        load_run_policy(run, "7")
