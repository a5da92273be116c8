"""The checkpoints of a run."""

import logging

import numpy as np
import pytest

from rlzoo_plus.artifacts import atomic
from rlzoo_plus.artifacts.atomic import MANIFEST, DamagedFolderError, write_folder
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.chunks import ChunkStore
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


@pytest.mark.parametrize(
    ("keep", "steps", "left"),
    [
        (3, (1, 2, 3, 4, 5), [3, 4, 5]),
        # The largest step, not the longest name.
        (3, (9, 10, 100_000, 2_000_000_000), [10, 100_000, 2_000_000_000]),
        (1, (1, 2), [2]),
    ],
)
def test_the_newest_few_are_kept(tmp_path, keep, steps, left):
    store = CheckpointStore(tmp_path, keep=keep)
    fill(store, *steps)
    assert store.steps() == left
    assert store.load_newest().step == left[-1]


def test_a_step_can_be_saved_again(store):
    fill(store, 5, 5)
    assert store.steps() == [5]
    assert store.load(5).step == 5


def test_a_store_without_checkpoints_is_empty(store):
    assert store.steps() == []
    assert store.load_newest() is None


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
    spoil(store, 1)
    assert store.load_newest() is None
    with pytest.raises(DamagedFolderError):
        store.load(4)  # a step that is not there


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


def test_an_interrupted_replacement_of_the_same_step_is_still_found(store):
    fill(store, 1, 2)
    path = store.root / f"{2:012d}"
    path.rename(path.with_name(path.name + ".previous"))
    assert store.load_newest().step == 2


def test_whole_checkpoints_of_a_later_step_stay_when_a_run_has_gone_back(store):
    fill(store, 10, 20, 30, 40)
    fill(store, 15, 16)
    assert store.steps() == [15, 16, 20, 30, 40]


def test_the_newest_up_to_a_step_can_be_asked_for(store):
    fill(store, 10, 20, 30)
    spoil(store, 20)
    assert store.load_newest(before_or_at=30).step == 30
    assert store.load_newest(before_or_at=29).step == 10
    assert store.load_newest(before_or_at=9) is None


@pytest.mark.parametrize("kept_as", ["best", "milestone"])
def test_the_best_and_the_milestones_stay_for_ever(store, kept_as):
    store.save(5, {}, {}, kept_as=kept_as)
    fill(store, 6, 7, 8, 9)
    assert store.steps() == [5, 7, 8, 9]
    assert store.load(5).kept_as == kept_as
    assert store.load(9).kept_as is None


def test_no_other_reason_to_keep_is_known(store):
    with pytest.raises(ValueError, match="kept_as='bset' must be 'best'"):
        store.save(5, {}, {}, kept_as="bset")
    assert store.steps() == []


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"chunks": []}, None),
        ({"chunks": {"replay": {}}}, None),
        ({"chunks": None}, None),
        ({"kept_as": ["best"]}, None),
        ({"schema": 99}, "schema 99"),
        ({"step": 1}, "holds step 1"),
    ],
)
def test_a_forged_manifest_is_damaged_and_passed_over(store, about, message):
    fill(store, 1)
    path = store.root / f"{2:012d}"
    write_folder(path, pack({}), {"schema": 2, "step": 2, **about})
    with pytest.raises(DamagedFolderError, match=message):
        store.load(2)
    assert store.load_newest().step == 1
    assert not store.chunks_at(2) or "chunks" not in about


def make_rows(value, rows=20):
    return {"observations": np.full((rows, 2), value, np.float32), "dones": np.ones(rows, bool)}


def save_rows(store, step, changed=None, previous=None, **how):
    """Save rows that hold the step; only `changed` of them differ from those before."""
    columns = make_rows(0)
    for row in () if changed is None else changed:
        columns["observations"][row] = step
    writer = ChunkStore(store.chunk_store().root, rows_per_chunk=4)
    touched = None if changed is None else [changed]
    pending = writer.snapshot(columns, 20, touched, previous and previous.chunks["replay"])
    store.save(step, {}, {}, chunks={"replay": pending}, **how)
    return columns


def chunk_files(store):
    return {path.name for path in store.chunk_store().root.iterdir()}


def read_rows(checkpoint):
    found = make_rows(-1, 30)
    checkpoint.read_rows("replay", found)
    return found


