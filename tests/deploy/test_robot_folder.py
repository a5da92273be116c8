"""A robot's folder decides as the policy, in a Python that has numpy and onnxruntime alone."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from support.policies import EXPORTED, VARIANTS, random_policy

import rlzoo_plus as rz
from rlzoo_plus.deploy.bundle_export import write_deployed
from rlzoo_plus.deploy.c_source import frame_shape
from rlzoo_plus.export.parity import made_up
from rlzoo_plus.export.signature import STATE_NAMES, make_signature

pytest.importorskip("onnxscript")
from rlzoo_plus.deploy.robot_runtime import BundleError, Policy
from rlzoo_plus.serving.served_policy import ServedPolicy

ROOT = Path(__file__).parents[2]
N_STEPS, EPISODE = 24, 8
# Runs in a process of its own: folder and observations in, actions out.
BARE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "rlzoo_plus", "robots", "stable_baselines3", "gymnasium",
                                  "yaml", "safetensors", "onnx", "leapp", "scipy"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
folder, given, out = sys.argv[1:]
sys.path.insert(0, folder + "/runtime")
import numpy as np
from policy import Policy

policy, arrays = Policy(folder), np.load(given)
masks = arrays["action_masks"] if "action_masks" in arrays else None
keys = [name[4:] for name in arrays if name.startswith("key ")]
actions = []
for row, start in enumerate(arrays["start"]):
    if start:
        policy.reset()
    observation = {key: arrays["key " + key][row] for key in keys} or arrays["observation"][row]
    actions.append(policy.act(observation, None if masks is None else masks[row]))
np.save(out, np.array(actions))
"""
FAST = ("ppo-normalized", "recurrent_ppo-gsde")
OTHERS = sorted(VARIANTS.keys() - {*FAST})
FRAMES = [
    ("ppo-normalized", 3),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("ppo-image", 3), ("sac", 3))),
]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def written(name, folder, frames=1):
    policy, config = random_policy(name)
    config = config.model_copy(
        update={"env": config.env.model_copy(update={"frame_stack": frames})}
    )
    return policy, write_deployed(policy, config, folder, {"step": "0"})


def episodes(policy, frames):
    """Return frames of some episodes by name, and what the policy does, stacking them itself."""
    signature = make_signature(policy)
    recorded = made_up(policy, signature).inputs
    starts = np.arange(N_STEPS) % EPISODE == 0
    given, actions, stacks, state = {"start": starts}, [], {}, {}
    for row, start in enumerate(starts):
        inputs = {"episode_start": np.array([start])}
        for name in STATE_NAMES if signature.recurrent else ():
            zeros = np.zeros(recorded[name][:, :1].shape, np.float32)
            inputs[name] = zeros if start else state[name]
        for key, port in zip(signature.keys or ("",), signature.observations, strict=True):
            value = recorded[port.name][row]
            axis = 0 if value.ndim == 3 else value.ndim - 1
            shape = frame_shape(port, frames)
            frame = value if frames == 1 else value.take(range(shape[axis]), axis)
            given.setdefault(f"key {key}" if key else "observation", []).append(frame)
            if start:
                stacks[port.name] = [np.zeros_like(frame)] * frames
            stacks[port.name] = [*stacks[port.name][1:], frame]
            inputs[port.name] = (frame if frames == 1 else np.concatenate(stacks[port.name], axis))[
                None
            ]
        if signature.maskable:
            inputs["action_masks"] = recorded["action_masks"][row : row + 1]
            given.setdefault("action_masks", []).append(recorded["action_masks"][row])
        action, *after = signature.predict(policy.predict, inputs)
        state = dict(zip(STATE_NAMES, after, strict=False))
        actions.append(action[0])
    return {name: np.array(value) for name, value in given.items()}, np.array(actions)


def in_a_bare_process(folder, given, tmp_path):
    np.savez(tmp_path / "given.npz", **given)
    command = [sys.executable, "-I", "-c", BARE, folder, tmp_path / "given.npz", tmp_path / "a.npy"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "a.npy")


