"""Experiment files: the run that a file gives is the run that it was written for."""

import json

import pytest
import yaml

from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load
from rlzoo_plus.tuning.experiment_file import experiment_name, write_experiment

HEADER = ["The best trial of a study.", "Use: python train.py experiment=best"]


@pytest.fixture
def target(in_process):
    return in_process / "mine" / "experiment" / "best.yaml"


def trained_again(target, *overrides):
    folder = str(target.parent.parent)
    return load(["--config-dir", folder, f"experiment={target.stem}", *overrides])


def replaced(config, section, **values):
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


@pytest.mark.parametrize(
    "overrides",
    [
        ["algo=ppo", "env=cartpole_bullet", "num_threads=1"],
        ["algo=ppo", "env=cartpole_bullet", "tuned=none", "network=separate", "seed=7"],
        ["algo=ppo", "env=cartpole_bullet", "env.kwargs.discrete=true", "network.net_arch=[8,8]"],
        ["algo=ppo", "algo.hyperparams.learning_rate=lin_3e-5", "normalize=true", "n_envs=2"],
        ["algo=ppo", "normalize={observation: true, reward: false}", "n_envs=3"],
        ["algo=sac", "env=pendulum", "algo.hyperparams.train_freq=[1,episode]"],
        ["algo=td3", "env=pendulum", "algo.action_noise={type: ou, std: 0.2}"],
        ["algo=ddpg", "env=cartpole_bullet", "algo.action_noise=null"],
        ["algo=recurrent_ppo", "env=cartpole_bullet", "network=recurrent", "seed=3"],
        ["algo=sac", "env.id=Foo-v1", "+env.kwargs.size=3", "env.time_limit=50"],
        ["algo=sac", "env=gym", "env.id=Pendulum-v1", "eval.every_steps=null"],
        ["algo=a2c", "env=halfcheetah_bullet", "stop.wall_clock_minutes=7", "device=cpu"],
        ["algo=ppo", "env=cartpole_bullet", "network.optimizer_kwargs={eps: 1.0e-7}"],
    ],
    ids=" ".join,
)
def test_a_written_experiment_is_the_same_run(target, overrides):
    config = load(overrides)
    write_experiment(target, config, HEADER)
    again = trained_again(target)
    assert config_hash(again) == config_hash(config)
    assert again.env.name == config.env.name


def test_a_reference_to_a_secret_stays_one(target, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "Zx81-qwerty")
    config = load(["env.id=Foo-v1", "env.kwargs.api_token=${oc.env:API_TOKEN}"])
    write_experiment(target, config, HEADER)
    assert "Zx81-qwerty" not in target.read_text()
    assert trained_again(target).env.kwargs == {"api_token": "${oc.env:API_TOKEN}"}


NUMBERS = [3e-05, 1e-300, 0.1 + 0.2, 5e-324, 1e22, 2.0, 123456789.125, -1e-7]
VALUES = [
    *("1e-3", "1e3", "012", "true", "null", "on", "1_000", "2020-01-01", ".5", "???x", "~", ""),
    *("a: b", "# no comment", "a ${b} c", "\\${b}", "tail \\", "ä ö", "two\nlines", "'", '"'),
    *(True, None, 1, 1.0, [1, [2.5, "x"]], {"a": {"b": [1]}}, [], {}),
]


def test_numbers_stay_the_same_to_the_last_bit(target):
    config = load([])
    numbers = {f"n{i}": number for i, number in enumerate(NUMBERS)}
    write_experiment(target, replaced(config, "env", kwargs={"discrete": False, **numbers}), HEADER)
    # Other readers of YAML, too, take them for numbers.
    plain = yaml.safe_load(target.read_text())["env"]["kwargs"]
    for kwargs in (trained_again(target).env.kwargs, plain):
        again = [kwargs[name] for name in numbers]
        assert [type(number) for number in again] == [float] * len(NUMBERS)
        assert [number.hex() for number in again] == [number.hex() for number in NUMBERS]


def test_values_of_any_kind_come_back_as_they_were(target):
    config = load([])
    values = {f"v{i}": value for i, value in enumerate(VALUES)}
    write_experiment(target, replaced(config, "env", kwargs={"discrete": False, **values}), HEADER)
    again = trained_again(target).env.kwargs
    assert [json.dumps(again[name]) for name in values] == [json.dumps(value) for value in VALUES]


def test_the_command_line_still_wins(target):
    write_experiment(target, load(["seed=7"]), HEADER)
    again = trained_again(target, "seed=8", "algo.hyperparams.gamma=0.5")
    assert (again.seed, again.algo.hyperparams["gamma"]) == (8, 0.5)


