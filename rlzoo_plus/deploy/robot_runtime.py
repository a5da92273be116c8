"""Runs the policy of this folder. Needs Python 3.10, numpy and onnxruntime, and nothing else.

    from policy import Policy

    policy = Policy("FOLDER")
    action = policy.act(observation)   # at policy.rate_hz; policy.reset() between episodes
    commands = policy.commands         # what the joints are told, by kind, in units

Nothing of the folder is executed: JSON and ONNX are read as data, sizes and hashes are checked
before. Who hands over the folder can change the hashes, too: `Policy(folder, sha256=...)` accepts
only the `deploy.json` that was seen when it was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

LARGEST_JSON = 4_000_000
LARGEST_FILE = 512_000_000
LARGEST_STATE = 50_000_000
# Of a weight that lies in another file: the field's key in the ONNX file.
ELSEWHERE = b"\n\x08location"
TOLERANCE = 1e-5


class BundleError(ValueError):
    """The folder is damaged, changed or not a policy; the text says what is wrong."""


class Policy:
    """The policy of a folder, with what it remembers of the episode.

    Attributes:
        about: What deploy.json says.
        rate_hz: How often to act; None if it is not known.
        state: What it remembers, by name; `reset` forgets it.
        commands: What the last action commands the joints, by kind; empty if the drive decides.
        applied: The last action as the bare environment takes it.
        value: What the policy expects to earn from here on; None if the graph does not say.
    """

    def __init__(self, folder: Any, sha256: str | None = None) -> None:
        """Load a folder.

        Args:
            folder: The folder with deploy.json.
            sha256: The hash that deploy.json must have, None for any.

        Raises:
            BundleError: It is damaged, changed or not a policy.
        """
        self.folder = Path(folder)
        data = _read(self.folder, "deploy.json", LARGEST_JSON)
        if sha256 not in (None, hashlib.sha256(data).hexdigest()):
            raise BundleError("deploy.json is not the one whose hash was given")
        try:
            self.about: dict[str, Any] = json.loads(data)
            parts = self.about["policy"]
            self._inputs = {port["name"]: port for port in parts["inputs"]}
            self._outputs = [port["name"] for port in parts["outputs"]]
            self._turns = {str(name): str(out) for out, name in parts["feedback"].items()}
            self._commands = list(self.about["commands"])
            self.rate_hz: float | None = self.about["rate_hz"]
            files = dict(self.about["files"])
            content = {name: self._checked(name, files[name]) for name in files}
            model = content[parts["file"]]
            self._starts = self._start()
            own = [name for name in self._inputs if name not in self._turns]
            self._keys = {name: self._inputs[name].get("key") for name in own}
            self._kinds = {
                name: (np.dtype(self._inputs[name]["dtype"]), tuple(self._inputs[name]["shape"]))
                for name in own
            }
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            if isinstance(error, BundleError):
                raise
            raise BundleError(f"deploy.json cannot be read: {error!r:.200}") from error
        if ELSEWHERE in model:
            raise BundleError(f"{parts['file']} names further files. It must hold its weights.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        # Its exceptions have no common class.
        except Exception as error:
            raise BundleError(f"{parts['file']} is no ONNX file: {error!s:.200}") from error
        there = [port.name for port in self._session.get_inputs()]
        made = [port.name for port in self._session.get_outputs()]
        if sorted(there) != sorted(self._inputs) or made != self._outputs:
            raise BundleError(f"deploy.json does not describe {parts['file']}")
        self.state: dict[str, np.ndarray] = {}
        self.commands: dict[str, np.ndarray] = {}
        self.applied: Any = None
        self.value: float | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the episode: call it before the first observation of the next one."""
        self.state = {name: start.copy() for name, start in self._starts.items()}
        self.commands, self.applied, self.value = {}, None, None

    def act(self, observation: Any, action_masks: Any = None) -> Any:
        """Return the action for one observation, as the environment takes it.

        Args:
            observation: An array, or a dictionary of arrays; of images channels come first.
            action_masks: True where an action is allowed, for a policy that takes masks.

        Raises:
            ValueError: The observation has another shape, or is not finite, or the action is not.
        """
        feeds = dict(self.state)
        for name, (dtype, shape) in self._kinds.items():
            key = self._keys[name]
            value = observation if key is None else observation[key]
            value = np.asarray(action_masks if name == "action_masks" else value)
            if value.shape != shape[1:]:
                raise ValueError(f"{name} has the shape {value.shape}, and must have {shape[1:]}")
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                places = np.argwhere(~np.isfinite(value)).tolist()
                raise ValueError(f"{name} is not finite at {places[:8]}")
            feeds[name] = value.astype(dtype)[None]
        made = dict(zip(self._outputs, self._session.run(None, feeds), strict=True))
        if made["action"].dtype.kind == "f" and not np.isfinite(made["action"]).all():
            raise ValueError("the action is not finite")
        self.state = {name: made[out] for name, out in self._turns.items()}
        self.commands = {name: made[name][0] for name in self._commands}
        action = made["action"][0]
        self.applied = made.get("applied_action", [action])[0]
        self.value = float(made["value"].item()) if "value" in made else None
        return int(action) if action.ndim == 0 else action

    def _checked(self, name: str, entry: Any) -> bytes:
        """Return a file, or refuse what is not the one that was written."""
        data = _read(self.folder, name, min(int(entry["bytes"]), LARGEST_FILE))
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise BundleError(f"{name} was changed: its SHA-256 is not that of deploy.json")
        return data

    def _start(self) -> dict[str, np.ndarray]:
        starts, total = {}, 0
        for name in self._turns:
            sizes = [int(size) for size in self._inputs[name]["shape"]]
            dtype = np.dtype(self._inputs[name]["dtype"])
            count = dtype.itemsize
            for size in sizes:
                count *= max(size, 0)
            total += count
            if total > LARGEST_STATE or dtype.kind not in "biuf":
                raise BundleError(f"{name} is too large, or no array of numbers")
            starts[name] = np.zeros(sizes, dtype)
        return starts


