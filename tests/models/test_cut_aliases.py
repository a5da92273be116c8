"""An alias whose newest record was taken away: an older version must not silently be production."""

import json
from pathlib import Path

import pytest
from support.registered import put

from rlzoo_plus.commands import dispatch
from rlzoo_plus.models.model_copies import alias_moved, resolve
from rlzoo_plus.models.model_store import DamagedModelError, ModelStore
from rlzoo_plus.store.contract import open_store

NEWEST = "models/cart/aliases/production/000003.json"
GONE = r"production/000003\.json is gone, so an older version is named: .* it was seen on 20"


@pytest.fixture
def moved(registry, files):
    """Return a registry whose alias was moved three times, from here."""
    put(registry, files)
    for why in "abc":
        registry.move("cart", "production", 1, action="promote", why=why)
    return registry


def remove(store, *names):
    """Remove objects, which nothing of this package does."""
    for name in names:
        if store.url.startswith("s3://"):
            store._client.delete_object(Bucket=store._bucket, Key=store._key(name))
        else:
            (Path(store.url) / name).unlink(missing_ok=True)


def call(*words):
    return dispatch.run("model", [str(word) for word in words])


def as_elsewhere(monkeypatch, tmp_path):
    """Act as another machine, which has seen nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))


def test_a_record_that_was_seen_and_is_gone_is_missed_by_everything(moved, capsys):
    data = moved.store.get(NEWEST, 10_000)[0]
    remove(moved.store, NEWEST)
    for act in (
        lambda: resolve("cart@production"),
        lambda: moved.newest("cart", "production"),
        lambda: moved.history("cart", "production"),
        lambda: moved.move("cart", "production", 1, action="promote", why="d"),
    ):
        with pytest.raises(DamagedModelError, match=GONE):
            act()
    assert moved.store.get(NEWEST, 10_000) is None
    assert call("verify", "cart") == 1
    assert "000003.json is gone" in capsys.readouterr().out
    for words in (("rollback", "cart"), ("show", "cart"), ("list",)):
        assert call(*words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "000003.json is gone" in line
    # Brought back, all is as it was.
    assert moved.store.put_if_absent(NEWEST, data) is not None
    assert resolve("cart@production").alias.why == "c"
    assert call("verify", "cart") == 0


def test_all_records_that_are_gone_are_missed_too(moved):
    remove(moved.store, *(NEWEST.replace("3.", f"{number}.") for number in (1, 2, 3)))
    with pytest.raises(DamagedModelError, match=GONE):
        moved.move("cart", "production", 1, action="promote", why="first")


def test_a_record_that_was_written_anew_in_its_place_is_no_other(moved, monkeypatch, tmp_path):
    remove(moved.store, NEWEST)
    with monkeypatch.context() as patch:
        as_elsewhere(patch, tmp_path)
        for why in ("forged", "on top"):
            moved.move("cart", "production", 1, action="promote", why=why)
        # Who has seen nothing has nothing to compare with, but a hash that was noted elsewhere.
        assert resolve("cart@production").alias.why == "on top"
    for act in (moved.newest, moved.history):
        with pytest.raises(DamagedModelError, match=r"000003\.json was replaced"):
            act("cart", "production")


def test_a_hash_that_was_noted_elsewhere_finds_an_end_that_was_cut_off(
    moved, monkeypatch, tmp_path, capsys
):
    assert call("verify", "cart") == 0
    (line,) = [t for t in capsys.readouterr().out.splitlines() if t.startswith("production: ")]
    number, noted = line.removeprefix("production: record ").split()
    assert number == "3"
    moved.move("cart", "production", 1, action="promote", why="d")
    assert call("verify", "cart", "--head", noted) == 0
    remove(moved.store, NEWEST, NEWEST.replace("3.", "4."))
    as_elsewhere(monkeypatch, tmp_path)
    assert call("verify", "cart") == 0
    capsys.readouterr()
    assert call("verify", "cart", "--head", noted) == 1
    assert f"no alias has the record {noted}" in capsys.readouterr().out


def test_who_acts_notices_that_the_record_it_acts_by_is_gone_or_changed(moved):
    found = resolve("cart@production")
    assert not alias_moved(found)
    data = moved.store.get(NEWEST, 10_000)[0]
    for other in (None, data.replace(b'"to": 1', b'"to": 2'), b"{}"):
        remove(moved.store, NEWEST)
        if other is not None:
            moved.store.put_if_absent(NEWEST, other)
        with pytest.raises(DamagedModelError, match=r"000003\.json"):
            alias_moved(found)
    remove(moved.store, NEWEST)
    moved.store.put_if_absent(NEWEST, data)
    assert not alias_moved(found)


@pytest.mark.parametrize(
    "text", ["", "[]", "nonsense", '{"number": true}', '{"number": -1, "sha256": 3, "time": ""}']
)
def test_a_damaged_note_is_none(moved, tmp_path, text):
    (note,) = (tmp_path / "cache").rglob("seen/*.json")
    assert json.loads(note.read_text())["number"] == 3
    note.write_text(text)
    assert resolve("cart@production").alias.number == 3
    assert json.loads(note.read_text())["number"] == 3


def test_a_registry_that_was_made_anew_says_what_to_remove(moved, tmp_path):
    remove(moved.store, NEWEST)
    with pytest.raises(DamagedModelError, match="remove that note"):
        resolve("cart@production")
    (note,) = (tmp_path / "cache").rglob("seen/*.json")
    note.unlink()
    assert resolve("cart@production").alias.number == 2


def test_a_bucket_with_object_lock_and_versions_loses_no_record(s3, files, monkeypatch, cache):
    """What docs/models.md advises: a deletion hides a record, and destroys none."""
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 3650}}
    client.put_object_lock_configuration(
        Bucket="locked",
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule},
    )
    monkeypatch.setenv("RLZOO_MODELS", "s3://locked/lab")
    registry = ModelStore(store=open_store("s3://locked/lab"))
    put(registry, files)
    for why in "abc":
        registry.move("cart", "production", 1, action="promote", why=why)
    client.delete_object(Bucket="locked", Key=f"lab/{NEWEST}")
    with pytest.raises(DamagedModelError, match=GONE):
        resolve("cart@production")
    found = client.list_object_versions(Bucket="locked", Prefix=f"lab/{NEWEST}")
    (record,), (marker,) = found["Versions"], found["DeleteMarkers"]
    with pytest.raises(client.exceptions.ClientError, match="AccessDenied"):
        client.delete_object(Bucket="locked", Key=record["Key"], VersionId=record["VersionId"])
    client.delete_object(Bucket="locked", Key=marker["Key"], VersionId=marker["VersionId"])
    assert resolve("cart@production").alias.why == "c"
