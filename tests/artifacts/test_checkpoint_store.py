"""The checkpoints of a run."""

import logging

import numpy as np
import pytest

from rlzoo_plus.artifacts.atomic import DamagedFolderError, write_folder
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.tree import TENSOR_FILE, pack


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


def fill(store, *steps):
    for step in steps:
        store.save(step, {"weights": np.full(3, step, dtype=np.float32)}, {"hash": f"h{step}"})


def spoil(store, step):
    file = store.root / f"{step:012d}" / TENSOR_FILE
    file.write_bytes(file.read_bytes()[:-1])


def test_a_checkpoint_comes_back_with_its_step_state_and_manifest(store):
    fill(store, 100)
    checkpoint = store.load(100)
    assert checkpoint.step == 100
    assert checkpoint.path == store.root / "000000000100"
    assert checkpoint.about["hash"] == "h100"
    assert np.array_equal(checkpoint.state["weights"], [100, 100, 100])


def test_the_newest_few_are_kept(store):
    fill(store, 1, 2, 3, 4, 5)
    assert store.steps() == [3, 4, 5]


def test_newest_means_the_largest_step_and_not_the_longest_name(store):
    fill(store, 9, 10, 100_000, 2_000_000_000)
    assert store.steps() == [10, 100_000, 2_000_000_000]
    assert store.load_newest().step == 2_000_000_000


def test_one_is_kept_when_one_is_asked_for(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    fill(store, 1, 2)
    assert store.steps() == [2]


def test_a_step_can_be_saved_again(store):
    fill(store, 5, 5)
    assert store.steps() == [5]
    assert store.load(5).step == 5


def test_a_store_without_checkpoints_is_empty(store):
    assert store.steps() == []
    assert store.load_newest() is None


def test_a_missing_step_is_damaged_and_not_a_crash(store):
    fill(store, 1)
    with pytest.raises(DamagedFolderError):
        store.load(2)


def test_the_newest_whole_one_is_loaded_and_the_damaged_ones_are_told(store, caplog):
    fill(store, 1, 2, 3)
    spoil(store, 3)
    spoil(store, 2)
    with caplog.at_level(logging.WARNING):
        assert store.load_newest().step == 1
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert all("using the checkpoint before it" in message for message in messages)
    assert "000000000003" in messages[0]


def test_when_all_are_damaged_there_is_none(store):
    fill(store, 1, 2)
    spoil(store, 1)
    spoil(store, 2)
    assert store.load_newest() is None


def test_a_killed_write_is_not_a_checkpoint_and_is_cleared_away(store):
    fill(store, 1)
    leftover = store.root / ".000000000002.4711.tmp"
    leftover.mkdir()
    (leftover / TENSOR_FILE).write_bytes(b"half")
    assert store.steps() == [1]
    assert store.load_newest().step == 1
    fill(store, 3)
    assert not leftover.exists()


def test_other_files_in_the_folder_are_not_checkpoints(store):
    fill(store, 1)
    (store.root / "notes").mkdir()
    (store.root / "7").write_text("a file")
    assert store.steps() == [1]


def test_an_unknown_schema_is_refused_and_passed_over(store):
    fill(store, 1)
    path = store.root / f"{2:012d}"
    write_folder(path, pack({}), {"schema": 99, "step": 2})
    with pytest.raises(DamagedFolderError, match="schema 99"):
        store.load(2)
    assert store.load_newest().step == 1


def test_an_interrupted_replacement_of_the_same_step_is_still_found(store):
    fill(store, 1, 2)
    path = store.root / f"{2:012d}"
    path.rename(path.with_name(path.name + ".previous"))
    assert store.load_newest().step == 2
