"""From a configuration to an agent: networks, schedules, noise, threads, devices."""

import sys

import numpy as np
import pytest
import torch
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from support.training import make_config, tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.policy import load_policy, save_policy, save_weights, weights_of
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.errors import ConfigError

SEVERAL_STEPS = ("algo.hyperparams.n_steps=3", "network.policy=auto", "env.id=tests/TinyDict-v0")


def build(algo="ppo", *overrides, env="tests/TinyReach-v0"):
    """Return an agent and its configuration."""
    config = tiny_config(algo, env, *overrides)
    return make_agent(config, make_train_env(config, 1), 1), config


def _layers(module):
    return [m.out_features for m in module.modules() if isinstance(m, torch.nn.Linear)]


def test_actor_and_critic_may_have_layers_of_their_own_in_every_family():
    parts = "network.net_arch={actor: [6], critic: [7, 5]}"
    agent, _ = build("ppo", parts)
    assert _layers(agent.policy.mlp_extractor.policy_net) == [6]
    assert _layers(agent.policy.mlp_extractor.value_net) == [7, 5]
    agent, _ = build("sac", parts)
    assert _layers(agent.critic.q_networks[0]) == [7, 5, 1]
    assert _layers(agent.actor.latent_pi) == [6]


@pytest.mark.parametrize(
    ("algo", "overrides", "message"),
    [
        ("ppo", ("network.net_arch={actor: [6]}",), "Give both actor and critic"),
        ("ppo", ("network.n_critics=2",), "network: unknown argument of ppo's policy 'n_critics'"),
        ("ppo", ("network.policy_kwargs.squash_outputs=true",), "Did you mean 'squash_output'"),
        (
            "ars",
            ("network.net_arch=null", "network.policy=auto", "env.id=tests/TinyDict-v0"),
            "flatten_observation",
        ),
        ("ppo", ("network.optimizer_kwargs={colour: red}",), "refuses its configuration"),
        ("sac", SEVERAL_STEPS, "Set algo.hyperparams.n_steps=1"),
    ],
)
def test_what_the_algorithm_or_its_policy_does_not_take_is_named(algo, overrides, message):
    with pytest.raises(ConfigError, match=message):
        build(algo, *overrides)


def test_activation_and_optimizer_reach_the_policy_with_their_arguments():
    agent, _ = build(
        "ppo",
        "network.activation=elu",
        "network.optimizer=adamw",
        "network.optimizer_kwargs={weight_decay: 0.25, betas: [0.5, 0.9]}",
    )
    assert isinstance(agent.policy.optimizer, torch.optim.AdamW)
    assert any(isinstance(m, torch.nn.ELU) for m in agent.policy.modules())
    assert agent.policy.optimizer.param_groups[0]["weight_decay"] == 0.25
    # A list is a tuple where the optimizer wants one.
    assert repr(agent.policy.optimizer.defaults["betas"]) == "(0.5, 0.9)"


@pytest.mark.training
def test_a_schedule_of_the_learning_rate_reaches_the_optimizer():
    agent, config = build("ppo", "algo.hyperparams.learning_rate=lin_1e-2_1e-3")
    agent.learn(config.n_timesteps)
    # The last update of two happens when nothing of the run remains.
    assert agent.policy.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3)


@pytest.mark.training
def test_a_cosine_schedule_is_not_linear():
    # Known defect of rl_zoo3: cos_1e-3 was silently linear.
    agent, _ = build("ppo", "algo.hyperparams.learning_rate=cos_1e-2")
    assert agent.lr_schedule(0.75) == pytest.approx(1e-2 * 0.5 * (1 + np.cos(np.pi * 0.25)))


def test_a_schedule_of_the_clipping_reaches_the_algorithm():
    agent, _ = build("ppo", "algo.hyperparams.clip_range=lin_0.4")
    assert agent.clip_range(0.5) == pytest.approx(0.2)


def test_action_noise_reaches_the_algorithm_with_its_own_numbers():
    agent, _ = build("td3", "algo.action_noise={type: normal, std: 0.3}")
    assert isinstance(agent.action_noise, NormalActionNoise)
    np.testing.assert_array_equal(agent.action_noise._sigma, [0.3])
    agent, _ = build("ddpg", "algo.action_noise={type: ou, std: 0.3, theta: 0.5, dt: 0.1}")
    assert isinstance(agent.action_noise, OrnsteinUhlenbeckActionNoise)
    assert (agent.action_noise._theta, agent.action_noise._dt) == (0.5, 0.1)


def test_updates_counted_in_episodes_are_understood():
    agent, _ = build("sac", "algo.hyperparams.train_freq=[1,episode]")
    assert agent.train_freq.unit.value == "episode"


