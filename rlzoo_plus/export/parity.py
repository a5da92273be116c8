"""Compares an exported file with its policy, on observations that are recorded or made up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_eval_env, steps_alike
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.export.signature import STATE_NAMES, Signature

log = logging.getLogger(__name__)

TOLERANCE = 1e-5
BATCH_SIZES = (1, 2, 7)
N_ENVS = 2
N_STEPS = 150
Runner = Callable[..., list[np.ndarray]]


@dataclass(frozen=True)
class Parity:
    """The comparison of a file with its policy."""

    # The largest difference of an action, relative to half its range (to its size where it
    # has no bounds); for choices, 1 if any differs. States count too
    difference: float
    # The policy's difference from itself when the same observations come in batches of
    # another size: what float32 leaves open
    rounding: float
    count: int  # Number of observations
    source: str  # Where they come from

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
            f"{self.rounding:.1e} between batch sizes"
        )


@dataclass(frozen=True)
class Recording:
    """Inputs of an exported policy, with all observations along the batch."""

    inputs: dict[str, np.ndarray]  # Arrays by name of the input
    source: str  # Where they come from, as text for the user

    def __len__(self) -> int:
        return len(self.inputs["episode_start"])

    def part(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return a slice along the batch, which is the second axis of a state."""
        return {
            name: value[:, start:stop] if name in STATE_NAMES else value[start:stop]
            for name, value in self.inputs.items()
        }


def compare(policy: Policy, signature: Signature, run: Runner, recording: Recording) -> Parity:
    """Run file and policy on the same inputs: all at once, and in batches of several sizes."""
    total = len(recording)
    slices = [(0, total)]
    for size in BATCH_SIZES:
        slices += [(start, start + size) for start in range(0, total - size, max(size, total // 9))]
    space = policy.network.action_space
    worst, rounding = 0.0, 0.0
    whole = signature.predict(policy.predict, recording.inputs)
    for start, stop in slices:
        inputs = recording.part(start, stop)
        expected = signature.predict(policy.predict, inputs)
        worst = max(worst, _difference(space, expected, run(**inputs)))
        # The action alone: the batch is not the first axis of a state.
        rounding = max(rounding, _difference(space, expected[:1], [whole[0][start:stop]]))
    return Parity(worst, rounding, total, recording.source)


def _difference(
    space: spaces.Space[Any], expected: list[np.ndarray], actual: list[np.ndarray]
) -> float:
    pairs = list(zip(expected, actual, strict=True))
    if any(left.shape != right.shape for left, right in pairs):
        return float("inf")
    scales: list[Any] = [np.maximum(1.0, np.abs(left)) for left in expected]
    if isinstance(space, spaces.Box):
        half = (space.high.astype(float) - space.low.astype(float)) / 2
        scales[0] = np.where(np.isfinite(half), half, scales[0])
    else:
        scales[0] = 1.0
    gaps = [
        np.abs(right.astype(float) - left.astype(float)) / scale
        for (left, right), scale in zip(pairs, scales, strict=True)
    ]
    worst = float(np.max([np.max(gap) for gap in gaps]))
    # NaN would pass every comparison as a small number.
    return worst if np.isfinite(worst) else float("inf")


def record(policy: Policy, signature: Signature, config: RunConfig) -> Recording:
    """Play a few hundred steps, or make up observations if the environment cannot be made."""
    try:
        return _play(policy, signature, config)
    # Any error of a foreign simulator: the export itself does not need it.
    except Exception as error:
        log.warning(
            "%s cannot be played (%s): checking on made-up observations",
            config.env.id,
            one_line(error),
        )
        return made_up(policy, signature)


def _play(policy: Policy, signature: Signature, config: RunConfig) -> Recording:
    venv = make_eval_env(config.env, N_ENVS, steps_alike(config))
    rows: list[dict[str, np.ndarray]] = []
    try:
        for rank in range(N_ENVS):
            seeds = held_out_seeds(N_STEPS * N_ENVS)[rank::N_ENVS]
            venv.env_method("set_episode_seeds", list(seeds), indices=rank)
        observation: Any = venv.reset()
        state, starts = None, np.ones(N_ENVS, dtype=bool)
        for _ in range(N_STEPS):
            masks = np.stack(venv.env_method("action_masks")) if policy.maskable else None
            rows.append(_row(signature, observation, state, starts, masks))
            actions, state = policy.predict(observation, state, starts, True, masks)
            observation, _, starts, _ = venv.step(actions)
    finally:
        venv.close()
    inputs = {
        name: np.concatenate([row[name] for row in rows], axis=1 if name in STATE_NAMES else 0)
        for name in rows[0]
    }
    return Recording(inputs, f"{N_STEPS * N_ENVS} steps of {config.env.id}")


def _row(
    signature: Signature, observation: Any, state: Any, starts: np.ndarray, masks: Any
) -> dict[str, np.ndarray]:
    parts = [observation[key] for key in signature.keys] if signature.keys else [observation]
    # Copies: the environments may write into the same arrays again.
    pairs = zip(signature.observations, parts, strict=True)
    row = {port.name: np.array(part, dtype=port.dtype) for port, part in pairs}
    row["episode_start"] = starts.copy()
    if signature.recurrent:
        shapes = [port.sizes(len(starts)) for port in signature.outputs[1:]]
        values = state or [np.zeros(shape, np.float32) for shape in shapes]
        row |= {name: np.array(v) for name, v in zip(STATE_NAMES, values, strict=True)}
    if masks is not None:
        row["action_masks"] = masks.reshape(len(starts), -1).astype(bool)
    return row


def made_up(policy: Policy, signature: Signature, count: int = 256) -> Recording:
    """Draw observations by the policy's statistics where it has any, else from their space."""
    generator = np.random.default_rng(0)
    inputs, whole = {}, policy.observation_space
    for key, port in zip(signature.keys or ("",), signature.observations, strict=True):
        space = whole[key] if isinstance(whole, spaces.Dict) else whole
        values = _draw(policy, space, key, count, generator)
        inputs[port.name] = values.astype(port.dtype).reshape(port.sizes(count))
    inputs["episode_start"] = generator.random(count) < 0.1
    # The other inputs: the state of a recurrent policy, then masks.
    for port in signature.inputs[signature.n_observations :]:
        if port.name in STATE_NAMES:
            inputs[port.name] = generator.uniform(-1, 1, port.sizes(count)).astype(np.float32)
        elif port.name == "action_masks":
            inputs[port.name] = generator.random(port.sizes(count)) < 0.6
    return Recording(inputs, f"{count} made-up observations")


def _draw(
    policy: Policy, space: spaces.Space[Any], key: str, count: int, generator: np.random.Generator
) -> np.ndarray:
    normalizer = policy.normalizer
    if normalizer is not None and key in normalizer.mean:
        spread = 3.0 * np.sqrt(normalizer.var[key] + normalizer.epsilon)
        noise = generator.normal(size=(count, *normalizer.mean[key].shape))
        return np.asarray(normalizer.mean[key] + spread * noise)
    space.seed(0)
    samples = np.stack([space.sample() for _ in range(count)])
    if len(space.shape or ()) != 3:
        return samples
    # A convolution sees the same everywhere in plain noise: vary the brightness.
    return np.asarray(samples * generator.uniform(size=(count, 1, 1, 1)))
