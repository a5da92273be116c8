"""A store that lies: each answer is one line of refusal, and nothing is written outside."""

import json
import os
from email.utils import formatdate

import pytest
from support.stores import Liar

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.store.cache import mirror_light_files
from rlzoo_plus.store.contract import StoreError, is_name, open_store
from rlzoo_plus.store.download import bring_run
from rlzoo_plus.store.pull import pull_run
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.testing.run_contract import ON_POLICY, short_config

pytest.importorskip("boto3", reason="needs the extra aws")
NOW = {"Date": formatdate(usegmt=True)}
TAG = {**NOW, "ETag": '"a"'}


@pytest.fixture
def store(liar, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    liar.answer = (200, NOW, b"")
    return open_store("s3://bucket/lab")


def _listed(*objects, more=""):
    found = "".join(f"<Contents>{fields}</Contents>" for fields in objects)
    return f"<ListBucketResult>{more}{found}</ListBucketResult>".encode()


def _object(key="lab/live/a", size="3", when="2026-01-01T00:00:00Z"):
    return f"<Key>{key}</Key><Size>{size}</Size><ETag>x</ETag><LastModified>{when}</LastModified>"


def _refused(act):
    with pytest.raises(StoreError) as raised:
        act()
    assert "\n" not in str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, _listed(_object())),
        (200, {"Date": "yesterday"}, _listed(_object())),
        (200, {"Date": "Mon, 05 Jan 2026 00:00:00 -0000"}, _listed(_object())),
        (200, NOW, _listed("<Size>1</Size>")),
        (200, NOW, _listed("<Key>lab/live/a</Key><Size>1</Size>")),
        (200, NOW, _listed(_object(size="many"))),
        (200, NOW, _listed(_object(when="soon"))),
        (200, NOW, _listed(_object(when="2026-01-01T00:00:00"))),
        (200, NOW, b"<html>sign in</html"),
        (403, NOW, b"<Error><Code>&#27;[2J</Code><Message>a\nb</Message></Error>"),
        (307, {**NOW, "Location": "http://127.0.0.1:9/"}, b""),
    ],
)
def test_an_odd_listing_is_one_line(liar, store, answer):
    liar.answer = answer
    _refused(lambda: list(store.list("live/")))


def test_only_names_that_were_asked_for_are_listed(liar, store):
    keys = ("lab/runs/x", "other/live/b", "lab/live/../../x", "lab/live/a&#10;b", "lab/live/.x")
    keys += ("/etc/passwd", "lab/live/" + "x" * 250)
    liar.answer = (200, NOW, _listed(*map(_object, keys), _object("lab/live/ok", "-5")))
    (entry,) = store.list("live/")
    assert (entry.name, entry.size) == ("live/ok", 0)


def test_a_time_in_the_future_is_no_negative_age(liar, store):
    liar.answer = (200, NOW, _listed(_object(when="9999-12-31T00:00:00Z")))
    (entry,) = store.list("live/")
    assert entry.age_s == 0


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_listing_without_end_is_ended(liar, store, monkeypatch, is_empty):
    monkeypatch.setattr("rlzoo_plus.store.s3.MOST_OBJECTS", 20)

    def answer(_):
        number = len(liar.asked)
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{number}"
        found = [] if is_empty else [_object(f"lab/live/{number:09d}")]
        return 200, NOW, _listed(*found, more=f"{more}</NextContinuationToken>")

    liar.answer = answer
    _refused(lambda: list(store.list("live/")))
    assert len(liar.asked) == 21


def test_no_redirect_is_followed_with_our_signature(liar, store):
    other = Liar()
    try:
        elsewhere = {**NOW, "Location": f"{other.url}/x", "x-amz-bucket-region": "evil/#"}
        for status in (301, 302, 303, 307, 308):
            body = f"<Error><Code>PermanentRedirect</Code><Endpoint>{other.url}</Endpoint></Error>"
            liar.answer = (status, elsewhere, body.encode())
            _refused(lambda: store.get("live/a", 10))
        assert not other.asked
    finally:
        other.close()


CHUNKED = {**TAG, "Transfer-Encoding": "chunked"}


@pytest.mark.parametrize(
    "answer",
    [
        (200, NOW, b"abc"),
        (200, TAG, b"x" * 11),
        (200, CHUNKED, b"b\r\n" + b"x" * 11 + b"\r\n0\r\n\r\n"),
        (200, {**TAG, "Content-Length": "9", "Connection": "close"}, b"abc"),
        (200, {**TAG, "Content-Length": "10000000000"}, b"abc"),
        (200, {**TAG, "Content-Length": "many", "Connection": "close"}, b"abc"),
    ],
    ids=["no tag", "large", "large in chunks", "short", "10 GB", "text"],
)
def test_an_odd_object_is_one_line(liar, store, answer):
    liar.answer = answer
    _refused(lambda: store.get("live/a", 10))


def test_an_object_in_chunks_is_read(liar, store):
    liar.answer = (200, CHUNKED, b"3\r\nabc\r\n0\r\n\r\n")
    assert store.get("live/a", 10) == (b"abc", "a")


