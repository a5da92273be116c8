"""The shipped conf/ and the command line, composed by Hydra."""

import pytest
import yaml

from rlzoo_plus.config.overrides import GROUPS, prepare_overrides, typed_values
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


def test_tuned_values_win_over_the_defaults_of_the_algorithm(compose_values):
    values, choices = compose_values("algo=ppo", CHEETAH)
    assert choices["tuned"] == "ppo/halfcheetah_bullet"
    assert values["n_envs"] == 16
    assert values["algo"]["hyperparams"]["clip_range"] == 0.4
    assert values["algo"]["hyperparams"]["stats_window_size"] == 100


def test_a_network_file_wins_over_tuned_values(compose_values):
    values, _ = compose_values("algo=ppo", CHEETAH, "network=small")
    assert values["network"]["net_arch"] == [32, 32]
    assert values["network"]["log_std_init"] == -2


def test_an_explicit_default_network_wins_over_tuned_values(compose_values):
    values, _ = compose_values("algo=ppo", CHEETAH, "network=default")
    network = values["network"]
    assert network["net_arch"] is None
    assert network["activation"] is None
    assert network["log_std_init"] is None
    assert network["ortho_init"] is None


def test_the_default_network_undoes_everything_a_tuned_file_can_set(compose_values):
    tuned = [yaml.safe_load(path.read_text()) or {} for path in conf_dir().glob("tuned/*/*.yaml")]
    keys = set().union(*(data.get("network", {}).keys() for data in tuned))
    assert keys <= set(yaml.safe_load((conf_dir() / "network/default.yaml").read_text()))


def test_the_command_line_wins_over_network_and_tuned(compose_values):
    values, _ = compose_values(
        CHEETAH, "network=small", "network.net_arch=[8]", "n_envs=2", "normalize=false"
    )
    assert values["network"]["net_arch"] == [8]
    assert values["n_envs"] == 2
    assert values["normalize"] is False


def test_an_experiment_wins_over_tuned_values(compose_values):
    values, choices = compose_values("experiment=cartpole_quick")
    assert choices["tuned"] == "ppo/cartpole_bullet"
    assert values["n_timesteps"] == 20480
    assert values["eval"]["episodes"] == 5
    assert values["n_envs"] == 8


def test_the_command_line_wins_over_an_experiment(compose_values):
    values, choices = compose_values("experiment=cartpole_quick", "n_timesteps=7", "algo=a2c")
    assert values["n_timesteps"] == 7
    assert choices["algo"] == "a2c"
    assert values["algo"]["name"] == "a2c"


def test_one_hyperparameter_on_the_command_line_keeps_the_other_tuned_ones(compose_values):
    values, _ = compose_values(CHEETAH, "algo.hyperparams.gamma=0.5")
    assert values["algo"]["hyperparams"]["gamma"] == 0.5
    assert values["algo"]["hyperparams"]["n_epochs"] == 20


def test_one_part_of_the_network_keeps_the_other(compose_values):
    values, _ = compose_values("network=separate", "network.net_arch.actor=[8]")
    assert values["network"]["net_arch"] == {"actor": [8], "critic": [256, 256]}


def test_a_list_of_layers_replaces_actor_and_critic(compose_values):
    values, _ = compose_values("network=separate", "network.net_arch=[8]")
    assert values["network"]["net_arch"] == [8]


def test_actor_and_critic_replace_a_tuned_list_of_layers(compose_values):
    values, choices = compose_values("algo=sac", CHEETAH, "network=separate")
    assert choices["tuned"] == "sac/halfcheetah_bullet"
    assert values["network"]["net_arch"] == {"actor": [64, 64], "critic": [256, 256]}


def test_a_list_of_layers_replaces_a_tuned_actor_and_critic(compose_values):
    values, _ = compose_values(CHEETAH, "network.net_arch=[8]")
    assert values["network"]["net_arch"] == [8]


def test_one_argument_of_the_environment_keeps_the_others(compose_values):
    values, _ = compose_values("env.kwargs.episode_s=2.0")
    assert values["env"]["kwargs"] == {"discrete": False, "episode_s": 2.0}


def test_tuned_none_leaves_the_defaults_of_the_algorithm(compose_values):
    values, _ = compose_values(CHEETAH, "tuned=none")
    assert values["n_envs"] == 1
    assert values["algo"]["hyperparams"]["n_epochs"] == 10
    assert values["network"]["net_arch"] is None


def test_tuned_values_of_another_environment_can_be_asked_for(compose_values):
    values, choices = compose_values("env=thrower_bullet", "tuned=ppo/halfcheetah_bullet")
    assert choices["tuned"] == "ppo/halfcheetah_bullet"
    assert values["algo"]["hyperparams"]["n_epochs"] == 20
    assert values["env"]["id"].startswith("Thrower")


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


def test_an_id_is_found_in_a_directory_of_the_users_own(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text("id: Mine-v0\n")
    arguments = ["env.id=Mine-v0", "--config-dir", str(tmp_path)]
    assert "env=mine" in prepare_overrides(arguments)


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
    # hydra/ holds what chooses the launcher.
    folders = {path.name for path in conf_dir().iterdir() if path.is_dir()} - {"hydra"}
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


def test_objectives_of_a_study_take_the_place_of_those_in_its_file(compose_values):
    values, _ = compose_values("hpo=ppo", "hpo.objectives={steps_per_s: maximize}")
    assert values["hpo"]["objectives"] == {"steps_per_s": "maximize"}
