"""Search spaces with a configuration: its parameters, a grid, and what of the space is left."""

import sys
from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import FixedTrial

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.override_values import by_key, parse_override, same_value
from rlzoo_plus.tuning.space import Space

GAMMA = "algo.hyperparams.gamma"
SDE = "algo.hyperparams.use_sde"
FREQ = "algo.hyperparams.sde_sample_freq"
BATCH = "algo.hyperparams.batch_size"
CONDITIONAL = {FREQ: {"space": "choice(4, 8)", "when": {SDE: True}}}


@pytest.mark.parametrize(
    ("text", "value", "param"),
    [
        ("interval(0.0, 1.0)", 0.3, 0.3),
        ("tag(log, one_minus, interval(1e-4, 0.1))", 0.99, 1 - 0.99),
        ("tag(pow2, range(5, 12))", 64, 6),
        ("range(8, 65, 8)", 16, 16),
        ("tag(linear, interval(1e-4, 1e-2))", "lin_1e-3", 1e-3),
        ("interval(1e-4, 1e-2)", "const_1e-3", 1e-3),
        ("null,[64,64]", None, None),
        ("null,[64,64]", [64, 64], "[64,64]"),
        ("true,false", False, False),
    ],
)
def test_a_present_value_is_kept_as_it_is(text, value, param):
    space = Space.parse({"key.a": text})
    params, notes = space.encode({"key": {"a": value}})
    assert notes == []
    assert list(params.values()) == [param]
    [override] = space.draw(FixedTrial(params), {})
    drawn = parse_override(override).value()
    assert same_value(drawn, value) or isinstance(value, str)


@pytest.mark.parametrize(
    ("text", "value", "drawn", "note"),
    [
        (
            "interval(0.5, 1.0)",
            0.3,
            0.5,
            "key.a=0.3 becomes 0.5, the nearest in interval(0.5, 1.0)",
        ),
        ("tag(log, one_minus, interval(1e-4, 0.1))", 0.5, 0.9, "key.a=0.5 becomes 0.9, "),
        ("tag(pow2, range(5, 12))", 100, 128, "key.a=100 becomes 128, "),
        ("tag(pow2, range(5, 12))", 4, 32, "key.a=4 becomes 32, "),
        ("range(8, 65, 8)", 21, 24, "key.a=21 becomes 24, "),
        ("range(0.0, 1.0, 0.1)", 0.32, 0.3, "key.a=0.32 becomes 0.3, "),
        ("interval(1e-4, 1e-2)", "lin_1e-3", 1e-3, "key.a=lin_1e-3 becomes 0.001, "),
        ("tag(linear, interval(1e-4, 1e-2))", 1e-3, "lin_0.001", "key.a=0.001 becomes lin_0.001, "),
    ],
)
def test_a_value_outside_becomes_the_nearest_inside_and_that_is_said(text, value, drawn, note):
    space = Space.parse({"key.a": text})
    params, notes = space.encode({"key.a": value})
    [override] = space.draw(FixedTrial(params), {})
    assert parse_override(override).value() == drawn
    assert len(notes) == 1
    assert notes[0].startswith(note)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[64],[128]", None),
        ("true,false", 1),
        ("interval(0.0, 1.0)", None),
        ("interval(0.0, 1.0)", "auto"),
        ("interval(0, 1)", True),
        ("tag(pow2, range(0, 5))", -1),
    ],
)
def test_a_value_that_nothing_stands_for_is_left_to_the_sampler(text, value):
    params, notes = Space.parse({"key.a": text}).encode({"key.a": value})
    assert params == {}
    assert len(notes) == 1
    assert "is drawn" in notes[0]


def test_networks_and_normalisation_are_known_in_all_their_spellings():
    space = Space.parse(
        {
            "network.net_arch": "[64,64],{actor: [64], critic: [256]}",
            "normalize": "false,true,{observation: true, reward: false}",
        }
    )

    def encode(net_arch, normalize):
        return space.encode({"network.net_arch": net_arch, "normalize": normalize})[0]

    both = {"observation": True, "reward": True, "clip_observation": 10.0}
    assert encode({"pi": [64, 64], "vf": [64, 64]}, both) == {
        "network.net_arch": "[64,64]",
        "normalize": True,
    }
    assert encode({"pi": [64], "qf": [256]}, None) == {
        "network.net_arch": "{actor:[64],critic:[256]}",
        "normalize": False,
    }
    assert encode([1], {"reward": False}) == {"normalize": "{observation:true,reward:false}"}


def test_a_warm_start_leaves_out_what_would_not_be_drawn():
    assert Space.parse(CONDITIONAL).encode({SDE: False, FREQ: -1}) == ({}, [])
    assert Space.parse(CONDITIONAL).encode({SDE: True, FREQ: 8}) == ({FREQ: 8}, [])


