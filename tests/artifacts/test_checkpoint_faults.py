"""Checkpoints under failures: killed writers, full disks, bits that flip."""

import errno
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.chunks import ChunkStore

SIZE = 40
CALLS = ("open", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "listdir", "scandir")
# These a full disk does not fail; opening may be for reading.
HARMLESS = ("open", "unlink", "rmdir", "listdir", "scandir")


class KilledError(BaseException):
    """Stands for a process that dies at this very line."""


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def make_columns(version):
    """A ring buffer after so many blocks of ten rows, and how many rows are in use."""
    rows = np.zeros((SIZE, 1, 3), np.float32)
    for block in range(version + 1):
        start = 10 * block % SIZE
        rows[start : start + 10] = np.arange(30).reshape(10, 1, 3) + 100 * block
    columns = {"observations": rows, "dones": rows[:, :, 0] % 7 == 0}
    return columns, min(10 * (version + 1), SIZE)


def save(store, step, version=None, previous=None, **how):
    """Save a step; all that it holds follows from its version."""
    version = step if version is None else version
    writer = ChunkStore(store.root / "chunks", rows_per_chunk=8)
    before = changed = None
    if previous is not None:
        before, blocks = (
            previous.chunks["replay"],
            range(previous.about["version"] + 1, version + 1),
        )
        changed = [range(10 * block % SIZE, 10 * block % SIZE + 10) for block in blocks]
    pending = writer.snapshot(*make_columns(version), changed, before)
    state = {"weights": np.full(5, float(version)), "name": f"v{version}"}
    store.save(step, state, {"version": version}, chunks={"replay": pending}, **how)


def version_of(checkpoint):
    """Return a checkpoint's version, having compared everything in it."""
    version = checkpoint.about["version"]
    assert checkpoint.state["name"] == f"v{version}"
    assert np.array_equal(checkpoint.state["weights"], np.full(5, float(version)))
    expected, used = make_columns(version)
    found = {name: np.zeros_like(array) for name, array in expected.items()}
    checkpoint.read_rows("replay", found)
    for name, array in expected.items():
        assert np.array_equal(found[name][:used], array[:used]), name
    return version


class FaultyDisk:
    """Counts the filesystem calls, and fails at one of them.

    `killed` ends the process there, `torn` the same with half of the bytes written; `full` raises
    an error once, `stays full` from there on at whatever writes.
    """

    def __init__(self, monkeypatch, fatal, mode):
        self.calls, self.fatal, self.mode, self.is_dead = 0, fatal, mode, False
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name), name))
        monkeypatch.setattr(io, "open", self.wrap_open(io.open))

    def fail(self, name):
        """Count a call, and raise if it is the one."""
        self.calls += 1
        is_late = self.mode == "stays full" and name not in HARMLESS and self.calls > self.fatal
        if self.calls != self.fatal and not is_late and not self.is_dead:
            return
        if "full" in self.mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.is_dead = True
        raise KilledError

    def wrap(self, real, name):
        def call(*args, **kwargs):
            self.fail(name)
            return real(*args, **kwargs)

        return call

    def wrap_open(self, real):
        def call(*args, **kwargs):
            self.fail("open")
            file = real(*args, **kwargs)
            return _GuardedFile(file, self) if file.writable() else file

        return call


