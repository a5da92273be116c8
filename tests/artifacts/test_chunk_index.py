"""The index of a replay buffer's chunks, as a manifest holds it."""

import json
from dataclasses import asdict

import pytest

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.chunks import ChunkIndex

HASH = "a" * 64
GOOD = {
    "rows_per_chunk": 8,
    "used": 10,
    "columns": [{"name": "a", "dtype": "<f4", "shape": [1, 3]}],
    "names": [HASH, HASH],
    "sizes": [100, 20],
}


def test_an_index_comes_back_from_json():
    index = ChunkIndex.from_dict(GOOD)
    assert ChunkIndex.from_dict(json.loads(json.dumps(asdict(index)))) == index
    assert json.loads(json.dumps(asdict(index))) == {**GOOD, "key_id": ""}


def column(**values):
    return {"columns": [{**GOOD["columns"][0], **values}]}


@pytest.mark.parametrize(
    "edit",
    [
        *({"rows_per_chunk": bad} for bad in (0, -8, 7, 8.0, "8", None, True, 2**40, [8])),
        *({"used": bad} for bad in (-1, 8, 17, 10.0, "10", None, 2**70)),
        *({"names": bad} for bad in (None, 3, [HASH], [HASH] * 3, [HASH, 3], [HASH, "../x"])),
        *({"names": [HASH, bad]} for bad in (HASH.upper(), HASH[:-1], HASH + "a", HASH + "\n")),
        *({"sizes": bad} for bad in (None, [1], [1, 2, 3], [1, -1], [1, True], [1, 10**9])),
        *({"key_id": bad} for bad in (None, 3, "0" * 15, "g" * 16, "../" + "0" * 13)),
        *({"columns": bad} for bad in (None, 3, [3], [{}], GOOD["columns"] * 2)),
        *(column(name=bad) for bad in (None, 3, ["a"])),
        *(column(dtype=bad) for bad in ("O", "|O", "<f16", "<c8", "|S5", "(9,)<f4", "f4", 3, None)),
        *(column(shape=bad) for bad in (None, 3, "33", [-1], [True], [1.0], [2**40], [2**30] * 9)),
        column(shape=[1] * 100),
        column(shape=[10_000_000]),
    ],
)
def test_a_malformed_index_is_refused(edit):
    with pytest.raises(DamagedFolderError, match="malformed"):
        ChunkIndex.from_dict({**GOOD, **edit})


@pytest.mark.parametrize("data", [None, 3, [], "x", {}, {**GOOD, "names": {"a": 1}}])
def test_what_is_no_index_is_refused(data):
    with pytest.raises(DamagedFolderError, match="malformed"):
        ChunkIndex.from_dict(data)
