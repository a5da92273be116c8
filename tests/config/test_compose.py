"""The shipped conf/ and the command line, composed by Hydra."""

import functools
import operator

import pytest
import yaml

from rlzoo_plus.config.conf_keys import GROUPS
from rlzoo_plus.config.overrides import prepare_overrides, typed_values
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import conf_dir, config_dirs, group_options, missing_tuned

CHEETAH = "env=halfcheetah_bullet"


def test_the_default_is_ppo_on_the_cartpole(compose_values):
    values, choices = compose_values()
    assert (choices["algo"], choices["env"]) == ("ppo", "cartpole_bullet")
    assert (values["algo"]["name"], values["env"]["id"]) == ("ppo", "robots/CartPoleBalance-v0")


def test_the_composed_keys_are_those_of_the_schema(compose_values):
    values, _ = compose_values()
    assert set(values) == set(RunConfig.model_fields)


# What wins: words, and the value of keys; `/group` is the file that was chosen.
WINS = {
    "tuned values over the defaults of the algorithm": (
        ["algo=ppo", CHEETAH],
        {
            **{"/tuned": "ppo/halfcheetah_bullet", "n_envs": 16},
            **{"algo.hyperparams.clip_range": 0.4, "algo.hyperparams.stats_window_size": 100},
        },
    ),
    "a network file over tuned values": (
        ["algo=ppo", CHEETAH, "network=small"],
        {"network.net_arch": [32, 32], "network.log_std_init": -2},
    ),
    "an explicit default network over tuned values": (
        [CHEETAH, "network=default"],
        dict.fromkeys([f"network.{k}" for k in ("net_arch", "activation", "log_std_init")]),
    ),
    "the command line over network and tuned": (
        [CHEETAH, "network=small", "network.net_arch=[8]", "n_envs=2", "normalize=false"],
        {"network.net_arch": [8], "n_envs": 2, "normalize": False},
    ),
    "an experiment over tuned values": (
        ["experiment=cartpole_quick"],
        {"/tuned": "ppo/cartpole_bullet", "n_timesteps": 20480, "eval.episodes": 5, "n_envs": 8},
    ),
    "the command line over an experiment": (
        ["experiment=cartpole_quick", "n_timesteps=7", "algo=a2c"],
        {"n_timesteps": 7, "/algo": "a2c", "algo.name": "a2c"},
    ),
    "one hyperparameter, and the other tuned ones stay": (
        [CHEETAH, "algo.hyperparams.gamma=0.5"],
        {"algo.hyperparams.gamma": 0.5, "algo.hyperparams.n_epochs": 20},
    ),
    "one part of the network, and the other stays": (
        ["network=separate", "network.net_arch.actor=[8]"],
        {"network.net_arch": {"actor": [8], "critic": [256, 256]}},
    ),
    "a list of layers over actor and critic": (
        ["network=separate", "network.net_arch=[8]"],
        {"network.net_arch": [8]},
    ),
    "actor and critic over a tuned list of layers": (
        ["algo=sac", CHEETAH, "network=separate"],
        {
            "/tuned": "sac/halfcheetah_bullet",
            "network.net_arch": {"actor": [64, 64], "critic": [256, 256]},
        },
    ),
    "a list of layers over a tuned actor and critic": (
        [CHEETAH, "network.net_arch=[8]"],
        {"network.net_arch": [8]},
    ),
    "one argument of the environment, and the others stay": (
        ["env.kwargs.episode_s=2.0"],
        {"env.kwargs": {"discrete": False, "episode_s": 2.0}},
    ),
    "the defaults of the algorithm with tuned=none": (
        [CHEETAH, "tuned=none"],
        {"n_envs": 1, "algo.hyperparams.n_epochs": 10, "network.net_arch": None},
    ),
    "tuned values of another environment that are asked for": (
        ["env=thrower_bullet", "tuned=ppo/halfcheetah_bullet"],
        {
            **{"/tuned": "ppo/halfcheetah_bullet", "algo.hyperparams.n_epochs": 20},
            "env.id": "ThrowerBulletEnv-v0",
        },
    ),
    "objectives of a study over those in its file": (
        ["hpo=ppo", "hpo.objectives={steps_per_s: maximize}"],
        {"hpo.objectives": {"steps_per_s": "maximize"}},
    ),
}


@pytest.mark.parametrize(("words", "expected"), WINS.values(), ids=WINS)
def test_it_wins(compose_values, words, expected):
    values, choices = compose_values(*words)
    found = {
        key: choices[key[1:]]
        if key[0] == "/"
        else functools.reduce(operator.getitem, key.split("."), values)
        for key in expected
    }
    assert found == expected


