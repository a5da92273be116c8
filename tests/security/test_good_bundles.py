"""What is harmless still loads: bundles of earlier versions, and all that this one writes."""

import json
import math

import numpy as np
import pytest
import yaml
from support.forged import FIXTURE, copy_bundle
from support.training import make_config

import rlzoo_plus
from rlzoo_plus.analysis.find_run import Place, read_config
from rlzoo_plus.artifacts.bundle import load_bundle, save_bundle
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import LARGEST_YAML_BYTES, parse_yaml, read_plain_file
from rlzoo_plus.config.schema import RunConfig

# Actions lie in [-1, 1] in single precision, and processors add up in different orders.
ROUNDING = 1e-6


def actions(path):
    expected = json.loads((FIXTURE / "expected.json").read_text())
    observations = np.array(expected["observations"], np.float32)
    chosen, _ = rlzoo_plus.load_policy(path).predict(observations)
    return chosen, np.array(expected["actions"], np.float32)


@pytest.mark.parametrize("path", [FIXTURE, FIXTURE / "best"])
def test_a_bundle_of_the_first_version_acts_as_it_did(path):
    chosen, expected = actions(path)
    np.testing.assert_allclose(chosen, expected, rtol=1e-6, atol=ROUNDING)


def test_a_bundle_of_the_first_version_comes_back_from_a_new_one(tmp_path):
    old = load_bundle(FIXTURE / "best")
    save_bundle(tmp_path / "best", old)
    assert load_bundle(tmp_path / "best").about == old.about
    chosen, expected = actions(tmp_path)
    np.testing.assert_allclose(chosen, expected, rtol=1e-6, atol=ROUNDING)


def test_loading_asks_for_no_simulator(tmp_path, monkeypatch):
    import gymnasium

    monkeypatch.setattr(gymnasium, "make", None)
    assert actions(FIXTURE)[0].shape == (16, 1)


def test_numbers_that_json_does_not_know_are_saved_as_null(tmp_path):
    old = load_bundle(FIXTURE / "best")
    old.about["mean_return"] = math.nan
    old.config["env"]["max_return"] = math.inf
    save_bundle(tmp_path / "best", old)
    loaded = load_bundle(tmp_path / "best")
    assert loaded.about["mean_return"] is None
    assert loaded.config["env"]["max_return"] is None


@pytest.mark.parametrize("algo", ["ppo", "her", "recurrent_ppo", "ars"])
def test_the_configuration_of_a_run_of_ours_is_read(tmp_path, algo):
    env = "panda_reach" if algo == "her" else "cartpole_bullet"
    config = make_config(f"algo={algo}", f"env={env}").model_dump(mode="json")
    # The same object twice: YAML would write an anchor for it, had it not passed the schema.
    shared = {"position": [1.0, 2.0]}
    config["env"]["kwargs"] = {"a": shared, "b": shared}
    config = RunConfig.model_validate(config).model_dump(mode="json")
    run = RunDir(tmp_path / "run")
    run.start(config, "a test", {})
    read = parse_yaml(read_plain_file(run.config_file, LARGEST_YAML_BYTES))
    assert read == yaml.safe_load(run.config_file.read_text()) == config
    assert read_config(Place(run.path)).algo.name == algo


def test_a_bundle_may_lie_behind_a_linked_folder(tmp_path):
    copy_bundle(tmp_path / "elsewhere")
    (tmp_path / "best").symlink_to(tmp_path / "elsewhere")
    assert actions(tmp_path)[0].shape == (16, 1)
