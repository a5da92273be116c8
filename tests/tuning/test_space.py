"""Search spaces: what a trial draws, when, and what a command line or a function changes."""

import optuna
import pytest
from omegaconf import OmegaConf
from optuna.trial import FixedTrial

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.dimensions import Kind
from rlzoo_plus.tuning.space import Space

GAMMA = "algo.hyperparams.gamma"
SDE = "algo.hyperparams.use_sde"
FREQ = "algo.hyperparams.sde_sample_freq"
CONDITIONAL = {FREQ: {"space": "choice(4, 8)", "when": {SDE: True}}}


def draw(space, params, fixed=None, custom=None):
    return Space.parse(space, custom).draw(FixedTrial(params), fixed or {})


def random_trial(seed=0):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed)).ask()


def test_pow2_draws_the_exponent():
    space = {"algo.hyperparams.batch_size": "tag(pow2, range(5, 12))"}
    assert draw(space, {"log2(algo.hyperparams.batch_size)": 11}) == [
        "algo.hyperparams.batch_size=2048"
    ]


def test_one_minus_draws_what_is_missing_to_one():
    space = {GAMMA: "tag(log, one_minus, interval(1e-4, 0.1))"}
    assert draw(space, {f"one_minus({GAMMA})": 0.02}) == [f"{GAMMA}=0.98"]


def test_linear_draws_the_beginning_of_a_schedule():
    space = {"algo.hyperparams.learning_rate": "tag(log, linear, interval(1e-4, 0.1))"}
    assert draw(space, {"algo.hyperparams.learning_rate": 1e-3}) == [
        "algo.hyperparams.learning_rate=lin_0.001"
    ]


def test_steps_of_fractions_are_exact_decimals():
    space = Space.parse({"key.a": "range(0.1, 1, 0.1)"})
    found = [space.draw(FixedTrial({"key.a": 0.1 + n * 0.1}), {}) for n in range(9)]
    assert found == [[f"key.a=0.{n}"] for n in range(1, 10)]


def test_what_is_stored_is_primitive_and_what_is_drawn_is_the_list():
    trial = random_trial()
    space = Space.parse({"network.net_arch": "choice([64, 64], {actor: [1], critic: [2]})"})
    overrides = space.draw(trial, {})
    assert isinstance(trial.params["network.net_arch"], str)
    assert overrides == [f"network.net_arch={trial.params['network.net_arch']}"]


def test_a_study_that_goes_on_draws_from_the_same_choices():
    space = {"network.net_arch": "null,[64,64],{actor: [1], critic: [2]},relu,2,0.5,true"}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=2))
    for value in range(8):
        trial = study.ask()
        Space.parse(space).draw(trial, {})
        study.tell(trial, value)
    assert len(study.trials) == 8


@pytest.mark.parametrize("fixed", [{"algo": {"hyperparams": {"use_sde": True}}}, {SDE: True}])
def test_a_condition_looks_at_the_configuration(fixed):
    assert draw(CONDITIONAL, {FREQ: 4}, fixed) == [f"{FREQ}=4"]


def test_a_key_whose_condition_does_not_hold_is_not_drawn():
    assert draw(CONDITIONAL, {}, {SDE: False}) == []


def test_a_condition_looks_at_what_was_drawn_even_if_that_comes_later_in_the_file():
    space = {**CONDITIONAL, SDE: "choice(true, false)"}
    assert draw(space, {SDE: True, FREQ: 8}, {SDE: False}) == [f"{SDE}=true", f"{FREQ}=8"]
    assert draw(space, {SDE: False}, {SDE: True}) == [f"{SDE}=false"]


def test_a_condition_looks_into_a_mapping_that_was_drawn():
    space = {
        "a.b": {"space": "interval(0, 1)", "when": {"algo.action_noise.type": "ou"}},
        "algo.action_noise": "choice({type: ou, std: 0.1}, {type: normal, std: 0.1})",
    }
    fixed = {"algo": {"action_noise": {"type": "normal"}}}
    drawn = draw(space, {"algo.action_noise": "{type:ou,std:0.1}", "a.b": 1}, fixed)
    assert drawn == ["algo.action_noise={type:ou,std:0.1}", "a.b=1"]


def test_all_of_several_conditions_must_hold():
    space = {"key.a": {"space": "1,2", "when": {"b": 1, "c": None}}}
    assert draw(space, {"key.a": 1}, {"b": 1, "c": None}) == ["key.a=1"]
    assert draw(space, {}, {"b": 1, "c": 2}) == []


def test_a_misspelled_condition_is_told_with_the_likely_name():
    space = {FREQ: {"space": "4,8", "when": {"algo.hyperparams.use_sd": True}}}
    with pytest.raises(ConfigError, match=r"sde_sample_freq.*Did you mean 'algo.*use_sde'"):
        draw(space, {FREQ: 4}, {"algo": {"hyperparams": {"use_sde": True}}})


