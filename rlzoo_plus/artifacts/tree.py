"""Nested data as JSON plus tensors, without pickle: nothing in it can run when it is read.

Numbers, strings, None, lists, tuples and dictionaries go to JSON, arrays to safetensors.
Floats are written as hexadecimal, so that every bit comes back.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

STATE_FILE = "state.json"
TENSOR_FILE = "tensors.safetensors"


def pack(value: Any) -> dict[str, bytes]:
    """Return the two files that hold a nested value.

    Raises:
        TypeError: It holds something other than plain data and numeric arrays.
    """
    tensors: dict[str, np.ndarray] = {}
    encoded = _encode(value, tensors, "")
    return {
        STATE_FILE: json.dumps(encoded, separators=(",", ":")).encode(),
        TENSOR_FILE: save_tensors(tensors),
    }


def unpack(files: dict[str, bytes]) -> Any:
    """Return the nested value held by the files of `pack`."""
    return _decode(json.loads(files[STATE_FILE]), load_tensors(files[TENSOR_FILE]))


def _encode(value: Any, tensors: dict[str, np.ndarray], path: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (np.generic, np.ndarray)) and not _is_plain(value):
        kind = f"{type(value).__name__} of {value.dtype}"
        raise TypeError(f"{path}: {kind} cannot be stored without code")
    if isinstance(value, np.generic):
        return {"~scalar": value.dtype.str, "bytes": value.tobytes().hex()}
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return {"~float": value.hex()}
    if isinstance(value, np.ndarray):
        name = str(len(tensors))
        # safetensors would drop the strides of a view.
        tensors[name] = np.array(value, order="C")
        return {"~array": name}
    if isinstance(value, tuple):
        return {"~tuple": [_encode(v, tensors, f"{path}[{i}]") for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [_encode(v, tensors, f"{path}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, dict):
        pairs = [
            [_encode(k, tensors, path), _encode(v, tensors, f"{path}.{k}")]
            for k, v in value.items()
        ]
        return {"~dict": pairs}
    raise TypeError(f"{path}: {type(value).__name__} cannot be stored without code")


def _is_plain(value: np.generic | np.ndarray) -> bool:
    """Tell whether an array or scalar is of bools, integers or floats, and nothing besides."""
    is_masked = isinstance(value, np.ma.MaskedArray)
    return value.dtype.kind in "biuf" and value.dtype.itemsize <= 8 and not is_masked


def _decode(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if "~float" in value:
        return float.fromhex(value["~float"])
    if "~scalar" in value:
        return np.frombuffer(bytes.fromhex(value["bytes"]), np.dtype(value["~scalar"]))[0]
    if "~array" in value:
        return tensors[value["~array"]].copy()
    if "~tuple" in value:
        return tuple(_decode(v, tensors) for v in value["~tuple"])
    return {_decode(k, tensors): _decode(v, tensors) for k, v in value["~dict"]}
