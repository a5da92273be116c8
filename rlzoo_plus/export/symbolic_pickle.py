"""Reads a pickle as data: imports and calls in it stay names, and nothing is run.

The standard library's `pickletools` splits the stream into opcodes; this module keeps the stack.
A class becomes a `Name`, a call or a new object a `Call` that remembers function, arguments and
state. Names outside a short list of packages are refused. NumPy arrays and numbers are built from
such calls without unpickling.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

PACKAGES = ("numpy", "gym", "gymnasium", "stable_baselines3", "collections")
_OTHER_NAMES = (
    ("copyreg", "_reconstructor"), ("copy_reg", "_reconstructor"), ("builtins", "object"),
    ("__builtin__", "object"), ("builtins", "bytearray"), ("_codecs", "encode"),
    ("builtins", "bytes"), ("__builtin__", "bytes"), ("builtins", "set"), ("__builtin__", "set"),
)  # fmt: skip
_MAX_OPCODES = 2_000_000


class PickleError(ValueError):
    """A stream that this reader refuses."""


@dataclass(frozen=True)
class Name:
    """Something the stream would import."""

    module: str
    name: str


@dataclass(eq=False)
class Call:
    """Something the stream would build."""

    function: Any  # What it would call
    arguments: Any  # With what
    state: Any = None  # What it would set afterwards, None if nothing


def read_symbolic(data: bytes) -> Any:
    """Return what a pickle describes, with `Name` and `Call` in place of classes and objects.

    Raises:
        PickleError: The stream is damaged, or names or does what no file of statistics would.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name == "STOP":
                return machine.pop()
            if count > _MAX_OPCODES:
                raise PickleError("it is far too long")
            if opcode.name not in _ACTIONS:
                raise PickleError(f"it uses {opcode.name}, which is not allowed")
            _ACTIONS[opcode.name](machine, argument)
    except PickleError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PickleError(f"it is damaged ({type(error).__name__})") from error
    raise PickleError("it ends early")


