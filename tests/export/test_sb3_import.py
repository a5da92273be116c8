"""A stock zip becomes a run of ours that acts as the stock model did."""

import copy
import io
import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch
import yaml
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlzoo_plus.agents.policy import load_policy
from rlzoo_plus.commands import dispatch

ENV = "tests/TinyReach-v0"
OFF = {"learning_starts": 8, "buffer_size": 100, "batch_size": 4}
ON = {"n_steps": 16, "batch_size": 8}
NET = {"net_arch": [8, 6]}
RELU = {**NET, "activation_fn": torch.nn.ReLU}
PARTS = {"net_arch": {"pi": [7], "vf": [5, 4]}, "activation_fn": torch.nn.ELU}
CRITICS = {"net_arch": {"pi": [7], "qf": [5, 4]}, "n_critics": 3}
# algorithm, class, environment's arguments, the algorithm's, its policy's
MODELS = {
    "ppo": ("ppo", sb3.PPO, {}, ON, RELU),
    "ppo-parts-gsde": ("ppo", sb3.PPO, {}, {**ON, "use_sde": True}, PARTS),
    "a2c": ("a2c", sb3.A2C, {"discrete": True}, {"n_steps": 8}, NET),
    "sac": ("sac", sb3.SAC, {}, OFF, CRITICS),
    "sac-gsde": ("sac", sb3.SAC, {}, {**OFF, "use_sde": True}, NET),
    "td3": ("td3", sb3.TD3, {}, OFF, NET),
    "ddpg": ("ddpg", sb3.DDPG, {}, OFF, NET),
    "dqn": ("dqn", sb3.DQN, {"discrete": True}, OFF, NET),
    "tqc": ("tqc", sb3_contrib.TQC, {}, OFF, {**NET, "n_quantiles": 5}),
    "crossq": ("crossq", sb3_contrib.CrossQ, {}, OFF, NET),
    "qrdqn": ("qrdqn", sb3_contrib.QRDQN, {"discrete": True}, OFF, {**NET, "n_quantiles": 5}),
    "trpo": ("trpo", sb3_contrib.TRPO, {}, ON, NET),
    "ars": ("ars", sb3_contrib.ARS, {}, {"n_delta": 1}, NET),
    "ars-linear": ("ars", sb3_contrib.ARS, {}, {"n_delta": 1}, None),
    "recurrent_ppo": (
        "recurrent_ppo", sb3_contrib.RecurrentPPO, {}, ON,
        {**NET, "lstm_hidden_size": 4, "n_lstm_layers": 2, "enable_critic_lstm": False},
    ),
}  # fmt: skip
FAST = ("ppo", "sac", "dqn")


def _stock(tmp_path, name, steps=48):
    _, algorithm, env_kwargs, arguments, network = MODELS[name]
    venv = VecNormalize(DummyVecEnv([lambda: gym.make(ENV, **env_kwargs)]), clip_obs=4.0)
    alias = {"ars-linear": "LinearPolicy"}.get(name, "MlpPolicy")
    alias = "MlpLstmPolicy" if algorithm is sb3_contrib.RecurrentPPO else alias
    model = algorithm(
        alias, venv, policy_kwargs=copy.deepcopy(network), device="cpu", seed=0, **arguments
    )
    model.learn(steps)
    model.save(tmp_path / "stock.zip")
    venv.save(str(tmp_path / "vn.pkl"))
    venv.training = False
    return model, venv


@pytest.fixture
def call(in_process, capsys):
    torch.set_num_threads(1)

    def call_it(*arguments, verb="import-sb3"):
        code = dispatch.run(verb, [str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call_it


def _arguments(name, *overrides):
    algo, _, env_kwargs, _, _ = MODELS[name]
    environment = [f"env.kwargs.{key}={str(value).lower()}" for key, value in env_kwargs.items()]
    return ("stock.zip", "--algo", algo, "--env", ENV, "--output", "run", *environment, *overrides)


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.training) for n in MODELS]
)
def test_an_imported_zip_acts_as_the_stock_model(in_process, call, name):
    model, venv = _stock(in_process, name)
    code, text = call(*_arguments(name), "--vecnormalize", "vn.pkl")
    assert code == 0, text
    policy = load_policy("run")
    raw = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * 5
    state, start = None, np.zeros(50, bool)
    for _ in range(2):
        theirs, next_state = model.predict(venv.normalize_obs(raw), state, start, True)
        ours, _ = policy.predict(raw, state, start)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
        state = next_state


