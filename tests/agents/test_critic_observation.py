"""What the critic alone sees: the policy learns and acts without it, wherever it is used."""

import json

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import configure
from support.training import assert_same_tree, tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.policy import Policy, load_policy, save_policy
from rlzoo_plus.artifacts.bundle import load_bundle, save_bundle
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import PolicyGraph, torchscript_runner, write_torchscript
from rlzoo_plus.export.signature import make_signature, metadata
from rlzoo_plus.policies.values import Values
from rlzoo_plus.training.resume.agent_state import capture, restore

NUMBERS = ("env.kwargs.picture=false", "normalize=true")
HIDDEN = "network.critic_observation=[zeta]"
ALGORITHMS = ("ppo", "a2c", "trpo", "sac", "td3", "ddpg", "tqc")


def config_of(algo, *overrides):
    return tiny_config(algo, "tests/TinyDict-v0", *NUMBERS, HIDDEN, *overrides)


def agent_of(config):
    torch.set_num_threads(1)
    return make_agent(config, make_train_env(config, 1), 1)


@pytest.fixture(scope="module", params=ALGORITHMS)
def trained(request):
    config = config_of(request.param)
    agent = agent_of(config)
    agent.learn(config.n_timesteps)
    return agent, config


def observations(count=20):
    rng = np.random.default_rng(0)
    return {"zeta": rng.normal(size=(count, 2)).astype(np.float32),
            "kind": rng.integers(0, 3, count),
            "alpha": rng.normal(size=(count, 1)).astype(np.float32)}  # fmt: skip


def without(whole):
    return {key: value for key, value in whole.items() if key != "zeta"}


def test_actions_do_not_depend_on_it_and_values_do(trained):
    policy = Policy.of_agent(trained[0])
    seen = observations()
    other = {**seen, "zeta": seen["zeta"] + 1.0}
    actions = [policy.predict(each)[0] for each in (seen, other, without(seen))]
    assert np.array_equal(actions[0], actions[1])
    assert np.array_equal(actions[0], actions[2])
    assert list(policy.observation_space.spaces) == ["kind", "alpha"]
    starts = np.zeros(20, bool)
    values = [Values(policy)(each, actions[0], starts) for each in (seen, other)]
    assert not np.array_equal(*values)
    moved = {**seen, "alpha": seen["alpha"] + 1.0}
    assert not np.array_equal(policy.predict(moved)[0], actions[0])
    assert not np.array_equal(Values(policy)(moved, actions[0], starts), values[0])


def test_one_observation_needs_the_entries_of_the_policy_alone(trained):
    policy, seen = Policy.of_agent(trained[0]), observations()
    one = {key: value[3] for key, value in without(seen).items()}
    assert np.allclose(policy.predict(one)[0], policy.predict(seen)[0][3], atol=1e-6)
    with pytest.raises(KeyError):
        policy.predict({"kind": seen["kind"]})


def test_a_bundle_acts_without_it(trained, tmp_path):
    agent, config = trained
    save_policy(tmp_path / "best", agent, config, {"step": 1})
    loaded = load_policy(tmp_path / "best")
    expected = Policy.of_agent(agent).predict(observations())[0]
    assert np.array_equal(loaded.predict(without(observations()))[0], expected)
    assert list(loaded.observation_space.spaces) == ["kind", "alpha"]


def test_an_exported_graph_has_no_input_for_it(trained):
    policy = Policy.of_agent(trained[0])
    signature = make_signature(policy)
    assert [port.name for port in signature.inputs] == ["kind", "alpha"]
    assert metadata(signature, policy, {})["normalization"]["inputs"] == ["alpha"]
    run = torchscript_runner(write_torchscript(PolicyGraph(policy, signature), "{}"), signature)
    seen = without(observations())
    found = run(kind=seen["kind"], alpha=seen["alpha"])[0]
    assert np.allclose(found, policy.predict(seen)[0], atol=1e-5)


def test_a_restored_agent_goes_on_with_the_same_bits(trained):
    agent, config = trained
    state = unpack(pack(capture(agent)))
    other = agent_of(config)
    other.set_logger(configure(None, []))
    restore(other, state)
    assert_same_tree(capture(agent), capture(other))


def test_critics_learn_from_it_and_actors_have_fewer_inputs():
    policy = agent_of(config_of("ppo")).policy
    # kind is one of three.
    assert policy.pi_features_extractor.features_dim == 4
    assert policy.vf_features_extractor.features_dim == 6
    learned = {id(p) for group in policy.optimizer.param_groups for p in group["params"]}
    assert {id(p) for p in policy.parameters()} == learned
    sac = agent_of(config_of("sac", "network.layer_norm=all"))
    assert sac.actor.features_dim == 4
    assert sac.critic.features_extractor.features_dim == 6
    assert sac.critic_target.features_extractor.features_dim == 6