def check(name, tmp_path, frames=1):
    policy, made = written(name, tmp_path / "robot", frames)
    assert made.parity.holds, made.parity
    assert made.bytes < 5_000_000
    given, expected = episodes(policy, frames)
    actions = in_a_bare_process(made.folder, given, tmp_path)
    assert len(np.unique(expected.reshape(N_STEPS, -1), axis=0)) > 1
    # Of float32; deep networks on images and sets round by more.
    is_deep = any(kind in name for kind in ("image", "dict", "sets", "attention"))
    limit = 1e-5 if is_deep else 1e-6
    np.testing.assert_allclose(actions, expected, rtol=limit, atol=limit)
    np.testing.assert_allclose(served(made.folder, given), expected, rtol=limit, atol=limit)


def served(folder, given):
    """Return what a server decides, which takes JSON."""
    policy, actions = ServedPolicy(folder, "robot", "1"), []
    # Made up, and not always within the bounds.
    policy.observations = [replace(port, low=None, high=None) for port in policy.observations]
    keys = [name for name in given if name.startswith("key ")]
    for row, start in enumerate(given["start"]):
        if start:
            runtime = policy.episode()
        seen = {key[4:]: given[key][row].tolist() for key in keys}
        masks = given["action_masks"][row].tolist() if "action_masks" in given else None
        arrays = policy.of_json(seen or given["observation"][row].tolist(), masks)
        actions.append(policy.act(runtime, arrays))
    return np.array(actions)


@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)]
)
def test_the_folder_decides_as_the_policy_without_torch(name, tmp_path):
    check(name, tmp_path)


@pytest.mark.parametrize(("name", "frames"), FRAMES)
def test_frames_are_stacked_inside(name, frames, tmp_path):
    check(name, tmp_path, frames)


def test_every_algorithm_is_tried():
    assert {algo for algo, *_ in VARIANTS.values()} == set(EXPORTED)
    assert len(EXPORTED) >= 14


@cache
def _small(folder):
    return written("recurrent_ppo-gsde", folder)[1]


@pytest.fixture
def robot(tmp_path_factory, tmp_path):
    """Return a copy of a folder that may be damaged."""
    made = _small(tmp_path_factory.getbasetemp() / "small_robot")
    copy = tmp_path / "robot"
    subprocess.run(["cp", "-r", made.folder, copy], check=True)
    return copy


def described(robot, change):
    """Change deploy.json."""
    about = json.loads((robot / "deploy.json").read_text())
    change(about)
    (robot / "deploy.json").write_text(json.dumps(about))


@pytest.mark.parametrize("file", ["policy.onnx", "README.md", "runtime/policy.py"])
def test_a_changed_file_is_refused_by_its_hash(robot, file):
    data = (robot / file).read_bytes()
    (robot / file).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BundleError, match=rf"{file} was changed: its SHA-256"):
        Policy(robot)


def test_a_changed_description_is_refused_by_the_hash_that_was_printed(robot):
    digest = hashlib.sha256((robot / "deploy.json").read_bytes()).hexdigest()
    Policy(robot, sha256=digest)
    described(robot, lambda about: about.update(rate_hz=1e6))
    with pytest.raises(BundleError, match="not the one whose hash was given"):
        Policy(robot, sha256=digest)


def _named(name):
    def change(about):
        about["policy"]["file"] = name
        about["files"][name] = {"bytes": 10, "sha256": hashlib.sha256(b"secret").hexdigest()}

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_named("/etc/passwd"), "'/etc/passwd' is no file name"),
        (_named("../secret"), "'../secret' is no file name"),
        (_named("link"), "link cannot be opened, or is a link"),
        (_named("pipe"), "pipe is no plain file"),
        (_named("huge"), "huge is no plain file of at most 10 bytes"),
        (lambda a: a["policy"]["inputs"][-1].update(shape=[10**6] * 3), "too large"),
        (lambda a: a["policy"]["inputs"][-1].update(shape=[1, 2, 3], dtype="O"), "no array"),
        (lambda a: a["policy"]["inputs"][0].update(name="other"), "does not describe"),
        (lambda a: a["files"].clear(), "cannot be read"),
        (lambda a: a.update(policy=3), "cannot be read"),
    ],
)
def test_a_hostile_folder_is_refused(robot, change, said):
    (robot.parent / "secret").write_bytes(b"secret")
    (robot / "link").symlink_to(robot.parent / "secret")
    (robot / "huge").write_bytes(bytes(1000))
    os.mkfifo(robot / "pipe")
    described(robot, change)
    with pytest.raises(BundleError, match=said):
        Policy(robot)


