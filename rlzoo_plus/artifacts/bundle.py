"""The bundle: all that a policy needs to act, without pickle, as in `best/` and `final/`."""

from __future__ import annotations

import json
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

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


def check_step(step: Any) -> int:
    """Return a number of environment steps.

    Raises:
        ValueError: It is something else.
    """
    if type(step) is not int or not 0 <= step <= LARGEST_STEP:
        raise ValueError(f"step {step!r} is not a whole number from 0 to {LARGEST_STEP}")
    return step


def _with_step(about: dict[str, Any]) -> dict[str, Any]:
    check_step(about.get("step"))
    return about


@dataclass(frozen=True)
class Bundle:
    """A policy as plain data, checked for its types."""

    config: dict[str, Any]  # of the run: algorithm, network, environment
    spaces: dict[str, Any]  # of observations and actions, as `rlzoo_plus.envs.spaces` encodes them
    weights: dict[str, Any]  # the policy's parameters by name, arrays
    normalization: dict[str, Any] | None  # observation statistics of that step
    about: Annotated[dict[str, Any], AfterValidator(_with_step)]  # step, mean return and the like


def save_bundle(path: Path, bundle: Bundle) -> None:
    """Write a bundle in one step; the earlier one stays whole until then."""
    policy = {"config": finite(bundle.config), "spaces": bundle.spaces}
    state = {"weights": bundle.weights, "normalization": bundle.normalization}
    files = {_POLICY_FILE: json.dumps(policy, indent=2).encode(), **pack(state)}
    write_folder(path, files, {"schema": SCHEMA_VERSION, **bundle.about})


def is_bundle(path: Path) -> bool:
    """Return whether a folder looks like a bundle."""
    return (path / _POLICY_FILE).is_file()


def load_bundle(path: Path) -> Bundle:
    """Read a bundle and check schema, hashes and content; nothing in it is executed.

    Args:
        path: A folder, or a zip of one.

    Raises:
        DamagedFolderError: It is missing, incomplete, changed, of a newer schema, or not a bundle.
    """
    if path.is_file():
        with tempfile.TemporaryDirectory(prefix="rlzoo-bundle-") as folder:
            _unzip(path, Path(folder))
            try:
                return load_bundle(Path(folder))
            except DamagedFolderError as error:
                raise DamagedFolderError(str(error).replace(folder, printable(path))) from error
    schema = read_about(path).get("schema")
    if schema != SCHEMA_VERSION:
        raise DamagedFolderError(f"{path}: schema {schema} is not known here")
    files, about = read_folder(path, _LARGEST)
    try:
        policy, state = parse_json(files[_POLICY_FILE]), unpack(files)
        if not isinstance(policy, dict) or not isinstance(state, dict):
            raise TypeError("it does not consist of mappings")
        named = {"config": policy["config"], "spaces": policy["spaces"]}
        named |= {"weights": state["weights"], "normalization": state["normalization"]}
        return Bundle(**named, about=about)
    except (KeyError, TypeError, ValueError, DamagedFolderError) as error:
        raise DamagedFolderError(f"{path}: not a bundle ({one_line(error)})") from error


def _unzip(path: Path, folder: Path) -> None:
    """Extract the files of a bundle, and nothing else, from a zip, each up to its largest size."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            policies = [name for name in names if name.rpartition("/")[2] == _POLICY_FILE]
            if len(policies) != 1:
                reason = f"is not a zip of one bundle: it has {len(policies)} {_POLICY_FILE}"
                raise DamagedFolderError(f"{printable(path)}: {reason}")
            where = policies[0].removesuffix(_POLICY_FILE)
            for name, largest in {MANIFEST: 2**22, **_LARGEST}.items():
                if names.count(where + name) != 1:
                    raise DamagedFolderError(f"{printable(path)}: {name} is not there exactly once")
                with archive.open(where + name) as entry:
                    data = entry.read(largest + 1)
                if len(data) > largest:
                    raise DamagedFolderError(f"{printable(path)}: {name} is too large")
                (folder / name).write_bytes(data)
    # What zipfile raises for a damaged, encrypted or odd file.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise DamagedFolderError(f"{printable(path)}: {one_line(error)}") from error
