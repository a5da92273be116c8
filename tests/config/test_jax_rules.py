"""Algorithms of sbx, without their library: how it is installed, and what they refuse."""

import sys

import pytest
from support.libraries import NEEDS_SBX
from support.training import make_config

from rlzoo_plus.agents.factory import algorithm_class
from rlzoo_plus.config import jax_rules, signatures
from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.hyperparams import fit_hyperparams
from rlzoo_plus.errors import ConfigError

INSTALL = r"pip install 'rlzoo-plus\[sbx\]'"


def check(algo, *overrides, of="sac"):
    """Check what an algorithm of SB3 would accept as if it were for one of sbx."""
    jax_rules.check_jax(make_config(f"algo={of}", "tuned=none", *overrides), ALGORITHMS[algo])


def test_a_missing_library_is_one_line_that_names_the_extra(monkeypatch):
    found = signatures.find_spec
    monkeypatch.setattr(signatures, "find_spec", lambda n: None if n == "sbx" else found(n))
    signatures.constructor_arguments.cache_clear()
    with pytest.raises(ConfigError, match=INSTALL) as error:
        make_config("algo=sbx_sac", "n_timesteps=77")
    assert "\n" not in str(error.value)
    signatures.constructor_arguments.cache_clear()


def test_so_is_a_policy_whose_library_is_missing(monkeypatch):
    monkeypatch.setattr("rlzoo_plus.agents.factory.find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "sbx", raising=False)
    with pytest.raises(ConfigError, match=INSTALL):
        algorithm_class(ALGORITHMS["sbx_ppo"])


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("device=cuda", "device=cpu"),
        ("freeze=[actor]", "Leave freeze out"),
        ("export.sb3_zip=true", "pickled code"),
        ("callbacks=[gradients]", "networks of torch"),
        ("callbacks=[{q_values: {every_steps: 10}}]", "networks of torch"),
        ("network.activation=torch.nn.Hardtanh", "has tanh, relu"),
        ("network.optimizer=rmsprop_tf", "has adam, adamw"),
        ("network.log_std_init=-1", "does not use it"),
        ("network.use_expln=true", "does not use it"),
        ("network.features_extractor=attention", "does not use it"),
    ],
)
def test_what_cannot_be_done_with_jax_is_refused(override, why):
    with pytest.raises(ConfigError, match=why):
        check("sbx_sac", override)


def test_what_it_uses_is_accepted():
    check("sbx_sac", "network.n_critics=3", "network.activation=elu", "network.optimizer=adamw")
    check("sbx_ppo", "network.log_std_init=-1", "network.ortho_init=true", of="ppo")
    check("sbx_tqc", "network.n_quantiles=10", of="tqc")


def test_a_learning_rate_that_is_kept_is_no_schedule():
    check("sbx_sac", "algo.hyperparams.learning_rate=lin_3e-4")
    with pytest.raises(ConfigError, match="keeps its learning rate"):
        check("sbx_td3", "algo.hyperparams.learning_rate=lin_3e-4", of="td3")


@pytest.mark.parametrize("arch", ["[64]", "[64,32]", "[64,64,64]"])
def test_dqn_has_two_layers_of_the_same_size(arch):
    discrete = ("env.kwargs.discrete=true",)
    check("sbx_dqn", "network.net_arch=[64,64]", *discrete, of="dqn")
    with pytest.raises(ConfigError, match="two layers"):
        check("sbx_dqn", f"network.net_arch={arch}", *discrete, of="dqn")


@NEEDS_SBX
@pytest.mark.parametrize(
    ("algo", "key"), [("sbx_ppo", "clip_range_vf"), ("sbx_sac", "use_sde"), ("sbx_ppo", "use_sde")]
)
def test_an_argument_without_its_effect_is_refused(algo, key):
    config = make_config("algo=ppo").algo.model_copy(update={"hyperparams": {key: 0.2}})
    with pytest.raises(ConfigError, match=f"{key}=0.2: {algo} takes it and does not do"):
        fit_hyperparams(config, ALGORITHMS[algo])


def test_the_names_here_are_those_that_can_be_built():
    jax_agents = pytest.importorskip("rlzoo_plus.agents.jax_agents", exc_type=ImportError)
    assert set(jax_agents.ACTIVATIONS) == set(jax_rules.ACTIVATIONS)
    assert set(jax_agents.OPTIMIZERS) == set(jax_rules.OPTIMIZERS)