def test_a_warm_start_is_what_an_enqueued_trial_draws():
    space = Space.parse({GAMMA: "tag(log, one_minus, interval(1e-4, 0.1))", "key.a": "null,[1]"})
    study = optuna.create_study()
    study.enqueue_trial(space.encode({GAMMA: 0.95, "key.a": [1]})[0])
    assert space.draw(study.ask(), {}) == [f"{GAMMA}=0.95", "key.a=[1]"]


def test_a_grid_holds_every_parameter():
    space = Space.parse(
        {
            "key.a": "tag(pow2, range(0, 3))",
            "key.b": "choice(x, [1])",
            "key.c": "range(0, 0.3, 0.1)",
            "key.d": "interval(1, 3)",
        }
    )
    assert space.grid() == {
        "log2(key.a)": [0, 1, 2],
        "key.b": ["x", "[1]"],
        "key.c": [0.0, 0.1, 0.2],
        "key.d": [1, 2, 3],
    }


def test_a_grid_sampler_visits_every_point_once():
    space = Space.parse({"key.a": "range(0, 0.3, 0.1)", "key.b": "[1],null"})
    study = optuna.create_study(sampler=optuna.samplers.GridSampler(space.grid(), seed=0))
    assert len({tuple(space.draw(study.ask(), {})) for _ in range(6)}) == 6


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            {"key.a": "interval(0.1, 0.2)"},
            r"key.a=interval\(0.1, 0.2\).*range\(start, stop, step\)",
        ),
        (CONDITIONAL, r"sde_sample_freq.*drawn only when"),
        ({"key.a": "interval(1, 1000)", "key.b": "interval(1, 1000)"}, "1000000 trials are more"),
    ],
)
def test_what_is_no_grid_is_refused(space, message):
    with pytest.raises(ConfigError, match=message):
        Space.parse(space).grid()


OFF, ON = ({"algo": {"hyperparams": {"use_sde": value}}} for value in (False, True))


def keys(space):
    return [dimension.key for dimension in space.dimensions]


def test_a_key_whose_condition_cannot_hold_is_not_searched():
    assert keys(Space.parse(CONDITIONAL).settled(OFF)) == []


def test_a_condition_that_always_holds_is_none():
    space = Space.parse(CONDITIONAL).settled(ON)
    assert space.grid() == {FREQ: [4, 8]}


def test_a_condition_on_what_is_drawn_stays():
    space = Space.parse({**CONDITIONAL, SDE: "true,false"}).settled(OFF)
    assert keys(space) == [SDE, FREQ]
    assert space.dimensions[1].when == {SDE: True}


def test_what_hangs_on_a_key_that_is_never_drawn_is_never_drawn():
    chain = {**CONDITIONAL, BATCH: {"space": "range(8, 65, 8)", "when": {FREQ: 8}}}
    assert keys(Space.parse(chain).settled(OFF)) == []
    assert keys(Space.parse(chain).settled(ON)) == [FREQ, BATCH]


def test_with_a_function_all_conditions_stay(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_spaces", SimpleNamespace(space=dict))
    assert keys(Space.parse(CONDITIONAL, "my_spaces.space").settled(OFF)) == [FREQ]


@pytest.mark.parametrize(
    "part", [{"when": {"algo.hyperparams.use_sd": True}}, {"at_most": "n_env"}]
)
def test_a_condition_or_limit_on_no_key_is_told_before_anything_is_drawn(part):
    space = Space.parse({FREQ: {"space": "range(1, 9)", **part}})
    with pytest.raises(ConfigError, match="Did you mean"):
        space.settled({**OFF, "n_envs": 1})


def test_a_space_writes_itself_so_that_it_can_be_read_again():
    entries = {
        SDE: "true,false",
        **CONDITIONAL,
        BATCH: {"space": "tag(pow2, range(5, 12))", "at_most": "n_envs * 64"},
    }
    space = Space.parse(entries)
    assert space.entries() == entries
    assert Space.parse(space.entries()) == space


def test_a_dotted_key_of_the_command_line_means_the_key_of_the_file():
    file = {FREQ: "choice(4, 8)", "network.net_arch": "[8],[16]"}
    typed = {"network": {"net_arch": None}, "algo": {"hyperparams": {"gamma": "choice(1, 2)"}}}
    found = by_key({**file, **typed})
    assert found == {**file, "network.net_arch": None, "algo.hyperparams.gamma": "choice(1, 2)"}
    assert keys(Space.parse({**file, **typed})) == [FREQ, "algo.hyperparams.gamma"]


def test_an_entry_of_parts_is_no_further_key():
    assert by_key(CONDITIONAL) == CONDITIONAL
    typed = {"algo": {"hyperparams": {"sde_sample_freq": CONDITIONAL[FREQ]}}}
    assert by_key(typed) == CONDITIONAL


def test_what_is_not_there_cannot_be_taken_out():
    file = {"network.net_arch": "[8],[16]"}
    with pytest.raises(ConfigError, match=r"network\.netarch=null.*Did you mean"):
        by_key({**file, "network": {"netarch": None}})
