"""The chunks of a replay buffer's rows."""

import dataclasses
import hashlib
import json
import os

import numpy as np
import pytest
import zstandard

from rlzoo_plus.artifacts import chunks as module
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.chunks import ChunkIndex, ChunkStore

ROWS = 8
HASH = "a" * 64


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def store(tmp_path):
    return ChunkStore(tmp_path / "chunks", rows_per_chunk=ROWS)


def make_columns(rows=100, n_envs=2, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "observations": rng.normal(size=(rows, n_envs, 3)).astype(np.float32),
        "actions": rng.integers(-5, 5, size=(rows, n_envs, 1)),
        "rewards": rng.normal(size=(rows, n_envs)).astype(np.float64),
        "dones": rng.random((rows, n_envs)) < 0.1,
        "half": rng.normal(size=rows).astype(np.float16),
    }


def save(store, columns, used, changed=None, previous=None):
    return store.write(store.snapshot(columns, used, changed, previous))


def read(store, index, like):
    columns = {name: np.full_like(array, 1) for name, array in like.items()}
    store.read(index, columns)
    return columns


def assert_read_back(store, index, columns):
    found = read(store, index, columns)
    for name, array in columns.items():
        np.testing.assert_array_equal(found[name][: index.used], array[: index.used], name)
        assert (found[name][index.used :] == 1).all(), "rows beyond those in use were touched"


def files(store):
    return {path.name for path in store.root.iterdir()}


@pytest.mark.parametrize("used", [0, 1, 7, 8, 9, 64, 99, 100])
@pytest.mark.parametrize("n_envs", [1, 4])
def test_rows_come_back_and_those_beyond_stay(store, used, n_envs):
    columns = make_columns(n_envs=n_envs)
    index = save(store, columns, used)
    assert len(index.names) == -(-used // ROWS)
    store.verify(index)
    assert_read_back(store, index, columns)


def test_pictures_come_back(store):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, size=(20, 1, 3, 40, 40), dtype=np.uint8)
    columns = {"observations": frames, "next_observations": np.roll(frames, -1, 0)}
    index = save(store, columns, 19)
    assert_read_back(store, index, columns)
    # Next observations are the observations of the next row: stored once.
    assert sum(index.sizes) < 1.2 * frames.nbytes


def test_every_bit_of_a_float_comes_back(store):
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 1, 0x7F800000], np.uint32)
    columns = {"rewards": bits.view(np.float32)}
    found = read(store, save(store, columns, 5), columns)
    assert np.array_equal(found["rewards"].view(np.uint32), bits)


def test_columns_may_be_views_with_strides_and_of_any_byte_order(store):
    columns = {
        "a": np.arange(400, dtype=np.float32).reshape(20, 20)[:, ::3],
        "b": np.arange(40, dtype=">i4")[::2],
        "c": np.asfortranarray(np.arange(60.0).reshape(20, 3)),
        "d": np.zeros((20, 0), np.float32),
    }
    assert_read_back(store, save(store, columns, 19), columns)


def test_rows_can_be_read_into_a_larger_buffer(store):
    columns = make_columns(rows=20)
    index = save(store, columns, 20)
    larger = {name: np.resize(array, (50, *array.shape[1:])) for name, array in columns.items()}
    store.read(index, larger)
    assert np.array_equal(larger["observations"][:20], columns["observations"])


@pytest.mark.parametrize(
    ("before", "used", "changed", "written"),
    [
        (40, 50, [range(40, 50)], [5, 6]),
        (43, 45, [range(43, 45)], [5]),  # the partly filled chunk again
        (43, 50, [], [5, 6]),  # rows beyond those of before are new even if nobody says so
        (100, 100, [], []),
    ],
)
def test_only_chunks_that_have_changed_are_written(store, before, used, changed, written):
    columns = make_columns()
    first = save(store, columns, before)
    pending = store.snapshot(columns, used, changed, first)
    assert sorted(pending.copied) == written
    second = store.write(pending)
    n_kept = written[0] if written else len(first.names)
    assert second.names[:n_kept] == first.names[:n_kept]
    assert files(store) == {*first.names, *second.names}
    for index in (first, second):
        assert_read_back(store, index, columns)


def test_fewer_rows_in_use_than_before_are_saved_rightly(store):
    columns = make_columns()
    before = save(store, columns, 90)
    for used in (0, 5, 40, 43):
        index = save(store, columns, used, [], before)
        assert_read_back(store, index, columns)


