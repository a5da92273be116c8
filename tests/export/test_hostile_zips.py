"""A zip or pickle with something evil in it: nothing runs, and one message says what is wrong."""

import base64
import io
import json
import os
import pickle
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.sb3_archive import read_archive, read_statistics


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def members():
    """Return the members of a stock zip."""
    model = sb3.PPO("MlpPolicy", gym.make("tests/TinyReach-v0"), policy_kwargs={"net_arch": [4]})
    buffer = io.BytesIO()
    model.save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_pickled_code_in_data_stays_text(tmp_path, members):
    evil = base64.b64encode(pickle.dumps(Evil(tmp_path / "ran"))).decode()
    data = json.loads(members["data"])
    data["policy_class"] = data["observation_space"] = {":type:": "x", ":serialized:": evil}
    archive = read_archive(_write(tmp_path / "e.zip", {**members, "data": json.dumps(data)}))
    assert "action_net.weight" in archive.weights
    assert ":serialized:" not in str(archive.facts)
    assert not (tmp_path / "ran").exists()


def test_pickled_code_beside_the_weights_is_not_read(tmp_path, members):
    evil = _saved(Evil(tmp_path / "ran"))
    for name in ("pytorch_variables.pth", "policy.optimizer.pth"):
        path = _write(tmp_path / "e.zip", {**members, name: evil})
        read_archive(path)
        with pytest.raises(ConfigError, match=f"{name} holds more than weights.*not executed"):
            read_archive(path, optimizers=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("state", [[1], {"state": {0: {"exp_avg": torch.eye(2).to_sparse()}}}])
def test_an_optimizer_that_is_none_is_refused(tmp_path, members, state):
    path = _write(tmp_path / "e.zip", {**members, "policy.optimizer.pth": _saved(state)})
    with pytest.raises(ConfigError, match=r"policy\.optimizer\.pth"):
        read_archive(path, optimizers=True)


def test_pickled_code_in_the_weights_is_refused(tmp_path, members):
    evil = {**members, "policy.pth": _saved({"w": Evil(tmp_path / "ran")})}
    with pytest.raises(ConfigError, match="not executed"):
        read_archive(_write(tmp_path / "e.zip", evil))
    assert not (tmp_path / "ran").exists()


def _packed(members):
    parts = zipfile.ZipFile(io.BytesIO(members["policy.pth"]))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in parts.namelist():
            archive.writestr(name, parts.read(name) + b"\0" * 1_000_000)
    return buffer.getvalue()


HOSTILE = {
    "traversal": (lambda m: {**m, "../../evil.pth": b"x"}, "a path"),
    "absolute": (lambda m: {**m, "/etc/evil": b"x"}, "a path"),
    "backslash": (lambda m: {**m, "..\\evil": b"x"}, "a path"),
    "many members": (lambda m: {**m, **{str(i): b"" for i in range(99)}}, "no SB3 zip"),
    "no weights": (lambda m: {"data": m["data"]}, "no policy.pth"),
    "huge shape": (
        lambda m: {**m, "policy.pth": _saved({"w": torch.zeros(1).expand(10**13)})},
        "declares shape",
    ),
    "no tensors": (lambda m: {**m, "policy.pth": _saved({"w": 3})}, "no plain array"),
    "meta tensor": (
        lambda m: {**m, "policy.pth": _saved({"w": torch.zeros(10**12, device="meta")})},
        "policy.pth",
    ),
    "sparse": (
        lambda m: {**m, "policy.pth": _saved({"w": torch.eye(2).to_sparse()})}, "policy.pth"
    ),
    "a list": (lambda m: {**m, "policy.pth": _saved([1])}, "no parameters"),
    "noise": (lambda m: {**m, "policy.pth": b"\x80\x04noise"}, "torch 1.6"),
    "packed weights": (lambda m: {**m, "policy.pth": _packed(m)}, "unpacks to more"),
    "data is a list": (lambda m: {**m, "data": "[]"}, "no JSON object"),
    "data is deep": (lambda m: {**m, "data": "[" * 100_000}, "not JSON"),
    "data is noise": (lambda m: {**m, "data": b"\xff\xfe"}, "not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_zip_gets_one_clear_error(tmp_path, members, kind):
    change, text = HOSTILE[kind]
    with pytest.raises(ConfigError, match=text):
        read_archive(_write(tmp_path / "e.zip", change(dict(members))))
    assert [path.name for path in tmp_path.iterdir()] == ["e.zip"]


def test_a_bomb_is_not_unpacked(tmp_path, members):
    bomb = {**members, "data": b" " * (65 * 2**20)}
    path = _write(tmp_path / "e.zip", bomb, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 2**20
    with pytest.raises(ConfigError, match="64 MiB"):
        read_archive(path)


def test_a_bomb_that_lies_about_its_size_is_not_unpacked(tmp_path, members):
    path = _write(tmp_path / "e.zip", {**members, "data": b" " * 2**20}, zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    position = content.index((2**20).to_bytes(4, "little"), content.index(b"PK\x01\x02"))
    content[position : position + 4] = (16).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        read_archive(path)


@pytest.mark.parametrize("cut", [0, 10, 2000])
def test_a_zip_cut_short_is_refused(tmp_path, members, cut):
    path = _write(tmp_path / "e.zip", members)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ConfigError, match="no readable zip"):
        read_archive(path)


def _normalize():
    venv = VecNormalize(DummyVecEnv([lambda: gym.make("tests/TinyReach-v0")]), clip_obs=3.0)
    venv.obs_rms.update(np.random.default_rng(0).normal(2.0, 3.0, (20, 3)))
    return venv


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_statistics_are_read_without_unpickling(tmp_path, protocol, monkeypatch):
    venv = _normalize()
    (tmp_path / "vn.pkl").write_bytes(pickle.dumps(venv, protocol))
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(pickle, "load", None)
    read = read_statistics(tmp_path / "vn.pkl")
    np.testing.assert_array_equal(read.normalizer.mean[""], venv.obs_rms.mean)
    np.testing.assert_array_equal(read.normalizer.var[""], venv.obs_rms.var)
    assert read.normalizer.clip == 3.0
    assert read.normalizer.count[""] == pytest.approx(venv.obs_rms.count)
    assert read.norm_reward


def test_statistics_of_a_dictionary_are_read_by_key(tmp_path):
    env = DummyVecEnv([lambda: gym.make("tests/TinyDict-v0")])
    venv = VecNormalize(env, norm_obs_keys=["zeta", "alpha"], norm_reward=False)
    venv.save(str(tmp_path / "vn.pkl"))
    read = read_statistics(tmp_path / "vn.pkl")
    assert {key: mean.shape for key, mean in read.normalizer.mean.items()} == {
        "zeta": (2,), "alpha": (1,)
    }  # fmt: skip
    assert not read.norm_reward


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_set_of_keys_as_older_versions_wrote_it_is_read(tmp_path, protocol):
    env = DummyVecEnv([lambda: gym.make("tests/TinyDict-v0")])
    venv = VecNormalize(env, norm_obs_keys=["zeta", "alpha"])
    venv.obs_keys = {"zeta", "alpha"}
    (tmp_path / "vn.pkl").write_bytes(pickle.dumps(venv, protocol))
    assert set(read_statistics(tmp_path / "vn.pkl").normalizer.mean) == {"zeta", "alpha"}


@pytest.mark.parametrize("part", [7, ("a",), np.float64(1.0)])
def test_a_set_of_anything_but_texts_is_refused(tmp_path, part):
    venv = _normalize()
    venv.obs_keys = {part}
    venv.save(str(tmp_path / "vn.pkl"))
    with pytest.raises(ConfigError, match="a set something other than texts"):
        read_statistics(tmp_path / "vn.pkl")


def test_observations_that_were_left_alone_have_no_statistics(tmp_path):
    venv = VecNormalize(DummyVecEnv([lambda: gym.make("tests/TinyReach-v0")]), norm_obs=False)
    venv.save(str(tmp_path / "vn.pkl"))
    assert read_statistics(tmp_path / "vn.pkl").normalizer is None


def test_statistics_with_code_in_them_are_refused(tmp_path):
    venv = _normalize()
    venv.extra = Evil(tmp_path / "ran")
    (tmp_path / "vn.pkl").write_bytes(pickle.dumps(venv))
    with pytest.raises(ConfigError, match=r"mkdir.*Nothing in it was executed"):
        read_statistics(tmp_path / "vn.pkl")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"noise", b"\x80\x04.", b"\x80\x04N.", b"\x80\x04\x8c", b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02Pid\n.", b"\x80\x04}\x94(]K\x01u.", pickle.dumps({"a": 1}),
        pickle.dumps(np.zeros(3)), b"\x80\x04" + b"(" * 1000 + b".", b"I" + b"9" * 10_000 + b"\n.",
    ],
    ids=range(12),
)  # fmt: skip
def test_what_is_no_statistics_gets_one_clear_error(tmp_path, content):
    (tmp_path / "vn.pkl").write_bytes(content)
    with pytest.raises(ConfigError, match="Nothing in it was executed"):
        read_statistics(tmp_path / "vn.pkl")


@pytest.mark.parametrize(
    ("name", "value"),
    [("mean", np.full(3, np.nan)), ("var", -np.ones(3)), ("mean", "x"), ("mean", np.zeros(4)),
     ("count", "many"), ("var", np.array([None] * 3))],
)  # fmt: skip
def test_statistics_that_cannot_be_are_refused(tmp_path, name, value):
    venv = _normalize()
    setattr(venv.obs_rms, name, value)
    venv.save(str(tmp_path / "vn.pkl"))
    with pytest.raises(ConfigError, match="was refused"):
        read_statistics(tmp_path / "vn.pkl")


def test_a_stream_cut_anywhere_is_refused(tmp_path):
    content = pickle.dumps(_normalize())
    for cut in range(0, len(content), 7):
        (tmp_path / "vn.pkl").write_bytes(content[:cut])
        with pytest.raises(ConfigError):
            read_statistics(tmp_path / "vn.pkl")


def test_a_stream_with_any_byte_flipped_never_runs_or_crashes(tmp_path):
    content = bytearray(pickle.dumps(_normalize()))
    generator = np.random.default_rng(0)
    for position in generator.integers(0, len(content), 300):
        flipped = bytearray(content)
        flipped[position] ^= int(generator.integers(1, 256))
        (tmp_path / "vn.pkl").write_bytes(flipped)
        try:
            read_statistics(tmp_path / "vn.pkl")
        except ConfigError:
            continue
