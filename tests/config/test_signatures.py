"""Constructor arguments read from source text."""

import inspect
import sys
from collections.abc import Sequence
from importlib import import_module

import numpy as np
import pytest
from support.libraries import each

from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments, with_sequences
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes an importable module and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source, name="their_algorithms"):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        return name

    yield write
    constructor_arguments.cache_clear()


@pytest.mark.training
@pytest.mark.parametrize("name", each(sorted(ALGORITHMS)))
def test_the_arguments_read_from_source_are_those_of_the_class(name):
    entry_point = ALGORITHMS[name].entry_point
    module_name, class_name = entry_point.split(":")
    algorithm = getattr(import_module(module_name), class_name)
    real = set(inspect.signature(algorithm.__init__).parameters) - {"self"}
    assert constructor_arguments(entry_point).keys() == real


@pytest.mark.training
@pytest.mark.parametrize("name", each(sorted(ALGORITHMS)))
def test_the_schedules_of_the_catalog_are_arguments_of_the_class(name):
    spec = ALGORITHMS[name]
    assert set(spec.schedules) <= constructor_arguments(spec.entry_point).keys()


def test_every_managed_argument_belongs_to_some_algorithm():
    torch = (spec.entry_point for spec in ALGORITHMS.values() if spec.backend == "torch")
    known = set().union(*map(constructor_arguments, torch))
    assert set(MANAGED) <= known


def test_all_kinds_of_arguments_are_found(module):
    name = module("class A:\n    def __init__(self, a, /, b, *, c=1): ...\n")
    assert constructor_arguments(f"{name}:A").keys() == {"a", "b", "c"}


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def __init__(self, a, **kwargs): ...\n",
        "from other import B\nclass A(B): ...\n",
    ],
    ids=["keyword arguments", "inherited constructor"],
)
def test_arguments_that_the_source_cannot_tell_are_left_open(module, source):
    assert constructor_arguments(f"{module(source)}:A") is None


def test_a_constructor_that_is_inherited_in_the_same_file_is_found(module):
    name = module("class C:\n    def __init__(self, a): ...\nclass B(C): ...\nclass A(B): ...\n")
    assert constructor_arguments(f"{name}:A").keys() == {"a"}


def test_reading_arguments_does_not_run_the_module(module):
    name = module("raise SystemExit('imported')\nclass A:\n    def __init__(self, a): ...\n")
    assert constructor_arguments(f"{name}:A").keys() == {"a"}
    assert name not in sys.modules


def test_a_missing_class_is_named(module):
    name = module("x = 1\n")
    with pytest.raises(ConfigError, match=f"{name}:Absent.* no class Absent"):
        constructor_arguments(f"{name}:Absent")


def test_a_missing_package_is_named_with_its_installation():
    with pytest.raises(ConfigError, match=r"no_such_package.*pip install no_such_package"):
        constructor_arguments("no_such_package.module:A")


def test_a_missing_module_of_an_installed_package_is_named():
    with pytest.raises(ConfigError, match=r"no module 'stable_baselines3\.pppo'"):
        constructor_arguments("stable_baselines3.pppo:PPO")


def asks(
    pair: tuple[int, int] | None,
    numbers: list[int],
    either: "int | tuple[int, ...]",
    array: "np.ndarray",
    plain,
    betas=(0.9, 0.999),
    names: "Sequence[str]" = (),
):
    return locals()


FITTED = {
    "pair": (1, 2),
    "numbers": [1, 2],
    "either": (1, 2),
    "plain": [1, 2],
    "betas": (1, 2),
    "names": [1, 2],
}


@pytest.mark.parametrize(("name", "value"), FITTED.items())
def test_a_list_becomes_what_the_function_asks_for(name, value):
    fitted = with_sequences(asks, {name: [1, 2]})
    assert fitted == {name: value}
    assert type(fitted[name]) is type(value)


def test_a_list_becomes_an_array_where_one_is_asked_for():
    assert with_sequences(asks, {"array": [1.0, 2.0]})["array"].tolist() == [1.0, 2.0]


def test_lists_inside_a_tuple_are_tuples():
    assert with_sequences(asks, {"pair": [[1, 2], 3]}) == {"pair": ((1, 2), 3)}


def test_unknown_arguments_and_other_values_stay_as_they_are():
    given = {"pair": 3, "other": [1], "either": {"a": [1]}}
    assert with_sequences(asks, given) == given
    assert with_sequences(print, {"sep": [1]}) == {"sep": [1]}
    assert with_sequences(dict.fromkeys, {"a": [1]}) == {"a": [1]}