def test_keys_that_wait_for_one_another_are_refused():
    space = {
        "key.a": {"space": "1,2", "when": {"key.b": 1}},
        "key.b": {"space": "1,2", "when": {"key.a": 1}},
    }
    with pytest.raises(ConfigError, match=r"key.a, key.b wait for one another"):
        Space.parse(space)
    with pytest.raises(ConfigError, match="wait"):
        Space.parse({"key.a": {"space": "1,2", "when": {"key.a": 1}}})


@pytest.mark.parametrize(
    ("exponent", "n_steps", "n_envs", "drawn"),
    [
        (9, 128, 4, 512),
        (9, 64, 4, 256),
        (9, 100, 3, 256),
        (9, 4, 2, 8),
        (5, 3, 2, 6),
        (5, 64, 4, 32),
    ],
)
def test_a_batch_is_never_larger_than_a_rollout(exponent, n_steps, n_envs, drawn):
    space = {
        "batch_size": {"space": "tag(pow2, range(5, 10))", "at_most": "n_steps * n_envs"},
    }
    fixed = {"n_steps": n_steps, "n_envs": n_envs}
    assert draw(space, {"log2(batch_size)": exponent}, fixed) == [f"batch_size={drawn}"]


@pytest.mark.parametrize(
    ("text", "at_most", "param", "drawn"),
    [
        ("interval(1, 100)", "total / 10", 80, "50"),
        ("range(0, 101, 20)", "total / 10", 80, "40"),
        ("interval(0.0, 100.0)", "2 * total / 400", 80.0, "2.5"),
        ("interval(1, 100)", "30", 80, "30"),
        ("interval(1, 100)", "auto", 80, "80"),
        ("interval(1, 100)", "auto * total", 80, "80"),
    ],
)
def test_a_limit_is_a_product_of_keys_and_numbers(text, at_most, param, drawn):
    fixed = {"total": 500, "auto": "auto"}
    space = {"key": {"space": text, "at_most": at_most}}
    assert draw(space, {"key": param}, fixed) == [f"key={drawn}"]


@pytest.mark.parametrize("seed", range(5))
def test_the_sampler_is_told_the_value_that_is_used(seed):
    space = {
        "n_steps": {"space": "tag(pow2, range(5, 12))", "at_most": "256"},
        "batch_size": {"space": "tag(pow2, range(5, 10))", "at_most": "n_steps * n_envs"},
        "starts": {"space": "tag(log, interval(100, 10000))", "at_most": "total / 10"},
        "share": {"space": "interval(0.0, 1.0)", "at_most": "0.25"},
    }
    trial = random_trial(seed)
    drawn = Space.parse(space).draw(trial, {"n_envs": 1, "total": 5000})
    told = trial.params
    assert drawn == [
        f"n_steps={2 ** told['log2(n_steps)']}",
        f"batch_size={2 ** told['log2(batch_size)']}",
        f"starts={told['starts']}",
        f"share={told['share']}",
    ]
    assert told["log2(n_steps)"] <= 8


@pytest.mark.parametrize(
    ("param", "train_freq", "n_envs", "drawn"),
    [(0, 4, 1, 4), (3, 4, 1, 8), (7, 4, 1, 32), (0, 1, 3, 4), (7, 8, 100, 128), (7, 1, 1, 8)],
)
def test_a_value_has_a_lower_limit_too(param, train_freq, n_envs, drawn):
    limits = {"at_least": "train_freq * n_envs", "at_most": "8 * train_freq * n_envs"}
    space = {"key": {"space": "tag(pow2, range(0, 8))", **limits}}
    fixed = {"train_freq": train_freq, "n_envs": n_envs}
    assert draw(space, {"log2(key)": param}, fixed) == [f"key={drawn}"]
    trial = random_trial(param)
    [asked] = Space.parse(space).draw(trial, fixed)
    assert asked == f"key={2 ** trial.params['log2(key)']}"
    assert min(train_freq * n_envs, 128) <= int(asked[4:]) <= 8 * train_freq * n_envs


def test_a_value_that_is_written_twice_is_drawn_twice_as_often():
    space = Space.parse({SDE: "choice(false, false, false, true)"})
    drawn = [space.draw(random_trial(seed), {}) for seed in range(60)]
    assert 5 <= drawn.count([f"{SDE}=true"]) <= 25
    assert space.grid() == {SDE: [False, True]}


def test_a_sweep_on_the_command_line_adds_a_key_or_replaces_its_entry():
    space = Space.parse({"key.a": "1,2", "key.b": "1,2"})
    changed = space.with_overrides(["key.b=interval(0.5, 1.5)", "++key.c=choice(x, y)"])
    assert [(d.key, d.source) for d in changed.dimensions] == [
        ("key.a", "1,2"),
        ("key.b", "interval(0.5, 1.5)"),
        ("key.c", "choice(x, y)"),
    ]


def test_a_sweep_on_the_command_line_keeps_condition_and_limit():
    entry = {"space": "interval(1, 8)", "when": {SDE: True}, "at_most": "n_envs"}
    [changed] = Space.parse({FREQ: entry}).with_overrides([f"{FREQ}=range(2, 9, 2)"]).dimensions
    assert changed.when == {SDE: True}
    assert changed.at_most.source == "n_envs"


