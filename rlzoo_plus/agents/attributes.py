"""Putting attributes back by name, whoever wrote the names and the values.

A checkpoint may be forged: only plain data is replaced, by plain data of the same kind and shape,
so that no method, network or environment of an object can become something else.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlzoo_plus.agents.plain import is_plain, like

_ABSENT = object()


def replace_attributes(
    target: object, values: Mapping[str, Any], kept_out: Collection[str] = ()
) -> None:
    """Set attributes of a freshly built object to what `to_plain` made of an earlier one's.

    Args:
        target: The object.
        values: By attribute.
        kept_out: Attributes that are not to be set.

    Raises:
        ValueError: A name is of something else than plain data, or a value does not fit.
    """
    for name, value in values.items():
        if not isinstance(name, str) or name.startswith("__") or name in kept_out:
            raise ValueError(f"{type(target).__name__} has no {name!r} to be put back")
        own = vars(target).get(name, _ABSENT)
        # Some are set by the first step only: then nothing else may be in their place.
        current = inspect.getattr_static(type(target), name, _ABSENT) if own is _ABSENT else own
        if current is not _ABSENT and not is_plain(current):
            raise ValueError(f"{type(target).__name__}.{name} is no plain data")
        if current is not _ABSENT:
            value = fitted(current, value, name)
        elif not is_plain(value):
            raise ValueError(f"{name} is no plain data")
        setattr(target, name, value)


def fitted(template: Any, value: Any, where: str) -> Any:
    """Return a plain value in the types of the one that it replaces.

    Args:
        template: What is replaced; None and empty containers may become anything plain.
        value: From `to_plain`.
        where: Its name, for the message.

    Raises:
        ValueError: It is of another kind, type or shape.
    """
    if not _fits(template, value):
        raise ValueError(f"{where} does not fit: {type(value).__name__}")
    return like(template, value)


def _fits(template: Any, value: Any) -> bool:
    import torch

    if template is None or value is None:
        # What is not there yet, and what is not there any more.
        return is_plain(value)
    if isinstance(template, torch.Tensor):
        template = template.detach().cpu().numpy()
    if isinstance(template, np.ndarray):
        if not isinstance(value, np.ndarray) or template.size == 0:
            # VecNormalize begins with empty arrays, of any type.
            return isinstance(value, np.ndarray)
        return value.dtype == template.dtype and value.shape == template.shape
    if isinstance(template, (list, deque)):
        return isinstance(value, list) and is_plain(value)
    if isinstance(template, tuple):
        is_alike = isinstance(value, tuple) and len(value) == len(template)
        return is_alike and all(map(_fits, template, value))
    if isinstance(template, dict):
        is_alike = isinstance(value, dict) and is_plain(value)
        return is_alike and all(_fits(template[k], value[k]) for k in template.keys() & value)
    return _kind(template) == _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "truth"
    if isinstance(value, (int, float, np.number)):
        return "number"
    return type(value).__name__