def test_weights_in_another_file_are_refused(robot):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(robot / "policy.onnx")
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "/etc/passwd")
    tensor.ClearField("raw_data")
    data = model.SerializeToString()
    (robot / "policy.onnx").write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    described(robot, lambda about: about["files"].update({"policy.onnx": entry}))
    with pytest.raises(BundleError, match="names further files"):
        Policy(robot)


@pytest.mark.parametrize(
    ("data", "said"), [(b"[" * 100_000, "cannot be read"), (b" " * 5_000_000, "at most")]
)
def test_a_description_that_is_none_is_refused(robot, data, said):
    (robot / "deploy.json").write_bytes(data)
    with pytest.raises(BundleError, match=said):
        Policy(robot)


def test_observations_that_are_wrong_are_refused(robot):
    policy = Policy(robot)
    with pytest.raises(ValueError, match="must have"):
        policy.act(np.zeros(7))
    with pytest.raises(ValueError, match=r"observation is not finite at \[\[1\]\]"):
        policy.act(np.array([0.0, np.nan, 0.0]))


def test_an_action_that_is_not_finite_is_refused(robot):
    policy = Policy(robot)
    before = policy.state

    class Diverged:
        def run(self, *_):
            return [np.full((1, 2), np.nan, np.float32) for _ in policy._outputs]

    policy._session = Diverged()
    with pytest.raises(ValueError, match="the action is not finite"):
        policy.act(np.zeros(3, np.float32))
    assert policy.state is before


def test_the_runtime_repeats_the_examples(robot):
    command = [sys.executable, "-I", robot / "runtime" / "policy.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 examples: largest difference" in done.stdout
    described(robot, lambda about: about["examples"][3].update(action=[0.0, 5.0]))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1


def test_a_folder_with_other_files_is_kept(tmp_path, robot):
    policy, config = random_policy("ppo")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(rz.ConfigError, match="holds other files, and would be replaced"):
        write_deployed(policy, config, tmp_path, {})
    assert (tmp_path / "mine.txt").read_text() == "mine"
    made = write_deployed(policy, config, robot, {})
    assert not list(made.folder.glob("*.safetensors"))


@pytest.mark.slow
def test_the_command_writes_a_trained_policy(answer, here, tmp_path):
    folder = here / "robot"
    code, text = answer("deploy", str(ROOT / "trained/cartpole_bullet"), "--out", str(folder))
    assert code == 0, text
    digest = hashlib.sha256((folder / "deploy.json").read_bytes()).hexdigest()
    assert f"SHA-256 of deploy.json, which has those of all files: {digest}" in text
    assert "checked against the policy: largest difference" in text
    policy = rz.load_policy(ROOT / "trained/cartpole_bullet")
    seen = np.random.default_rng(0).normal(size=(N_STEPS, 5)).astype(np.float32)
    given = {"observation": seen, "start": np.zeros(N_STEPS, bool)}
    actions = in_a_bare_process(folder, given, tmp_path)
    np.testing.assert_allclose(actions, policy.predict(seen)[0], atol=1e-6)


@pytest.mark.parametrize("name", ["ppo-normalized", "recurrent_ppo-gsde"])
def test_leapp_agrees(name, tmp_path):
    leapp = pytest.importorskip("leapp", reason="leapp is not installed (pip install leapp)")
    policy, made = written(name, tmp_path / "robot")
    (file,) = made.folder.glob("*.yaml")
    manager, runtime = leapp.InferenceManager(str(file)), Policy(made.folder)
    given, _ = episodes(policy, 1)
    for row, start in enumerate(given["start"]):
        if start:
            manager.reset()
            runtime.reset()
        frame = given["observation"][row]
        out = manager({"policy/observation": torch.from_numpy(frame[None].copy())})
        np.testing.assert_allclose(out["policy/action"][0], runtime.act(frame), atol=1e-6)
