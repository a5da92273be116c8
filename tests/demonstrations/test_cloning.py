"""Behaviour cloning: its loss, an ordinary run, a warm start of the algorithm that it is for."""

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from support.resuming import assert_same_in_pieces
from support.training import start_run, tiny_config, train_run

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.policy import load_policy
from rlzoo_plus.analysis.series import metric_rows
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.demonstrations.batches import Batches
from rlzoo_plus.demonstrations.data_of_run import with_digest
from rlzoo_plus.demonstrations.minari_format import read_dataset
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.exp_manager import ExpManager

HYPER = "algo.hyperparams"
CLONES = ("bc", "bc_sac", "bc_td3", "bc_tqc", "bc_crossq", "bc_dqn")
# What `BehaviorCloningLossCalculator` of imitation 1.0.1 gave for `_fixed`, by action space,
# weight of the entropy and weight of the squares.
OF_IMITATION = {
    ("box", 1e-3, 0.0): 3.3276498317718506,
    ("box", 0.1, 0.01): 3.023042678833008,
    ("discrete", 1e-3, 0.0): 1.6819021701812744,
    ("discrete", 0.1, 0.01): 1.6439361572265625,
}


def config_of(algo, path, *overrides):
    discrete = ("env.kwargs.discrete=true",) if algo == "bc_dqn" else ()
    words = (f"data.path={path}", *discrete, *overrides)
    return with_digest(tiny_config(algo, "tests/TinyReach-v0", *words))


def agent_of(config):
    venv = make_train_env(config, 1)
    return make_agent(config, venv, 1)


def _fixed(kind):
    """Return a policy and a batch whose numbers no random generator decides."""
    seen = spaces.Box(-1, 1, (3,), np.float32)
    action = spaces.Discrete(4) if kind == "discrete" else spaces.Box(-1, 1, (2,), np.float32)
    policy = ActorCriticPolicy(seen, action, lambda _: 1e-3, net_arch=[8])
    with torch.no_grad():
        for parameter in policy.parameters():
            count = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.copy_((0.5 * torch.sin(count + 1)).reshape(parameter.shape))
    rows = torch.arange(16, dtype=torch.float32)
    observations = torch.stack([torch.sin(rows), torch.cos(rows), rows / 16], dim=1)
    if kind == "discrete":
        return policy, observations, (torch.arange(16) % 4)
    return policy, observations, torch.stack([torch.cos(rows), torch.sin(2 * rows)], dim=1)


@pytest.mark.parametrize(("kind", "entropy", "squares"), OF_IMITATION)
def test_the_loss_is_that_of_the_package_imitation(reach, kind, entropy, squares):
    weights = (f"{HYPER}.ent_weight={entropy}", f"{HYPER}.l2_weight={squares}")
    agent = agent_of(config_of("bc", reach, *weights))
    agent.policy, observations, actions = _fixed(kind)
    loss, _ = agent.loss(observations, actions)
    assert loss.item() == pytest.approx(OF_IMITATION[kind, entropy, squares], abs=1e-5)


@pytest.mark.training
@pytest.mark.parametrize("algo", CLONES)
def test_a_policy_learns_the_actions_and_acts_from_its_bundle(
    algo, reach, reach_discrete, tmp_path
):
    path = reach_discrete if algo == "bc_dqn" else reach
    config = config_of(algo, path, "n_timesteps=20000", "normalize=true", f"{HYPER}.n_steps=2000")
    run_dir, result = train_run(tmp_path / "run", config)
    rows = [row for row in metric_rows(run_dir) if "train/held_out_loss" in row]
    assert result.num_timesteps == 20_000
    assert rows[-1]["train/held_out_loss"] < rows[0]["train/held_out_loss"]
    policy, data = load_policy(run_dir.final), read_dataset(path)
    episode = data.episodes[-1]
    chosen, _ = policy.predict(episode.observations[:-1])
    if algo == "bc_dqn":
        assert np.mean(chosen == episode.actions) > 0.7
    else:
        assert np.mean(np.abs(chosen - episode.actions)) < 0.3