def test_overrides_that_hydra_has_parsed_keep_whole_numbers_whole():
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override("key=interval(1, 8)")
    [found] = Space.parse({}).with_overrides([override]).dimensions
    assert found.kind is Kind.INT


@pytest.mark.parametrize(
    ("override", "left"),
    [
        ("algo.action_noise.std=0.2", ["algo.action_noise.type", "network.net_arch"]),
        ("++algo.action_noise=null", ["network.net_arch"]),
        ("~algo.action_noise", ["network.net_arch"]),
        ("network=small", ["algo.action_noise.type", "algo.action_noise.std"]),
        ("algo=ppo", ["algo.action_noise.type", "algo.action_noise.std", "network.net_arch"]),
        (
            "hydra.verbose=true",
            ["algo.action_noise.type", "algo.action_noise.std", "network.net_arch"],
        ),
    ],
)
def test_a_value_on_the_command_line_takes_its_keys_out(override, left):
    space = Space.parse(
        {
            "algo.action_noise.type": "normal,ou",
            "algo.action_noise.std": "interval(0.0, 0.5)",
            "network.net_arch": "[64],[128]",
        }
    )
    assert [d.key for d in space.with_overrides([override]).dimensions] == left


def test_a_fixed_part_takes_out_the_mapping_that_would_overwrite_it():
    space = Space.parse({"algo.action_noise": "null,{type: ou, std: 0.1}"})
    assert space.with_overrides(["algo.action_noise.std=0.2"]).dimensions == ()


def test_the_later_of_two_words_for_a_key_counts():
    words = ["network.net_arch=null", "network.net_arch=[64],[128]"]
    assert len(Space.parse({}).with_overrides(words).dimensions) == 1
    assert len(Space.parse({}).with_overrides(words[::-1]).dimensions) == 0


def test_an_entry_that_is_null_is_left_out():
    assert (
        Space.parse(OmegaConf.create({"key.a": None, "key.b": "1,2"})).dimensions[0].key == "key.b"
    )


CUSTOM = """
import numpy as np

def space(trial):
    width = trial.suggest_int("width", 8, 64)
    return {
        "network.net_arch": [width, width],
        "algo.hyperparams.gamma": np.float64(0.5),
        "network.activation": "re lu",
    }

def nothing(trial):
    return None

def wrong_key(trial):
    return {1: 2}

def wrong_value(trial):
    return {"network.policy": object()}

def broken(trial):
    return 1 / 0

def pruned(trial):
    import optuna

    raise optuna.TrialPruned

number = 3
"""


@pytest.fixture
def custom(tmp_path, monkeypatch):
    (tmp_path / "my_search_space.py").write_text(CUSTOM)
    (tmp_path / "my_broken_space.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_search_space"


def test_a_function_of_the_users_adds_its_values(custom):
    drawn = draw({"key.a": "1,2"}, {"width": 16, "key.a": 2}, {}, f"{custom}.space")
    assert drawn == [
        "network.net_arch=[16,16]",
        f"{GAMMA}=0.5",
        "network.activation='re lu'",
        "key.a=2",
    ]


def test_a_function_of_the_users_takes_the_place_of_an_entry(custom):
    drawn = draw({GAMMA: "0.9,0.99"}, {"width": 16}, {}, f"{custom}.space")
    assert [word for word in drawn if word.startswith(GAMMA)] == [f"{GAMMA}=0.5"]


def test_a_condition_sees_what_a_function_of_the_users_has_drawn(custom):
    space = {"key.a": {"space": "1,2", "when": {GAMMA: 0.5}}}
    assert "key.a=1" in draw(space, {"width": 8, "key.a": 1}, {GAMMA: 0.9}, f"{custom}.space")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("space", "must be module.function"),
        ("no_such_module_here.space", "no module no_such_module_here.*PYTHONPATH"),
        ("my_broken_space.space", "cannot be imported: ZeroDivisionError"),
        ("my_search_space.spaces", "has no function spaces"),
        ("my_search_space.number", "has no function number"),
    ],
)
def test_a_function_that_is_not_there_is_told_before_anything_is_drawn(custom, path, message):
    with pytest.raises(ConfigError, match=rf"hpo.custom={path}.*{message}"):
        Space.parse({}, path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "returned NoneType. It must return a mapping"),
        ("wrong_key", "returned the key 1"),
        ("wrong_value", "returned network.policy: <object"),
        ("broken", "ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_function_gives_is_checked(custom, name, message):
    with pytest.raises(ConfigError, match=message):
        draw({}, {}, {}, f"{custom}.{name}")


def test_a_function_may_end_its_trial(custom):
    with pytest.raises(optuna.TrialPruned):
        draw({}, {}, {}, f"{custom}.pruned")


def test_a_grid_cannot_be_made_of_a_function(custom):
    with pytest.raises(ConfigError, match="a grid cannot be made of a function"):
        Space.parse({}, f"{custom}.space").grid()
