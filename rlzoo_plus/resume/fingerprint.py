"""What the last bits of a training depend on: processor, threads, device, versions."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from rlzoo_plus.artifacts.provenance import PACKAGES, machine_fingerprint

_PACKAGE = Path(__file__).resolve().parents[1]
_CODE = (
    *(_PACKAGE / name for name in ("agents", "envs", "resume", "callbacks", "evaluation.py")),
    *(_PACKAGE / name for name in ("runs/exp_manager.py", "statistics.py", "config/schedules.py")),
    _PACKAGE.parent / "robots",
)
_CODE_SUFFIXES = (".py", ".urdf", ".xml", ".obj", ".stl")
# Two runs can differ in these and still give the same numbers.
_WITHOUT_EFFECT = ("hydra-core", "omegaconf", "pydantic")


def numeric_fingerprint(device: str) -> dict[str, str]:
    """Describe this process as far as floating-point results can depend on it.

    Args:
        device: The device the agent learns on.
    """
    import torch

    machine = machine_fingerprint()
    names = [name for name in PACKAGES if name not in _WITHOUT_EFFECT]
    on_gpu = device.startswith("cuda")
    return {
        "python": platform.python_version(),
        "processor": str(machine["processor"]),
        "architecture": str(machine["architecture"]),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "device": torch.cuda.get_device_name(device) if on_gpu else device,
        "code of rlzoo-plus": _code_hash(),
        **{name: _version(name) for name in names},
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what differs between two fingerprints, a text for each entry."""
    return [
        f"{key} was {before.get(key, 'unknown')}, is {now.get(key, 'unknown')}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]


@functools.cache
def _code_hash() -> str:
    """Return a hash of our own code that computes with numbers: a version alone misses changes."""
    digest = hashlib.sha256()
    files = {file for place in _CODE for file in (place.rglob("*") if place.is_dir() else [place])}
    for file in sorted(files):
        if file.suffix in _CODE_SUFFIXES:
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