@pytest.mark.parametrize(
    ("algo", "overrides", "text"),
    [
        ("recurrent_ppo", (), "recurrent_ppo has no critic that can see more"),
        ("dqn", ("env.kwargs.discrete=true",), "dqn has no critic that can see more"),
        ("ppo", ("network.share_features_extractor=true",), "see different entries"),
        ("ppo", ("export.sb3_zip=true",), "Stable-Baselines3 has no such network"),
        ("mappo", (), "vec_env=auto has none. Add env=pettingzoo"),
        ("ppo", ("network.critic_observation=3",), "network.critic_observation"),
    ],
)
def test_what_does_not_fit_is_refused(algo, overrides, text):
    with pytest.raises(ConfigError, match=text):
        config_of(algo, *overrides)


@pytest.mark.parametrize(
    ("env", "keys", "text"),
    [
        ("tests/TinyDict-v0", "[zetta]", "entry of the observation 'zetta'. Did you mean 'zeta'"),
        ("tests/TinyDict-v0", "[zeta,kind,alpha,picture]", "leaves the policy nothing to see"),
        ("tests/TinyReach-v0", "[zeta]", "names entries of Dict observations"),
    ],
)
def test_entries_that_are_not_there_are_named(env, keys, text):
    with pytest.raises(ConfigError, match=text):
        agent_of(tiny_config("ppo", env, f"network.critic_observation={keys}"))


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ({"critic_observation": ["nowhere"]}, "entry of the observation 'nowhere'"),
        ({"critic_observation": ["kind"]}, "weights do not fit"),
        ({"critic_observation": None}, "weights do not fit"),
        ({"critic_observation": ["a"] * 1000}, "description cannot be read"),
        ({"critic_observation": "zeta"}, "description cannot be read"),
    ],
)
def test_a_bundle_that_was_changed_is_refused(tmp_path, network, text):
    config = config_of("ppo")
    save_policy(tmp_path / "best", agent_of(config), config, {"step": 1})
    bundle = load_bundle(tmp_path / "best")
    bundle.config["network"] = {**bundle.config["network"], **network}
    save_bundle(tmp_path / "changed", bundle)
    with pytest.raises(ConfigError, match=text):
        load_policy(tmp_path / "changed")


@pytest.mark.slow
@pytest.mark.training
def test_a_robot_learns_with_hidden_conditions_and_acts_without_them(tmp_path, capsys):
    hidden = "{latency: {choice: [0, 2]}, observation_noise: 0.01, push: {every_s: 1, velocity: 1}}"
    task = ["env=cartpole_bullet", "tuned=none", "env.kwargs.privileged=true", "normalize=true",
            f"env.kwargs.randomization={hidden}", "n_envs=2", "n_timesteps=512", "num_threads=1",
            "eval.every_steps=256", "eval.episodes=2", "algo.hyperparams.n_steps=64",
            "device=cpu", "log.tensorboard=false", "report.video=false"]  # fmt: skip
    run = tmp_path / "run"
    assert dispatch.run("train", [*task, f"run_dir={run}"]) == 0
    policy = load_policy(run)
    assert list(policy.observation_space.spaces) == ["observation"]
    assert policy.predict(np.zeros(5, np.float32))[0].shape == (1,)
    assert dispatch.run("evaluate", [str(run), "--episodes", "2"]) == 0
    assert dispatch.run("deploy", [str(run), "--out", str(tmp_path / "robot")]) == 0
    with_value = ["--with-value", "--out", str(tmp_path / "valued")]
    assert dispatch.run("deploy", [str(run), *with_value]) == 2
    assert "the critic sees privileged" in " ".join(capsys.readouterr().err.split())
    described = json.loads((tmp_path / "robot" / "deploy.json").read_text())
    assert [port["name"] for port in described["policy"]["inputs"]] == ["observation"]
    driver = ["--driver", "sim", "--set", "clock=simulated", "--out", str(tmp_path / "log")]
    assert dispatch.run("run-robot", [str(run), *driver]) == 0
    step = RunDir(run).checkpoints().steps()[0]
    words = ["--name", str(tmp_path / "models" / "pole"), "--no-onnx", "--episodes", "1"]
    assert dispatch.run("model", ["register", f"{run}@{step}", *words]) == 0
    assert dispatch.run("diagnose", [str(run)]) == 0
    found = capsys.readouterr().out
    assert "depend least" in found
    assert "privileged[" not in found
    assert dispatch.run("verify-resume", task) == 0
    assert "identical" in capsys.readouterr().out
    # Without a dictionary nobody knows what would be hidden.
    flat = "env.wrappers=[flatten_observation]"
    assert dispatch.run("train", [*task, flat, f"run_dir={tmp_path / 'flat'}"]) == 2
    assert "names entries of Dict observations" in " ".join(capsys.readouterr().err.split())
