"""Nested data as JSON plus tensors, without pickle: reading it never executes code.

Numbers, strings, None, lists, tuples and dictionaries go to JSON, arrays to safetensors.
Floats are written as hexadecimal to keep every bit.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.untrusted import parse_json

STATE_FILE = "state.json"
TENSOR_FILE = "tensors.safetensors"
LARGEST_HEADER_BYTES = 2**22
_LENGTH_BYTES = 8
_SCALAR = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


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
    """Return the nested value held by the files of `pack`.

    Memory stays within a few times the size of the files, whoever wrote them.

    Raises:
        DamagedFolderError: They are not the files of `pack`.
    """
    try:
        state, data = parse_json(files[STATE_FILE]), files[TENSOR_FILE]
        # safetensors checks that tensors lie end to end, fill the file and fit their shapes. It
        # would parse a header of any length, and reads more types than `pack` writes.
        if int.from_bytes(data[:_LENGTH_BYTES], "little") > LARGEST_HEADER_BYTES:
            raise ValueError("the header of the tensors is too long")
        tensors = load_tensors(data)
        if not all(array.dtype.kind in "biuf" for array in tensors.values()):
            raise ValueError("a tensor holds no plain numbers")
        return _decode(state, tensors)
    except KeyError as error:
        raise DamagedFolderError(f"{STATE_FILE}: {error} is missing") from error
    except (ValueError, TypeError, OverflowError, AttributeError, SafetensorError) as error:
        raise DamagedFolderError(f"{STATE_FILE}, {TENSOR_FILE}: {error}") from error


def _encode(value: Any, tensors: dict[str, np.ndarray], path: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        is_number = value.dtype.kind in "biuf" and value.dtype.itemsize <= 8
        if not is_number or isinstance(value, np.ma.MaskedArray):
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
    if isinstance(value, (tuple, list)):
        items = [_encode(v, tensors, f"{path}[{i}]") for i, v in enumerate(value)]
        return {"~tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict):
        keys = [_encode(key, tensors, path) for key in value]
        items = [_encode(item, tensors, f"{path}.{key}") for key, item in value.items()]
        return {"~dict": [list(pair) for pair in zip(keys, items, strict=True)]}
    raise TypeError(f"{path}: {type(value).__name__} cannot be stored without code")


def _decode(value: Any, tensors: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"~float"}:
        return float.fromhex(value["~float"])
    if value.keys() == {"~scalar", "bytes"}:
        if _SCALAR.fullmatch(value["~scalar"]) is None:
            raise ValueError(f"a scalar is of type {value['~scalar']!r}")
        return np.frombuffer(bytes.fromhex(value["bytes"]), np.dtype(value["~scalar"]))[0]
    if value.keys() == {"~array"}:
        # Each only once: a thousand references to one would be a thousand copies.
        return tensors.pop(value["~array"]).copy()
    if value.keys() == {"~tuple"} and isinstance(value["~tuple"], list):
        return tuple(_decode(v, tensors) for v in value["~tuple"])
    if value.keys() == {"~dict"}:
        pairs = [(_decode(k, tensors), _decode(v, tensors)) for k, v in value["~dict"]]
        decoded = dict(pairs)
        if len(decoded) != len(pairs):
            raise ValueError("a key is there twice")
        return decoded
    raise ValueError("an entry is of an unknown kind")