@pytest.mark.parametrize("other", ["rows", "columns", "order", "unknown"])
def test_all_is_written_when_the_save_before_does_not_fit(store, other):
    columns = make_columns()
    previous = save(store, columns, 100)
    changed = [range(1)]
    if other == "rows":
        store = ChunkStore(store.root, rows_per_chunk=16)
    elif other == "columns":
        columns = {**columns, "timeouts": np.zeros(100, np.float32)}
    elif other == "order":
        columns = dict(reversed(columns.items()))
    else:
        changed = None
    pending = store.snapshot(columns, 100, changed, previous)
    assert not pending.reused
    assert_read_back(store, store.write(pending), columns)


@pytest.mark.parametrize("seed", range(20))
def test_a_ring_buffer_comes_back_after_any_number_of_rows(tmp_path, seed):
    rng = np.random.default_rng(seed)
    size, n_envs = int(rng.integers(5, 120)), int(rng.integers(1, 4))
    store = ChunkStore(tmp_path, rows_per_chunk=1 << int(rng.integers(0, 6)))
    columns = make_columns(size, n_envs, seed)
    position, is_full, index = 0, False, None
    for _ in range(8):
        new = int(rng.integers(0, size))
        changed = [range(position, min(position + new, size)), range(max(position + new - size, 0))]
        for touched in changed:
            columns["observations"][touched] = rng.random((len(touched), n_envs, 3))
            columns["dones"][touched] ^= True
        is_full |= position + new >= size
        position = (position + new) % size
        used = size if is_full else position
        index = save(store, columns, used, changed, index)
        # As the manifest of a checkpoint holds it.
        index = ChunkIndex.from_dict(json.loads(json.dumps(dataclasses.asdict(index))))
        assert_read_back(store, index, columns)
        store.collect_garbage([index])
        store.verify(index)
        assert files(store) == set(index.names)


def test_a_snapshot_shares_no_memory_with_the_buffer(store):
    columns = make_columns()
    expected = {name: array.copy() for name, array in columns.items()}
    pending = store.snapshot(columns, 100, None, None)
    for array in columns.values():
        array[:] = 0
    assert_read_back(store, store.write(pending), expected)


def test_a_snapshot_beyond_its_memory_is_compressed_at_once(store, monkeypatch):
    columns = make_columns()
    whole = save(store, columns, 100)
    monkeypatch.setattr(module, "COPIED_BYTES", 1000)
    pending = store.snapshot(columns, 100, None, None)
    assert {type(content) for content in pending.copied.values()} == {bytes, tuple}
    assert store.write(pending) == whole


def test_equal_rows_are_stored_once(store):
    index = save(store, {"a": np.zeros((64, 4), np.float32)}, 64)
    assert len(index.names) == 8
    assert len(files(store)) == 1


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_a_damaged_file_of_the_same_name_is_replaced(store, content):
    columns = make_columns()
    index = save(store, columns, 100)
    path = store.root / index.names[3]
    path.write_bytes(path.read_bytes()[::-1] if content is None else content)
    assert save(store, columns, 100) == index
    store.verify(index)


def test_a_chunk_that_is_gone_or_cut_short_is_written_anew_from_memory(store):
    columns = make_columns()
    first = save(store, columns, 100)
    (store.root / first.names[2]).unlink()
    (store.root / first.names[4]).write_bytes(b"short")
    assert save(store, columns, 100, [], first) == first
    store.verify(first)


def test_a_chunk_that_vanishes_after_the_snapshot_is_an_error_and_the_next_save_mends_it(store):
    columns = make_columns()
    first = save(store, columns, 100)
    pending = store.snapshot(columns, 100, [], first)
    (store.root / first.names[2]).unlink()
    with pytest.raises(OSError, match="vanished"):
        store.write(pending)
    assert save(store, columns, 100, [], first) == first