@pytest.mark.training
@pytest.mark.parametrize("env", ["tests/TinyReach-v0", "tests/TinyDict-v0"])
def test_the_normalizer_equals_vecnormalize_bit_for_bit(env):
    agent, config = build("ppo", "normalize={clip_observation: 1.5, epsilon: 0.01}", env=env)
    agent.learn(config.n_timesteps)
    venv = agent.get_vec_normalize_env()
    normalizer = ObservationNormalizer.from_vec_normalize(venv)
    space = venv.venv.observation_space
    space.seed(1)
    for _ in range(20):
        raw = space.sample()
        expected, seen = venv.normalize_obs(raw), normalizer(raw)
        if not isinstance(raw, dict):
            raw, expected, seen = {"": raw}, {"": expected}, {"": seen}
        for key in expected:
            assert np.asarray(expected[key]).dtype == np.asarray(seen[key]).dtype
            np.testing.assert_array_equal(expected[key], seen[key])


def test_statistics_in_a_normalizer_do_not_follow_the_environment():
    agent, _ = build("ppo", "normalize=true")
    venv = agent.get_vec_normalize_env()
    normalizer = ObservationNormalizer.from_vec_normalize(venv)
    before = normalizer.mean[""].copy()
    venv.reset()
    for _ in range(5):
        venv.step(np.ones((1, 1), np.float32))
    assert not np.array_equal(venv.obs_rms.mean, before)
    np.testing.assert_array_equal(normalizer.mean[""], before)


def test_loading_a_policy_imports_nothing_that_its_configuration_names(tmp_path):
    agent, config = build()
    foreign = config.model_copy(
        update={
            "env": config.env.model_copy(update={"packages": ["evil_env_package"]}),
            "algo": config.algo.model_copy(update={"packages": ["evil_algo_package"]}),
            "callbacks": ["evil_callbacks.Evil"],
        }
    )
    save_policy(tmp_path / "bundle", agent, foreign, {"step": 0})
    load_policy(tmp_path / "bundle")
    assert not [name for name in sys.modules if name.startswith("evil")]


def test_a_policy_is_found_in_a_run_directory(tmp_path):
    agent, config = build()
    save_policy(tmp_path / "best", agent, config, {"step": 0})
    assert load_policy(tmp_path).predict(np.zeros(3, np.float32))[0].shape == (1,)


def test_a_bundle_that_is_missing_or_does_not_fit_is_a_user_error(tmp_path):
    with pytest.raises(ConfigError, match="no usable policy"):
        load_policy(tmp_path)
    agent, config = build()
    other = tiny_config("ppo", "tests/TinyReach-v0", "network.net_arch=[9]")
    save_policy(tmp_path / "weights", agent, other, {"step": 0})
    with pytest.raises(ConfigError, match="do not fit the network"):
        load_policy(tmp_path / "weights")
    save_policy(tmp_path / "newer", agent, config.model_copy(update={"seed": -1}), {"step": 0})
    with pytest.raises(ConfigError):
        load_policy(tmp_path / "newer")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_and_statistics_that_are_not_finite_are_refused(tmp_path, number):
    agent, config = build()
    with torch.no_grad():
        next(agent.policy.action_net.parameters()).fill_(number)
    weights, _ = weights_of(agent)
    save_weights(tmp_path / "weights", agent, config, {"step": 0}, weights, None)
    with pytest.raises(ConfigError, match=r"its weights action_net\.weight are not finite"):
        load_policy(tmp_path / "weights")
    statistics = {"": np.zeros(3)}, {"": np.full(3, number)}, {"": 1.0}
    with pytest.raises(ValueError, match="statistics are not finite"):
        ObservationNormalizer.from_state(ObservationNormalizer(*statistics, 10.0, 1e-8).state())


@pytest.mark.training
def test_exploration_of_a_loaded_gsde_policy_uses_the_learned_deviation(tmp_path):
    agent, config = build("ppo", "algo.hyperparams.use_sde=true")
    with torch.no_grad():
        agent.policy.log_std.fill_(-20.0)
    save_policy(tmp_path / "bundle", agent, config, {"step": 0})
    loaded = load_policy(tmp_path / "bundle")
    observation = np.array([5.0, 5.0, 1.0], np.float32)
    calm, _ = loaded.predict(observation)
    explored, _ = loaded.predict(observation, deterministic=False)
    np.testing.assert_allclose(explored, calm, atol=1e-6)


def test_the_configuration_of_the_shipped_cart_pole_builds_an_agent():
    config = make_config("algo=ppo", "env=cartpole_bullet", "device=cpu")
    venv = make_train_env(config, 1)
    assert make_agent(config, venv, 1).gamma == config.algo.hyperparams["gamma"]
