"""Each algorithm of the catalog trains, and what is saved of it acts exactly as it did."""

import copy
import sys

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import configure
from support.libraries import ACTING, is_of_sbx
from support.training import assert_same_tree, make_config, tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.policy import Policy, load_policy, save_policy
from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.training.resume.agent_state import capture, restore

DISCRETE = ("dqn", "qrdqn", "sac_discrete", "sbx_dqn")
TANH_ADAMW = ("network.activation=tanh", "network.optimizer=adamw")
PARTS = ("network.net_arch={actor: [8], critic: [6, 6]}",)
VARIANTS = {
    **{algo: (algo, ()) for algo in ACTING},
    **{
        f"{algo}-normalized": (algo, ("normalize=true",))
        for algo in ("ppo", "sac", "ars", "recurrent_ppo", "her", "crossq", "ddpg", "recurrent_sac")
    },
    **{
        f"{algo}-gsde": (algo, ("algo.hyperparams.use_sde=true",))
        for algo in ("ppo", "a2c", "sac", "tqc", "trpo", "recurrent_ppo")
    },
    **{f"{algo}-parts": (algo, (*PARTS, *TANH_ADAMW)) for algo in ("ppo", "sac", "td3", "crossq")},
    **{f"{algo}-separate": (algo, PARTS) for algo in ("ddpg", "tqc", "trpo", "recurrent_ppo")},
    "ppo-discrete": ("ppo", ("env.kwargs.discrete=true",)),
    "ddpg-two-critics": ("ddpg", ("network.n_critics=2",)),
    "td3-one-critic": ("td3", ("network.n_critics=1",)),
    "sac-expln": ("sac", ("algo.hyperparams.use_sde=true", "network.use_expln=true")),
    "sac-shared-features": ("sac", ("network.share_features_extractor=true",)),
    "sac-fixed-entropy": ("sac", ("algo.hyperparams.ent_coef=0.1",)),
    "sac-nstep": ("sac", ("algo.hyperparams.n_steps=3",)),
    "sac-layer-norm": ("sac", ("network.layer_norm=all", "network.dropout=0.1")),
    "ppo-simba": ("ppo", ("network=simba", "network.net_arch={actor: [6], critic: [8, 8]}")),
    "tqc-simba": ("tqc", ("network=simba", "network.net_arch=[8, 8]")),
    "dqn-resnet": ("dqn", ("network=resnet", "network.net_arch=[8]")),
    "qrdqn-droq": ("qrdqn", ("network=droq",)),
    "qrdqn-quantiles": ("qrdqn", ("network.n_quantiles=5",)),
    "tqc-quantiles": ("tqc", ("network.n_quantiles=5",)),
    "ppo-no-ortho": ("ppo", ("network.ortho_init=false", "network.log_std_init=-1")),
    "ppo-rmsprop": ("ppo", ("network.optimizer=rmsprop_tf",)),
    "ppo-not-shared": ("ppo", ("network.share_features_extractor=false",)),
    "ppo-stacked": ("ppo", ("env.frame_stack=2", "normalize=true")),
    "a2c-adam": ("a2c", ("network.optimizer=adam",)),
    "ars-linear": ("ars", ("network.policy=linear", "network.net_arch=null")),
    "recurrent_ppo-shared": (
        "recurrent_ppo",
        ("network.lstm.shared=true", "network.lstm.enable_critic=false"),
    ),
    "recurrent_sac-shared-features": ("recurrent_sac", ("network.share_features_extractor=true",)),
    "recurrent_sac-simba": ("recurrent_sac", ("network=simba", "network.net_arch=[8, 8]")),
    "recurrent_sac-droq": ("recurrent_sac", ("network=droq", "network.lstm.n_layers=2")),
    "ppo-image": (
        "ppo",
        (
            "env.id=tests/TinyImage-v0",
            "network.features_extractor_kwargs={features_dim: 4}",
            "network.features_extractor=nature_cnn",
        ),
    ),
    "sac-dict": ("sac", ("env.id=tests/TinyDict-v0", "env.kwargs.picture=false", "normalize=true")),
    "ppo-dict": ("ppo", ("env.id=tests/TinyDict-v0", "normalize=true")),
    "sbx_sac-parts": ("sbx_sac", (*PARTS, *TANH_ADAMW, "normalize=true")),
    "sbx_sac-simba": ("sbx_sac", ("network.policy=simba", "algo.hyperparams.ent_coef=0.1")),
    "sbx_tqc-nstep": ("sbx_tqc", ("network.n_quantiles=5", "algo.hyperparams.n_steps=3")),
    "sbx_td3-dict": ("sbx_td3", ("env.id=tests/TinyGoal-v0",)),
    "sbx_ppo-discrete": ("sbx_ppo", ("env.kwargs.discrete=true", "network.ortho_init=true")),
    "sbx_ppo-image": ("sbx_ppo", ("env.id=tests/TinyImage-v0",)),
}


