"""Every store keeps to one contract: whole objects, conditions, listings, bounded reads."""

import random
import threading

import pytest
from support.stores import ignore_conditions, moto_s3, s3_server

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import StoreError, honours_conditions, open_store

LARGE = 2**20


def _content(store, name):
    found = store.get(name, LARGE)
    return None if found is None else found[0]


def test_an_object_is_what_was_put_last(store, tmp_path):
    assert store.get("runs/a/config.yaml", LARGE) is None
    store.put("runs/a/config.yaml", b"one")
    store.put("runs/a/config.yaml", b"two")
    assert _content(store, "runs/a/config.yaml") == b"two"
    source = tmp_path / "source"
    source.write_bytes(b"three")
    store.put("runs/a/config.yaml", source)
    assert _content(store, "runs/a/config.yaml") == b"three"


def test_a_file_comes_back_as_it_was_sent(store, tmp_path):
    data = bytes(range(256)) * 2**13
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    assert not store.get_file("state/a/1.zip", target, len(data))
    assert not target.exists()
    store.put("state/a/1.zip", source)
    assert store.get_file("state/a/1.zip", target, len(data))
    assert target.read_bytes() == data


@pytest.mark.slow
def test_a_large_file_is_sent_in_parts(s3, tmp_path):
    data = random.Random(0).randbytes(70 * 2**20)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    s3.put("state/a/1.zip", source)
    # The tag of an object that came in parts ends in their number.
    assert "-" in next(iter(s3.list("state/a/"))).tag
    assert s3.get_file("state/a/1.zip", target, len(data))
    assert target.read_bytes() == data


def test_an_object_is_created_once(store):
    tag = store.put_if_absent("submissions/000001.jsonl", b"mine")
    assert tag
    assert store.put_if_absent("submissions/000001.jsonl", b"yours") is None
    assert store.get("submissions/000001.jsonl", LARGE) == (b"mine", tag)


def test_an_object_is_replaced_only_by_who_has_seen_it(store):
    assert store.put_if_unchanged("live/a.json", b"none", "0" * 32) is None
    first = store.put_if_absent("live/a.json", b"one")
    second = store.put_if_unchanged("live/a.json", b"two", first)
    assert second not in (None, first)
    assert store.put_if_unchanged("live/a.json", b"three", first) is None
    assert _content(store, "live/a.json") == b"two"


def test_of_many_writers_at_once_one_wins(store):
    tag = store.put_if_absent("live/raced.json", b"before")
    for condition in (None, tag):
        name = "live/new.json" if condition is None else "live/raced.json"
        together, won = threading.Barrier(8), []

        def write(number, name=name, condition=condition, together=together, won=won):
            together.wait()
            data = b"%d" % number
            if condition is None:
                mine = store.put_if_absent(name, data)
            else:
                mine = store.put_if_unchanged(name, data, condition)
            if mine:
                won.append(data)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [_content(store, name)]


def test_a_listing_has_names_sizes_tags_and_ages(store):
    tags = {}
    for name in ("live/b/2.json", "live/b/1.json", "live/c/1.json", "live/bb.json"):
        tags[name] = store.put_if_absent(name, b"12345")
    entries = list(store.list("live/b/"))
    assert [entry.name for entry in entries] == ["live/b/1.json", "live/b/2.json"]
    for entry in entries:
        assert (entry.size, entry.tag) == (5, tags[entry.name])
        assert 0 <= entry.age_s < 60
    assert list(store.list("nothing/")) == []


def test_a_listing_goes_on_after_a_thousand_objects(s3):
    bucket, _, prefix = s3.url.removeprefix("s3://").partition("/")
    # Without a thousand requests.
    for number in range(1003):
        moto_s3().put_object(bucket, f"{prefix}/live/many/{number:04d}.json", b"")
    assert len(list(s3.list("live/many/"))) == 1003


def test_a_read_is_bounded(store, tmp_path):
    store.put("runs/a/config.yaml", b"x" * 100)
    with pytest.raises(StoreError, match="100 bytes, more than the 99 allowed"):
        store.get("runs/a/config.yaml", 99)
    with pytest.raises(StoreError, match="more than the 99 allowed"):
        store.get_file("runs/a/config.yaml", tmp_path / "target", 99)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "name", ["", "../a", "a/../b", "/a", "a//b", "a/", ".hidden", "a/.b", "a\\b", "a\nb", "c:d"]
)
def test_a_name_is_a_plain_relative_path(store, name):
    for call in (lambda: store.put(name, b""), lambda: store.get(name, 1)):
        with pytest.raises(ValueError, match="no name of an object"):
            call()


def test_the_end_of_an_object_is_read_without_the_rest(store):
    assert store.get_tail("runs/a/log.txt", 4) is None
    for data, tail in ((b"", b""), (b"abc", b"abc"), (b"abcdefgh", b"efgh")):
        store.put("runs/a/log.txt", data)
        assert store.get_tail("runs/a/log.txt", 4) == tail


def test_conditions_are_tried_before_they_are_relied_on(store):
    assert honours_conditions(store, "one")


def test_a_server_that_ignores_conditions_is_noticed(s3):
    ignore_conditions(s3)
    assert not honours_conditions(s3, "one")


def test_what_is_no_store_is_refused(monkeypatch):
    for url in ("gs://bucket/x", "s3://", "s3://UPPER/x", "s3://bucket/../x"):
        with pytest.raises(ConfigError, match="store"):
            open_store(url)


def test_a_missing_bucket_and_a_refused_request_are_one_line(monkeypatch):
    with s3_server(monkeypatch):
        store = open_store("s3://not-there/x")
        with pytest.raises(StoreError, match="NoSuchBucket") as raised:
            store.put("runs/a", b"")
        assert "\n" not in str(raised.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9"):
        next(iter(open_store("s3://not-there/x").list("runs/")))
