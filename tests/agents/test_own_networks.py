"""Policy classes and features extractors of the user's own: trained, resumed, bundled, exported."""

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
import torch
from gymnasium import spaces
from support.resuming import assert_same_in_pieces
from support.training import tiny_config, train_run

from rlzoo_plus.agents.factory import make_agent, make_policy
from rlzoo_plus.agents.policy import Policy, load_policy
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import (
    PolicyGraph,
    onnx_runner,
    torchscript_runner,
    write_onnx,
    write_torchscript,
)
from rlzoo_plus.export.parity import compare, made_up
from rlzoo_plus.export.signature import make_signature, metadata

REACH = "tests/TinyReach-v0"
FLAT = spaces.Box(-np.inf, np.inf, (3,), np.float32)
ARM = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32))
MINE = "support.user_policies"
OWN = {
    "ppo": ("ppo", ARM, (f"network.policy={MINE}.Shifted",)),
    "sac": ("sac", ARM, (f"network.policy={MINE}.ShiftedSAC",)),
    "td3": ("td3", ARM, (f"network.policy={MINE}.ShiftedTD3",)),
    "discrete": ("ppo", spaces.Discrete(4), (f"network.policy={MINE}.Chooses",)),
    "extractor": ("ppo", ARM, (f"network.features_extractor={MINE}.Scaled",)),
}


def _policy(name):
    algo, actions, overrides = OWN[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make_policy(tiny_config(algo, REACH, *overrides), FLAT, actions)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return Policy(network, None, maskable=False)


@pytest.mark.parametrize("name", OWN)
def test_a_torchscript_file_acts_as_the_class(name):
    policy = _policy(name)
    signature = make_signature(policy)
    run = torchscript_runner(write_torchscript(PolicyGraph(policy, signature), "{}"), signature)
    assert compare(policy, signature, run, made_up(policy, signature)).difference < 1e-5


@pytest.mark.training
@pytest.mark.parametrize("name", OWN)
def test_an_onnx_file_acts_as_the_class(name):
    pytest.importorskip("onnxscript")
    policy = _policy(name)
    signature = make_signature(policy)
    data = write_onnx(PolicyGraph(policy, signature), metadata(signature, policy, {}))
    recording = made_up(policy, signature)
    assert compare(policy, signature, onnx_runner(data), recording).difference < 1e-5


def test_a_class_gets_the_arguments_of_the_configuration_and_its_own():
    overrides = (*OWN["ppo"][2], "network.net_arch=[5]", "network.policy_kwargs={shift: 2.0}")
    network = make_policy(tiny_config("ppo", REACH, *overrides), FLAT, ARM)
    assert network.shift.item() == 2.0
    assert network.mlp_extractor.latent_dim_pi == 5


def test_an_extractor_gets_its_arguments_and_unknown_ones_are_named():
    arguments = "network.features_extractor_kwargs={start: 3.0}"
    config = tiny_config("ppo", REACH, *OWN["extractor"][2], arguments)
    assert make_policy(config, FLAT, ARM).features_extractor.scale.item() == 3.0
    config = tiny_config("ppo", REACH, *OWN["extractor"][2], arguments.replace("start", "strat"))
    with pytest.raises(ConfigError, match="Did you mean 'start'"):
        make_policy(config, FLAT, ARM)


@pytest.mark.parametrize(
    ("algo", "overrides", "message"),
    [
        ("sac", (f"network.policy={MINE}.Shifted",), "does not inherit from SACPolicy"),
        ("ppo", (f"network.policy={MINE}.Scaled",), "is not a BasePolicy"),
        ("ppo", (f"network.policy={MINE}.Absent",), "is not in its module"),
        ("ppo", (f"network.features_extractor={MINE}.Shifted",), "is not a BaseFeaturesExtractor"),
    ],
)
def test_a_class_that_does_not_fit_is_refused_in_one_line(algo, overrides, message):
    config = tiny_config(algo, REACH, *overrides)
    with pytest.raises(ConfigError, match=message):
        make_policy(config, FLAT, ARM)


def test_a_misspelled_kind_of_policy_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean 'mlp'"):
        tiny_config("ppo", REACH, "network.policy=mpl")


def test_a_parameter_that_no_optimizer_has_is_named(caplog):
    config = tiny_config("ppo", REACH, f"network.policy={MINE}.Late")
    make_agent(config, make_train_env(config, 0), 0)
    assert "late is not in its optimizer and does not learn" in caplog.text


@pytest.mark.training
@pytest.mark.parametrize("name", ["ppo", "sac", "extractor"])
def test_a_run_is_resumed_exactly(tmp_path, name):
    algo, _, overrides = OWN[name]
    config = tiny_config(algo, REACH, "n_timesteps=128", "eval.every_steps=64", *overrides)
    assert_same_in_pieces(tmp_path, config, 7 if algo == "sac" else 2)


@pytest.mark.training
@pytest.mark.parametrize("name", ["ppo", "extractor"])
def test_a_bundle_asks_for_trust_before_it_imports_a_class(tmp_path, name):
    algo, _, overrides = OWN[name]
    run_dir, _ = train_run(tmp_path / "run", tiny_config(algo, REACH, *overrides))
    with pytest.raises(ConfigError, match=r"code that is not ours: support\.user_policies"):
        load_policy(run_dir.final)
    policy = load_policy(run_dir.final, trust=True)
    observation = np.zeros((1, 3), np.float32)
    assert policy.predict(observation)[0].shape == (1, 1)
