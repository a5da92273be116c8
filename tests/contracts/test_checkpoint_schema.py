"""A checkpoint as a mapping: what it has, how little is read, and what is refused."""

import json
import shutil

import numpy as np
import pytest
from support.training import tiny_config, train_run

import rlzoo_plus
from rlzoo_plus.contracts import checkpoint_schema
from rlzoo_plus.contracts.checkpoint_schema import KEYS
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.zips import zip_files


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return the folder of a checkpoint of a short run of SAC."""
    more = ("eval.every_steps=null", "n_timesteps=40")
    run_dir, _ = train_run(
        tmp_path_factory.mktemp("schema") / "run",
        tiny_config("sac", *["tests/TinyReach-v0", *more]),
    )
    store = run_dir.checkpoints()
    return store.load_newest().path


@pytest.mark.training
def test_it_has_the_documented_keys_and_what_is_in_them(checkpoint):
    found = rlzoo_plus.read_checkpoint(checkpoint)
    assert tuple(found) == KEYS
    assert found["version"] == 2
    assert found["meta"]["step"] == 40
    module = found["module_state"]
    assert all(isinstance(array, np.ndarray) for array in module.values())
    assert any(name.startswith("actor.") for name in module)
    trainer = found["trainer_state"]
    assert "actor.optimizer" in trainer["optimizers"]
    assert trainer["attributes"]["num_timesteps"] == 40
    assert trainer["tensors"].keys() == {"log_ent_coef"}
    assert trainer["run"].keys() >= {"envs", "callbacks", "normalizer", "spaces"}
    assert set(found["rng_state"]) >= {"python", "numpy", "torch"}
    replay = found["replay_meta"]
    assert replay["attributes"]["pos"] == 40
    assert replay["chunks"]["replay"]
    with pytest.raises(KeyError):
        found["policy"]


@pytest.mark.training
def test_only_the_manifest_is_read_until_more_is_asked_for(checkpoint, monkeypatch):
    monkeypatch.setattr(checkpoint_schema, "read_folder", None)
    found = rlzoo_plus.read_checkpoint(checkpoint)
    assert found["version"] == 2
    assert found["meta"]["config_hash"]
    with pytest.raises(TypeError):
        found["module_state"]


@pytest.mark.training
def test_a_zip_of_a_store_reads_the_same(checkpoint, tmp_path):
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    packed = tmp_path / "000000000040.zip"
    packed.write_bytes(zip_files(files))
    found, there = (rlzoo_plus.read_checkpoint(path) for path in (packed, checkpoint))
    assert found["meta"] == there["meta"]
    for name, array in there["module_state"].items():
        np.testing.assert_array_equal(found["module_state"][name], array)


@pytest.mark.training
def test_what_is_damaged_or_unknown_is_refused(checkpoint, tmp_path):
    with pytest.raises(ConfigError, match="is no whole checkpoint"):
        rlzoo_plus.read_checkpoint(tmp_path / "missing")
    (tmp_path / "other.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ConfigError, match="is no whole checkpoint"):
        rlzoo_plus.read_checkpoint(tmp_path / "other.zip")
    changed = tmp_path / "changed"
    shutil.copytree(checkpoint, changed)
    state = changed / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text())) + " ")
    found = rlzoo_plus.read_checkpoint(changed)
    with pytest.raises(ConfigError, match="changed or cut short"):
        found["rng_state"]
