"""The bundle: all a policy needs to act, without pickle. `best/` and `final/` are bundles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import DamagedFolderError, read_folder, write_folder
from rlzoo_plus.artifacts.tree import pack, unpack

SCHEMA_VERSION = 1
_POLICY_FILE = "policy.json"


@dataclass(frozen=True)
class Bundle:
    """A policy as data.

    Attributes:
        config: The run's configuration, plain data: algorithm, network, environment.
        spaces: Observation and action space, as written by `rlzoo_plus.envs.spaces`.
        weights: The policy's parameters by name, arrays.
        normalization: Observation statistics of that moment, or None.
        about: Step, mean return and the like.
    """

    config: dict[str, Any]
    spaces: dict[str, Any]
    weights: dict[str, Any]
    normalization: dict[str, Any] | None
    about: dict[str, Any]


def save_bundle(path: Path, bundle: Bundle) -> None:
    """Write a bundle in one step; the one before it stays whole until then."""
    policy = {"config": bundle.config, "spaces": bundle.spaces}
    state = {"weights": bundle.weights, "normalization": bundle.normalization}
    files = {_POLICY_FILE: json.dumps(policy, indent=2).encode(), **pack(state)}
    write_folder(path, files, {"schema": SCHEMA_VERSION, **bundle.about})


def load_bundle(path: Path) -> Bundle:
    """Read a bundle and check its hashes; nothing in it is executed.

    Raises:
        DamagedFolderError: It is missing, incomplete, changed, or of a newer schema.
    """
    files, about = read_folder(path)
    if about.get("schema") != SCHEMA_VERSION:
        raise DamagedFolderError(f"{path}: schema {about.get('schema')} is not known here")
    try:
        policy = json.loads(files[_POLICY_FILE])
        state = unpack(files)
        return Bundle(
            config=policy["config"],
            spaces=policy["spaces"],
            weights=state["weights"],
            normalization=state["normalization"],
            about=dict(about),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFolderError(f"{path}: not a bundle ({error!r})") from error
