"""The bundle: a policy as data."""

import json

import numpy as np
import pytest

from rlzoo_plus.artifacts.atomic import MANIFEST, DamagedFolderError, write_folder
from rlzoo_plus.artifacts.bundle import Bundle, load_bundle, save_bundle
from rlzoo_plus.artifacts.tree import pack


def make_bundle(scale=1.0, normalization=True):
    statistics = {"mean": np.full(2, scale), "var": np.ones(2), "count": 3.5}
    return Bundle(
        config={"seed": 0, "algo": {"name": "ppo"}},
        spaces={"action": {"type": "Discrete", "n": 2}},
        weights={"layer.weight": np.full((2, 3), scale, dtype=np.float32)},
        normalization=statistics if normalization else None,
        about={"step": 100, "mean_return": -0.0},
    )


def test_a_bundle_comes_back_whole(tmp_path):
    bundle = make_bundle()
    save_bundle(tmp_path / "best", bundle)
    loaded = load_bundle(tmp_path / "best")
    assert loaded.config == bundle.config
    assert loaded.spaces == bundle.spaces
    assert loaded.about["step"] == 100
    assert loaded.weights["layer.weight"].tobytes() == bundle.weights["layer.weight"].tobytes()
    assert loaded.weights["layer.weight"].dtype == np.float32
    assert np.array_equal(loaded.normalization["mean"], [1.0, 1.0])


def test_a_bundle_without_normalization_says_so(tmp_path):
    save_bundle(tmp_path / "best", make_bundle(normalization=False))
    assert load_bundle(tmp_path / "best").normalization is None


def test_a_new_bundle_replaces_weights_and_statistics_together(tmp_path):
    save_bundle(tmp_path / "best", make_bundle(1.0))
    save_bundle(tmp_path / "best", make_bundle(2.0))
    loaded = load_bundle(tmp_path / "best")
    assert loaded.weights["layer.weight"][0, 0] == 2.0
    assert loaded.normalization["mean"][0] == 2.0


def test_a_bundle_holds_no_pickle(tmp_path):
    save_bundle(tmp_path / "best", make_bundle())
    names = sorted(path.name for path in (tmp_path / "best").iterdir())
    assert names == [MANIFEST, "policy.json", "state.json", "tensors.safetensors"]
    for name in (MANIFEST, "policy.json", "state.json"):
        json.loads((tmp_path / "best" / name).read_text())


@pytest.mark.parametrize("name", ["policy.json", "state.json", "tensors.safetensors", MANIFEST])
def test_a_changed_file_is_noticed(tmp_path, name):
    save_bundle(tmp_path / "best", make_bundle())
    path = tmp_path / "best" / name
    path.write_bytes(path.read_bytes().replace(b"0", b"1"))
    with pytest.raises(DamagedFolderError):
        load_bundle(tmp_path / "best")


@pytest.mark.parametrize(
    ("files", "schema", "message"),
    [({"policy.json": b"{}"}, 2, "schema 2"), (pack({"agent": {}}), 1, None), (None, 1, None)],
    ids=["a newer schema", "another kind of folder", "nothing"],
)
def test_what_is_no_bundle_is_damaged_and_not_a_crash(tmp_path, files, schema, message):
    if files is not None:
        write_folder(tmp_path / "best", files, {"schema": schema})
    with pytest.raises(DamagedFolderError, match=message):
        load_bundle(tmp_path / "best")
