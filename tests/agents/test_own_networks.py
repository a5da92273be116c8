"""Policy classes and features extractors of the user's own: how they are made, and bundled."""

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
from support.policies import ARM, FLAT, MINE
from support.training import tiny_config, train_run

from rlzoo_plus.agents.factory import make_agent, make_policy
from rlzoo_plus.agents.policy import load_policy
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

REACH = "tests/TinyReach-v0"
POLICY = f"network.policy={MINE}.Shifted"
EXTRACTOR = f"network.features_extractor={MINE}.Scaled"


def test_a_class_gets_the_arguments_of_the_configuration_and_its_own():
    overrides = (POLICY, "network.net_arch=[5]", "network.policy_kwargs={shift: 2.0}")
    network = make_policy(tiny_config("ppo", REACH, *overrides), FLAT, ARM)
    assert network.shift.item() == 2.0
    assert network.mlp_extractor.latent_dim_pi == 5


def test_an_extractor_gets_its_arguments_and_unknown_ones_are_named():
    arguments = "network.features_extractor_kwargs={start: 3.0}"
    config = tiny_config("ppo", REACH, EXTRACTOR, arguments)
    assert make_policy(config, FLAT, ARM).features_extractor.scale.item() == 3.0
    config = tiny_config("ppo", REACH, EXTRACTOR, arguments.replace("start", "strat"))
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


@pytest.mark.parametrize("algo", ["ppo", "a2c", "trpo", "recurrent_ppo", "dqn", "qrdqn", "sac"])
def test_networks_that_follow_others_need_no_optimizer(algo, caplog):
    config = tiny_config(algo, REACH if algo == "sac" else "CartPole-v1")
    make_agent(config, make_train_env(config, 0), 0)
    assert "does not learn" not in caplog.text


@pytest.mark.training
@pytest.mark.parametrize("override", [POLICY, EXTRACTOR])
def test_a_bundle_asks_for_trust_before_it_imports_a_class(tmp_path, override):
    run_dir, _ = train_run(tmp_path / "run", tiny_config("ppo", REACH, override))
    with pytest.raises(ConfigError, match=r"code that is not ours: support\.user_policies"):
        load_policy(run_dir.final)
    policy = load_policy(run_dir.final, trust=True)
    observation = np.zeros((1, 3), np.float32)
    assert policy.predict(observation)[0].shape == (1, 1)
