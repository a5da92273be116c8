"""Plain data (numbers, arrays, tensors, containers) of objects, for checkpoints and back.

A checkpoint may be forged: only plain data is replaced, by plain data of the same kind and shape,
so that no method, network or environment of an object can become something else.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.atomic import map_leaves

_DEEPEST = 6
_ABSENT = object()


def _is_tensor(value: Any) -> bool:
    # Without torch, which this module must not import, there is none.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value can be written to a checkpoint as data, and replaced from there.

    A list or dictionary of tensors cannot: Stable-Baselines3 refers to parts of networks so.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return True
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "biuf"
    if _is_tensor(value):
        return not value.requires_grad
    if depth >= _DEEPEST:
        return False
    if isinstance(value, tuple):
        return all(is_plain(item, depth + 1) for item in value)
    if isinstance(value, (list, deque)):
        items = list(value)
    elif isinstance(value, dict) and all(isinstance(key, (str, int)) for key in value):
        items = list(value.values())
    else:
        return False
    return all(not _is_tensor(item) and is_plain(item, depth + 1) for item in items)


def to_plain(value: Any) -> Any:
    """Copy a value; tensors become arrays, other sequences lists or tuples."""

    def copied(leaf: Any) -> Any:
        array = leaf.detach().cpu().numpy() if _is_tensor(leaf) else leaf
        return array.copy() if isinstance(array, np.ndarray) else array

    return map_leaves(value, copied)


def tensors_of(value: Any) -> Any:
    """Return nested data with every array as a tensor."""
    import torch

    return map_leaves(
        value, lambda leaf: torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    )


def layout_of(value: Any) -> Any:
    """Return the memory order of an array's axes, None if the array is C-contiguous.

    Images are transposed without being copied, and a convolution rounds by the order in memory.
    """
    if isinstance(value, dict):
        layouts = {key: layout_of(item) for key, item in value.items()}
        return {key: layout for key, layout in layouts.items() if layout is not None} or None
    if not isinstance(value, np.ndarray) or value.flags.c_contiguous:
        return None
    return [int(axis) for axis in np.argsort([-stride for stride in value.strides], kind="stable")]


def in_layout(value: Any, layout: Any) -> Any:
    """Return the same numbers in a memory order of axes from `layout_of`."""
    if isinstance(value, dict) and isinstance(layout, dict):
        return {key: in_layout(item, layout.get(key)) for key, item in value.items()}
    if not isinstance(value, np.ndarray) or layout is None:
        return value
    if sorted(layout) != list(range(value.ndim)):
        raise ValueError(f"the axes {layout} are not those of an array of {value.ndim}")
    return np.ascontiguousarray(value.transpose(layout)).transpose(np.argsort(layout))


def replace_attributes(
    target: object, values: Mapping[str, Any], kept_out: Collection[str] = ()
) -> None:
    """Set plain attributes of a freshly built object to those of an earlier one.

    Args:
        target: The object.
        values: From `to_plain`, by attribute.
        kept_out: Attributes that must not be set.

    Raises:
        ValueError: An attribute is not plain data, or a value does not fit it.
    """
    for name, value in values.items():
        if not isinstance(name, str) or name.startswith("__") or name in kept_out:
            raise ValueError(f"{type(target).__name__} has no {name!r} to restore")
        own = vars(target).get(name, _ABSENT)
        # The first step creates some: until then the class must have nothing of that name.
        current = inspect.getattr_static(type(target), name, _ABSENT) if own is _ABSENT else own
        is_new = current is _ABSENT
        if not is_plain(value if is_new else current):
            raise ValueError(f"{type(target).__name__}.{name} is not plain data")
        setattr(target, name, value if is_new else fitted(current, value, name))


def fitted(template: Any, value: Any, where: str) -> Any:
    """Return a plain value in the types of the one that it replaces.

    Args:
        template: What is replaced; None and empty containers may become anything plain.
        value: From `to_plain`.
        where: Its name, for the message.

    Raises:
        ValueError: It is of another kind, type or shape.
    """
    result = value
    if template is None or value is None:
        # It did not exist yet, or does not exist any more.
        fits = is_plain(value)
    elif isinstance(template, np.ndarray) or _is_tensor(template):
        own = to_plain(template)
        fits = isinstance(value, np.ndarray)
        if fits and own.size:  # VecNormalize begins with empty arrays, of any type
            fits = (value.dtype, value.shape) == (own.dtype, own.shape)
        if fits and _is_tensor(template):
            result = tensors_of(np.array(value)).to(template.device)
    elif isinstance(template, (list, deque)):
        fits = isinstance(value, list) and is_plain(value)
        if fits and isinstance(template, deque):
            result = deque(value, maxlen=template.maxlen)
    elif isinstance(template, tuple):
        fits = isinstance(value, tuple) and len(value) == len(template)
        if fits:
            items = [fitted(own, item, where) for own, item in zip(template, value, strict=True)]
            # A named tuple takes its fields one by one.
            result = type(template)(*items) if hasattr(template, "_fields") else tuple(items)
    elif isinstance(template, dict):
        fits = isinstance(value, dict) and is_plain(value)
        if fits:
            result = {key: fitted(template.get(key), item, where) for key, item in value.items()}
    else:
        fits = _kind(template) == _kind(value)
    if not fits:
        raise ValueError(f"{where} does not fit: {type(value).__name__}")
    return result


def _kind(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "truth"
    if isinstance(value, (int, float, np.number)):
        return "number"
    return type(value).__name__
