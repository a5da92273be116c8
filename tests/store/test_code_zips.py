"""Code goes to a store as git has it, and a forged zip of code is refused before it is anywhere."""

import hashlib
import io
import logging
import os
import random
import shutil
import stat
import subprocess
import threading
import zipfile

import pytest

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store import code
from rlzoo_plus.store.code import fetch_code, send_code
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.zips import unzip, zip_files


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder with code that no git repository is around."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "someone")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "someone@example.org")
    path = tmp_path / "here"
    _write(path, "my_robots/__init__.py", "my_robots/arm/env.py", "other/not_asked_for.py")
    _write(path, "my_robots/.env", "my_robots/.idea/x", "my_robots/__pycache__/env.pyc")
    monkeypatch.chdir(path)
    return path


def _write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")


def _git(*arguments):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def _names(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_code_comes_back_as_it_was(store, here, tmp_path):
    sha = send_code(store, "sweep", ["my_robots"])
    path = fetch_code(store, "sweep", sha, tmp_path / "code")
    assert path == tmp_path / "code" / sha
    assert _names(path) == ["my_robots/__init__.py", "my_robots/arm/env.py"]
    assert (path / "my_robots/arm/env.py").read_text() == "# my_robots/arm/env.py\n"


def test_the_same_code_is_sent_once(store, here, monkeypatch):
    sha = send_code(store, "sweep", ["my_robots"])
    for path in here.rglob("*.py"):
        os.utime(path, (1, 1))
    monkeypatch.setattr(store, "put", None)
    assert send_code(store, "sweep", [here / "my_robots", "./my_robots/arm"]) == sha
    assert [entry.name for entry in store.list("code/")] == [f"code/sweep/{sha}.zip"]


def test_code_that_is_here_is_not_fetched_again(store, here, tmp_path, monkeypatch):
    sha = send_code(store, "sweep", ["my_robots"])
    path = fetch_code(store, "sweep", sha, tmp_path / "code")
    monkeypatch.setattr(store, "get_file", None)
    assert fetch_code(store, "sweep", sha, tmp_path / "code") == path


def test_workers_of_a_machine_share_the_code(folder, here, tmp_path):
    sha = send_code(folder, "sweep", ["my_robots"])
    all_there, found = threading.Barrier(4), []
    download = folder.get_file

    def download_together(*arguments):
        all_there.wait(timeout=20)
        return download(*arguments)

    folder.get_file = download_together

    def fetch():
        found.append(fetch_code(folder, "sweep", sha, tmp_path / "code"))

    workers = [threading.Thread(target=fetch) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [tmp_path / "code" / sha] * 4
    assert os.listdir(tmp_path / "code") == [sha]


def test_what_git_tracks_is_sent_as_it_is_now(folder, here, tmp_path, caplog):
    _git("init", "-q")
    _git("add", "my_robots/__init__.py", "my_robots/arm/env.py", "-f", "my_robots/.env")
    _git("commit", "-q", "-m", "first")
    send_code(folder, "sweep", ["my_robots"])
    assert "infra.code" not in caplog.text
    (here / "my_robots/arm/env.py").write_text("new")
    _write(here, "my_robots/forgotten.py")
    with caplog.at_level(logging.WARNING):
        sha = send_code(folder, "sweep", ["my_robots"])
    (note,) = caplog.messages
    assert "sent with uncommitted changes: my_robots/arm/env.py" in note
    assert "not tracked, so left: my_robots/forgotten.py" in note
    path = fetch_code(folder, "sweep", sha, tmp_path / "code")
    assert _names(path) == ["my_robots/__init__.py", "my_robots/arm/env.py"]
    assert (path / "my_robots/arm/env.py").read_text() == "new"


def test_a_removed_file_is_not_sent_and_a_folder_below_the_root_keeps_its_place(
    here, tmp_path, monkeypatch
):
    store = open_store(tmp_path / "store")
    _write(here, "lab/one/a.py", "lab/one/b.py", "lab/two.py")
    _git("init", "-q")
    _git("add", "lab")
    (here / "lab/one/b.py").unlink()
    monkeypatch.chdir(here / "lab")
    sha = send_code(store, "sweep", ["one", "two.py"])
    assert _names(fetch_code(store, "sweep", sha, tmp_path / "code")) == ["one/a.py", "two.py"]


def _link(here):
    (here / "my_robots/linked.py").symlink_to("/etc/hostname")


def _linked_folder(here):
    (here / "my_robots/linked").symlink_to("/etc", target_is_directory=True)


def _big(here):
    for size in (10, 30, 20):
        with (here / f"my_robots/weights{size}.bin").open("wb") as file:
            file.truncate(size * 1_000_000)


def _pipe(here):
    os.mkfifo(here / "my_robots/pipe")


def _odd(here):
    _write(here, "my_robots/a:b.py")


@pytest.mark.parametrize(
    ("change", "path", "said"),
    [
        (None, "gone", "gone does not exist"),
        (None, "../elsewhere", "../elsewhere is not below the working directory"),
        (None, "/etc", "/etc is not below the working directory"),
        (_link, "my_robots", "linked.py is a link"),
        (_link, "my_robots/linked.py", "linked.py is a link"),
        (_linked_folder, "my_robots", "linked is a link"),
        (_linked_folder, "my_robots/linked/hostname", "linked is a link"),
        (_big, "my_robots", "60.0 MB, and 50 MB are allowed. The biggest files are my_robots/w"),
        (_pipe, "my_robots", "pipe is not a plain file"),
        (_odd, "my_robots", "no name that every system takes"),
        (lambda here: (here / "none").mkdir(), "none", "holds no file"),
        (lambda _: _git("init", "-q"), "my_robots", "has no file that git tracks"),
    ],
)
def test_what_cannot_be_sent_is_one_line(folder, here, tmp_path, change, path, said):
    if change is not None:
        change(here)
    with pytest.raises(ConfigError) as raised:
        send_code(folder, "sweep", [path])
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(folder.list("code/"))


def test_too_many_files_are_refused(here, tmp_path, monkeypatch):
    monkeypatch.setattr(code, "MOST_FILES", 1)
    with pytest.raises(ConfigError, match="more than 1 files"):
        send_code(open_store(tmp_path / "store"), "sweep", ["my_robots"])


def _zip(*entries, compression=zipfile.ZIP_STORED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return packed.getvalue()


def _linked():
    info = zipfile.ZipInfo("my_robots")
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return _zip((info, b"/etc"))


def _claims(size):
    """Return a zip whose directory claims a size for its file, which begins with 4 bytes."""
    data = _zip(("a.py", b"abcd"))
    at = data.index(b"PK\1\2") + 20
    return data[:at] + size.to_bytes(4, "little") * 2 + data[at + 8 :]


def _claims_a_directory():
    """Return a zip whose end claims a directory of 4 GB."""
    data = bytearray(_zip(("a.py", b"abcd")))
    end = data.index(b"PK\5\6")
    data[end + 12 : end + 16] = (2**32 - 2).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "forge",
    [
        lambda: _zip(("../evil.py", b"x")),
        lambda: _zip(("my_robots/../../evil.py", b"x")),
        lambda: _zip(("/tmp/evil.py", b"x")),
        lambda: _zip(("C:\\evil.py", b"x")),
        lambda: _zip((".git/hooks/post-checkout", b"x")),
        lambda: _zip(("a\nb.py", b"x")),
        lambda: _zip(("my_robots/", b"")),
        lambda: _zip(("a.py", b"x"), ("a.py", b"y")),
        lambda: _zip(("a", b"x"), ("a/b.py", b"y")),
        lambda: _zip(*((f"{number}.py", b"") for number in range(10_001))),
        lambda: _zip(("bomb.py", b"0" * 10**7), compression=zipfile.ZIP_DEFLATED),
        lambda: _claims(10 * 2**28),
        lambda: _claims(2**32 - 2),
        lambda: _claims_a_directory(),
        lambda: _linked(),
        lambda: _zip(("a.py", b"abcd")).replace(b"abcd", b"abce"),
        lambda: b"PK nothing",
        lambda: b"",
    ],
    ids=[
        *("climbs", "climbs below", "absolute", "drive", "hidden", "line", "folder", "twice"),
        *("file and folder", "many", "bomb", "claims 2.5 GB", "claims 4 GB", "directory", "link"),
        *("changed", "no zip", "empty"),
    ],
)
def test_a_forged_zip_of_code_is_refused(tmp_path, forge):
    store, forged = open_store(tmp_path / "store"), forge()
    sha = hashlib.sha256(forged).hexdigest()
    store.put(f"code/sweep/{sha}.zip", forged)
    with pytest.raises(DamagedFolderError) as raised:
        fetch_code(store, "sweep", sha, tmp_path / "code")
    assert "\n" not in str(raised.value)
    assert os.listdir(tmp_path / "code") == []
    assert sorted(os.listdir(tmp_path)) == ["code", "store"]


def test_another_zip_than_its_name_says_is_refused(store, here, tmp_path):
    sha = send_code(store, "sweep", ["my_robots"])
    store.put(f"code/sweep/{sha}.zip", _zip(("my_robots/__init__.py", b"evil")))
    with pytest.raises(DamagedFolderError, match="not what its name says"):
        fetch_code(store, "sweep", sha, tmp_path / "code")
    assert os.listdir(tmp_path / "code") == []


@pytest.mark.parametrize("sha", ["../x", "", "a" * 63, "A" * 64, None, 3, "a" * 64 + "\n"])
def test_only_a_hash_names_code(tmp_path, sha):
    with pytest.raises(DamagedFolderError, match="no hash"):
        fetch_code(open_store(tmp_path / "store"), "sweep", sha, tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_code_that_is_too_large_is_not_downloaded(tmp_path, monkeypatch):
    store = open_store(tmp_path / "store")
    store.put(f"code/sweep/{'a' * 64}.zip", b"0" * 100)
    monkeypatch.setattr(code, "_LARGEST_ZIP_BYTES", 99)
    with pytest.raises(StoreError, match="has 100 bytes, more than the 99 allowed"):
        fetch_code(store, "sweep", "a" * 64, tmp_path / "code")


def test_missing_code_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match=r"Submit the jobs again with infra\.code"):
        fetch_code(open_store(tmp_path / "store"), "sweep", "a" * 64, tmp_path / "code")


def test_a_damaged_zip_is_only_ever_refused(tmp_path):
    """Bytes are changed at random: what comes is the same files, or a refusal."""
    whole = zip_files({"a.py": b"one", "b/c.py": b"two" * 9})
    draw, zipped, refused = random.Random(0), tmp_path / "x.zip", 0
    for number in range(500):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 1, 3))):
            data[draw.randrange(len(data))] = draw.randrange(256)
        zipped.write_bytes(data[: draw.choice((len(data), len(data), draw.randrange(len(data))))])
        folder = tmp_path / str(number)
        try:
            unzip(zipped, folder, nested=True)
        except DamagedFolderError:
            refused += 1
        shutil.rmtree(folder, ignore_errors=True)
    assert refused > 250
    assert sorted(os.listdir(tmp_path)) == ["x.zip"]


def test_a_worker_ends_a_run_whose_code_is_forged(tmp_path):
    from support.training import tiny_config
    from support.workers import make_worker, run_record, state_of, submit

    store, forged = open_store(tmp_path / "store"), _zip(("../evil.py", b"x"))
    sha = hashlib.sha256(forged).hexdigest()
    store.put(f"code/sweep/{sha}.zip", forged)
    (key,) = submit(store, run_record(tiny_config()), code=sha)
    assert make_worker(store, tmp_path / "here").run() == 1
    record = state_of(store, key)
    assert record["state"] == "failed"
    assert record["reason"].startswith("damaged in the store: ")
    assert "\n" not in record["reason"]
    assert not list(tmp_path.rglob("evil.py"))
