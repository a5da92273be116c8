"""Folders and files that are either there, whole, or not there at all."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from rlzoo_plus.artifacts import atomic
from rlzoo_plus.artifacts.atomic import (
    MANIFEST,
    DamagedFolderError,
    read_folder,
    write_atomic,
    write_folder,
    write_json,
)

FILES = {"a.bin": bytes(range(256)) * 4, "b.json": b'{"x": 1}', "empty": b""}
ABOUT = {"step": 7, "name": "first"}


class KilledError(BaseException):
    """Stands for a process that dies at this very line."""


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "best"
    write_folder(path, FILES, ABOUT)
    return path


def test_a_folder_comes_back_as_it_was_written(folder):
    assert read_folder(folder) == (FILES, ABOUT)


@pytest.mark.parametrize("dead", [False, True])
def test_a_second_write_replaces_all_of_the_first_and_leaves_nothing_temporary(folder, dead):
    if dead:
        leftover = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        leftover.mkdir()
        (leftover / "old").write_bytes(b"old")
    write_folder(folder, {"c": b"new"}, {"step": 8})
    assert read_folder(folder) == ({"c": b"new"}, {"step": 8})
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, "c"]
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


@pytest.mark.parametrize("fatal", [1, 2])
def test_a_reader_gets_a_whole_folder_when_the_writer_dies_at_a_rename(folder, monkeypatch, fatal):
    real, calls = os.rename, []

    def rename(source, target):
        calls.append(target)
        if len(calls) == fatal:
            raise KilledError
        real(source, target)

    monkeypatch.setattr(atomic.os, "rename", rename)
    with pytest.raises(KilledError):
        write_folder(folder, {"c": b"new"}, {"step": 8})
    assert read_folder(folder) == (FILES, ABOUT)


def test_the_next_writer_recovers_from_one_that_died_between_its_renames(folder):
    folder.rename(folder.with_name("best.previous"))
    write_folder(folder, {"c": b"new"}, {"step": 8})
    assert read_folder(folder) == ({"c": b"new"}, {"step": 8})
    assert not folder.with_name("best.previous").exists()


def test_an_older_folder_does_not_stand_in_for_a_damaged_one(folder):
    shutil.copytree(folder, folder.with_name("best.previous"))
    (folder / "a.bin").write_bytes(b"changed")
    with pytest.raises(DamagedFolderError):
        read_folder(folder)


@pytest.mark.parametrize("fatal", range(1, 6))
def test_a_writer_that_dies_at_a_file_leaves_the_folder_before(folder, monkeypatch, fatal):
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == fatal:
            raise KilledError
        real(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    with pytest.raises(KilledError):
        write_folder(folder, {"c": b"1", "d": b"2", "e": b"3"}, {"step": 8})
    assert read_folder(folder) == (FILES, ABOUT)


def test_the_manifest_is_written_last(tmp_path, monkeypatch):
    real, names = atomic.write_synced, []

    def write(path, data):
        names.append(path.name)
        real(path, data)

    monkeypatch.setattr(atomic, "write_synced", write)
    write_folder(tmp_path / "x", FILES, ABOUT)
    assert names == [*FILES, MANIFEST]


def flip(path):
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)


def swap(path):
    other = path.with_name("b.json")
    path.rename(path.with_name("t"))
    other.rename(path)
    path.with_name("t").rename(other)


def link(path):
    path.rename(path.parents[1] / "elsewhere")
    path.symlink_to(path.parents[1] / "elsewhere")


def make_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1] or b"x"),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        link,
        make_folder,
    ],
    ids=["deleted", "truncated", "longer", "a link to the same content", "a folder"],
)
def test_a_file_that_is_another_is_noticed(folder, harm, name):
    harm(folder / name)
    with pytest.raises(DamagedFolderError, match=name):
        read_folder(folder)


@pytest.mark.parametrize("harm", [flip, swap])
def test_content_that_is_another_is_noticed(folder, harm):
    harm(folder / "a.bin")
    with pytest.raises(DamagedFolderError, match=r"a\.bin was changed or cut short"):
        read_folder(folder)


def test_an_added_file_is_never_read(folder):
    (folder / "added").write_bytes(b"payload")
    assert read_folder(folder) == (FILES, ABOUT)


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["about"].update(step=8),
        lambda m: m["about"].update(extra=1),
        lambda m: m["files"].pop("empty"),
        lambda m: m["files"]["a.bin"].update(size=3),
        lambda m: m.update(format=2),
        lambda m: m.update(sha256="0" * 64),
        lambda m: m.pop("sha256"),
        lambda m: m.pop("files"),
        lambda m: m.clear(),
    ],
)
def test_an_edited_manifest_is_noticed(folder, edit):
    manifest = json.loads((folder / MANIFEST).read_bytes())
    edit(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DamagedFolderError, match=MANIFEST):
        read_folder(folder)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"3", b'"x"', b"\xff\xfe", b"{}", None]
)
def test_a_manifest_that_is_none_is_noticed(folder, text):
    (folder / MANIFEST).unlink()
    if text is not None:
        (folder / MANIFEST).write_bytes(text)
    with pytest.raises(DamagedFolderError, match=MANIFEST):
        read_folder(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "sub/file", "..", ".", "", "a\0b"])
def test_a_forged_manifest_cannot_reach_outside_the_folder(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"secret")
    path = tmp_path / "folder"
    write_folder(path, {"name": b"secret"}, {})
    manifest = json.loads((path / MANIFEST).read_bytes())
    del manifest["sha256"]
    manifest["files"] = {name: manifest["files"]["name"]}
    (path / MANIFEST).write_text(json.dumps({**manifest, "sha256": atomic._digest(manifest)}))
    with pytest.raises(DamagedFolderError):
        read_folder(path)


def test_a_missing_folder_is_damaged_and_not_a_crash(tmp_path):
    with pytest.raises(DamagedFolderError):
        read_folder(tmp_path / "nowhere")


def damage(folder, rng):
    """Damage one file of a folder at random."""
    path = rng.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "cut", "grow", "delete", "zero", "insert"])
    if kind == "delete" or not data:
        path.unlink()
        return
    position = rng.randrange(len(data))
    if kind == "flip":
        data[position] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[position:]
    elif kind == "grow":
        data += rng.randbytes(rng.randrange(1, 50))
    elif kind == "zero":
        data[position:] = bytes(len(data) - position)
    else:
        data[position:position] = rng.randbytes(1)
    path.write_bytes(data)


def test_two_hundred_random_corruptions_never_load_as_something_else(folder):
    noticed = 0
    for seed in range(200):
        copy = shutil.copytree(folder, folder.with_name(f"copy{seed}"))
        damage(copy, random.Random(seed))
        try:
            loaded = read_folder(copy)
        except DamagedFolderError:
            noticed += 1
        else:
            # White space of the manifest is all that may differ unnoticed.
            assert loaded == (FILES, ABOUT), f"seed {seed}"
    assert noticed >= 190


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "sub" / "file.txt"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomic(path, "old")

    def fail(*_):
        raise KilledError

    monkeypatch.setattr(atomic.os, "replace", fail)
    with pytest.raises(KilledError):
        write_atomic(path, "new")
    assert path.read_text() == "old"


def test_json_is_written_for_people_too(tmp_path):
    write_json(tmp_path / "x.json", {"a": [1, None]})
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == {"a": [1, None]}
    assert text.endswith("}\n")


_WRITER = """
import itertools, sys
from pathlib import Path
from rlzoo_plus.artifacts.atomic import write_folder
for i in itertools.count():
    data = bytes([i % 256]) * 200_000
    write_folder(Path(sys.argv[1]), {"a": data, "b": data}, {"i": i % 256})
    print(i, flush=True)
"""


@pytest.mark.training
def test_a_writer_killed_at_any_moment_leaves_a_whole_folder(tmp_path):
    rng = random.Random(5)
    folder = tmp_path / "best"
    for _ in range(8):
        command = [sys.executable, "-c", _WRITER, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.1))
            writer.send_signal(signal.SIGKILL)
        files, about = read_folder(folder)
        assert set(files["a"]) == set(files["b"]) == {about["i"]}
        assert len(files["a"]) == 200_000
