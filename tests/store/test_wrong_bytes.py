"""Wrong bytes, broken connections, full disks: one line, nothing half-written, then it works."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import environ_of_tests
from support.proxies import FlakyProxy
from support.stores import KINDS, content_of, s3_server, save_checkpoint, url_of

from rlzoo_plus.artifacts.atomic import DamagedFolderError, write_folder
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.store.cache import mirror_light_files
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.pull import pull_run

RUN = "sweep/a"
LARGE = 300_000


@pytest.fixture
def run(tmp_path):
    return _make_run(tmp_path / "run", 0)


def _make_run(path, number):
    path.mkdir()
    for name in ("config.yaml", "evaluations.jsonl", "status.json"):
        (path / name).write_text(f"{name} of {number}\n" * 50)
    write_folder(path / "best", {"policy.json": b"{}" * (number + 1)}, {"step": 1000})
    for step in (1000, 2000):
        save_checkpoint(path, step, range(number + step, number + step + 64), step + number)
    return path


def _push_both(store, run):
    """Push with the first checkpoint, and again with the second."""
    path = run / "checkpoints/000000002000"
    path.rename(run.parent / "later")
    RunMirror(store, RUN, run).push()
    (run.parent / "later").rename(path)
    RunMirror(store, RUN, run).push()


def _names(store):
    return [e.name for top in ("runs", "state") for e in store.list(f"{top}/")]


def _replace(url, name, change):
    """Change an object behind the back of the store, as a broken disk does."""
    if not url.startswith("s3://"):
        path = Path(url) / name
        path.write_bytes(change(path.read_bytes()))
        return
    import boto3

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    client, key = boto3.client("s3"), f"{prefix}/{name}"
    found = client.get_object(Bucket=bucket, Key=key)
    data = change(found["Body"].read())
    client.put_object(Bucket=bucket, Key=key, Body=data, Metadata=found["Metadata"])


def _flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [_flip, lambda data: data[:-1], lambda _: b""])
def test_no_wrong_byte_is_taken(kind, change, run, tmp_path, monkeypatch):
    with url_of(kind, tmp_path, monkeypatch) as url:
        store = open_store(url)
        _push_both(store, run)
        right, before = content_of(run), {path.name for path in tmp_path.iterdir()}
        for number, name in enumerate(_names(store)):
            if kind == "folder" and name.endswith((".yaml", ".jsonl", "status.json")):
                # A file system's own business: these are as they are, without a hash.
                continue
            kept = store.get(name, 2**20)[0]
            _replace(url, name, change)
            back = tmp_path / f"back{number}"
            problem = None
            try:
                step = pull_run(store, RUN, back)
            except (StoreError, DamagedFolderError) as error:
                problem = str(error)
            if problem is not None:
                assert "\n" not in problem
                assert {path.name for path in tmp_path.iterdir()} == before
            else:
                # Only what concerns the newest checkpoint has one before it.
                assert name.startswith("state/")
                found = content_of(back)
                assert all(right[n] == data for n, data in found.items() if n in right)
                assert step is None or CheckpointStore(back / "checkpoints").is_whole(step)
                chunks = {p.name for p in (back / "checkpoints/chunks").glob("*")}
                assert len(chunks) == (step is not None)
                shutil.rmtree(back)
            _replace(url, name, lambda _, kept=kept: kept)
            assert pull_run(store, RUN, back) == 2000
            shutil.rmtree(back)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_another_run_is_none_of_this_one(kind, run, tmp_path, monkeypatch):
    with url_of(kind, tmp_path, monkeypatch) as url:
        store = open_store(url)
        _push_both(store, run)
        other = _make_run(tmp_path / "other", 7)
        RunMirror(store, "sweep/b", other).push()
        data, _ = store.get("state/sweep/b/000000002000.zip", 2**20)
        store.put("state/sweep/a/000000002000.zip", data)
        assert pull_run(store, RUN, tmp_path / "back") == 1000


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_list_of_checkpoints_restores_an_older_step(kind, run, tmp_path, monkeypatch):
    with url_of(kind, tmp_path, monkeypatch) as url:
        store = open_store(url)
        _push_both(store, run)
        head = json.loads(store.get("state/sweep/a/checkpoints.json", 2**20)[0])
        del head["checkpoints"]["000000002000"]
        store.put("state/sweep/a/checkpoints.json", json.dumps(head).encode())
        assert pull_run(store, RUN, tmp_path / "back") == 1000


@contextlib.contextmanager
def _cutting_proxy(monkeypatch, cuts):
    """Forward connections to the server; reset the first ones after half of a large answer."""
    proxy = FlakyProxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    proxy.cut_after, proxy.cuts = LARGE // 2, cuts
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


def test_a_download_that_is_reset_half_way_is_made_again(tmp_path, monkeypatch):
    data = os.urandom(LARGE)
    with s3_server(monkeypatch) as url:
        open_store(url).put("runs/a/video.mp4", data)
        with _cutting_proxy(monkeypatch, cuts=2):
            target = tmp_path / "target"
            assert open_store(url).get_file("runs/a/video.mp4", target, LARGE)
            assert target.read_bytes() == data


def test_downloads_that_are_always_reset_leave_nothing(run, tmp_path, monkeypatch):
    (run / "video.mp4").write_bytes(os.urandom(LARGE))
    with s3_server(monkeypatch) as url:
        RunMirror(open_store(url), RUN, run).push()
        before = {path.name for path in tmp_path.iterdir()}
        with _cutting_proxy(monkeypatch, cuts=10**6) as proxy:
            with pytest.raises(StoreError) as raised:
                pull_run(open_store(url), RUN, tmp_path / "back")
            assert "\n" not in str(raised.value)
            assert {path.name for path in tmp_path.iterdir()} == before
            proxy.cuts = 0
            assert pull_run(open_store(url), RUN, tmp_path / "back") == 2000
        assert content_of(tmp_path / "back")["video.mp4"] == (run / "video.mp4").read_bytes()


_WITH_LITTLE_DISK = """
import resource, sys
from pathlib import Path
from rlzoo_plus.store.cache import mirror_light_files
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.pull import pull_run
what, url, path, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    if what == "pull":
        pull_run(open_store(url), "sweep/a", Path(path))
    else:
        RunMirror(open_store(url), "sweep/a", Path(path)).push()
