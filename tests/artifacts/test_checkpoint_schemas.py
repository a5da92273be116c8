"""Checkpoints that earlier versions wrote are read for ever."""

import shutil
from pathlib import Path

import numpy as np

from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.chunks import ChunkStore

FIXTURES = Path(__file__).parent / "fixtures"


def test_a_checkpoint_of_schema_1_is_read(tmp_path):
    root = shutil.copytree(FIXTURES / "checkpoint_v1", tmp_path / "checkpoints")
    checkpoint = CheckpointStore(root).load_newest()
    assert (checkpoint.step, checkpoint.schema, checkpoint.chunks) == (64, 1, {})
    assert checkpoint.kept_as is None
    assert checkpoint.about["config_hash"] == "a245a26c13d05574"
    assert checkpoint.state["agent"]["counters"]["num_timesteps"] == 64


def test_a_checkpoint_of_schema_1_is_kept_and_pruned_like_others(tmp_path):
    root = shutil.copytree(FIXTURES / "checkpoint_v1", tmp_path / "checkpoints")
    store = CheckpointStore(root, keep=2)
    store.save(100, {}, {})
    assert store.steps() == [64, 100]
    store.save(200, {}, {})
    assert store.steps() == [100, 200]


def fixture_rows():
    """Return what checkpoint_v2 holds: 21 rows in use of a ring buffer with two environments."""
    number = np.arange(24, dtype=np.float32)[:, None]
    return {
        "observations": np.stack([number + 0.5, -number, number**2], axis=2).repeat(2, axis=1),
        "frames": (number.astype(np.uint8)[:, :, None] * np.arange(9, dtype=np.uint8)),
        "dones": number[:, 0] % 7 == 6,
        "ep_length": number.astype(np.int64) * 2**40,
    }


FIXTURE_STATE = {"agent": {"weights": np.linspace(0, 1, 7)}, "counters": (64, -0.0, None, True)}


def write_checkpoint_v2(root):
    """Write the stored checkpoint; never run again, or it no longer proves anything."""
    store = CheckpointStore(root)
    pending = ChunkStore(store.chunk_store().root, 8).snapshot(fixture_rows(), 21, None, None)
    about = {"config_hash": "0123456789abcdef"}
    store.save(64, FIXTURE_STATE, about, chunks={"replay": pending}, kept_as="milestone")


def test_a_checkpoint_of_schema_2_is_read(tmp_path):
    root = shutil.copytree(FIXTURES / "checkpoint_v2", tmp_path / "checkpoints")
    checkpoint = CheckpointStore(root).load_newest()
    assert (checkpoint.step, checkpoint.schema, checkpoint.kept_as) == (64, 2, "milestone")
    assert np.array_equal(checkpoint.state["agent"]["weights"], np.linspace(0, 1, 7))
    assert repr(checkpoint.state["counters"]) == "(64, -0.0, None, True)"
    assert checkpoint.about["config_hash"] == "0123456789abcdef"
    expected = fixture_rows()
    found = {name: np.zeros_like(array) for name, array in expected.items()}
    checkpoint.read_rows("replay", found)
    assert checkpoint.chunks["replay"].used == 21
    for name, array in expected.items():
        assert np.array_equal(found[name][:21], array[:21]), name
        assert not found[name][21:].any()
