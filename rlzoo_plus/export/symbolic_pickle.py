"""Reads a pickle as data: what it would import and call stays a name, and nothing is run.

The standard library's `pickletools` splits the stream into opcodes; this module keeps the stack.
A class becomes a `Name`, a call or a new object a `Call` that remembers function, arguments and
state. Names outside a short list of packages are refused, so that a file with anything else in it
is recognised as such.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