def test_rows_come_back_with_the_checkpoint(store):
    saved = save_rows(store, 1, range(3, 9))
    checkpoint = store.load(1)
    assert checkpoint.schema == 2
    assert checkpoint.chunks == store.chunks_at(1)
    found = read_rows(checkpoint)
    assert np.array_equal(found["observations"][:20], saved["observations"])
    assert (found["observations"][20:] == -1).all()
    with pytest.raises(KeyError):
        checkpoint.read_rows("other", found)


def test_a_resumed_run_writes_only_what_changed_since_its_checkpoint(store):
    save_rows(store, 1)
    before = chunk_files(store)
    again = CheckpointStore(store.root)
    save_rows(again, 2, range(5, 6), previous=again.load_newest())
    assert len(chunk_files(store) - before) == 1
    assert read_rows(store.load(2))["observations"][5, 0] == 2
    assert read_rows(store.load(1))["observations"][5, 0] == 0


def test_chunks_go_with_the_last_checkpoint_that_needs_them(store):
    for step in range(1, 6):
        save_rows(store, step, range(4), kept_as="milestone" if step == 2 else None)
    assert store.steps() == [2, 3, 4, 5]
    # One chunk of zeros in common, and one of each checkpoint's own.
    assert len(chunk_files(store)) == 5
    for step in store.steps():
        assert read_rows(store.load(step))["observations"][0, 0] == step


@pytest.mark.parametrize("kind", ["flip", "delete"])
def test_a_checkpoint_with_a_damaged_chunk_is_passed_over(store, caplog, kind):
    save_rows(store, 1, range(4))
    save_rows(store, 2, range(4), store.load(1))
    (own,) = set(store.chunks_at(2)["replay"].names) - set(store.chunks_at(1)["replay"].names)
    file = store.chunk_store().root / own
    if kind == "flip":
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    else:
        file.unlink()
    with pytest.raises(DamagedFolderError, match=own):
        store.load(2)
    assert store.load_newest().step == 1
    assert "using the checkpoint before it" in caplog.text


def test_no_chunk_is_cleared_away_while_a_manifest_is_damaged(store, caplog):
    for step in (1, 2):
        save_rows(store, step, range(4))
    file = store.root / f"{2:012d}" / MANIFEST
    content = file.read_bytes()
    file.write_bytes(content[:-9])
    for step in (3, 4):
        save_rows(store, step, range(4))
    assert "no chunk is deleted" in caplog.text
    file.write_bytes(content)
    assert store.load(2).step == 2
    save_rows(store, 5, range(4))
    assert len(chunk_files(store)) == 4


def test_nothing_is_cleared_away_while_a_manifest_cannot_be_read(store, caplog, monkeypatch):
    save_rows(store, 1, range(4), kept_as="best")
    real = atomic.read_plain_file

    def read(path, largest):
        if path.parent.name == f"{1:012d}":
            raise PermissionError(13, "Permission denied")
        return real(path, largest)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "read_plain_file", read)
        for step in (2, 3, 4, 5):
            save_rows(store, step, range(4))
    assert "not deleted now" in caplog.text
    assert read_rows(store.load(1))["observations"][0, 0] == 1
    save_rows(store, 6, range(4))
    assert store.steps() == [1, 4, 5, 6]


def test_a_step_saved_again_gives_up_the_chunks_of_the_first_time(store):
    save_rows(store, 5, range(4))
    first = store.load(5)
    save_rows(store, 5, range(8, 12), first)
    assert chunk_files(store) == set(store.chunks_at(5)["replay"].names)
    assert read_rows(store.load(5))["observations"][9, 0] == 5


def test_a_state_that_cannot_be_stored_writes_nothing(store):
    pending = store.chunk_store().snapshot(make_rows(0), 20, None, None)
    with pytest.raises(TypeError):
        store.save(1, {"x": object()}, {}, chunks={"replay": pending})
    assert not store.root.exists()


def test_a_save_that_fails_leaves_no_chunks_behind(store, monkeypatch):
    save_rows(store, 1)
    before = chunk_files(store)
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "rename", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            save_rows(store, 2, range(4))
    assert chunk_files(store) == before
    assert [path.name for path in store.root.glob(".*")] == []
