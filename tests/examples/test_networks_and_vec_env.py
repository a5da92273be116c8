"""The examples of a features extractor, a policy class and a VecEnv keep to their contracts."""

from pathlib import Path

import pytest
from support.training import make_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.testing import NetworkContract, VecEnvContract
from rlzoo_plus.testing.run_contract import OFF_POLICY

pytestmark = pytest.mark.training
EXAMPLES = Path(__file__).parents[2] / "examples"


class TestResidualExtractor(NetworkContract):
    folder = EXAMPLES
    short = OFF_POLICY
    overrides = (
        "algo=sac",
        "network.features_extractor=residual_extractor.ResidualExtractor",
        "network.features_extractor_kwargs={width: 16}",
    )


class TestBetaPolicy(NetworkContract):
    folder = EXAMPLES
    overrides = ("network.policy=beta_policy.BetaPolicy", "network.net_arch=[16]")


def test_a_policy_without_gsde_is_refused_where_tuned_values_want_it(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    config = make_config("env=pendulum", *TestBetaPolicy.overrides)
    assert config.algo.hyperparams["use_sde"]
    with pytest.raises(ConfigError, match=r"without gSDE\. Set algo\.hyperparams\.use_sde=false"):
        make_agent(config, make_train_env(config, 1), 1)


class TestPointMasses(VecEnvContract):
    folder = EXAMPLES
    overrides = (
        "vec_env=point_mass_vec_env.PointMasses",
        "env=gym",
        "env.id=PointMass",
        "n_envs=2",
        "n_timesteps=512",
        "env.kwargs={radius: 0.4}",
    )
