"""What a repository holds: the names of its files, as in a run directory, and their sizes.

No other file is sent, and none is brought, whatever it is: a pickle stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlzoo_plus.artifacts.checkpoint import CHUNK_FOLDER
from rlzoo_plus.artifacts.run_dir import LARGEST_OF_BUNDLE, LARGEST_OF_RUN
from rlzoo_plus.artifacts.untrusted import LARGEST_YAML_BYTES

CARD, CURVE, VIDEO, ONNX = "README.md", "learning_curve.png", "replay.mp4", "policy.onnx"
BUNDLES, CHECKPOINTS = ("best", "final"), "checkpoints"
# All of them in one repository.
LARGEST_BYTES = 2**33
_MIB = 2**20
# Of a run: small files as they are in its directory.
RUN_FILES = {**LARGEST_OF_RUN, "metrics.jsonl": 256 * _MIB}
_LARGEST = {
    **RUN_FILES,
    **{f"{which}/{name}": size for which in BUNDLES for name, size in LARGEST_OF_BUNDLE.items()},
    CARD: _MIB,
    CURVE: 16 * _MIB,
    VIDEO: 256 * _MIB,
    ONNX: 1024 * _MIB,
    "episodes/evaluation.json": 4 * _MIB,
}
_PATTERNS = {
    re.compile(r"episodes/episode-[0-9]{4,6}\.(json|npz)"): 64 * _MIB,
}
# What resuming needs besides: large.
_OF_STATE = {
    re.compile(rf"{CHECKPOINTS}/[0-9]{{12,18}}/(MANIFEST|state)\.json"): 256 * _MIB,
    re.compile(rf"{CHECKPOINTS}/[0-9]{{12,18}}/tensors\.safetensors"): 4096 * _MIB,
    re.compile(rf"{CHECKPOINTS}/{CHUNK_FOLDER}/[0-9a-f]{{64}}"): 1024 * _MIB,
    re.compile(rf"{CHECKPOINTS}/cut_rows\.json"): 64 * _MIB,
    re.compile(r"monitor/[0-9]{1,5}\.monitor\.csv"): 256 * _MIB,
}
# Of the RL Zoo's and Stable-Baselines3's repositories, as their reader reads them.
_OF_AGENTS = {
    re.compile(r"[A-Za-z0-9][\w.-]{0,100}\.zip", re.ASCII): 512 * _MIB,
    re.compile(r"(config|args|env_kwargs)\.yml"): LARGEST_YAML_BYTES,
    re.compile(r"vec_?normalize\.pkl"): 64 * _MIB,
}


def largest_of(name: str, *, state: bool) -> int | None:
    """Return how many bytes a file of this name may have; None if it is not one of ours."""
    patterns = {**_PATTERNS, **(_OF_STATE if state else {})}
    found = (size for pattern, size in patterns.items() if pattern.fullmatch(name))
    return _LARGEST.get(name) or next(found, None)


def largest_of_agent(name: str) -> int | None:
    """Return the same for a file of an agent of Stable-Baselines3."""
    return next((size for p, size in _OF_AGENTS.items() if p.fullmatch(name)), None)


def holds_policy(names: Iterable[str]) -> bool:
    """Return whether a repository holds a policy in the form of this package."""
    return not {f"{which}/MANIFEST.json" for which in BUNDLES}.isdisjoint(names)
