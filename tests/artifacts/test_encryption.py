"""Encryption at rest: nothing can be read without the key, and a missing key loses nothing."""

import base64

import numpy as np
import pytest

from rlzoo_plus.artifacts.atomic import MANIFEST, DamagedFolderError, read_about, write_folder
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.chunks import ChunkStore
from rlzoo_plus.artifacts.encryption import EncryptionError, decrypted, encrypted, load_cipher

SECRET = b"the rewards of a robot that nobody may see"
KEY, OTHER_KEY = "11" * 32, "22" * 32


@pytest.fixture
def cipher(monkeypatch):
    monkeypatch.setenv("ROBOT_KEY", KEY)
    return load_cipher("ROBOT_KEY")


@pytest.fixture
def store(cipher, tmp_path):
    """A store with one encrypted checkpoint at step 10, and ten rows of a buffer."""
    store = CheckpointStore(tmp_path, cipher=cipher)
    save(store, 10)
    return store


def save(store, step, previous=None, changed=None):
    rows = {"rewards": np.frombuffer(SECRET * 10, np.uint8).copy()}
    chunks = ChunkStore(store.root / "chunks", 8, store.cipher)
    pending = chunks.snapshot(rows, len(rows["rewards"]), changed, previous)
    store.save(step, {"name": SECRET.decode()}, {}, chunks={"buffer": pending})


def test_data_comes_back(cipher):
    assert decrypted(encrypted(SECRET, cipher)) == SECRET


def test_data_without_a_cipher_is_as_it_was():
    assert encrypted(SECRET, None) == decrypted(SECRET) == SECRET


def test_other_data_or_another_key_gives_another_nonce(cipher, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", OTHER_KEY)
    ciphers = (cipher, load_cipher("OTHER_KEY"))
    nonces = {c.encrypt(data).split(b"\n", 1)[1][:12] for c in ciphers for data in (SECRET, b"")}
    assert len(nonces) == 4


def test_the_same_data_gives_the_same_bytes(cipher):
    assert cipher.encrypt(SECRET) == cipher.encrypt(SECRET)


def test_a_key_may_be_written_in_base64(cipher, monkeypatch):
    data = cipher.encrypt(SECRET)
    monkeypatch.setenv("ROBOT_KEY", base64.b64encode(bytes.fromhex(KEY)).decode())
    assert decrypted(data) == SECRET


@pytest.mark.parametrize("value", ["", "short", "zz" * 32, "11" * 31, base64.b64encode(b"1" * 16)])
def test_a_bad_key_is_named_by_its_variable_alone(value, monkeypatch):
    text = value if isinstance(value, str) else value.decode()
    monkeypatch.setenv("ROBOT_KEY", text)
    with pytest.raises(EncryptionError, match=r"ROBOT_KEY.*openssl rand") as caught:
        load_cipher("ROBOT_KEY")
    assert not text or text not in str(caught.value)


def test_the_key_is_not_shown(cipher):
    assert KEY not in repr(cipher)
    assert repr(bytes.fromhex(KEY)) not in repr(cipher)


@pytest.mark.parametrize("where", [0.3, 0.6, 0.99])
def test_changed_data_is_refused(cipher, where):
    data = bytearray(cipher.encrypt(SECRET * 3))
    data[int(where * len(data))] ^= 1
    # The first part is the head, where a change may also make it another key, or plain data.
    with pytest.raises(ValueError, match=r"was changed|is not the one|has no encryption key"):
        decrypted(bytes(data))


def test_another_key_is_told_from_damage(cipher, monkeypatch):
    data = cipher.encrypt(SECRET)
    monkeypatch.setenv("ROBOT_KEY", OTHER_KEY)
    with pytest.raises(EncryptionError, match="not the one"):
        decrypted(data)


def test_no_file_of_a_checkpoint_shows_what_it_holds(store):
    files = [path for path in store.root.rglob("*") if path.is_file()]
    assert len(files) > 3
    for path in files:
        assert SECRET[:12] not in path.read_bytes()
        if path.name != MANIFEST:
            assert path.read_bytes().startswith(b"rlzoo-encrypted-1 ROBOT_KEY ")


def test_a_checkpoint_and_its_rows_come_back(store):
    loaded = CheckpointStore(store.root).load(10)
    rows = {"rewards": np.zeros(len(SECRET) * 10, np.uint8)}
    loaded.read_rows("buffer", rows)
    assert loaded.state == {"name": SECRET.decode()}
    assert rows["rewards"].tobytes() == SECRET * 10


@pytest.mark.parametrize("value", [None, OTHER_KEY])
def test_without_the_key_no_checkpoint_is_skipped(store, monkeypatch, value):
    if value is None:
        monkeypatch.delenv("ROBOT_KEY")
    else:
        monkeypatch.setenv("ROBOT_KEY", value)
    with pytest.raises(EncryptionError, match="ROBOT_KEY"):
        CheckpointStore(store.root).load_newest()
    assert CheckpointStore(store.root).is_whole(10)


def test_a_forged_file_with_right_hashes_is_damage(store):
    path = store.root / f"{10:012d}"
    files = {p.name: p.read_bytes()[:-1] + b"!" for p in path.iterdir() if p.name != MANIFEST}
    write_folder(path, files, read_about(path))
    with pytest.raises(DamagedFolderError, match="was changed"):
        CheckpointStore(store.root).load(10)


def test_plain_chunks_are_written_again_once_there_is_a_key(cipher, tmp_path):
    save(CheckpointStore(tmp_path), 10)
    plain = CheckpointStore(tmp_path).chunks_at(10)["buffer"]
    store = CheckpointStore(tmp_path, keep=1, cipher=cipher)
    save(store, 20, plain, changed=())
    assert not set(plain.names) & set(store.chunks_at(20)["buffer"].names)
    for path in (tmp_path / "chunks").iterdir():
        assert path.read_bytes().startswith(b"rlzoo-encrypted-1 ")


def test_unchanged_encrypted_chunks_are_used_again(store):
    before = store.chunks_at(10)["buffer"]
    save(store, 20, before, changed=())
    assert store.chunks_at(20)["buffer"].names == before.names
