"""A stock zip becomes a run of ours that acts as the stock model did."""

import copy
import io
import json
import shutil
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch
import yaml
from sb3_contrib.common.wrappers import TimeFeatureWrapper
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlzoo_plus.agents.policy import load_policy
from rlzoo_plus.commands import dispatch
from rlzoo_plus.export.zoo_agent import environment_values

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


@pytest.fixture
def refused(call):
    """Return a function that calls the verb, which must refuse it with some words."""

    def call_it(*arguments, told):
        code, text = call(*arguments)
        assert code == 2
        assert all(part in text for part in told), text

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


def _ordered(**values):
    """Return the YAML in which the RL Zoo saves an ordered dictionary."""
    pairs = [[[key, value] for key, value in values.items()]]
    return "!!python/object/apply:collections.OrderedDict\n" + yaml.safe_dump(pairs)


def _zoo_agent(folder, settings, config=None, env=ENV):
    """Save an agent as the RL Zoo does: zip, statistics and settings; return model and venv."""
    venv = VecNormalize(DummyVecEnv([lambda: TimeFeatureWrapper(gym.make(ENV))]))
    model = sb3.PPO("MlpPolicy", venv, policy_kwargs=RELU, device="cpu", seed=0, **ON)
    model.learn(32)
    (folder / settings).mkdir(parents=True, exist_ok=True)
    model.save(folder / "TinyReach-v0.zip")
    name = "vecnormalize.pkl" if settings else "vec_normalize.pkl"
    venv.save(str(folder / settings / name))
    venv.training = False
    (folder / settings / "args.yml").write_text(_ordered(algo="ppo", env=env, gym_packages=[]))
    config = config or {
        "env_wrapper": "sb3_contrib.common.wrappers.TimeFeatureWrapper",
        "normalize": "dict(norm_obs=True, norm_reward=False)",
        "gamma": 0.9,
        "policy_kwargs": "dict(net_arch=[8, 6], activation_fn=nn.ReLU)",
    }
    (folder / settings / "config.yml").write_text(_ordered(**config))
    return model, venv


@pytest.mark.parametrize("settings", ["TinyReach-v0", ""])
def test_a_folder_of_the_rl_zoo_is_imported_whole(in_process, call, settings):
    folder = in_process / "ppo" / "TinyReach-v0_1"
    model, venv = _zoo_agent(folder, settings)
    for other in ("best_model", "rl_model_16_steps", "train_eval_metrics"):
        (folder / f"{other}.zip").write_bytes(b"another file")
    code, text = call(folder, "--output", "run")
    assert code == 0, text
    config = yaml.safe_load((in_process / "run" / "config.yaml").read_text())
    assert config["env"]["wrappers"] == ["time_feature"]
    assert (config["algo"]["hyperparams"]["gamma"], config["algo"]["name"]) == (0.9, "ppo")
    raw = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32) * 5
    theirs, _ = model.predict(venv.normalize_obs(raw), deterministic=True)
    np.testing.assert_allclose(load_policy("run").predict(raw)[0], theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["best_model.zip", "TinyReach-v0.zip", "TinyReach-v0"])
def test_a_zip_of_a_folder_brings_the_settings_beside_it(in_process, call, name):
    _zoo_agent(in_process / "agent", "TinyReach-v0")
    shutil.copy("agent/TinyReach-v0.zip", "agent/best_model.zip")
    code, text = call(f"agent/{name}", "--output", "run", "algo.hyperparams.gamma=0.8")
    assert code == 0, text
    config = yaml.safe_load((in_process / "run" / "config.yaml").read_text())
    assert config["env"]["wrappers"] == ["time_feature"]
    assert config["algo"]["hyperparams"]["gamma"] == 0.8


def test_a_policy_without_the_statistics_that_it_needs_is_refused(in_process, call):
    _zoo_agent(in_process / "agent", "TinyReach-v0")
    (in_process / "agent/TinyReach-v0/vecnormalize.pkl").rename(in_process / "vn.pkl")
    code, text = call("agent", "--output", "run")
    assert code == 2
    assert "vecnormalize.pkl is missing" in text
    assert not (in_process / "run").exists()
    assert call("agent", "--output", "run", "--vecnormalize", "vn.pkl")[0] == 0
    assert call("agent", "--output", "run2", "normalize=false")[0] == 0


def test_an_environment_that_is_gone_is_replaced_by_its_newest_version_and_said():
    values, env_file, notes = environment_values("Taxi-v3")
    assert (values, env_file.wrappers) == ({"id": "Taxi-v4"}, [])
    assert notes == ["Taxi-v3 is gone: taking Taxi-v4, its newest version, which may differ"]
    assert environment_values("CartPole-v1")[::2] == ({"id": "CartPole-v1"}, [])
    assert environment_values("Nowhere-v1")[0] == {"id": "Nowhere-v1"}


EVIL = {
    "wrapper": ({"env_wrapper": "evil.Wrapper"}, ENV, "not shipped: evil.Wrapper"),
    "module of the id": ({"normalize": True}, f"evil:{ENV}", "imports a module"),
    "window": ({"normalize": True, "env_kwargs": {"render_mode": "human"}}, ENV, "may run code"),
}


@pytest.mark.parametrize("kind", EVIL)
def test_nothing_that_the_settings_of_an_agent_name_is_imported(in_process, refused, kind):
    config, env, reason = EVIL[kind]
    (in_process / "evil.py").write_text("open('ran', 'w')")
    _zoo_agent(in_process / "agent", "TinyReach-v0", config, env)
    refused("agent", "--output", "run", told=[reason])
    assert not (in_process / "ran").exists()


@pytest.mark.parametrize(
    ("zips", "word"), [((), "found: none"), (("a.zip", "b.zip"), "found: a.zip, b.zip")]
)
def test_a_folder_without_one_agent_is_refused_in_one_message(in_process, refused, zips, word):
    (in_process / "agent").mkdir()
    for name in zips:
        (in_process / "agent" / name).write_bytes(b"")
    refused("agent", told=[word])


def test_hindsight_replay_of_before_1_1_is_refused_with_the_reason(in_process, refused):
    _zoo_agent(in_process / "agent", "TinyReach-v0", {"model_class": "sac"})
    refused("agent", told=["read flat observations"])


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
def test_weights_that_do_not_fit_name_the_layer_and_the_mend(in_process, refused, kind):
    _stock(in_process, "ppo")
    overrides, parts = MISMATCHES[kind]
    refused(*_arguments("ppo", *overrides), told=parts)
    assert not (in_process / "run").exists()


def test_statistics_of_another_environment_are_refused(in_process, refused):
    _stock(in_process, "ppo")
    VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")])).save(str(in_process / "vn.pkl"))
    told = ["(4,)", "another environment"]
    refused(*_arguments("ppo"), "--vecnormalize", "vn.pkl", told=told)


def test_another_algorithms_zip_is_refused_in_one_message(in_process, refused):
    _stock(in_process, "td3")
    refused(*_arguments("ppo"), told=["the weights do not fit", "ppo"])


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
def test_a_mistake_is_answered_in_one_message(in_process, refused, arguments, part):
    _stock(in_process, "ppo", steps=1)
    refused(*arguments, told=[part])
