"""Objects of this Python process that a configuration names because they cannot be imported.

Such a name is `object.PointEnv_1a2b3c4d`: what it is, and a hash of its source. Another process has
to be given the object again; nothing is ever made from the recorded source.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo_plus.errors import ConfigError

PREFIX = "object."
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_objects: dict[str, Any] = {}
# The argument of `Run.resume` that gives an object again, where it is not the key itself.
_ARGUMENTS = {"env.id": "env", "algo.action_noise.type": "action_noise"}


def is_given(name: object) -> bool:
    """Tell whether a name is that of an object which a process was given."""
    return isinstance(name, str) and name.startswith(PREFIX)


def is_path(text: object) -> bool:
    """Tell whether a text can be the dotted path of an object that is imported."""
    return isinstance(text, str) and not is_given(text) and bool(_PATH.fullmatch(text))


def import_path(value: Any) -> str | None:
    """Return `module.name` if that is this very object in every process, else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str) and name.isidentifier()):
        return None
    # The script's own module has another name where it is imported.
    if module in ("__main__", "__mp_main__", "builtins"):
        return None
    return f"{module}.{name}" if getattr(sys.modules.get(module), name, None) is value else None


def source_of(value: Any) -> str | None:
    """Return the source of a class, a function, or of an object's class; None if there is none."""
    is_code = isinstance(value, type) or hasattr(value, "__code__")
    try:
        kind = value if is_code else getattr(value, "made_class", type(value))
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return None


def name_object(value: Any) -> str:
    """Keep an object for this process; return its name."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    word = re.sub(r"\W+", "", kind.__qualname__.rpartition(".")[2], flags=re.ASCII) or "object"
    name = f"{PREFIX}{word}_{_digest(value)}"
    number = 1
    # Two of one source may differ in what they hold.
    while _objects.get(name, value) is not value:
        number += 1
        name = f"{PREFIX}{word}_{_digest(value)}_{number}"
    _objects[name] = value
    return name


def give_again(name: str, value: Any) -> None:
    """Let a name of an earlier process stand for an object of this one."""
    _objects[name] = value


def given(name: str, key: str) -> Any:
    """Return the object of a name.

    Raises:
        ConfigError: This process was not given it.
    """
    if name not in _objects:
        argument = _ARGUMENTS.get(key, key)
        word = f"{argument}=..." if argument.isidentifier() else f"**{{{argument!r}: ...}}"
        raise ConfigError(
            f"{key}: {name.removeprefix(PREFIX).partition('_')[0]} was an object of the Python "
            f"process that began the run. Pass it again: rz.Run.open(RUN).resume({word})."
        )
    return _objects[name]


def names_in(data: Any) -> Iterator[str]:
    """Yield the names of such objects in nested plain data, in their order."""
    if is_given(data):
        yield data
    elif isinstance(data, Mapping):
        for key, item in data.items():
            yield from names_in(key)
            yield from names_in(item)
    elif isinstance(data, (list, tuple)):
        for item in data:
            yield from names_in(item)


def sources(data: Any) -> dict[str, str | None]:
    """Return the source of each object that nested plain data names."""
    return {name: source_of(_objects.get(name)) for name in names_in(data)}


def digests(data: Any) -> dict[str, str]:
    """Return a hash of the source of each object that nested plain data names, for checkpoints."""
    found = ((name, _objects.get(name)) for name in names_in(data))
    return {name.replace(".", " ", 1): _digest(value) for name, value in found}


def _digest(value: Any) -> str:
    text = source_of(value) or repr(type(value))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
