"""Checking the sections of configurations: equal to a full check, each section once."""

import copy
import itertools
import random

import pytest
from pydantic import ValidationError

from rlzoo_plus.config import sections
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.sections import check_types

# A key, and values of which some are wrong and some are equal to Python but not to a reader.
CHANGES = {
    "seed": [0, 1, True, 1.0, -1, "3"],
    "n_timesteps": [1000, 1e3, "1000", None],
    "env.kwargs": [{}, {"a": 1}, {"a": True}, {"a": 1.0}, {"b": 0, "a": 1}, {1: 2}, {"1": 2}, 3],
    "env.frame_stack": [1, 1.0, True, 0],
    "env.wrappers": [[], ["a.B"], [{"a.B": {"c": 1}}], [1]],
    "algo.hyperparams": [{}, {"gamma": 0}, {"gamma": 0.0}, {"gamma": -0.0}, {"x": [1, (2,)]}],
    "algo.name": ["ppo", "sac", "a\nb", 1],
    "network.net_arch": [None, [64], {"actor": [1]}, [1.5], "x"],
    "network.lstm": [{"hidden_size": 1}, None],
    "normalize": [None, {}, {"reward": False}, {"reward": 0}, {"reward": "no"}, True, {"x": 1}],
    "infra": [{"name": "local"}, {"name": "local", "setup": ["x"]}, {"name": "slurm"}, {}],
    "eval.every_steps": ["auto", None, 100, "never"],
    "log.progress": [True, 1, "auto", "x"],
    "tracker": [None, {"name": "wandb"}, "wandb"],
    "hpo": [None, {"study": "x"}],
    "stop": [{}, {"reward_threshold": float("nan")}],
    "unknown": [1],
    "log.unknown": [1],
}


@pytest.fixture(autouse=True)
def few_are_known(monkeypatch):
    """Begin without any section, and keep few of them."""
    monkeypatch.setattr(sections, "_known", {})
    monkeypatch.setattr(sections, "_MOST_KNOWN", 20)


@pytest.fixture
def values(defaults):
    return {**defaults("ppo"), "normalize": None}


def changed(values, *changes):
    data = copy.deepcopy(values)
    for key, value in changes:
        *parents, last = key.split(".")
        place = data
        for name in parents:
            place = place[name]
        if isinstance(place, dict):
            place[last] = copy.deepcopy(value)
    return data


def outcome(check, data):
    try:
        config = check(data)
    except ValidationError as error:
        return str(error.errors(include_url=False))
    # A text tells True from 1, 1.0 and another order of the keys.
    return repr(config), repr(config.model_dump()), config.model_dump_json(), config


def assert_same(data):
    before = repr(data)
    assert outcome(check_types, data) == outcome(RunConfig.model_validate, data)
    assert repr(data) == before


def test_each_change_is_checked_as_all_of_it_is(values):
    known = [(key, value) for key, options in CHANGES.items() for value in options]
    # The second time, sections are known.
    for change in [*known, *reversed(known)]:
        assert_same(changed(values, change))


@pytest.mark.parametrize("draw", range(5))
def test_changes_drawn_at_random_are_checked_as_all_of_it_is(values, draw):
    random_ = random.Random(draw)
    for _ in range(60):
        keys = random_.sample([*CHANGES], random_.randint(1, 3))
        assert_same(changed(values, *[(key, random_.choice(CHANGES[key])) for key in keys]))


@pytest.mark.parametrize("data", [None, [], "x", {}, {"env": 1}])
def test_what_is_no_configuration_is_refused_as_ever(data):
    assert_same(data)


def test_jobs_share_the_sections_that_are_equal(values):
    one, other = (
        check_types(changed(values, ("seed", seed), ("env.time_limit", seed + 1)))
        for seed in (1, 2)
    )
    assert (one.seed, other.seed) == (1, 2)
    assert one.env.time_limit == 2
    assert one.env is not other.env
    assert one.network is other.network
    assert one.algo is other.algo


def test_what_changes_after_its_check_changes_no_section(values):
    data = changed(values, ("env.kwargs", {"a": [1]}))
    config = check_types(data)
    data["env"]["kwargs"]["a"].append(2)
    assert config.env.kwargs == {"a": [1]}
    assert_same(changed(values, ("env.kwargs", {"a": [1]})))


def test_plain_configurations_share_what_is_equal_to_a_reader():
    shared = sections.SharedSections()
    given = [
        {"seed": n, "env": {"kwargs": {"a": a}}, "log": {"b": [1]}, "x": None}
        for n, a in enumerate((1, True, 1.0, 1))
    ]
    out = [shared.share(copy.deepcopy(one)) for one in given]
    assert repr(out) == repr(given)
    assert out[0]["env"] is out[3]["env"]
    assert all(one["log"] is out[0]["log"] for one in out)
    assert shared.share([1]) == [1]


def test_sections_are_forgotten_where_there_are_many(values):
    for number in itertools.chain(range(1, 40), range(1, 40)):
        assert_same(changed(values, ("env.time_limit", number)))
    assert 0 < len(sections._known) <= 20
