"""Tests of where an agent computes: the device that `auto` takes, and torch's threads."""

import logging

import pytest
import torch
from support.training import tiny_config

from rlzoo_plus.agents.devices import check_device, choose_device, thread_policy
from rlzoo_plus.agents.factory import algorithm_class, make_agent, make_policy
from rlzoo_plus.config.catalog import ALGORITHMS, get_algorithm
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

_ENVS = dict.fromkeys(("dqn", "qrdqn", "sac_discrete"), "CartPole-v1")
_ENVS |= {"her": "tests/TinyGoal-v0", "maskable_ppo": "tests/TinyMasked-v0"}
# Without those that need demonstrations, a teacher or a team.
_ALONE = [
    name
    for name, spec in ALGORITHMS.items()
    if spec.backend == "torch" and spec.clones is None and name != "mappo"
]


@pytest.fixture
def gpu(monkeypatch):
    """A machine where torch sees a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def _chosen(algo, *overrides, env="tests/TinyReach-v0"):
    config = tiny_config(algo, env, "device=auto", *overrides)
    venv = make_train_env(config, 1)
    kind = algorithm_class(get_algorithm(algo))
    hyperparams = dict(config.algo.hyperparams)
    try:
        return choose_device(
            config,
            venv,
            kind,
            hyperparams,
            lambda: make_policy(config, venv.observation_space, venv.action_space),
        )
    finally:
        venv.close()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("algo", "overrides", "device"),
    [
        ("sac", ["network.net_arch=[256,256]", "algo.hyperparams.batch_size=256"], "cpu"),
        ("sac", ["network.net_arch=[1024,1024]", "algo.hyperparams.batch_size=256"], "cuda"),
        ("sac", ["network.net_arch=[256,256]", "algo.hyperparams.batch_size=4096"], "cuda"),
        ("sac", ["device=cpu", "network.net_arch=[2048,2048]"], "cpu"),
        ("sac", ["device=cuda:1", "network.net_arch=[8]"], "cuda:1"),
        ("ppo", ["network.net_arch=[64,64]"], "cpu"),
        # Without a batch size: all steps of a rollout.
        ("a2c", ["network.net_arch=[1024,1024]", "algo.hyperparams.n_steps=5"], "cpu"),
        ("a2c", ["network.net_arch=[1024,1024]", "algo.hyperparams.n_steps=500"], "cuda"),
    ],
)
def test_auto_takes_a_gpu_for_large_updates_only(algo, overrides, device):
    assert _chosen(algo, *overrides) == device


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("env", ["tests/TinyImage-v0", "tests/TinyRgbd-v0"])
def test_auto_takes_a_gpu_for_images(env):
    assert _chosen("ppo", env=env) == "cuda"


def test_auto_stays_auto_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _chosen("sac", "network.net_arch=[1024,1024]") == "auto"


@pytest.mark.parametrize("algo", _ALONE)
def test_the_choice_changes_nothing_of_an_agent(algo, monkeypatch, caplog):
    env = _ENVS.get(algo, "tests/TinyReach-v0")

    def build():
        config = tiny_config(algo, env, "device=auto")
        agent = make_agent(config, make_train_env(config, 1), 1)
        agent.env.close()
        return agent

    plain = build()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with caplog.at_level(logging.INFO, "rlzoo_plus"):
        beside_a_gpu = build()
    assert "auto is the CPU" in caplog.text
    assert beside_a_gpu.device.type == "cpu"
    expected = plain.policy.state_dict()
    for name, value in beside_a_gpu.policy.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_on_policy_algorithms_use_one_thread():
    threads, why = thread_policy(tiny_config("ppo", "tests/TinyReach-v0", "num_threads=auto"))
    assert threads == 1
    assert "num_threads" in why
    assert thread_policy(tiny_config("sac", "tests/TinyReach-v0", "num_threads=3"))[0] == 3


def test_a_lone_off_policy_run_uses_all_cores_that_it_may_use(monkeypatch, tmp_path):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(6)), raising=False)
    monkeypatch.setattr("robots.cores._QUOTA", tmp_path / "none")
    config = tiny_config("sac", "tests/TinyReach-v0", "num_threads=auto")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert thread_policy(config)[0] == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert thread_policy(config)[0] == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    quota = tmp_path / "cpu.max"
    quota.write_text("300000 100000")
    monkeypatch.setattr("robots.cores._QUOTA", quota)
    assert thread_policy(config)[0] == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_device_that_is_not_there_is_a_user_error(device):
    with pytest.raises(ConfigError, match=f"device={device}.*0 CUDA devices.*device=cpu"):
        check_device(device)
    check_device("cpu")
    check_device("auto")
