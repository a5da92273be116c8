"""What is wrong with an environment of the user's own is told before training, in one line."""

import numpy as np
import pytest
from gymnasium import spaces
from support.training import make_config

from rlzoo_plus.envs import fit
from rlzoo_plus.envs.fit import inspect_env
from rlzoo_plus.errors import ConfigError

WRONG = {
    "OldReset": r"reset\(seed=...\) raises TypeError.*'seed'.*migration_guide",
    "OldReturn": r"reset\(\) returns an array of shape \(3,\), not \(observation.*migration",
    "OldStep": r"step\(\) returns 4 values, not .*terminated, truncated.*migration_guide",
    "OldSpaces": r"action_space is a support\.old_envs\.OldSpace, not one of gymnasium\.spaces",
    "NoSpaces": "has no observation_space",
    "OtherShape": r"an array of shape \(5,\).*of shape \(3,\)",
    "OtherKeys": r"keys \['b'\].*\['a'\]",
    "NoReward": r"reward of its step\(\) is None",
    "BrokenInit": r"cannot be made: RuntimeError: no licence \(\S*old_envs\.py, line \d+\)",
    "LeavingReset": r"reset\(seed=...\) raises SystemExit: bye \(\S*old_envs\.py",
    "BrokenStep": r"step\(\) raises ZeroDivisionError: boom \(\S*old_envs\.py",
    "Nothing": r"shape \(0,\), with nothing in them",
    "NotAnEnv": "must inherit from the gymnasium.Env class",
}


def own(name, *changes):
    return make_config(
        "algo=ppo", f"env.id=own/{name}-v0", "env.packages=[support.old_envs]", *changes
    )


@pytest.mark.parametrize("name", list(WRONG))
def test_an_environment_that_breaks_its_promise_is_told_in_one_line(name):
    with pytest.raises(ConfigError, match=WRONG[name]) as caught:
        inspect_env(own(name))
    assert f"own/{name}-v0" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["OwnEnv", "TwoDice"])
def test_an_environment_that_keeps_it_passes(name):
    assert inspect_env(own(name)).action_space == spaces.Discrete(2)


def test_only_boxes_are_stacked():
    with pytest.raises(ConfigError, match=r"frame_stack=3.*MultiDiscrete.*flatten_observation"):
        inspect_env(own("TwoDice", "env.frame_stack=3"))
    flat = own("TwoDice", "env.frame_stack=3", "env.wrappers=[flatten_observation]")
    assert isinstance(inspect_env(flat).observation_space, spaces.Box)


@pytest.fixture
def small_machine(monkeypatch):
    """A machine with 64 MiB."""
    monkeypatch.setattr(fit, "total_memory_bytes", lambda: 2**26)


BOX = spaces.Box(-1, 1, (100,), np.float32)


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("algo=sac n_timesteps=1e6", "algo.hyperparams.buffer_size=1000000"),
        ("algo=sac n_timesteps=10 algo.hyperparams.batch_size=1e6", "batch_size=1000000"),
        ("algo=ppo n_envs=64 algo.hyperparams.n_steps=1e4", "n_steps=10000 with n_envs=64"),
        ("algo=ppo env.frame_stack=1e6", "env.frame_stack=1000000"),
    ],
)
def test_buffers_beyond_the_memory_name_their_key(line, key):
    config = make_config("env.id=Pendulum-v1", *line.split())
    with pytest.raises(ConfigError, match=rf"{key} needs .* GiB of memory"):
        fit.check_memory(config, BOX, spaces.Box(-1, 1, (2,)))


@pytest.mark.usefixtures("small_machine")
def test_a_buffer_that_is_never_filled_takes_no_memory():
    config = make_config("env.id=Pendulum-v1", "algo=sac", "n_timesteps=100")
    fit.check_memory(config, BOX, spaces.Box(-1, 1, (2,)))


def test_the_memory_of_this_machine_is_known():
    assert fit.total_memory_bytes() > 2**28
