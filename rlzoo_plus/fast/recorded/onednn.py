"""Products of matrices by oneDNN, where it is faster than MKL, with which torch multiplies.

On AMD's processors MKL leaves AVX-512 out; oneDNN, which torch has for other purposes, uses it and
takes half the time for large layers. Results differ in their rounding only.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

# Below so many multiplications, a call takes longer than it gains.
_SMALLEST = 2**21
_CPU_INFO = Path("/proc/cpuinfo")


def pays(x: Tensor, weight: Tensor) -> bool:
    """Return whether `linear` is the faster product, of the last two dimensions."""
    size = x.shape[-2] * weight.shape[-2] * weight.shape[-1]
    is_single = x.dtype == weight.dtype == torch.float32
    return size >= _SMALLEST and is_single and is_faster()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `x @ weight.t() + bias`, by oneDNN.

    Args:
        x: Shape (rows, inputs).
        weight: Shape (units, inputs). One with gaps in its memory is copied: oneDNN has only its
            reference for it, which takes a thousand times as long.
        bias: Shape (units,).
    """
    if not is_dense(weight):
        weight = weight.contiguous()
    given: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return given


def is_dense(matrix: Tensor) -> bool:
    """Return whether a matrix, or its transpose, has its entries one after the other."""
    return matrix.is_contiguous() or matrix.mT.is_contiguous()


@cache
def is_faster() -> bool:
    """Return whether oneDNN multiplies faster here: on AMD's processors with AVX-512."""
    # An older torch cannot tell.
    able: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    if not able.get("avx512_f") or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        return "AuthenticAMD" in _CPU_INFO.read_text(encoding="utf-8")
    except OSError:  # not Linux
        return "AuthenticAMD" in platform.processor()
