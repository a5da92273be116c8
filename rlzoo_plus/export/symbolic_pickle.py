"""Reads a pickle as data: what it would import and call stays a name, and nothing is run.

The standard library's `pickletools` splits the stream into opcodes; this module keeps the stack.
A class becomes a `Name`, a call or a new object a `Call` that remembers function, arguments and
state. Names outside a short list of packages are refused, so that a file with anything else in it
is recognised as such. NumPy arrays and numbers are built from such calls without unpickling.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PACKAGES = ("numpy", "gym", "gymnasium", "stable_baselines3", "collections")
_OTHER_NAMES = (
    ("copyreg", "_reconstructor"), ("copy_reg", "_reconstructor"), ("builtins", "object"),
    ("__builtin__", "object"), ("builtins", "bytearray"), ("_codecs", "encode"),
    ("builtins", "bytes"), ("__builtin__", "bytes"),
)  # fmt: skip
_MAX_OPCODES = 2_000_000


class PickleError(Exception):
    """A stream that this reader does not take."""


@dataclass(frozen=True)
class Name:
    """Something the stream would import."""

    module: str
    name: str


@dataclass(eq=False)
class Call:
    """Something the stream would build.

    Attributes:
        function: What it would call.
        arguments: With what.
        state: What it would set afterwards, None if nothing.
    """

    function: Any
    arguments: Any
    state: Any = None


class _Mark:
    pass


def read_symbolic(data: bytes, packages: Sequence[str] = PACKAGES) -> Any:
    """Return what a pickle describes, with `Name` and `Call` in place of classes and objects.

    Args:
        data: The stream.
        packages: What it may name, besides what every pickle of plain data needs.

    Raises:
        PickleError: The stream is damaged, or names or does what none of ours would.
    """
    machine = _Machine(packages)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name == "STOP":
                return machine.pop()
            if count > _MAX_OPCODES:
                raise PickleError("it is far longer than what belongs there")
            machine.step(opcode.name, argument)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PickleError(f"it is damaged ({type(error).__name__})") from error
    raise PickleError("it ends early")


class _Machine:
    """The stack and the memo of one stream."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _IGNORED:
            return
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        else:
            raise PickleError(f"it uses {name}, which has no place there")

    def pop(self) -> Any:
        value = self.stack.pop()
        if isinstance(value, _Mark):
            raise PickleError("it is damaged")
        return value

    def pop_to_mark(self) -> list[Any]:
        for position in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[position], _Mark):
                items = self.stack[position + 1 :]
                del self.stack[position:]
                return items
        raise PickleError("it is damaged")

    def push_tuple(self, size: int) -> None:
        items = [self.pop() for _ in range(size)]
        self.stack.append(tuple(reversed(items)))

    def push_name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleError("it is damaged")
        if module.split(".")[0] not in self.packages and (module, name) not in _OTHER_NAMES:
            raise PickleError(f"it names {module}.{name}, which has no place there")
        self.stack.append(Name(module, name))

    def push_stack_name(self) -> None:
        name = self.pop()
        self.push_name(self.pop(), name)

    def call(self, with_keywords: bool = False) -> None:
        keywords = self.pop() if with_keywords else None
        arguments = self.pop()
        call = Call(self.pop(), arguments)
        if keywords:
            call.arguments = (arguments, keywords)
        self.stack.append(call)

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1]
        if not isinstance(target, Call):
            raise PickleError("it is damaged")
        target.state = state

    def extend(self, items: list[Any]) -> None:
        # A list of a class of its own is a Call; what is in it is of no interest.
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Call):
            target.state = {} if target.state is None else target.state
            target = target.state
        if isinstance(target, dict):
            target.update(zip(items[::2], items[1::2], strict=True))

    def two(self) -> list[Any]:
        value = self.pop()
        return [self.pop(), value]


_Action = Callable[[_Machine, Any], object]
_IGNORED = ("PROTO", "FRAME")
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "MARK": _Mark,
}
_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8", "SHORT_BINSTRING", "BINSTRING",
)  # fmt: skip
_ACTIONS: dict[str, _Action] = {
    "TUPLE1": lambda m, _: m.push_tuple(1),
    "TUPLE2": lambda m, _: m.push_tuple(2),
    "TUPLE3": lambda m, _: m.push_tuple(3),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_to_mark())),
    "LIST": lambda m, _: m.stack.append(m.pop_to_mark()),
    "APPEND": lambda m, _: m.extend([m.pop()]),
    "APPENDS": lambda m, _: m.extend(m.pop_to_mark()),
    "SETITEM": lambda m, _: m.update(m.two()),
    "SETITEMS": lambda m, _: m.update(m.pop_to_mark()),
    "POP": lambda m, _: m.stack.pop(),
    "MEMOIZE": lambda m, _: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "BINPUT": lambda m, i: m.memo.__setitem__(i, m.stack[-1]),
    "LONG_BINPUT": lambda m, i: m.memo.__setitem__(i, m.stack[-1]),
    "BINGET": lambda m, i: m.stack.append(m.memo[i]),
    "LONG_BINGET": lambda m, i: m.stack.append(m.memo[i]),
    # pickletools gives both parts of it in one text.
    "GLOBAL": lambda m, text: m.push_name(*text.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.push_stack_name(),
    "REDUCE": lambda m, _: m.call(),
    "NEWOBJ": lambda m, _: m.call(),
    "NEWOBJ_EX": lambda m, _: m.call(with_keywords=True),
    "BUILD": lambda m, _: m.build(),
}


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
    """Return whether a NumPy scalar would have been built, not an array."""
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
