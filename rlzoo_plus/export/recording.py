"""Observations to try a policy on: from its own environment, or made up after its statistics."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.envs.factory import make_eval_env, steps_alike
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.export.signature import STATE_NAMES, Signature

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.config.schema import RunConfig

log = logging.getLogger(__name__)

N_ENVS = 2
N_STEPS = 150


@dataclass(frozen=True)
class Recording:
    """Inputs of an exported policy, by name, with all observations along the batch.

    Attributes:
        inputs: Arrays by name of the input.
        source: Where they come from, for people.
    """

    inputs: dict[str, np.ndarray]
    source: str

    def __len__(self) -> int:
        return self.inputs["episode_start"].shape[0]

    def part(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return a slice along the batch; states have it as their second axis."""
        return {
            name: value[:, start:stop] if name in STATE_NAMES else value[start:stop]
            for name, value in self.inputs.items()
        }


def record(policy: Policy, signature: Signature, config: RunConfig) -> Recording:
    """Play a few hundred steps, or make observations up if the environment cannot be made."""
    try:
        return _play(policy, signature, config)
    # Whatever a foreign simulator raises: the export itself does not need it.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        log.warning(
            "%s cannot be played (%s): checking on made-up observations", config.env.id, reason
        )
        return made_up(policy, signature)


def _play(policy: Policy, signature: Signature, config: RunConfig) -> Recording:
    venv = make_eval_env(config.env, N_ENVS, steps_alike(config))
    rows: list[dict[str, np.ndarray]] = []
    try:
        for rank in range(N_ENVS):
            seeds = held_out_seeds(N_STEPS * N_ENVS)[rank::N_ENVS]
            venv.env_method("set_episode_seeds", list(seeds), indices=rank)
        observation, state = venv.reset(), None
        starts = np.ones(N_ENVS, dtype=bool)
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
    ports = signature.inputs[: signature.n_observations]
    # Copies: the environments may write into the same arrays again.
    row = {p.name: np.array(v, dtype=p.dtype) for p, v in zip(ports, parts, strict=True)}
    row["episode_start"] = starts.copy()
    if signature.recurrent:
        shapes = [port.sizes(len(starts)) for port in signature.outputs[1:]]
        values = state or [np.zeros(shape, np.float32) for shape in shapes]
        row |= {name: np.array(v) for name, v in zip(STATE_NAMES, values, strict=True)}
    if masks is not None:
        row["action_masks"] = masks.reshape(len(starts), -1).astype(bool)
    return row


def made_up(policy: Policy, signature: Signature, count: int = 256) -> Recording:
    """Draw observations that look like the policy's own: after its statistics where it has any."""
    generator = np.random.default_rng(0)
    ports = signature.inputs[: signature.n_observations]
    space = policy.network.observation_space
    inputs: dict[str, np.ndarray] = {}
    for key, port in zip(signature.keys or ("",), ports, strict=True):
        part = space[key] if key else space
        values = _draw(policy, part, key, count, generator)
        inputs[port.name] = values.astype(port.dtype).reshape(port.sizes(count))
    inputs["episode_start"] = generator.random(count) < 0.1
    if signature.recurrent:
        for name, port in zip(STATE_NAMES, signature.outputs[1:], strict=True):
            inputs[name] = generator.uniform(-1, 1, port.sizes(count)).astype(np.float32)
    if signature.maskable:
        port = next(port for port in signature.inputs if port.name == "action_masks")
        inputs["action_masks"] = generator.random(port.sizes(count)) < 0.6
    return Recording(inputs, f"{count} made-up observations")


def _draw(
    policy: Policy, space: spaces.Space, key: str, count: int, generator: np.random.Generator
) -> np.ndarray:
    normalizer = policy.normalizer
    if normalizer is not None and key in normalizer.mean:
        spread = 3.0 * np.sqrt(normalizer.var[key] + normalizer.epsilon)
        noise = generator.normal(size=(count, *space.shape))
        return np.asarray(normalizer.mean[key] + spread * noise)
    space.seed(0)
    samples = np.stack([space.sample() for _ in range(count)])
    if len(space.shape or ()) != 3:
        return samples
    # Noise alone looks the same everywhere to a convolution: let the brightness differ.
    return np.asarray(samples * generator.uniform(size=(count, 1, 1, 1)))
