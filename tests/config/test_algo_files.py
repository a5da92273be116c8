"""The algorithm files of conf/algo."""

import inspect
from importlib import import_module

import pytest
import yaml
from support.libraries import each

from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments

FOLDER = conf_dir() / "algo"
NAMES = sorted(ALGORITHMS)
SECTIONS = ["name", "packages", "action_noise", "replay_buffer", "hyperparams"]
# Hindsight replay needs arguments, and a first episode before it can relabel.
DIFFERENT = {
    "her": {"learning_starts", "replay_buffer_kwargs"},
    **{name: {"beta"} for name in NAMES if ALGORITHMS[name].is_taught},
}


def text(name):
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def load(name):
    return yaml.safe_load(text(name))


def test_every_algorithm_has_a_file_and_every_file_an_algorithm():
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_file_names_its_algorithm_and_has_the_known_sections(name):
    assert load(name)["name"] == name
    assert list(load(name)) == SECTIONS


@pytest.mark.parametrize("name", NAMES)
def test_a_file_opens_with_what_it_is_and_how_to_use_it(name):
    lines = text(name).splitlines()
    assert lines[0].startswith("# ")
    assert any(line.startswith(f"# Use: python train.py algo={name}") for line in lines[:4])


@pytest.mark.parametrize("name", NAMES)
def test_each_key_has_a_comment(name):
    keys = [line for line in text(name).splitlines() if not line.startswith("#") and ":" in line]
    bare = [line for line in keys if "#" not in line]
    assert [line.split(":")[0] for line in bare] == ["name", "hyperparams"]


@pytest.mark.parametrize("name", each(NAMES))
def test_a_file_lists_every_argument_that_is_used_and_not_managed_elsewhere(name):
    spec = ALGORITHMS[name]
    expected = constructor_arguments(spec.entry_point).keys() - {*MANAGED, *spec.unused}
    assert set(load(name)["hyperparams"]) == expected


@pytest.mark.parametrize("name", NAMES)
def test_hindsight_replay_is_chosen_by_her_alone(name):
    assert load(name)["replay_buffer"] == ALGORITHMS[name].replay_buffer
    assert (load(name)["replay_buffer"] == "her") == (name == "her")


@pytest.mark.training
@pytest.mark.parametrize("name", each(NAMES))
def test_the_values_are_the_defaults_of_the_library(name):
    module, class_name = ALGORITHMS[name].entry_point.split(":")
    parameters = inspect.signature(getattr(import_module(module), class_name)).parameters
    for key, value in load(name)["hyperparams"].items():
        default = parameters[key].default
        if key in DIFFERENT.get(name, ()):
            continue
        if isinstance(default, tuple):
            default = list(default)
        assert value == default, f"{name}: {key}"
        # 1 and 1.0 and true are equal, but not the same to a constructor.
        assert isinstance(value, bool) == isinstance(default, bool), f"{name}: {key}"
