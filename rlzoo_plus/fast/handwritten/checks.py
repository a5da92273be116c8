"""The comparison of hand-written gradients with those of autograd, when a training starts."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rlzoo_plus.fast.recorded.tape import NotRecordableError

# In single precision; a wrong formula is off by far more.
_OF_ITS_NORM, _OF_ALL = 1e-2, 1e-4


def require_same_gradients(
    names: Sequence[str], found: Sequence[Tensor], expected: Sequence[Tensor]
) -> None:
    """Check that gradients are those of autograd, up to rounding.

    Raises:
        NotRecordableError: One is not; the error names its parameter.
    """
    whole = sum(float(gradient.norm()) ** 2 for gradient in expected) ** 0.5
    for name, mine, theirs in zip(names, found, expected, strict=True):
        error = float((mine - theirs).norm())
        if error > _OF_ITS_NORM * float(theirs.norm()) + _OF_ALL * whole:
            raise NotRecordableError(f"the gradient of {name} is not that of autograd")
