"""A checkpoint with right hashes and a forged state: going on from it is one clear refusal."""

import os
import shutil

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
from support.resuming import StopAfter
from support.training import start_run, tiny_config

from rlzoo_plus.artifacts.atomic import write_folder
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.envs.plain_state import replace_attributes
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
CONFIGS = {
    "ppo": ("normalize=true", "n_timesteps=96"),
    "sac": ("algo.action_noise={type: normal, std: 0.1}",),
}


def config_of(algo):
    return tiny_config(algo, "tests/TinyReach-v0", *CONFIGS[algo])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return runs that were stopped after a few iterations, by algorithm."""
    runs = {}
    for algo in CONFIGS:
        config = config_of(algo)
        run = start_run(tmp_path_factory.mktemp(algo) / "run", config)
        n_iterations = 12 if algo == "sac" else 2
        assert ExpManager(config, run, StopAfter(n_iterations)).train().state == "interrupted"
        runs[algo] = run.path
    return runs


def forge(path, edit):
    """Change the newest checkpoint, and give it the right hashes."""
    store = RunDir(path).checkpoints()
    [*_, step] = store.steps()
    checkpoint = store.load(step)
    state, about = checkpoint.state, dict(checkpoint.about)
    edit(state, about)
    write_folder(checkpoint.path, pack(state), about)


def put(*path, value):
    """Return an edit that sets one entry of the state."""

    def edit(state, about):
        *folders, last = path
        for key in folders:
            state = state[key]
        state[last] = value

    return edit


def attribute(name, value):
    return put("agent", "attributes", name, value=value)


def optimizer_moment(state, about):
    moments = state["agent"]["parameters"]["policy.optimizer"]["state"]
    moments[0]["exp_avg"] = np.zeros((3, 3, 3), np.float32)


def optimizer_setting(state, about):
    group = state["agent"]["parameters"]["policy.optimizer"]["param_groups"][0]
    group["betas"] = "os.system"


def numpy_position(state, about):
    name, words, _, *rest = state["agent"]["random"]["numpy"]
    state["agent"]["random"]["numpy"] = (name, words, 2**31 - 1, *rest)


def callback(key, value):
    return put("callbacks", "0:EvaluationCallback", "account", key, value=value)


FORGERIES = {
    "no agent": lambda state, about: state.pop("agent"),
    "an agent that is text": put("agent", value="os.system"),
    "no environments": lambda state, about: state.pop("envs"),
    "other environments": lambda state, about: state["envs"]["episodes"].clear(),
    "a policy by name": attribute("policy", 1),
    "an environment by name": attribute("env", 1),
    "a logger by name": attribute("_logger", "x"),
    "a method by name": attribute("train", 1),
    "a class by name": attribute("__class__", 1),
    "the hook by name": attribute("before_iteration", None),
    "steps as text": attribute("num_timesteps", "x"),
    "other steps": attribute("num_timesteps", 5),
    "a last observation of another shape": attribute("_last_obs", np.zeros((9, 9), np.float32)),
    "statistics that are text": attribute("ep_info_buffer", [{"r": "x", "l": 1, "t": 0}]),
    "an optimizer's moment of another shape": optimizer_moment,
    "an optimizer's setting as text": optimizer_setting,
    "a generator beyond its memory": numpy_position,
    "a generator of nothing": put("agent", "random", "python", value=(3, np.zeros(2), None)),
    "logged values as text": put("agent", "logger", "values", value={"a\x1b[2J": "x"}),
    "a tensor by name": put("agent", "tensors", value={"policy.log_std": np.zeros(2, np.float32)}),
    "rewards that are none": put("envs", "rewards", value=["x"]),
    "a clock that is none": put("envs", "clock", value=["x"]),
    "a record without numbers": callback("best", {"mean_return": "x"}),
    "a time that is none": callback("next", "x"),
    "an account that is none": put("exactness", value={"resumed_at": "\x1b[2J"}),
    "a training time that is none": put("clock", value={"training_s": "x"}),
    "sizes of logs that are none": lambda state, about: about.update(logs={"a": "x"}),
    "escapes in the manifest": lambda state, about: about.update(unsaved=["\x1b[2J"]),
}
ONLY_PPO = {
    "another mean": lambda state, about: state["envs"]["wrappers"][0]["observation_statistics"][
        ""
    ].update(mean=np.zeros(99)),
    "another return": lambda state, about: state["envs"]["wrappers"][0].update(returns="x"),
}
ONLY_SAC = {
    "a position beyond the buffer": put("buffer", "pos", value=10**9),
    "a buffer of another size": put("buffer", "buffer_size", value=10**9),
    "a method of the buffer": put("buffer", "sample", value=1),
    "noise by name": put("agent", "noise", value={"__call__": 1}),
    "rows that are none": lambda state, about: about["chunks"]["replay"].update(used=10**9),
    "no rows": lambda state, about: about.update(chunks={}),
}
# Passed over like a damaged one.
DAMAGED = ("escapes in the manifest", "rows that are none")
CASES = [("ppo", name) for name in (*FORGERIES, *ONLY_PPO)] + [("sac", name) for name in ONLY_SAC]


@pytest.mark.parametrize(("algo", "name"), CASES)
def test_a_forged_state_is_refused_before_it_is_used(stopped, tmp_path, monkeypatch, algo, name):
    monkeypatch.setattr(os, "system", lambda command: pytest.fail(command))
    run = RunDir(shutil.copytree(stopped[algo], tmp_path / "run"))
    forge(run.path, {**FORGERIES, **ONLY_PPO, **ONLY_SAC}[name])
    if name in DAMAGED:
        assert RunDir(run.path).checkpoints().load_newest() is None
        return
    with pytest.raises(ConfigError, match="does not fit this run") as error:
        ExpManager(config_of(algo), run).train()
    assert str(error.value).isprintable()


@pytest.mark.parametrize("algo", CONFIGS)
def test_a_checkpoint_that_was_not_forged_is_taken(stopped, tmp_path, algo):
    run = RunDir(shutil.copytree(stopped[algo], tmp_path / "run"))
    forge(run.path, lambda state, about: None)
    result = ExpManager(config_of(algo), run).train()
    assert result.state == "finished"
    assert result.exact, result.inexact_because


class Counter:
    """Something with a number, a method and a part."""

    steps_at_class = 0

    def __init__(self):
        self.steps, self.part = 1, object()

    def act(self):
        return self.steps


@pytest.mark.parametrize("name", ["act", "part", "__class__", "__dict__"])
def test_only_plain_attributes_are_replaced(name):
    with pytest.raises(ValueError, match=name):
        replace_attributes(Counter(), {name: 3})


def test_what_the_first_step_would_set_can_be_put_back():
    counter = Counter()
    replace_attributes(counter, {"steps": 5, "steps_at_class": 6, "later": [1, 2]})
    assert (counter.act(), counter.steps_at_class, counter.later) == (5, 6, [1, 2])