class _GuardedFile:
    def __init__(self, file, disk):
        self.file, self.disk = file, disk

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, data):
        try:
            self.disk.fail("write")
        except (KilledError, OSError):
            if self.disk.mode != "killed":
                self.file.write(data[: len(data) // 2])
                self.file.flush()
            raise
        return self.file.write(data)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Return a folder with the checkpoints 1 and 2."""
    store = CheckpointStore(tmp_path_factory.mktemp("before"), keep=2)
    save(store, 1)
    save(store, 2, previous=store.load(1))
    return store.root


def save_until(monkeypatch, root, step, version, fatal, mode):
    """Save on a disk that fails at one call; return whether the save was disturbed."""
    store = CheckpointStore(root, keep=2)
    previous = store.load(2)
    with monkeypatch.context() as patch:
        disk = FaultyDisk(patch, fatal, mode)
        try:
            save(store, step, version, previous)
        except (KilledError, OSError):
            assert disk.calls >= fatal
    return disk.calls >= fatal


def check_what_is_left(root, step, version):
    """Check all that a failed or finished save of a version may have left; return the newest."""
    store = CheckpointStore(root, keep=2)
    newest = store.load_newest()
    found = version_of(newest)
    if found == version:
        assert newest.step == step
    else:
        assert (newest.step, found) == (2, 2)
        assert version_of(store.load(1)) == 1
    if step != 2:
        assert version_of(store.load(2)) == 2
    return newest


def check_later_saves(root, newest):
    """Check that a fresh process goes on as if nothing had been, and clears up."""
    store = CheckpointStore(root, keep=2)
    save(store, 4, previous=newest)
    assert version_of(store.load_newest()) == 4
    save(store, 5, previous=store.load(4))
    assert [version_of(store.load(step)) for step in store.steps()] == [4, 5]
    live = {name for step in (4, 5) for name in store.chunks_at(step)["replay"].names}
    assert {path.name for path in (root / "chunks").iterdir()} == live
    assert {path.name for path in root.iterdir()} == {"chunks", f"{4:012d}", f"{5:012d}"}


@pytest.mark.parametrize("mode", ["killed", "torn", "full", "stays full"])
@pytest.mark.parametrize(("step", "version"), [(3, 3), (2, 3)])
def test_a_save_that_fails_at_any_call_leaves_the_old_or_the_new(
    before, tmp_path, monkeypatch, mode, step, version
):
    outcomes = set()
    for fatal in range(1, 1000):
        root = shutil.copytree(before, tmp_path / str(fatal))
        was_disturbed = save_until(monkeypatch, root, step, version, fatal, mode)
        newest = check_what_is_left(root, step, version)
        outcomes.add(newest.about["version"])
        check_later_saves(root, newest)
        if not was_disturbed:
            break
    assert not was_disturbed
    assert fatal > 40
    assert outcomes == {2, version}


def test_the_first_save_of_all_can_fail_at_any_call(tmp_path, monkeypatch):
    for fatal in range(1, 1000):
        store = CheckpointStore(tmp_path / str(fatal))
        with monkeypatch.context() as patch:
            disk = FaultyDisk(patch, fatal, "torn")
            try:
                save(store, 1)
            except KilledError:
                assert disk.is_dead
        newest = store.load_newest()
        assert newest is None or version_of(newest) == 1
        if disk.calls < fatal:
            break
    assert newest is not None


def test_everything_is_on_the_disk_before_it_is_given_its_name(before, tmp_path, monkeypatch):
    root = shutil.copytree(before, tmp_path / "run")
    synced, named = set(), []
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

    def fsync(descriptor):
        synced.add(os.fstat(descriptor).st_ino)

    def check(source):
        assert source.stat().st_ino in synced, source
        # A folder that took a new name since must be synced again.
        synced.discard(source.parent.stat().st_ino)

    def replace(source, target):
        check(source)
        named.append(target.parent.name)
        real["replace"](source, target)

    def rename(source, target):
        for path in (source, *source.iterdir()):
            assert path.stat().st_ino in synced, path
        assert (root / "chunks").stat().st_ino in synced
        named.append("checkpoint")
        real["rename"](source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "rename", rename)
    store = CheckpointStore(root)
    save(store, 3, previous=store.load(2))
    assert named[0] == "chunks"
    assert named[-1] == "checkpoint"
    assert root.stat().st_ino in synced


def damage(path, rng):
    """Damage a file at random."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "flip", "cut", "delete", "grow", "zero"])
    position = rng.randrange(len(data))
    if kind == "flip":
        data[position] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[position:]
    elif kind == "grow":
        data[position:position] = rng.randbytes(rng.randrange(1, 50))
    elif kind == "zero":
        data[position:] = bytes(len(data) - position)
    path.unlink()
    if kind != "delete":
        path.write_bytes(data)


def test_a_thousand_random_corruptions_never_load_as_something_else(before, tmp_path):
    store = CheckpointStore(shutil.copytree(before, tmp_path / "run"))
    folders = {step: store.root / f"{step:012d}" for step in (1, 2)}
    chunks = {step: set(store.chunks_at(step)["replay"].names) for step in (1, 2)}
    assert chunks[1] & chunks[2]
    assert chunks[2] - chunks[1]
    files = sorted([*folders[2].iterdir(), *(store.root / "chunks" / n for n in chunks[2])])
    noticed = 0
    for seed in range(1000):
        rng = random.Random(seed)
        file = rng.choice(files)
        content = file.read_bytes()
        damage(file, rng)
        try:
            assert version_of(store.load(2)) == 2, f"seed {seed}"
        except DamagedFolderError:
            noticed += 1
            newest = store.load_newest()
            is_shared = file.name in chunks[1]
            assert newest is None if is_shared else version_of(newest) == 1, f"seed {seed}"
        file.write_bytes(content)
    # White space of the manifest is all that may differ unnoticed.
    assert noticed >= 970


_WRITER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from test_checkpoint_faults import save
store = CheckpointStore(Path(sys.argv[1]), keep=2)
newest = store.load_newest()
first = newest.step + 1 if newest else 1
for step in range(first, first + 100_000):
    save(store, step, previous=newest)
    newest = store.load(step)
    print(step, flush=True)
"""


@pytest.mark.training
def test_a_writer_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    rng, root, last = random.Random(5), tmp_path / "run", 0
    here = os.path.dirname(__file__)
    for _ in range(4):
        command = [sys.executable, "-c", _WRITER, str(root), here]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.1))
            writer.send_signal(signal.SIGKILL)
        newest = CheckpointStore(root).load_newest()
        assert version_of(newest) == newest.step
        assert newest.step > last
        last = newest.step