def _config(name):
    algo, overrides = VARIANTS[name]
    if is_of_sbx(algo):
        pytest.importorskip("sbx")
    if algo == "her":
        pytest.importorskip("panda_gym")
        return make_config(
            "algo=her",
            "env=panda_reach",
            "tuned=none",
            "network.net_arch=[8]",
            "n_timesteps=160",
            "num_threads=1",
            "algo.hyperparams.learning_starts=120",
            "algo.hyperparams.batch_size=8",
            "algo.hyperparams.buffer_size=500",
            "algo.hyperparams.train_freq=8",
            *overrides,
        )
    env = "tests/TinyMasked-v0" if algo == "maskable_ppo" else "tests/TinyReach-v0"
    discrete = ("env.kwargs.discrete=true",) if algo in DISCRETE else ()
    return tiny_config(algo, env, *discrete, *overrides)


@pytest.fixture(scope="module", params=VARIANTS)
def trained(request):
    """Return a trained agent and its configuration, once for all tests of a variant."""
    torch.set_num_threads(1)
    config = _config(request.param)
    venv = make_train_env(config, 1)
    agent = make_agent(config, venv, 1)
    agent.learn(config.n_timesteps)
    return agent, config


def _observations(agent, count=50):
    space = agent.observation_space
    if agent.get_vec_normalize_env() is not None:
        space = agent.get_vec_normalize_env().venv.observation_space
    space.seed(3)
    return [space.sample() for _ in range(count)]


@pytest.mark.training
def test_a_loaded_policy_acts_bit_for_bit_as_the_live_one(trained, tmp_path):
    agent, config = trained
    live = Policy.of_agent(agent)
    save_policy(tmp_path / "bundle", agent, config, {"step": 1})
    loaded = load_policy(tmp_path / "bundle")
    masks = np.array([False, True, True]) if live.maskable else None
    states = None, None
    for observation in _observations(agent):
        left, live_state = live.predict(observation, states[0], action_masks=masks)
        right, loaded_state = loaded.predict(observation, states[1], action_masks=masks)
        states = live_state, loaded_state
        np.testing.assert_array_equal(left, right)


@pytest.mark.training
def test_actions_stay_within_the_bounds_also_with_exploration(trained):
    agent, _ = trained
    live = Policy.of_agent(agent)
    masks = np.array([False, True, True]) if live.maskable else None
    for observation in _observations(agent, 5):
        action, _ = live.predict(observation, deterministic=False, action_masks=masks)
        assert agent.action_space.contains(action)


@pytest.mark.training
def test_a_state_brings_parameters_optimizers_and_generators_back(trained):
    agent, config = trained
    state = capture(agent)
    read = unpack(pack(state))
    assert_same_tree(read, state)
    venv = make_train_env(config, 99)
    try:
        fresh = make_agent(config, venv, 99)
        fresh.set_logger(configure(None, []))
        if getattr(agent, "action_noise", None) is not None:
            fresh.action_noise = copy.deepcopy(agent.action_noise)
        restore(fresh, read)
        back = capture(fresh)
    finally:
        venv.close()
    for part in ("parameters", "tensors", "noise", "random"):
        assert_same_tree(back[part], state[part], part)
    assert back["attributes"].items() >= {"num_timesteps": agent.num_timesteps}.items()
    if hasattr(agent, "weights"):
        assert torch.equal(fresh.weights, agent.weights)


@pytest.mark.training
def test_training_on_leaves_a_captured_state_alone(trained):
    agent, config = trained
    state = capture(agent)
    kept = unpack(pack(state))
    agent.learn(config.n_timesteps, reset_num_timesteps=False)
    assert_same_tree(state, kept)


def test_every_algorithm_of_the_catalog_is_tried():
    assert {algo for algo, _ in VARIANTS.values()} == set(ACTING)
    assert "torch" in sys.modules