def test_the_default_network_undoes_everything_a_tuned_file_can_set():
    tuned = [yaml.safe_load(path.read_text()) or {} for path in conf_dir().glob("tuned/*/*.yaml")]
    keys = set().union(*(data.get("network", {}).keys() for data in tuned))
    assert keys <= set(yaml.safe_load((conf_dir() / "network/default.yaml").read_text()))


@pytest.mark.parametrize("argument", ["env.id=Pendulum-v1", "++env.id=Pendulum-v1"])
def test_an_id_alone_chooses_the_shipped_environment_with_it(compose_values, argument):
    values, choices = compose_values("algo=td3", argument)
    assert choices["env"] == "pendulum"
    assert values["env"]["max_return"] == 0.0
    assert choices["tuned"] == "td3/pendulum"


def test_a_quoted_id_is_the_same_id(compose_values):
    assert compose_values("env.id='Pendulum-v1'")[1]["env"] == "pendulum"


def test_an_id_that_is_not_shipped_gets_nothing_of_the_default_environment(compose_values):
    values, choices = compose_values("env.id=LunarLander-v3")
    assert choices["env"] == "gym"
    env = values["env"]
    assert (env["id"], env["kwargs"], env["packages"]) == ("LunarLander-v3", {}, [])
    assert env["max_return"] is None
    assert env["solved_return"] is None
    assert values["n_envs"] == 1


def test_an_id_with_an_explicit_environment_keeps_that_one(compose_values):
    values, choices = compose_values("env=cartpole_bullet", "env.id=Other-v0")
    assert choices["env"] == "cartpole_bullet"
    assert values["env"]["id"] == "Other-v0"
    assert values["env"]["kwargs"] == {"discrete": False}


@pytest.mark.parametrize(
    ("argument", "prepared"),
    [
        ("seed=1", "seed=1"),
        ("algo=ppo", "algo=ppo"),
        ("algo.hyperparams.gamma=0.9", "++algo.hyperparams.gamma=0.9"),
        ("+foo=1", "+foo=1"),
        ("+a.b=1", "+a.b=1"),
        ("~network.lstm", "~network.lstm"),
        ("hydra.sweep.dir=x", "hydra.sweep.dir=x"),
        ("hydra/launcher=basic", "hydra/launcher=basic"),
        ("env@other=x", "env@other=x"),
        ("--cfg", "--cfg"),
        ("-m", "-m"),
    ],
)
def test_only_dotted_values_may_be_new(argument, prepared):
    assert prepare_overrides([argument]) == [prepared]


def test_sweep_keys_come_without_prefix():
    keys = typed_values(["-m", "seed=1,2", "+run_dir=x", "++algo.name=y", "~tuned"])
    assert list(keys) == ["seed", "run_dir", "algo.name"]


@pytest.mark.parametrize("form", [["--config-dir", "{}"], ["--config-dir={}"], ["-cd", "{}"]])
def test_a_directory_of_the_users_own_is_searched(tmp_path, form):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").touch()
    dirs = config_dirs([part.format(tmp_path) for part in form])
    assert dirs == [tmp_path, conf_dir()]
    assert "mine" in group_options("env", dirs)


def test_every_group_has_a_folder():
    # hydra/ holds what chooses the launcher, suites/ what `benchmark` reads.
    folders = {path.name for path in conf_dir().iterdir() if path.is_dir()} - {"hydra", "suites"}
    assert folders == set(GROUPS)


@pytest.mark.parametrize("path", sorted(conf_dir().rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_file_opens_with_a_comment_and_says_how_to_use_it(path):
    head = path.read_text(encoding="utf-8").splitlines()[:8]
    assert head[0].startswith("#")
    if path.parent != conf_dir():
        assert any(line.startswith("# Use: ") or "`tracker=none`" in line for line in head) or (
            path.stem in ("none", "_reset")
        )


@pytest.mark.parametrize("group", ["network", "env", "algo", "infra"])
def test_every_file_of_a_group_composes(compose_values, group):
    names = group_options(group, [conf_dir()])
    # One composition takes a tenth of a second: first and last stand for the others here.
    for name in (names[0], names[-1]):
        _, choices = compose_values(f"{group}={name}")
        assert choices[group] == name


def test_a_missing_tuned_file_is_named():
    dirs = [conf_dir()]
    assert missing_tuned({"tuned": "sac/nowhere"}, dirs) == "sac/nowhere"
    assert missing_tuned({"tuned": "ppo/cartpole"}, dirs) is None
    assert missing_tuned({"tuned": "none"}, dirs) is None
    assert missing_tuned({}, dirs) is None
