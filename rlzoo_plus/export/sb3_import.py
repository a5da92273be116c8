"""From a Stable-Baselines3 zip of unknown origin to a run directory of ours."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces

from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.agents.normalization import ObservationNormalizer
from rlzoo_plus.agents.policy import acting_config, misfits, with_old_names
from rlzoo_plus.artifacts.bundle import Bundle, save_bundle
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.envs.factory import make_train_env, with_one_env
from rlzoo_plus.envs.spaces import encode_space
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.sb3_archive import PickledStatistics, Sb3Archive
from rlzoo_plus.export.weight_shapes import activation_hint, infer_overrides, input_sizes

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig

_SHOWN = 6
_FIXES = (
    ("lstm", "network.lstm.hidden_size=..., network.lstm.n_layers=..."),
    ("log_std", "algo.hyperparams.use_sde=true or false"),
    ("features_extractor", "network.features_extractor=..., or another environment"),
    ("critic.qf", "network.n_critics=... or network.net_arch={actor: [...], critic: [...]}"),
    ("", "network.net_arch={actor: [...], critic: [...]}"),
)


@dataclass(frozen=True)
class Guess:
    """Overrides that were read off a zip.

    Attributes:
        overrides: Command-line overrides, without those the user gave.
        notes: What could not be known, for the user.
    """

    overrides: list[str]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ImportedPolicy:
    """A policy of ours with foreign weights.

    Attributes:
        weights: Parameters by name.
        observation_space: What the environment shows the policy.
        action_space: What it may do.
        normalizer: Statistics of the observations, or None.
    """

    weights: dict[str, np.ndarray]
    observation_space: spaces.Space
    action_space: spaces.Space
    normalizer: ObservationNormalizer | None


def guess(
    archive: Sb3Archive, algo: str, statistics: PickledStatistics | None, given: set[str]
) -> Guess:
    """Read the configuration of networks and normalisation off a zip.

    Args:
        archive: The zip's content.
        algo: Name of the algorithm.
        statistics: Those of its `vecnormalize.pkl`, or None.
        given: Keys that the user has set; these are left alone.
    """
    found = infer_overrides(archive.weights, archive.facts, get_algorithm(algo))
    notes = []
    if not any(key.startswith("network.activation") for key in given):
        activation = activation_hint(archive.facts)
        if activation is not None:
            found["network.activation"] = activation
            notes.append(f"activation {activation}, as the file's description says")
        else:
            notes.append(
                "the activation function is not in the weights: taking the default of "
                f"{algo}; network.activation=... says otherwise"
            )
    found["normalize"] = _normalize(statistics)
    # What another tuned file says belongs to another network.
    found["tuned"] = "none"
    chosen = {k: v for k, v in found.items() if not any(_covers(key, k) for key in given)}
    return Guess([f"{key}={value}" for key, value in chosen.items()], notes)


def build(
    config: RunConfig, archive: Sb3Archive, statistics: PickledStatistics | None
) -> ImportedPolicy:
    """Build the network of a configuration and put the zip's weights into it.

    Raises:
        ConfigError: They do not fit; the text names the layers and the override that fixes it.
    """
    venv = make_train_env(with_one_env(config), config.seed)
    observation_space, action_space = venv.observation_space, venv.action_space
    venv.close()
    network = make_policy(config, observation_space, action_space)
    weights = with_old_names(archive.weights, network.state_dict())
    _check_fit(network.state_dict(), weights, config)
    for name, value in weights.items():
        if not torch.isfinite(value.float()).all():
            raise ConfigError(f"{name} of the file holds numbers that are not finite.")
    network.load_state_dict(weights)
    normalizer = None if statistics is None else statistics.normalizer
    if normalizer is not None:
        _check_statistics(normalizer, observation_space)
    arrays = {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}
    return ImportedPolicy(arrays, observation_space, action_space, normalizer)


def write_run(
    run: RunDir, config: RunConfig, policy: ImportedPolicy, about: dict[str, Any], command: str
) -> None:
    """Write configuration, `best/` and `final/`, and a status, as a finished run has them."""
    run.start(config.model_dump(mode="json"), command, {"imported": about})
    bundle = Bundle(
        config=acting_config(config),
        spaces={
            "observation": encode_space(policy.observation_space),
            "action": encode_space(policy.action_space),
        },
        weights=policy.weights,
        normalization=None if policy.normalizer is None else policy.normalizer.state(),
        about=about,
    )
    for path in (run.best, run.final):
        save_bundle(path, bundle)
    run.write_status(FINISHED, num_timesteps=about["step"])


def about_file(path: Path, archive: Sb3Archive) -> dict[str, Any]:
    """Return what the bundle records of its origin: name, hash, and the steps it claims."""
    steps = archive.facts.get("num_timesteps")
    is_count = isinstance(steps, int) and not isinstance(steps, bool) and 0 <= steps < 2**53
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "step": steps if is_count else 0,
        "imported_from": path.name,
        "sha256": digest,
    }


def _normalize(statistics: PickledStatistics | None) -> str:
    if statistics is None or statistics.normalizer is None:
        return "false"
    normalizer = statistics.normalizer
    return (
        f"{{observation: true, reward: {str(statistics.norm_reward).lower()}, "
        f"clip_observation: {normalizer.clip!r}, clip_reward: {statistics.clip_reward!r}, "
        f"epsilon: {normalizer.epsilon!r}}}"
    )


def _covers(given: str, key: str) -> bool:
    return key == given or key.startswith(f"{given}.") or given.startswith(f"{key}.")


def _check_fit(wanted: dict[str, Any], given: dict[str, Any], config: RunConfig) -> None:
    lines = list(misfits(wanted, given).values())
    if not lines:
        return
    more = f"\n  ... and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    shown = "".join(f"\n  {line}" for line in lines[:_SHOWN])
    fix = _other_environment(wanted, given, config) or _fix(lines[0], config)
    raise ConfigError(f"the weights do not fit the network:{shown}{more}\n{fix}")


def _other_environment(
    wanted: dict[str, Any], given: dict[str, Any], config: RunConfig
) -> str | None:
    sizes = input_sizes(given)
    for name, ours in input_sizes(wanted).items():
        if name in sizes and sizes[name] != ours:
            return (
                f"The file's policy reads {sizes[name]} numbers, {config.env.id} gives {ours}: "
                "name the environment it was trained in, with its env.wrappers and "
                "env.frame_stack."
            )
    return None


def _fix(line: str, config: RunConfig) -> str:
    if any(part in line for part in ("action_net", "actor.mu")):
        return f"Is {config.env.id} the environment, and {config.algo.name} the algorithm?"
    override = next(text for part, text in _FIXES if part in line)
    return f"Set {override}; or it was trained by another algorithm than {config.algo.name}."


def _check_statistics(normalizer: ObservationNormalizer, space: spaces.Space) -> None:
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    for key, mean in normalizer.mean.items():
        shape = parts[key].shape if key in parts else None
        if shape != mean.shape:
            where = f" of {key!r}" if key else ""
            raise ConfigError(
                f"--vecnormalize: statistics{where} have shape {mean.shape}, the observations "
                f"have {shape}: they belong to another environment or model."
            )