except StoreError as error:
    print("StoreError:", error)
"""


def _with_little_disk(what, url, path, limit):
    command = [sys.executable, "-c", _WITH_LITTLE_DISK, what, url, str(path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ_of_tests())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_onto_a_full_disk_leaves_nothing(kind, run, tmp_path, monkeypatch):
    (run / "video.mp4").write_bytes(os.urandom(LARGE))
    with url_of(kind, tmp_path, monkeypatch) as url:
        RunMirror(open_store(url), RUN, run).push()
        before = {path.name for path in tmp_path.iterdir()}
        said = _with_little_disk("pull", url, tmp_path / "back", LARGE // 2)
        assert said.startswith("StoreError: ")
        assert said.count("\n") == 1
        assert "File too large" in said
        assert {path.name for path in tmp_path.iterdir()} == before
        assert pull_run(open_store(url), RUN, tmp_path / "back") == 2000


def test_a_push_from_a_full_disk_arrives(run, tmp_path, monkeypatch):
    with s3_server(monkeypatch) as url:
        # Only what was sent cannot be recorded.
        assert _with_little_disk("push", url, run, 10) == ""
        assert not [path.name for path in run.iterdir() if path.name.startswith(".")]
        assert pull_run(open_store(url), RUN, tmp_path / "back") == 2000


def test_a_shared_folder_that_is_full_keeps_no_part(run, tmp_path):
    (run / "video.mp4").write_bytes(os.urandom(LARGE))
    url = str(tmp_path / "store")
    assert "File too large" in _with_little_disk("push", url, run, LARGE // 2)
    store = open_store(url)
    assert "runs/sweep/a/video.mp4" not in _names(store)
    assert list((tmp_path / "store/.new").iterdir()) == []
    assert RunMirror(store, RUN, run).push().step == 2000


def test_what_killed_processes_left_is_removed(run, tmp_path):
    store = open_store(tmp_path / "store")
    RunMirror(store, RUN, run).push()
    old = time.time() - 2 * 86_400
    left, new = tmp_path / "store/.new/left", tmp_path / "store/.new/now"
    for path in (left, new):
        path.write_bytes(b"half")
    os.utime(left, (old, old))
    half = tmp_path / ".back.pull-left"
    half.mkdir()
    os.utime(half, (old, old))
    open_store(tmp_path / "store").put("runs/b/config.yaml", b"")
    assert pull_run(store, RUN, tmp_path / "back") == 2000
    assert (left.exists(), new.exists(), half.exists()) == (False, True, False)


def test_light_files_that_do_not_all_come_leave_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = open_store(tmp_path / "store")
    RunMirror(store, RUN, run).push()
    get_file = store.get_file

    def fail_one(name, path, largest):
        if name.endswith("status.json"):
            raise StoreError("gone")
        return get_file(name, path, largest)

    monkeypatch.setattr(store, "get_file", fail_one)
    with pytest.raises(StoreError, match="gone"):
        mirror_light_files(store)
    assert not list((tmp_path / "cache").rglob("*.new"))
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert (mirror_light_files(store) / RUN / "status.json").is_file()