def _read(folder: Path, name: str, largest: int) -> bytes:
    """Return a file of the folder; links, devices, other folders and larger files are refused."""
    if not re.fullmatch(r"(runtime/)?\w[\w.-]*", name):
        raise BundleError(f"{name!r:.100} is no file name of this folder")
    if "/" in name and (folder / "runtime").is_symlink():
        raise BundleError("runtime is a link, and links are not followed")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(folder / name, flags | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise BundleError(f"{name} cannot be opened, or is a link: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > largest:
            raise BundleError(f"{name} is no plain file of at most {largest:,} bytes")
        return file.read(largest)


def main(arguments: list[str]) -> int:
    """Repeat the examples of a folder, time decisions, and print both; return 1 if one differs."""
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    try:
        policy = Policy(folder)
    except BundleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rate = "not known" if policy.rate_hz is None else f"{policy.rate_hz:g} Hz"
    print(f"{policy.about['environment']['id']}, {policy.about['algorithm']}; rate: {rate}")
    worst, took = 0.0, []
    examples = policy.about["examples"]
    for example in examples:
        expected = np.array(example["action"])
        difference = np.abs(policy.act(**_arguments(example)) - expected)
        worst = max(worst, float((difference / np.maximum(1.0, np.abs(expected))).max()))
    for _ in range(1000 if examples else 0):
        given = _arguments(examples[0])
        start = time.perf_counter()
        policy.act(**given)
        took.append(1e6 * (time.perf_counter() - start))
    if not examples:
        print("it has no examples, since its observations are large")
        return 0
    print(f"{len(examples)} examples: largest difference {worst:.1e}")
    print(f"1,000 decisions: median {np.median(took):.0f} us, slowest {max(took):.0f} us")
    return 0 if worst < TOLERANCE else 1


def _arguments(example: dict[str, Any]) -> dict[str, Any]:
    found, masks = example["observation"], example.get("action_masks")
    if isinstance(found, dict):
        found = {key: np.array(value) for key, value in found.items()}
    return {"observation": found, "action_masks": masks}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
