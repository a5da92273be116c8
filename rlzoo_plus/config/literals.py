"""Parses Python literals in strings without running them, and writes plain values as YAML.

Such strings, for example "dict(net_arch=[64], activation_fn=nn.ReLU)", are how rl_zoo3 writes
arguments that YAML has no types for.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from rlzoo_plus.config.catalog import ACTIVATIONS, OPTIMIZERS
from rlzoo_plus.errors import ConfigError, closest

MAX_CHARACTERS = 10_000
MAX_DEPTH = 20

# YAML 1.1 reads a number without a decimal point, such as 1e-3, as text.
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d{1,2}")


@dataclass(frozen=True)
class Symbol:
    """A class named inside a literal, by its short name in conf/."""

    kind: str  # One of `activation`, `optimizer`, `replay_buffer`
    name: str  # The short name, for example `relu`


def _make_symbols() -> dict[str, Symbol]:
    her = ("HerReplayBuffer", "stable_baselines3.HerReplayBuffer")
    symbols = dict.fromkeys(her, Symbol("replay_buffer", "her"))
    for registry in (ACTIVATIONS, OPTIMIZERS):
        for short, location in registry.items():
            # Under the names that scripts usually give to modules: nn.ReLU, th.nn.ReLU, ...
            module, class_name = location.split(":")
            root, _, rest = module.partition(".")
            is_torch = root == "torch"
            prefixes = [f"{rest}.", f"th.{rest}.", f"{module}."] if is_torch else ["", f"{module}."]
            for prefix in prefixes:
                symbols[prefix + class_name] = Symbol(registry.kind, short)
    return symbols


SYMBOLS = _make_symbols()


def parse_literal(text: str) -> object:
    """Read a Python literal without evaluating it.

    Allowed: numbers, strings, booleans, None, a sign before a number, lists, tuples (returned as
    lists), dictionaries with string keys, `dict(name=value)`, and the class names of `SYMBOLS`.

    Returns:
        Plain Python values, with a `Symbol` where a class was named.

    Raises:
        ConfigError: The text is anything else.
    """
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"it has more than {MAX_CHARACTERS} characters")
        return _walk(ast.parse(text.strip(), mode="eval").body)
    except ConfigError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", error) or "it is nested too deeply"
        raise ConfigError(
            f"{_short(text)} is not a Python literal ({reason}). Write it like dict(net_arch=[64, "
            "64]) or as a YAML mapping."
        ) from error


def parse_symbol(text: str, kind: str) -> str:
    """Return the short name of the class that `text` names.

    Raises:
        ConfigError: The text is not a known name of that kind.
    """
    value = parse_literal(text)
    if isinstance(value, Symbol) and value.kind == kind:
        return value.name
    raise ConfigError(f"{_short(text)} is not the name of a known {kind}. {_known(text, kind)}")


def schedule_of_lambda(name: str, text: str) -> float | str:
    """Return the schedule of a function of the remaining progress, without running it.

    Only straight lines have a counterpart: `lambda p: p * 3e-4` is `lin_0.0003`.

    Returns:
        A number if it is constant, else `lin_<start>_<end>`, or `lin_<start>` if it ends at 0.

    Raises:
        ConfigError: It is anything else.
    """
    refusal = (
        f"{name}={_short(text)} is code. Of functions only straight lines of one argument can be "
        "converted, such as `lambda p: 3e-4 * p`; write it as lin_, cos_ or exp_ START_END."
    )
    try:
        match ast.parse(text.strip()[:MAX_CHARACTERS], mode="eval").body:
            case ast.Lambda(args=ast.arguments(args=[ast.arg(arg=p)], defaults=[]), body=body):
                end, slope = _line(body, p)
            case _:
                raise ConfigError(refusal)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ConfigError(refusal) from error
    if slope == 0:
        return end
    start = end + slope
    return f"lin_{start:g}" if end == 0 else f"lin_{start:g}_{end:g}"


def _line(node: ast.expr, argument: str) -> tuple[float, float]:
    """Return the value at 0 and the slope of an expression that is a straight line."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number), 0.0
        case ast.Name(id=name) if name == argument:
            return 0.0, 1.0
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value, slope = _line(operand, argument)
            return -value, -slope
        case ast.BinOp(left=left, op=operator, right=right):
            (a, b), (c, d) = _line(left, argument), _line(right, argument)
            match operator:
                case ast.Add():
                    return a + c, b + d
                case ast.Sub():
                    return a - c, b - d
                case ast.Mult() if not (b and d):
                    return a * c, a * d + b * c
                case ast.Div() if not d:
                    return a / c, b / c
    raise ValueError("not a straight line")