def test_garbage_is_what_no_index_names_and_what_killed_writers_left(store):
    assert store.collect_garbage([]) == 0  # of a store that was never written
    columns = make_columns()
    first = save(store, columns, 20)
    columns["rewards"][0] += 1
    second = save(store, columns, 20, [range(1)], first)
    (store.root / f".{HASH}.4711.tmp").write_bytes(b"half")
    (store.root / "notes.txt").write_text("not ours")
    assert store.collect_garbage([first, second]) == 1
    assert store.collect_garbage([second]) == 1
    assert files(store) == {*second.names, "notes.txt"}
    store.verify(second)


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "delete", "link", "folder"])
def test_a_damaged_chunk_is_noticed(store, damage, tmp_path):
    columns = make_columns()
    index = save(store, columns, 100)
    path = store.root / index.names[-1]
    data = path.read_bytes()
    path.unlink()
    if damage == "flip":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage in ("cut", "grow"):
        path.write_bytes(data[:-1] if damage == "cut" else data + b"x")
    elif damage == "link":
        (tmp_path / "same").write_bytes(data)
        path.symlink_to(tmp_path / "same")
    elif damage == "folder":
        path.mkdir()
    with pytest.raises(DamagedFolderError, match=index.names[-1][:20]):
        store.verify(index)
    with pytest.raises(DamagedFolderError):
        read(store, index, columns)


def forge(store, index, data):
    """Return an index whose only chunk is `data`, under its true name."""
    name = hashlib.sha256(data).hexdigest()
    (store.root / name).write_bytes(data)
    return dataclasses.replace(index, names=(name,), sizes=(len(data),))


@pytest.mark.parametrize("content", [b"", b"no frame", "bomb", "short", "unsized", "two"])
def test_a_forged_chunk_is_refused(store, content):
    columns = {"a": np.zeros((4, 4), np.float32)}
    index = save(store, columns, 4)
    whole = zstandard.ZstdCompressor().compress(bytes(64))
    data = {
        "bomb": zstandard.ZstdCompressor().compress(bytes(20_000_000)),
        "short": whole[:-3],
        "unsized": zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64)),
        # A frame that claims 64 bytes and holds more.
        "two": whole[:5] + b"\x40" + zstandard.ZstdCompressor().compress(bytes(200))[6:],
    }.get(content, content)
    with pytest.raises(DamagedFolderError):
        read(store, forge(store, index, data), columns)


def test_a_forged_truth_value_is_refused(store):
    columns = {"dones": np.zeros(4, bool)}
    forged = forge(store, save(store, columns, 4), zstandard.compress(b"\0\1\2\0"))
    with pytest.raises(DamagedFolderError, match="dones"):
        read(store, forged, columns)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"a": np.zeros((9, 3), np.float32)},
        {"a": np.zeros((10, 4), np.float32)},
        {"a": np.zeros((10, 3), np.float64)},
        {"b": np.zeros((10, 3), np.float32)},
        {"a": np.zeros((10, 3), np.float32), "b": np.zeros(10)},
    ],
)
def test_rows_are_not_read_into_arrays_they_do_not_fit(store, columns):
    index = save(store, {"a": np.ones((10, 3), np.float32)}, 10)
    with pytest.raises(DamagedFolderError, match="do not fit"):
        store.read(index, columns)


@pytest.mark.parametrize("used", [-1, 11])
def test_more_rows_than_there_are_is_a_mistake(store, used):
    with pytest.raises(ValueError, match="rows are in use"):
        store.snapshot({"a": np.zeros(10)}, used, None, None)


@pytest.mark.parametrize("dtype", [object, "U3", "M8[s]", complex, "f4,f4", np.longdouble])
def test_what_is_not_plain_numbers_is_refused(store, dtype):
    with pytest.raises(TypeError, match="rewards"):
        store.snapshot({"rewards": np.zeros(3, dtype)}, 3, None, None)


@pytest.mark.parametrize(
    ("row", "rows"),
    [
        (np.zeros((1, 43), np.float32), 2048),
        (np.zeros((64, 43), np.float32), 64),
        (np.zeros((1, 8, 84, 84), np.uint8), 64),
        (np.zeros((64, 8, 84, 84), np.uint8), 1),
        (np.zeros(1, bool), 65_536),
    ],
)
def test_rows_per_chunk_follow_the_size_of_a_row(tmp_path, row, rows):
    pending = ChunkStore(tmp_path).snapshot({"a": row[None]}, 1, None, None)
    assert pending.rows_per_chunk == rows


def test_a_huge_buffer_has_no_more_chunks_than_a_manifest_can_list(tmp_path):
    huge = np.broadcast_to(np.zeros((1, 100)), (10**9, 100))
    rows = ChunkStore(tmp_path).snapshot({"a": huge}, 0, None, None).rows_per_chunk
    assert len(huge) / rows <= module.MOST_CHUNKS
