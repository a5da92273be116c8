"""What the numbers of a training depend on: machine, versions, and the code that it executes."""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlzoo_plus.artifacts.provenance import PACKAGES, machine_fingerprint, package_version
from rlzoo_plus.artifacts.untrusted import levels
from rlzoo_plus.config.own_code import own_modules
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.user_code import code_changes, hash_all, user_code, user_models
from rlzoo_plus.given import digests

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

_OURS = Path(__file__).resolve().parents[2]
_NUMERIC_CODE = (
    *(_OURS / name for name in ("agents", "envs", "training")),
    *(_OURS / name for name in ("analysis/statistics.py", "config/schedules.py")),
    _OURS.parent / "robots",
)
_OPTIONAL_CODE = (_OURS / "fast", _OURS / "ranks")
_NUMERIC_SUFFIXES = (".py", ".urdf", ".xml", ".obj", ".stl")
# Two runs can differ in these and still give the same numbers.
_WITHOUT_EFFECT = ("hydra-core", "omegaconf", "pydantic")
_IMPORTING = {"env", "algo", "network", "callbacks", "packages", "vec_env", "eval"}
_DOTTED = re.compile(r"([A-Za-z_]\w*)(?:[.:][A-Za-z_]\w*)+(?:-v\d+)?")


def numeric_fingerprint(device: str, packages: Iterable[str] = ()) -> dict[str, str]:
    """Describe what floating-point results depend on in this process and on the agent's device.

    Args:
        device: The agent's device.
        packages: Further packages that its algorithm computes with.
    """
    machine = machine_fingerprint()
    names = [*(name for name in PACKAGES if name not in _WITHOUT_EFFECT), *packages]
    on_gpu = device.startswith("cuda")
    return {
        "python": platform.python_version(),
        "processor": str(machine["processor"]),
        "architecture": str(machine["architecture"]),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "device": torch.cuda.get_device_name(device) if on_gpu else device,
        "code of rlzoo-plus": _hash_of_our_code(),
        **{name: package_version(name) or "not installed" for name in names},
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what differs between two fingerprints, a text for each entry."""
    return [
        f"{key} was {before.get(key, 'unknown')}, is {now.get(key, 'unknown')}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]


class RunCode:
    """The user's modules, models and packages of a run, hashed when each is first seen."""

    def __init__(self, config: RunConfig) -> None:
        self._is_apart = config.vec_env == "subproc" or config.env.python is not None
        nested = config.model_dump(include=_IMPORTING)
        texts = [text for level in levels(nested) for text in level if isinstance(text, str)]
        named = {match[1] for text in texts if (match := _DOTTED.fullmatch(text))}
        named |= {name.partition(".")[0] for name in config.env.packages}
        self._given = digests(config.model_dump())
        self._packages = sorted({*named, *own_modules(config)})
        self._files = [text for text in texts if "/" in text or "." in text]
        self._seen: dict[str, str] = {}

    def look(self, venv: VecEnv) -> dict[str, str]:
        """Return all code seen so far, here and in a worker process of the environments.

        Later changes on the disk have no effect on this run.
        """
        now = user_code(self._packages) | self._given
        if not self._seen:
            now |= user_models(self._files)
            if self._is_apart:
                (there,) = venv.env_method("loaded_code", self._packages, self._files, indices=[0])
                now = there | now
        self._seen = now | self._seen
        return dict(self._seen)

    def changes_since(self, stored: Any, venv: VecEnv) -> list[str]:
        """Return what differs from the code of a checkpoint's process, a text for each.

        Raises:
            ValueError: The checkpoint's entry is malformed.
        """
        if not isinstance(stored, Mapping) or not all(type(v) is str for v in stored.values()):
            raise ValueError("its list of code is malformed")
        return code_changes(stored, self.look(venv))


@functools.cache
def _hash_of_our_code() -> str:
    """Return a hash of our own code that computes with numbers: a version alone misses changes."""
    assert all(place.exists() for place in _NUMERIC_CODE), "a file of it was renamed"
    places = [
        place.rglob("*") if place.is_dir() else [place]
        for place in (*_NUMERIC_CODE, *_OPTIONAL_CODE)
    ]
    files = sorted(file for place in places for file in place)
    return hash_all(file for file in files if file.suffix in _NUMERIC_SUFFIXES)[:12]
