"""Search spaces: a function of the user's."""

import pytest
from optuna.trial import FixedTrial

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.space import Space

GAMMA = "algo.hyperparams.gamma"


def draw(space, params, fixed=None, custom=None):
    return Space.parse(space, custom).draw(FixedTrial(params), fixed or {})


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
    import optuna

    with pytest.raises(optuna.TrialPruned):
        draw({}, {}, {}, f"{custom}.pruned")


def test_a_grid_cannot_be_made_of_a_function(custom):
    with pytest.raises(ConfigError, match="a grid cannot be made of a function"):
        Space.parse({}, f"{custom}.space").grid()