def test_a_file_that_breaks_off_is_not_left(liar, store, tmp_path):
    for headers in ({"Content-Length": "9", "Connection": "close"}, {}):
        liar.answer = (200, {**TAG, **headers}, b"x" * (11 if not headers else 3))
        _refused(lambda: store.get_file("live/a", tmp_path / "file", 10))
        assert os.listdir(tmp_path) == []


def test_a_write_without_a_tag_is_one_line(liar, store):
    liar.answer = (200, NOW, b"")
    _refused(lambda: store.put_if_absent("live/a", b"x"))


# What other writers left in an honest store.


def test_files_where_a_push_has_zips_are_no_part_of_a_run(honest, tmp_path):
    for name in ("config.yaml", "best/policy.json", "checkpoints/000000000001/MANIFEST.json"):
        honest.put(f"runs/s/a/{name}", b"planted")
    honest.put("runs/s/a/checkpoints/cut_rows.json", b"{}")
    pull_run(honest, "s/a", tmp_path / "a")
    files = sorted(path.name for path in (tmp_path / "a").rglob("[!.]*") if path.is_file())
    assert files == ["config.yaml", "cut_rows.json"]


def test_a_run_larger_than_the_disk_is_not_begun(honest, tmp_path, monkeypatch):
    honest.put("runs/s/a/config.yaml", b"x" * 100)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 99}))
    with pytest.raises(StoreError, match="has 100 bytes, and 99 are free here"):
        pull_run(honest, "s/a", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_object_below_an_object_harms_no_other_run(s3, tmp_path):
    s3.put("runs/s/a/config.yaml", b"mine")
    s3.put("runs/s/b/config.yaml/config.yaml", b"first a folder")
    mirror_light_files(s3)
    s3.put("runs/s/b/config.yaml", b"then a file")
    folder = mirror_light_files(s3)
    assert (folder / "s/a/config.yaml").read_bytes() == b"mine"
    assert (folder / "s/b/config.yaml").read_bytes() == b"then a file"
    with pytest.raises(DamagedFolderError, match="is below another object"):
        pull_run(s3, "s/b", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_number_that_is_the_last_one_loses_no_submission(honest):
    honest.put("submissions/sweep/999999.jsonl", b"{}\n")
    with pytest.raises(StoreError, match="would not be read"):
        Submissions(honest, "sweep").add([{"event": "added", "job": "a"}], {})


def test_submissions_that_claim_gigabytes_are_not_read(honest, monkeypatch):
    honest.put("submissions/sweep/000001.jsonl", b"x" * 60)
    honest.put("submissions/sweep/000002.jsonl", b"x" * 60)
    monkeypatch.setattr("rlzoo_plus.store.submissions.LARGEST_SWEEP_BYTES", 100)
    _refused(Submissions(honest, "sweep").read)


def test_bringing_results_home_leaves_the_checkpoints_that_are_here(honest, tmp_path):
    for name in ("evaluations.jsonl", "checkpoints/cut_rows.json"):
        honest.put(f"runs/s/a/{name}", b"{}")
    mine = tmp_path / "a/checkpoints/000000000001/MANIFEST.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert bring_run(honest, "s/a", tmp_path / "a", short_config(*ON_POLICY))
    assert mine.read_text() == "mine"


def test_what_is_no_file_in_a_shared_folder_is_one_line(tmp_path):
    store = open_store(tmp_path / "store")
    store.put("live/a/b.json", b"x")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "store/live/pipe.json")
        _refused(lambda: store.get("live/pipe.json", 10))
    _refused(lambda: store.get("live/a", 10))
    _refused(lambda: store.get_file("live/a", tmp_path / "file", 10))
    _refused(lambda: store.put("live/a/b.json/c", b"x"))


def test_a_linked_lock_in_a_shared_folder_is_not_opened(tmp_path):
    store, mine = open_store(tmp_path / "store"), tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "store/live").mkdir(parents=True)
    (tmp_path / "store/live/.a.json.lock").symlink_to(mine)
    _refused(lambda: store.put_if_absent("live/a.json", b"x"))
    assert mine.read_text() == "mine"


def test_a_part_of_a_name_leaves_room_for_the_files_beside_it():
    assert is_name("runs/" + "x" * 220)
    assert not is_name("runs/" + "x" * 221)
    assert not is_name("runs/" + "ä" * 111)


def test_hostile_submissions_are_read_in_part(honest, caplog):
    lines = [b"\xff", b'{"job": 3}', b"[1]", b'{"a":' * 200, b'{"job": "ok", "event": "added"}']
    lines += [b'{"job": "x", "job": "y"}', json.dumps({"event": "submission"}).encode()]
    honest.put("submissions/sweep/000001.jsonl", b"\n".join(lines))
    honest.put("submissions/sweep/evil.jsonl", b'{"job": "evil"}')
    assert list(Submissions(honest, "sweep").records()) == ["ok"]
