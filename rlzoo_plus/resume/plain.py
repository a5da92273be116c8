"""Plain data: what of an object is saved (numbers, arrays, tensors, containers), and put back.

A checkpoint may be forged: only plain data is replaced, by plain data of the same kind and shape,
so that no method, network or environment of an object can become something else.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

_DEEPEST = 6
_ABSENT = object()


def is_plain(value: Any, depth: int = 0) -> bool:
    """Tell whether a value can be written to a checkpoint as data, and replaced from there.

    A list or dictionary of tensors is not: Stable-Baselines3 keeps references to parts of
    networks in such.
    """
    import torch

    if value is None or isinstance(value, (bool, int, float, str)):
        return True
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "biuf"
    if isinstance(value, torch.Tensor):
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
    return all(not torch.is_tensor(item) and is_plain(item, depth + 1) for item in items)


def to_plain(value: Any) -> Any:
    """Copy a value; tensors become arrays, other sequences lists or tuples."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(to_plain(item) for item in value)
    if isinstance(value, (list, deque)):
        return [to_plain(item) for item in value]
    return value


def like(template: Any, value: Any) -> Any:
    """Return what `to_plain` made plain, in the types of the object that it replaces."""
    import torch

    if isinstance(template, torch.Tensor):
        return torch.from_numpy(np.array(value)).to(template.device)
    if isinstance(template, deque):
        return deque(value, maxlen=template.maxlen)
    if isinstance(template, tuple) and isinstance(value, tuple) and len(template) == len(value):
        items = [like(t, v) for t, v in zip(template, value, strict=True)]
        # A named tuple takes its fields one by one.
        return type(template)(*items) if hasattr(template, "_fields") else tuple(items)
    if isinstance(template, dict) and isinstance(value, dict):
        return {key: like(template.get(key), item) for key, item in value.items()}
    return value


def tensors_of(value: Any) -> Any:
    """Return nested data with every array as a tensor."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, dict):
        return {key: tensors_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(tensors_of(item) for item in value)
    return value


def layout_of(value: Any) -> Any:
    """Return the order of an array's axes in memory, where it is not that of the axes themselves.

    Pictures are transposed without being copied, and a convolution rounds by the order in memory.
    """
    if isinstance(value, dict):
        layouts = {key: layout_of(item) for key, item in value.items()}
        return {key: layout for key, layout in layouts.items() if layout is not None} or None
    if not isinstance(value, np.ndarray) or value.flags.c_contiguous:
        return None
    return [int(axis) for axis in np.argsort([-stride for stride in value.strides], kind="stable")]


def in_layout(value: Any, layout: Any) -> Any:
    """Return the same numbers in an order of axes in memory that `layout_of` told."""
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
