"""What of an object is plain data: numbers, arrays, tensors, and containers of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_DEEPEST = 6


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