def _with_weights(path, change):
    """Rewrite the weights of a zip."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    weights, buffer = torch.load(io.BytesIO(members["policy.pth"])), io.BytesIO()
    torch.save(change(weights), buffer)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, "policy.pth": buffer.getvalue()}.items():
            archive.writestr(name, content)


def test_the_linear_policy_of_the_first_ars_is_read(in_process, call):
    model, venv = _stock(in_process, "ars-linear", steps=1)
    # A layer then, a list of layers today.
    _with_weights("stock.zip", lambda w: {"action_net.weight": w["action_net.0.weight"]})
    code, text = call(*_arguments("ars-linear"), "--vecnormalize", "vn.pkl")
    assert code == 0, text
    raw = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    theirs, _ = model.predict(venv.normalize_obs(raw), deterministic=True)
    np.testing.assert_allclose(load_policy("run").predict(raw)[0], theirs, rtol=0, atol=1e-6)


def test_an_imported_run_can_be_evaluated_and_exported(in_process, call):
    _stock(in_process, "ppo")
    # The environment of the tests is foreign code to a run that is opened.
    code, _ = call(*_arguments("ppo", "env.packages=[support.tiny_envs]"))
    assert code == 0
    code, text = call("run", "--episodes", 2, "--json", "--trust", verb="evaluate")
    assert (code, json.loads(text)["step"]) == (0, 48)
    code, text = call(
        "run", "--format", "torchscript", "--which", "final", "--trust", verb="export"
    )
    assert code == 0, text
    assert (in_process / "run" / "export" / "final" / "policy.pt").is_file()
    assert yaml.safe_load((in_process / "run" / "config.yaml").read_text())["algo"]["name"] == "ppo"


@pytest.mark.parametrize("steps", [48, 100_000, 200_000])
def test_an_imported_run_is_not_trained_over(in_process, call, steps):
    _stock(in_process, "ppo")
    call(*_arguments("ppo", "env.packages=[support.tiny_envs]"))
    before = {p: p.read_bytes() for p in (in_process / "run").rglob("*") if p.is_file()}
    code, text = call("run", f"n_timesteps={steps}", "--trust", verb="resume")
    assert code == 2, text
    assert "run: its policy was imported from stock.zip, without the optimizer" in text
    assert {path: path.read_bytes() for path in before} == before


def test_the_users_overrides_win_over_what_the_file_says(in_process, call):
    _stock(in_process, "ppo")
    call(*_arguments("ppo", "network.activation=tanh"))
    config = yaml.safe_load((in_process / "run" / "config.yaml").read_text())
    assert config["network"]["activation"] == "tanh"
    assert config["network"]["net_arch"] == {"actor": [8, 6], "critic": [8, 6]}


MISMATCHES = {
    "layers": (("network.net_arch=[9]",), ["mlp_extractor.policy_net.0.weight", "net_arch="]),
    "observations": (("env.frame_stack=2",), ["reads 3 numbers", "gives 6", "env.frame_stack"]),
    "exploration": (("algo.hyperparams.use_sde=true",), ["log_std", "use_sde"]),
}


@pytest.mark.parametrize("kind", MISMATCHES)
def test_weights_that_do_not_fit_name_the_layer_and_the_mend(in_process, call, kind):
    _stock(in_process, "ppo")
    overrides, parts = MISMATCHES[kind]
    code, text = call(*_arguments("ppo", *overrides))
    assert code == 2
    assert all(part in text for part in parts), text
    assert not (in_process / "run").exists()


def test_statistics_of_another_environment_are_refused(in_process, call):
    _stock(in_process, "ppo")
    VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")])).save(str(in_process / "vn.pkl"))
    code, text = call(*_arguments("ppo"), "--vecnormalize", "vn.pkl")
    assert code == 2
    assert "(4,)" in text
    assert "another environment" in text


def test_another_algorithms_zip_is_refused_in_one_message(in_process, call):
    _stock(in_process, "td3")
    code, text = call("stock.zip", "--algo", "ppo", "--env", ENV, "--output", "run")
    assert code == 2
    assert "the weights do not fit" in text
    assert "ppo" in text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("none.zip", "--algo", "ppo", "--env", ENV), "no such file"),
        (("stock.zip", "--algo", "pppo", "--env", ENV), "'ppo'"),
        (("stock.zip", "--algo", "ppo", "--env", "cartpole_bulet"), "'cartpole_bullet'"),
        (("stock.zip", "--algo", "ppo", "--env", ENV, "network"), "key=value"),
        (("stock.zip", "--algo", "ppo", "--env", ENV, "network.polcy=mlp"), "network.policy"),
    ],
)
def test_a_mistake_is_answered_in_one_message(in_process, call, arguments, part):
    _stock(in_process, "ppo", steps=1)
    code, text = call(*arguments)
    assert code == 2
    assert part in text
