"""Arrays and numbers of NumPy that a pickle describes, made without unpickling it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlzoo_plus.export.symbolic_pickle import Call, Name, PickleError

_NUMBERS = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}


def state_of(value: Any, class_name: str) -> dict[str, Any]:
    """Return the attributes of an object of a class that would have been built.

    Raises:
        PickleError: It would be an object of another class, or none.
    """
    function = value.function if isinstance(value, Call) else None
    if isinstance(function, Name) and function.name == "_reconstructor":
        arguments = value.arguments
        function = arguments[0] if isinstance(arguments, tuple) and arguments else None
    is_it = isinstance(function, Name) and function.name == class_name
    if not is_it or not isinstance(value.state, dict):
        raise PickleError(f"it holds no {class_name}")
    state: dict[str, Any] = value.state
    return state


def number_of(value: Any) -> float:
    """Return a number, also one that is an array of one number.

    Raises:
        PickleError: It is none.
    """
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError as error:
            raise PickleError("a number is beyond all floats") from error
    array = array_of(value)
    if array.size != 1:
        raise PickleError("an array stands where a number belongs")
    return float(array.reshape(()))


def array_of(value: Any) -> np.ndarray:
    """Return an array or number of NumPy that would have been built, in its own precision.

    Raises:
        PickleError: It would be something else, or its content does not fill it.
    """
    if not isinstance(value, Call) or not isinstance(value.function, Name):
        raise PickleError("something stands where an array belongs")
    name, arguments = value.function.name, value.arguments
    if name == "_reconstruct" and isinstance(value.state, tuple) and len(value.state) == 5:
        _, shape, dtype, is_fortran, content = value.state
        return _decode(content, dtype, shape, "F" if is_fortran else "C")
    if name == "_frombuffer" and isinstance(arguments, tuple) and len(arguments) == 4:
        content, dtype, shape, order = arguments
        return _decode(content, dtype, shape, order)
    if is_scalar(value):
        return _decode(arguments[1], arguments[0], (), "C")
    raise PickleError(f"{name} stands where an array belongs")


def is_scalar(value: Any) -> bool:
    """Tell whether a number of NumPy would have been built, not an array."""
    is_call = isinstance(value, Call) and isinstance(value.function, Name)
    if not is_call or value.function.name != "scalar":
        return False
    return isinstance(value.arguments, tuple) and len(value.arguments) == 2


def _decode(content: Any, pickled_dtype: Any, shape: Any, order: Any) -> np.ndarray:
    dtype = _dtype(pickled_dtype)
    data = _bytes(content)
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or order not in ("C", "F"):
        raise PickleError("an array has no shape")
    # Compared as whole numbers before anything of that size is made.
    if math.prod(shape) * dtype.itemsize != len(data):
        raise PickleError("an array declares a shape which its content does not fill")
    try:
        array = np.frombuffer(data, dtype).reshape(shape, order=order)
    except ValueError as error:
        # More axes than NumPy has, or an axis beyond all sizes beside one of zero.
        raise PickleError("an array has no shape") from error
    # A copy in the same order: the last bits of a product depend on it.
    return array.astype(dtype.newbyteorder("="))


def _dtype(value: Any) -> np.dtype:
    is_call = isinstance(value, Call) and isinstance(value.function, Name)
    if not is_call or value.function.name != "dtype" or not isinstance(value.arguments, tuple):
        raise PickleError("an array is of no known type")
    code = value.arguments[0] if value.arguments else None
    order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "|"
    is_known = isinstance(code, str) and code in _NUMBERS
    if not is_known or not isinstance(order, str) or order not in ("<", ">", "|", "="):
        raise PickleError("an array is of no known type")
    return np.dtype(f"{order}{code}")


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    # Protocol 2 writes bytes as the encoding of a text.
    if isinstance(value, Call) and value.function == Name("_codecs", "encode"):
        text = value.arguments[0] if isinstance(value.arguments, tuple) else None
        if isinstance(text, str):
            try:
                return text.encode("latin1")
            except UnicodeEncodeError:
                pass
    raise PickleError("an array has no content")
