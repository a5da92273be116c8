"""What of a space is left when the rest of the configuration is known, and how it is written."""

import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.override_values import by_key
from rlzoo_plus.tuning.space import Space

SDE = "algo.hyperparams.use_sde"
FREQ = "algo.hyperparams.sde_sample_freq"
BATCH = "algo.hyperparams.batch_size"
CONDITIONAL = {FREQ: {"space": "choice(4, 8)", "when": {SDE: True}}}
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
    import sys
    from types import SimpleNamespace

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