@pytest.mark.training
@pytest.mark.parametrize("algo", ["bc", "bc_crossq", "bc_dqn"])
def test_a_resumed_run_is_the_one_that_was_never_stopped(algo, reach, reach_discrete, tmp_path):
    path = reach_discrete if algo == "bc_dqn" else reach
    config = config_of(algo, path, "n_timesteps=192", "eval.every_steps=64", "normalize=true")
    assert_same_in_pieces(tmp_path, config)


@pytest.mark.training
@pytest.mark.parametrize(("clone", "algo"), [("bc", "ppo"), ("bc_sac", "sac"), ("bc_td3", "td3")])
def test_what_was_cloned_is_a_warm_start_of_its_algorithm(clone, algo, reach, tmp_path):
    cloned, _ = train_run(tmp_path / "clone", config_of(clone, reach))
    source = (f"init_from={cloned.path}", "init.which=final")
    config = tiny_config(algo, "tests/TinyReach-v0", *source)
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir).train()
    begun = run_dir.checkpoints().load(0).state["agent"]["parameters"]["policy"]
    learned = cloned.checkpoints().load_newest().state["agent"]["parameters"]["policy"]
    assert begun.keys() == learned.keys()
    assert all(np.array_equal(begun[name], learned[name]) for name in begun)


def test_each_epoch_takes_every_row_once_in_an_order_of_its_own(reach):
    batches, data = Batches(), read_dataset(reach)
    batches.prepare(
        data, 0.0, torch.device("cpu"), normalize=lambda rows: rows, targets=lambda rows: rows
    )
    n_rows, orders = batches.n_rows, []
    for epoch in range(2):
        seen = batches.next(epoch * n_rows, n_rows, seed=3).observations
        orders.append(seen.numpy())
    every = np.concatenate([one.observations[:-1] for one in data.episodes])
    for order in orders:
        assert np.array_equal(np.sort(order, axis=0), np.sort(every, axis=0))
    assert not np.array_equal(*orders)
    across = batches.next(n_rows - 5, 10, seed=3).observations
    assert np.array_equal(across.numpy(), np.concatenate([orders[0][-5:], orders[1][:5]]))


def test_whole_episodes_are_held_out(reach):
    batches, data = Batches(), read_dataset(reach)
    batches.prepare(
        data, 0.3, torch.device("cpu"), normalize=lambda rows: rows, targets=lambda rows: rows
    )
    (held_out,) = batches.held_out()
    seen = held_out.observations
    last = np.concatenate([one.observations[:-1] for one in data.episodes[-2:]])
    assert np.array_equal(seen.numpy(), last)
    assert batches.n_rows == data.n_steps - len(last)


def test_observations_are_normalized_by_what_was_demonstrated(reach):
    agent = agent_of(config_of("bc", reach, "normalize={reward: false}"))
    every = np.concatenate([one.observations for one in read_dataset(reach).episodes])
    assert np.allclose(agent.get_vec_normalize_env().obs_rms.mean, every.mean(axis=0), rtol=1e-3)


def test_the_hash_of_a_run_is_of_the_content_of_its_dataset(reach, tmp_path):
    config = config_of("bc", reach)
    moved = tmp_path / "moved"
    reach.rename(moved)
    assert config_hash(config_of("bc", moved)) == config_hash(config)
    (moved / "data" / "metadata.json").write_text("{}")
    assert config_hash(config_of("bc", moved)) != config_hash(config)


def test_a_dataset_that_was_changed_is_refused(reach):
    config = config_of("bc", reach)
    file = reach / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(ConfigError, match="It was changed"):
        agent_of(config)


@pytest.mark.parametrize(
    ("words", "message"),
    {
        "no data": (("algo=bc",), "bc learns from demonstrations. Add data=DATASET"),
        "a share alone": (("data.share=0.2",), "Add data=DATASET"),
        "on-policy": (("data.path=x",), "ppo takes no demonstrations. Use algo=sac"),
        "a share of all": (("algo=sac", "data.path=x", "data.share=1"), "data.share"),
        "entropy": (("algo=bc_td3", "data.path=x", f"{HYPER}.ent_weight=1"), "ent_weight"),
        "held out": (("algo=bc", "data.path=x", f"{HYPER}.held_out=1"), "below 1"),
    }.values(),
)
def test_what_cannot_work_is_told_in_a_line(words, message):
    from support.training import make_config

    with pytest.raises(ConfigError, match=message):
        make_config("env=cartpole_bullet", "tuned=none", *words)
