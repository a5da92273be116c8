"""The constructor arguments of an algorithm, read from its source without importing it.

Importing Stable-Baselines3 means importing torch, about a second; a typing mistake should be
answered faster than that. Parsing the installed file gives the same names and types.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlzoo_plus.errors import ConfigError

MANAGED: dict[str, str] = {
    "policy": "the network kind is chosen from the observation space, or set network.policy",
    "env": "use env=...",
    "policy_kwargs": "use network.<key>, or network.policy_kwargs.<key>",
    "seed": "use seed=...",
    "device": "use device=...",
    "verbose": "use log.sb3=true for the tables of Stable-Baselines3",
    "tensorboard_log": "use log.tensorboard=true",
    "action_noise": "use algo.action_noise={type: normal, std: 0.1}",
    "replay_buffer_class": "use algo.replay_buffer=her|nstep|default",
    "rollout_buffer_class": "it is chosen from the observation space",
    "_init_setup_model": "the manager sets it",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
    "dict": (dict,),
    "tuple": (list, tuple),
}
# Names of a schedule are checked by `parse_schedule`.
_SCHEDULES = ("Schedule", "Callable")


@lru_cache(maxsize=64)
def constructor_arguments(entry_point: str) -> dict[str, str] | None:
    """Return a class's constructor arguments, without `self`, and their annotations.

    Args:
        entry_point: `package.module:Class`.

    Returns:
        Annotation by name, empty where there is none; or None when the arguments cannot be known
        from the source (`**kwargs`, no `__init__` of its own): then the check is left to the
        constructor itself.

    Raises:
        ConfigError: There is no such module or class.
    """
    module, class_name = entry_point.split(":")
    source = _source_of(module)
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return _arguments_of(node)
    raise ConfigError(f"{entry_point}: {source.name} has no class {class_name}.")


def fit_type(value: Any, annotation: str) -> Any:
    """Return a value as an argument of this annotation takes it: 1e6 as an int is 1000000.

    Raises:
        ValueError: It is of another type; the text says which would be right.
    """
    names = [name.split("[")[0].split(".")[-1] for name in _alternatives(annotation)]
    if not names or any(name not in _TYPES and name not in _SCHEDULES for name in names):
        return value
    if any(name in _SCHEDULES for name in names) and isinstance(value, str):
        return value
    if isinstance(value, bool):
        if "bool" in names:
            return value
    elif any(isinstance(value, _TYPES.get(name, ())) for name in names):
        return value
    elif "int" in names and isinstance(value, float) and value.is_integer():
        return int(value)
    words = {"None": "null", "dict": "a mapping", "tuple": "a list", "str": "text"}
    plain = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    allowed = [{**words, **plain}.get(name, "a schedule") for name in dict.fromkeys(names)]
    raise ValueError(f"must be {' or '.join(dict.fromkeys(allowed))}")


def with_sequences(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments whose lists are tuples or arrays where the function asks for such.

    A configuration holds lists only; `shape: [40, 40]` is a tuple for a `shape: tuple[int, int]`.

    Args:
        function: A function or class; its annotations and defaults say what it asks for.
        arguments: Its arguments by name.
    """
    fitted = dict(arguments)
    if not any(isinstance(value, list) for value in fitted.values()):
        return fitted
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return fitted
    for name in fitted.keys() & parameters.keys():
        if isinstance(fitted[name], list):
            fitted[name] = _as_asked(fitted[name], parameters[name])
    return fitted


def _as_asked(value: list[Any], parameter: inspect.Parameter) -> Any:
    words = set(
        re.findall(r"list|sequence|iterable|tuple|ndarray", str(parameter.annotation).lower())
    )
    if words & {"list", "sequence", "iterable"}:
        return value
    if "tuple" in words or isinstance(parameter.default, tuple):
        return _as_tuple(value)
    if "ndarray" in words or type(parameter.default).__name__ == "ndarray":
        import numpy as np

        array = np.array(value)
        # What Gymnasium's spaces hold; it would warn of the lost digits.
        return array.astype(np.float32) if array.dtype == np.float64 else array
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


@lru_cache(maxsize=1024)
def _alternatives(annotation: str) -> tuple[str, ...]:
    """Split `int | tuple[int, str] | None` at its top level; Union and Optional alike."""
    try:
        node = ast.parse(annotation, mode="eval").body
    except SyntaxError:
        return ()
    return tuple(_members(node))


def _members(node: ast.expr) -> list[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _members(node.left) + _members(node.right)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(("Union", "Optional")):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        extra = ["None"] if ast.unparse(node.value).endswith("Optional") else []
        return [name for item in inner for name in _members(item)] + extra
    return [ast.unparse(node)]


def _source_of(module: str) -> Path:
    root, *rest = module.split(".")
    spec = find_spec(root)
    if spec is None:
        raise ConfigError(f"the package {root!r} is not installed. Run: pip install {root}")
    if not spec.submodule_search_locations:
        return Path(str(spec.origin))
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    raise ConfigError(f"there is no module {module!r} in {root}.")


def _arguments_of(node: ast.ClassDef) -> dict[str, str] | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            if item.args.kwarg is not None:
                return None
            arguments = [*item.args.posonlyargs, *item.args.args][1:] + item.args.kwonlyargs
            return {a.arg: ast.unparse(a.annotation) if a.annotation else "" for a in arguments}
    return None
