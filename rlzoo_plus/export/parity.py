"""Does an exported file act as the policy it was made from?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from rlzoo_plus.export.recording import Recording
from rlzoo_plus.export.signature import STATE_NAMES, Signature

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy

TOLERANCE = 1e-5
BATCH_SIZES = (1, 2, 7)
Runner = Callable[..., list[np.ndarray]]


@dataclass(frozen=True)
class Parity:
    """The comparison of a file with its policy.

    Attributes:
        difference: The largest difference of an action, relative to half its range (to its size
            where it has no bounds); for choices, 1 if any differs. States count too.
        rounding: How far the policy is from itself, the same way, when the same observations come
            in batches of another size: what float32 leaves open.
        count: Observations compared.
        source: Where they come from.
    """

    difference: float
    rounding: float
    count: int
    source: str

    @property
    def holds(self) -> bool:
        """Whether the file may be used in place of the policy.

        Deep networks on images round by more than the tolerance, in torch itself as well.
        """
        return self.difference < max(TOLERANCE, 2.0 * self.rounding)

    def __str__(self) -> str:
        return (
            f"largest difference {self.difference:.1e} of the action scale over {self.count} "
            f"observations ({self.source}); the policy differs from itself by "
            f"{self.rounding:.1e} between sizes of batches"
        )


def compare(policy: Policy, signature: Signature, run: Runner, recording: Recording) -> Parity:
    """Run file and policy on the same inputs: all at once, and in batches of several sizes."""
    total = len(recording)
    slices = [(0, total)]
    for size in BATCH_SIZES:
        slices += [(start, start + size) for start in range(0, total - size, max(size, total // 9))]
    space = policy.network.action_space
    worst, rounding = 0.0, 0.0
    whole = _expected(policy, signature, recording.part(0, total))
    for start, stop in slices:
        inputs = recording.part(start, stop)
        expected = _expected(policy, signature, inputs)
        worst = max(worst, _difference(space, expected, run(**inputs)))
        # Only the action: a state has its batch in the middle.
        rounding = max(rounding, _difference(space, expected[:1], [whole[0][start:stop]]))
    return Parity(worst, rounding, total, recording.source)


def _expected(
    policy: Policy, signature: Signature, inputs: dict[str, np.ndarray]
) -> list[np.ndarray]:
    ports = signature.inputs[: signature.n_observations]
    values = [inputs[port.name] for port in ports]
    observation = dict(zip(signature.keys, values, strict=True)) if signature.keys else values[0]
    state = tuple(inputs[name] for name in STATE_NAMES) if signature.recurrent else None
    starts, masks = inputs["episode_start"], inputs.get("action_masks")
    action, state = policy.predict(observation, state, starts, True, masks)
    return [action, *(state if signature.recurrent and state is not None else ())]


def _difference(space: spaces.Space, expected: list[np.ndarray], actual: list[np.ndarray]) -> float:
    shapes = [left.shape == right.shape for left, right in zip(expected, actual, strict=True)]
    if not all(shapes):
        return float("inf")
    gaps = [np.abs(actual[0].astype(float) - expected[0].astype(float)) / _scale(space, expected)]
    for left, right in zip(expected[1:], actual[1:], strict=True):
        gaps.append(np.abs(left - right) / np.maximum(1.0, np.abs(left)))
    worst = max(float(np.max(gap)) for gap in gaps)
    # A comparison with something that is not a number would always pass for a small one.
    return worst if np.isfinite(worst) else float("inf")


def _scale(space: spaces.Space, expected: list[np.ndarray]) -> np.ndarray | float:
    if not isinstance(space, spaces.Box):
        return 1.0
    half = (space.high.astype(float) - space.low.astype(float)) / 2
    return np.where(np.isfinite(half), half, np.maximum(1.0, np.abs(expected[0])))
