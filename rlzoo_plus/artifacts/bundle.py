"""The bundle: all a policy needs to act, without pickle. `best/` and `final/` are bundles."""

from __future__ import annotations

import json
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import (
    MANIFEST,
    DamagedFolderError,
    finite,
    read_about,
    read_folder,
    write_folder,
)
from rlzoo_plus.artifacts.tree import STATE_FILE, TENSOR_FILE, pack, unpack
from rlzoo_plus.artifacts.untrusted import one_line, parse_json, printable

SCHEMA_VERSION = 1
LARGEST_STEP = 10**15
_POLICY_FILE = "policy.json"
# More than any policy of Stable-Baselines3 needs, and less than a machine has [bytes].
_LARGEST = {_POLICY_FILE: 2**22, STATE_FILE: 2**22, TENSOR_FILE: 2**30}


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
    policy = {"config": finite(bundle.config), "spaces": bundle.spaces}
    state = {"weights": bundle.weights, "normalization": bundle.normalization}
    files = {_POLICY_FILE: json.dumps(policy, indent=2).encode(), **pack(state)}
    write_folder(path, files, {"schema": SCHEMA_VERSION, **bundle.about})


def is_bundle(path: Path) -> bool:
    """Return whether a folder looks like a bundle."""
    return (path / _POLICY_FILE).is_file()


def load_bundle(path: Path) -> Bundle:
    """Read a bundle and check its schema and hashes, then its content; nothing in it is executed.

    Args:
        path: A folder, or a zip of one.

    Raises:
        DamagedFolderError: It is missing, incomplete, changed, of a newer schema, or no bundle.
    """
    if not path.is_file():
        return _load_folder(path)
    with tempfile.TemporaryDirectory(prefix="rlzoo-bundle-") as folder:
        _unzip(path, Path(folder))
        try:
            return _load_folder(Path(folder))
        except DamagedFolderError as error:
            raise DamagedFolderError(str(error).replace(folder, printable(path))) from error


def _unzip(path: Path, folder: Path) -> None:
    """Copy the files of a bundle, and nothing else, out of a zip; each of a size that it may have.

    Raises:
        DamagedFolderError: They are not there, or not as they should be.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            policies = [name for name in names if name.rpartition("/")[2] == _POLICY_FILE]
            if len(policies) != 1:
                raise DamagedFolderError(
                    f"{printable(path)}: is no zip of one bundle: it has {len(policies)} "
                    f"{_POLICY_FILE}"
                )
            where = policies[0].removesuffix(_POLICY_FILE)
            for name, largest in {MANIFEST: 2**22, **_LARGEST}.items():
                if names.count(where + name) != 1:
                    raise DamagedFolderError(f"{printable(path)}: {name} is missing or there twice")
                with archive.open(where + name) as entry:
                    data = entry.read(largest + 1)
                if len(data) > largest:
                    raise DamagedFolderError(f"{printable(path)}: {name} is too large")
                (folder / name).write_bytes(data)
    # What zipfile raises for a damaged, encrypted or odd file.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise DamagedFolderError(f"{printable(path)}: {one_line(error)}") from error


def _load_folder(path: Path) -> Bundle:
    schema = read_about(path).get("schema")
    if schema != SCHEMA_VERSION:
        raise DamagedFolderError(f"{path}: schema {schema} is not known here")
    files, about = read_folder(path, _LARGEST)
    try:
        policy, state = parse_json(files[_POLICY_FILE]), unpack(files)
        if not isinstance(policy, dict) or not isinstance(state, dict):
            raise TypeError("it holds no mappings")
        bundle = Bundle(
            config=policy["config"],
            spaces=policy["spaces"],
            weights=state["weights"],
            normalization=state["normalization"],
            about=about,
        )
        check_types(bundle)
    except (KeyError, TypeError, ValueError, DamagedFolderError) as error:
        raise DamagedFolderError(f"{path}: not a bundle ({one_line(error)})") from error
    return bundle


def check_step(step: Any) -> int:
    """Return a step as a number.

    Raises:
        ValueError: It is not one.
    """
    if type(step) is not int or not 0 <= step <= LARGEST_STEP:
        raise ValueError(f"step {step!r} is not a whole number from 0 to {LARGEST_STEP}")
    return step


def check_types(bundle: Bundle) -> None:
    """Check that the parts of a bundle are of the types that they are declared as.

    Raises:
        KeyError: It has no step.
        TypeError: One is of another type.
        ValueError: Its step is no step.
    """
    check_step(bundle.about["step"])
    for name in ("config", "spaces", "weights"):
        if not isinstance(getattr(bundle, name), dict):
            raise TypeError(f"{name} is not a mapping")
    if not isinstance(bundle.normalization, dict | None):
        raise TypeError("normalization is not a mapping")
