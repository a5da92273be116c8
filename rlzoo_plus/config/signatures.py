"""The constructor arguments of an algorithm, read from its source without importing it.

Importing Stable-Baselines3 imports torch, which takes about a second; parsing the installed file
gives the same names and types at once.
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

# The value of algo.hyperparams.seed that makes the run's seed that of agent and environments.
PLAIN_SEED = "plain"
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
    "_init_setup_model": "it is set by the run",
}
# What a value of each type may be, and how the type is called in an error.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "text"),
    "None": ((type(None),), "null"),
    "dict": ((dict,), "a mapping"),
    "tuple": ((list, tuple), "a list"),
}
# Packages that an extra of this one brings.
_EXTRAS = {"sbx": "rlzoo-plus[sbx]"}
# Names of a schedule are checked by `parse_schedule`.
_SCHEDULES = ("Schedule", "Callable")


@lru_cache(maxsize=64)
def constructor_arguments(entry_point: str) -> dict[str, str] | None:
    """Return a class's constructor arguments, without `self`, and their annotations.

    Returns:
        Annotation by name, empty where there is none; or None when the source does not tell
        (`**kwargs`, no `__init__` of its own): then the constructor itself checks.

    Raises:
        ConfigError: There is no such module or class.
    """
    module, class_name = entry_point.split(":")
    source = _source_of(module)
    body = ast.parse(source.read_text(encoding="utf-8")).body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    if class_name not in classes:
        raise ConfigError(f"{entry_point}: {source.name} has no class {class_name}.")
    # Its own, or that of the first base in the same file, and so on.
    found = classes[class_name]
    lines = found.body
    while not any(getattr(item, "name", "") == "__init__" for item in lines):
        base = ast.unparse(found.bases[0]) if found.bases else ""
        if base not in classes:
            return None
        found = classes[base]
        lines = found.body
    for item in lines:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            if item.args.kwarg is not None:
                return None
            arguments = [*item.args.posonlyargs, *item.args.args][1:] + item.args.kwonlyargs
            return {a.arg: ast.unparse(a.annotation) if a.annotation else "" for a in arguments}
    return None


def fit_type(value: Any, annotation: str) -> Any:
    """Return a value as an argument of this annotation takes it: 1e6 as an int is 1000000.

    Raises:
        ValueError: It is of another type; the text says which would be right.
    """
    names = _type_names(annotation)
    types = {name: _TYPES.get(name, ((), "a schedule")) for name in names}
    if not names or any(name not in _TYPES and name not in _SCHEDULES for name in names):
        return value
    if isinstance(value, str) and any(name in _SCHEDULES for name in names):
        return value
    if isinstance(value, bool):
        if "bool" in names:
            return value
    elif any(isinstance(value, allowed) for allowed, _ in types.values()):
        return value
    elif "int" in names and isinstance(value, float) and value.is_integer():
        return int(value)
    shown = dict.fromkeys(text for _, text in types.values())
    raise ValueError(f"must be {' or '.join(shown)}")


def with_sequences(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with tuples or arrays in place of lists where the function asks for them.

    A configuration holds lists only; `shape: [40, 40]` is a tuple for a `shape: tuple[int, int]`.
    """
    fitted = dict(arguments)
    lists = [name for name, value in fitted.items() if isinstance(value, list)]
    try:
        parameters = inspect.signature(function).parameters if lists else {}
    except (TypeError, ValueError):
        return fitted
    for name in lists:
        if name in parameters:
            fitted[name] = _as_asked(fitted[name], parameters[name])
    return fitted


def _as_asked(value: list[Any], parameter: inspect.Parameter) -> Any:
    annotation = str(parameter.annotation).lower()
    if re.search(r"list|sequence|iterable", annotation):
        return value
    if "tuple" in annotation or isinstance(parameter.default, tuple):
        return _as_tuple(value)
    if "ndarray" in annotation or type(parameter.default).__name__ == "ndarray":
        import numpy as np

        array = np.array(value)
        # The type of Gymnasium's spaces, which warn of lost precision.
        return array.astype(np.float32) if array.dtype == np.float64 else array
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


@lru_cache(maxsize=1024)
def _type_names(annotation: str) -> tuple[str, ...]:
    """Return the names in `int | tuple[int, str] | None` at its top level; also of Union[...]."""
    try:
        members = _members(ast.parse(annotation, mode="eval").body)
    except SyntaxError:
        return ()
    return tuple(name.split("[")[0].split(".")[-1] for name in members)


def _members(node: ast.expr) -> list[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _members(node.left) + _members(node.right)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(("Union", "Optional")):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        extra = ["None"] if ast.unparse(node.value).endswith("Optional") else []
        return [name for item in inner for name in _members(item)] + extra
    return [ast.unparse(node)]


def missing_package(root: str) -> ConfigError:
    """Return the error for a package of an algorithm that is not installed."""
    install = f"'{_EXTRAS[root]}'" if root in _EXTRAS else root
    return ConfigError(f"the package {root!r} is not installed. Run: pip install {install}")


def _source_of(module: str) -> Path:
    root, *rest = module.split(".")
    spec = find_spec(root)
    if spec is None:
        raise missing_package(root)
    if not spec.submodule_search_locations:
        return Path(str(spec.origin))
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    raise ConfigError(f"there is no module {module!r} in {root}.")