def test_an_environment_without_a_file_builds_on_the_neutral_one(target):
    config = load(["env.id=Foo-v1", "algo=sac"])
    write_experiment(target, config, HEADER)
    assert "override /env: gym" in target.read_text()
    assert trained_again(target).env.id == "Foo-v1"


def test_an_environment_whose_file_sets_more_builds_on_the_neutral_one(target):
    config = load(["env=cartpole_bullet", "~env.kwargs.discrete"])
    assert config.env.kwargs == {}
    write_experiment(target, config, HEADER)
    assert trained_again(target).env == config.env


def test_a_file_of_the_users_own_environment_is_built_on_when_it_is_beside_the_experiment(target):
    mine = target.parent.parent / "env" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text((conf_dir() / "env" / "gym.yaml").read_text().replace("???", "Mine-v3"))
    config = load(["--config-dir", str(target.parent.parent), "env=mine", "seed=5"])
    write_experiment(target, config, HEADER)
    assert "override /env: mine" in target.read_text()
    assert trained_again(target).env.name == "mine"


def test_a_file_of_the_users_own_algorithm_elsewhere_is_asked_for(target):
    config = load([])
    config = replaced(config, "algo", name="mine")
    with pytest.raises(ConfigError, match="algo=mine: no such file"):
        write_experiment(target, config, HEADER)


def test_a_key_that_cannot_be_taken_away_is_named_and_nothing_is_written(target):
    config = load(["~algo.hyperparams.vf_coef"])
    with pytest.raises(ConfigError, match=r"algo\.hyperparams\.vf_coef is set in a file of conf/"):
        write_experiment(target, config, HEADER)
    assert not target.exists()


def test_a_run_that_would_become_another_is_refused_and_nothing_is_written(target):
    config = load([])
    # Checking the file makes a whole number of it.
    hyperparams = {**config.algo.hyperparams, "n_steps": 128.0}
    config = replaced(config, "algo", hyperparams=hyperparams)
    with pytest.raises(ConfigError, match="would not be the same run: algo="):
        write_experiment(target, config, HEADER)
    assert not target.exists()


def test_where_a_run_lies_and_what_follows_it_stays_out(target):
    config = load(
        ["run_dir=/data/secret", "tracker=wandb", "tracker.project=secret", "log.level=debug"]
    )
    write_experiment(target, config, HEADER)
    content = yaml.safe_load(target.read_text())
    assert "secret" not in target.read_text()
    assert not {"run_dir", "sweep", "tracker", "infra", "log", "report", "hpo"} & content.keys()


def test_a_line_break_in_the_header_is_no_configuration(target):
    write_experiment(target, load([]), ["A study\nseed: 99", "\x1b[31mred"])
    text = target.read_text()
    assert "\x1b" not in text
    assert yaml.safe_load(text)["seed"] == 0


def test_a_file_that_is_there_is_replaced_only_on_request(target):
    write_experiment(target, load(["seed=1"]), HEADER)
    with pytest.raises(ConfigError, match="exists already"):
        write_experiment(target, load(["seed=2"]), HEADER)
    assert trained_again(target).seed == 1
    write_experiment(target, load(["seed=2"]), HEADER, overwrite=True)
    assert trained_again(target).seed == 2


def test_a_name_that_a_shipped_experiment_has_is_refused(target):
    with pytest.raises(ConfigError, match="experiment=cartpole_quick is taken"):
        write_experiment(target.with_name("cartpole_quick.yaml"), load([]), HEADER)


@pytest.mark.parametrize("name", ["1e5", "7", "null", "a.b", "a b", "_hidden", "ä", "true"])
def test_a_name_that_the_command_line_would_misread_is_refused_with_one_that_works(target, name):
    with pytest.raises(ConfigError, match="Use "):
        write_experiment(target.with_name(f"{name}.yaml"), load([]), HEADER)
    better = target.with_name(f"{experiment_name(name)}.yaml")
    write_experiment(better, load([]), HEADER)
    assert trained_again(better).seed == 0


def test_a_folder_with_any_name_will_do(in_process):
    target = in_process / "it's, [odd] $ö" / "experiment" / "best.yaml"
    write_experiment(target, load(["seed=4"]), HEADER)
    assert yaml.safe_load(target.read_text())["seed"] == 4


def test_it_can_be_written_while_hydra_is_at_work(target):
    from hydra.core.global_hydra import GlobalHydra

    from rlzoo_plus.config.hydra_app import run_hydra
    from rlzoo_plus.runs.load import Resolver

    seen = []

    def job(cfg):
        config, _ = Resolver([]).resolve(cfg)
        at_work = GlobalHydra.instance().hydra
        write_experiment(target, config, HEADER)
        seen.append(GlobalHydra.instance().hydra is at_work is not None)

    run_hydra(job, ["seed=6"])
    assert seen == [True]
    assert trained_again(target).seed == 6
