"""Forges bundles and runs as an attacker would: any content, with hashes that are right."""

import hashlib
import json
import shutil
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import load as load_tensors

FIXTURE = Path(__file__).parents[1] / "security" / "fixtures" / "run_v1"
BUNDLE_FILES = ("policy.json", "state.json", "tensors.safetensors")


def copy_run(path: Path) -> Path:
    """Copy the good run; return the folder of the copy."""
    shutil.copytree(FIXTURE, path)
    return path


def copy_bundle(path: Path) -> Path:
    """Copy the good bundle; return the folder of the copy."""
    shutil.copytree(FIXTURE / "best", path)
    return path


def digest(body) -> str:
    """Return the hash that a manifest has of itself."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def entry(data: bytes) -> dict:
    """Return what a manifest says of a file."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def seal(folder: Path, names=BUNDLE_FILES, edit=None) -> None:
    """Write a manifest with the right hashes of the files as they are now.

    Args:
        folder: The bundle.
        names: The files to list.
        edit: Changes the manifest before its own hash is taken.
    """
    old = json.loads((FIXTURE / "best" / "MANIFEST.json").read_bytes())
    files = {name: entry((folder / name).read_bytes()) for name in names}
    body = {"format": 1, "about": old["about"], "files": files}
    if edit is not None:
        edit(body)
    (folder / "MANIFEST.json").write_text(json.dumps({**body, "sha256": digest(body)}))


def edit_policy(folder: Path, edit) -> None:
    """Change `policy.json`, given as plain data."""
    path = folder / "policy.json"
    policy = json.loads(path.read_bytes())
    path.write_text(json.dumps(edit(policy) or policy))


def edit_state(folder: Path, edit) -> None:
    """Change `state.json`, given as its text."""
    path = folder / "state.json"
    path.write_text(edit(path.read_text()))


def edit_weights(folder: Path, edit) -> None:
    """Change the arrays by name in the tensor file; lies about them need `tensor_file`."""
    path = folder / "tensors.safetensors"
    arrays = dict(load_tensors(path.read_bytes()))
    edit(arrays)
    kinds = {"float32": "F32", "float64": "F64", "int64": "I64"}
    header, blob = {}, b""
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        offsets = [len(blob), len(blob) + len(data)]
        kind, shape = kinds[str(array.dtype)], list(array.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
        blob += data
    path.write_bytes(tensor_file(header, blob))


def tensor_file(header, blob: bytes, length: int | None = None) -> bytes:
    """Return a safetensors file with any header, honest or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + blob


def edit_header(folder: Path, edit) -> None:
    """Change the header of the tensor file, and leave the tensors as they are."""
    path = folder / "tensors.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    path.write_bytes(tensor_file(edit(header) or header, data[8 + length :]))