class _Machine:
    """The stack of one stream, the stacks below its marks, and its memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def pop_to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def pop_last(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]

    def push_name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleError("it is damaged")
        if module.split(".")[0] not in PACKAGES and (module, name) not in _OTHER_NAMES:
            raise PickleError(f"it names {module}.{name}, which is not allowed")
        self.push(Name(module, name))

    def build(self) -> None:
        state = self.pop()
        if not isinstance(self.stack[-1], Call):
            raise PickleError("it is damaged")
        self.stack[-1].state = state

    def extend(self, items: list[Any]) -> None:
        # A list of a class of its own is a Call; its items are not needed.
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def add(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], set) or not all(isinstance(i, str) for i in items):
            raise PickleError("it adds to a set something other than texts")
        self.stack[-1].update(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Call):
            target.state = {} if target.state is None else target.state
            target = target.state
        if isinstance(target, dict):
            target.update(zip(items[::2], items[1::2], strict=True))


_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8", "SHORT_BINSTRING", "BINSTRING",
)  # fmt: skip
_ACTIONS: dict[str, Callable[[_Machine, Any], object]] = {
    "PROTO": lambda m, _: None,
    "FRAME": lambda m, _: None,
    **dict.fromkeys(_LITERALS, _Machine.push),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "EMPTY_SET": lambda m, _: m.push(set()),
    "MARK": lambda m, _: m.mark(),
    "TUPLE1": lambda m, _: m.push(tuple(m.pop_last(1))),
    "TUPLE2": lambda m, _: m.push(tuple(m.pop_last(2))),
    "TUPLE3": lambda m, _: m.push(tuple(m.pop_last(3))),
    "TUPLE": lambda m, _: m.push(tuple(m.pop_to_mark())),
    "LIST": lambda m, _: m.push(m.pop_to_mark()),
    "APPEND": lambda m, _: m.extend(m.pop_last(1)),
    "APPENDS": lambda m, _: m.extend(m.pop_to_mark()),
    "ADDITEMS": lambda m, _: m.add(m.pop_to_mark()),
    "SETITEM": lambda m, _: m.update(m.pop_last(2)),
    "SETITEMS": lambda m, _: m.update(m.pop_to_mark()),
    "POP": lambda m, _: m.pop(),
    "MEMOIZE": lambda m, _: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "BINPUT": lambda m, i: m.memo.__setitem__(i, m.stack[-1]),
    "LONG_BINPUT": lambda m, i: m.memo.__setitem__(i, m.stack[-1]),
    "BINGET": lambda m, i: m.push(m.memo[i]),
    "LONG_BINGET": lambda m, i: m.push(m.memo[i]),
    # pickletools gives module and name in one text.
    "GLOBAL": lambda m, text: m.push_name(*text.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.push_name(*m.pop_last(2)),
    "REDUCE": lambda m, _: m.push(Call(*m.pop_last(2))),
    "NEWOBJ": lambda m, _: m.push(Call(*m.pop_last(2))),
    # Keywords are not needed.
    "NEWOBJ_EX": lambda m, _: m.push(Call(*m.pop_last(3)[:2])),
    "BUILD": lambda m, _: m.build(),
}
_NUMBERS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")


def state_of(value: Any, class_name: str) -> dict[str, Any]:
    """Return the attributes of an object of a class that would have been built.

    Raises:
        PickleError: It would be an object of another class, or none.
    """
    match value:
        case Call(Name(_, "_reconstructor"), (Name(_, name), *_), dict(state)) | Call(
            Name(_, name), _, dict(state)
        ) if name == class_name:
            return state
    raise PickleError(f"it holds no {class_name}")


def number_of(value: Any) -> float:
    """Return a number, also one that is an array of one number.

    Raises:
        PickleError: It is none.
        OverflowError: It is beyond all floats.
    """
    if isinstance(value, (int, float)):
        return float(value)
    array = array_of(value)
    if array.size != 1:
        raise PickleError("it holds an array in place of a number")
    return float(array.reshape(()))


def array_of(value: Any) -> np.ndarray:
    """Return an array or number of NumPy that would have been built, in its own precision.

    Raises:
        PickleError: It would be something else, or its content does not fill it.
        ValueError: It has more axes than NumPy takes.
    """
    match value:
        case Call(Name(_, "_reconstruct"), _, (_, shape, pickled_dtype, is_fortran, content)):
            order = "F" if is_fortran else "C"
        case Call(Name(_, "_frombuffer"), (content, pickled_dtype, shape, order)):
            pass
        case Call(Name(_, "scalar"), (pickled_dtype, content)):
            shape, order = (), "C"
        case _:
            raise PickleError("it holds no array where one is expected")
    dtype, data = _dtype(pickled_dtype), _bytes(content)
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or order not in ("C", "F"):
        raise PickleError("an array has no valid shape")
    # Compared as whole numbers before anything of that size is made.
    if math.prod(shape) * dtype.itemsize != len(data):
        raise PickleError("an array declares a shape that its content does not fill")
    ordered: Any = order
    array = np.frombuffer(data, dtype).reshape(shape, order=ordered)
    # A copy in the same order: the last bits of a product depend on it.
    return np.asarray(array.astype(dtype.newbyteorder("=")))


def _dtype(value: Any) -> np.dtype:
    match value:
        case Call(Name(_, "dtype"), (str(code), *_), state) if code in _NUMBERS:
            order = state[1] if isinstance(state, tuple) and len(state) > 1 else "|"
            if order in ("<", ">", "|", "="):
                return np.dtype(f"{order}{code}")
    raise PickleError("an array has an unknown type")


def _bytes(value: Any) -> bytes:
    match value:
        case bytes() | bytearray():
            return bytes(value)
        # Protocol 2 writes bytes as the encoding of a text.
        case Call(Name("_codecs", "encode"), (str(text), *_)):
            return text.encode("latin1")
    raise PickleError("an array has no content")