def read_mapping(name: str, value: object) -> dict[str, object]:
    """Return a mapping that was given as YAML or as the text of a Python literal.

    Raises:
        ConfigError: It is neither; None is an empty one.
    """
    if isinstance(value, str):
        value = parse_literal(value)
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{name}={_short(str(value))} is not a mapping. Write dict(key=value).")
    return dict(value)


def plain_mapping(name: str, value: object) -> dict[str, Any]:
    """Return `read_mapping`, checked by `plain_value`."""
    return {key: plain_value(f"{name}.{key}", v) for key, v in read_mapping(name, value).items()}


def plain_value(name: str, value: object, depth: int = 0) -> Any:
    """Return a value that YAML can hold as it is, with texts such as `1e-3` read as numbers.

    Raises:
        ConfigError: It is not plain data, not finite, or would be interpolated when loaded.
    """
    if depth > MAX_DEPTH:
        raise ConfigError(f"{name} is nested more than {MAX_DEPTH} levels deep.")
    match value:
        case str() if "${" in value:
            raise ConfigError(f"{name}={value!r} holds an interpolation. Write the value out.")
        case str():
            return float(value) if _EXPONENT.fullmatch(value) else value
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [plain_value(name, item, depth + 1) for item in value]
        case Mapping() if all(isinstance(key, str) for key in value):
            return {k: plain_value(f"{name}.{k}", item, depth + 1) for k, item in value.items()}
        case _:
            raise ConfigError(f"{name}={_short(str(value))} cannot be written as plain YAML.")


def dump_plain(values: Mapping[str, Any]) -> str:
    """Return plain values as YAML: mappings in block style, lists of scalars in flow style."""
    return yaml.dump(
        dict(values), Dumper=PlainDumper, sort_keys=False, width=100, allow_unicode=True
    )


class PlainDumper(yaml.SafeDumper):
    """Writes repeated values out instead of using anchors, and lists of scalars in one line."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: no anchors."""
        return True


def _represent_list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    is_flat = not any(isinstance(item, dict | list) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=is_flat)


PlainDumper.add_representer(list, _represent_list)


def _walk(node: ast.expr) -> object:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=sign, operand=ast.Constant(value=int() | float() as number)) if (
            isinstance(sign, ast.USub | ast.UAdd) and not isinstance(number, bool)
        ):
            return -number if isinstance(sign, ast.USub) else number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_walk(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return _mapping(zip(keys, values, strict=True))
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            names = (ast.Constant(k.arg) if k.arg else None for k in keywords)
            return _mapping(zip(names, (k.value for k in keywords), strict=True))
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            if name in SYMBOLS:
                return SYMBOLS[name]
            if all(part.isidentifier() for part in name.split(".")):
                raise ConfigError(f"{_short(name)} is not a known name. {_known(name)}")
    raise ConfigError(
        f"{_short(ast.unparse(node))} is code, not a plain value. "
        "Allowed are numbers, strings, lists, dict(...) and names such as nn.ReLU."
    )


def _mapping(pairs: Iterable[tuple[ast.expr | None, ast.expr]]) -> dict[str, object]:
    """Return a dictionary from its nodes; the key of a `**` is None."""
    mapping: dict[str, object] = {}
    for key, value in pairs:
        match key:
            case ast.Constant(value=str() as name) if name not in mapping:
                mapping[name] = _walk(value)
            case _:
                text = "**" if key is None else _short(ast.unparse(key))
                raise ConfigError(f"The key {text} must be a string that is there once.")
    return mapping


def _known(name: str, kind: str | None = None) -> str:
    names = [known for known, symbol in SYMBOLS.items() if kind in (None, symbol.kind)]
    near = closest(name, names)
    return f"Did you mean {near}?" if near else f"Known: {', '.join(sorted(names))}."


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
