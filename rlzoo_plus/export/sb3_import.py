"""From a Stable-Baselines3 zip of unknown origin to a run directory.

The names and shapes of the weights say most of the configuration; what the zip says in text is only
compared with names known here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.agents.policy import acting_config, misfits, with_old_names
from rlzoo_plus.artifacts.bundle import Bundle, save_bundle
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir
from rlzoo_plus.config.catalog import (
    ACTIVATIONS,
    FEATURES_EXTRACTORS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_train_env, with_one_env
from rlzoo_plus.envs.spaces import encode_space
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.sb3_archive import PickledStatistics, Sb3Archive

Weights = Mapping[str, torch.Tensor]
_CLASS = re.compile(r"(?:class ')?[\w.]*?(\w+)'?>?$")
_SWITCHES = ("use_expln", "squash_output", "normalize_images")
# The layers that may read observations.
_FIRST_LAYERS = (
    r"mlp_extractor\.policy_net\.\d+\.weight", r"lstm_actor\.weight_ih_l0",
    r"actor\.(latent_pi|mu)\.\d+\.weight", r"q_net\.q_net\.\d+\.weight",
    r"quantile_net\.quantile_net\.\d+\.weight", r"action_net\.\d+\.weight",
)  # fmt: skip
_MOST_LINES = 6
# Part of the name of a layer that does not fit, and the override that decides its shape.
_FIXES = (
    ("lstm", "network.lstm.hidden_size=..., network.lstm.n_layers=..."),
    ("log_std", "algo.hyperparams.use_sde=true or false"),
    ("features_extractor", "network.features_extractor=..., or another environment"),
    ("critic.qf", "network.n_critics=... or network.net_arch={actor: [...], critic: [...]}"),
    ("", "network.net_arch={actor: [...], critic: [...]}"),
)


def guess(
    archive: Sb3Archive,
    algo: str,
    statistics: PickledStatistics | None,
    given: set[str],
    told: dict[str, str],
) -> tuple[list[str], list[str]]:
    """Read the configuration of networks and normalisation off a zip.

    Args:
        archive: The zip.
        algo: The algorithm.
        statistics: Those of its observations, None if there are none.
        given: Keys that the user has set.
        told: Overrides by key that the files beside the zip describe; the zip itself wins.

    Returns:
        Overrides, without the keys that the user has `given`, and notes for the user on what the
        zip does not say.
    """
    found = _inferred(archive.weights, archive.facts, get_algorithm(algo))
    notes = []
    if not any(key.startswith("network.activation") for key in given):
        activation = _known(_policy_kwargs(archive.facts).get("activation_fn"), ACTIVATIONS)
        if activation is not None:
            found["network.activation"] = activation
            notes.append(f"activation {activation}, as the file's description says")
        elif not told:
            notes.append(
                "the activation function is not in the weights: taking the default of "
                f"{algo}; network.activation=... says otherwise"
            )
    normalizer = None if statistics is None else statistics.normalizer
    found["normalize"] = "false"
    if statistics is not None and normalizer is not None:
        found["normalize"] = (
            f"{{observation: true, reward: {str(statistics.norm_reward).lower()}, "
            f"clip_observation: {normalizer.clip!r}, clip_reward: {statistics.clip_reward!r}, "
            f"epsilon: {normalizer.epsilon!r}}}"
        )
    # The tuned values of another file belong to another network.
    found["tuned"] = "none"

    def without(overrides: dict[str, str], keys: Collection[str]) -> dict[str, str]:
        return {
            key: value
            for key, value in overrides.items()
            if not any(f"{key}.".startswith(f"{k}.") or k.startswith(f"{key}.") for k in keys)
        }

    kept = without({**without(told, found), **found}, given)
    return [f"{key}={value}" for key, value in kept.items()], notes


def _inferred(weights: Weights, facts: dict[str, Any], spec: AlgorithmSpec) -> dict[str, str]:
    """Return the overrides that make our network fit the weights."""
    found = {**_layers(weights, facts, spec), **_recurrence(weights, spec), **_exploration(weights)}
    critics = {name.split(".")[1] for name in weights if re.match(r"critic\.qf\d+\.", name)}
    if critics and spec.family is Family.OFF_POLICY:
        found["network.n_critics"] = str(len(critics))
    for name, value in weights.items():
        if re.fullmatch(r"(.*\.)?features_extractor\.linear\.0\.weight", name):
            found["network.features_extractor_kwargs"] = f"{{features_dim: {value.shape[0]}}}"
            break
    kwargs = _policy_kwargs(facts)
    for switch in _SWITCHES:
        if isinstance(kwargs.get(switch), bool):
            found[f"network.{switch}"] = str(kwargs[switch]).lower()
    extractor = _known(kwargs.get("features_extractor_class"), FEATURES_EXTRACTORS)
    return found if extractor is None else {**found, "network.features_extractor": extractor}


def _policy_kwargs(facts: dict[str, Any]) -> dict[str, Any]:
    kwargs = facts.get("policy_kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


def _known(text: Any, catalog: dict[str, Any]) -> str | None:
    """Return the name in a catalog of the class that a text names."""
    match = _CLASS.search(text) if isinstance(text, str) and len(text) < 200 else None
    names = {entry.partition(":")[2]: name for name, entry in catalog.items()}
    return names.get(match.group(1)) if match else None


def _layers(weights: Weights, facts: dict[str, Any], spec: AlgorithmSpec) -> dict[str, str]:
    def sizes_of(prefix: str) -> list[int]:
        """Return the output sizes of the linear layers below a prefix, in their order."""
        pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.weight")
        found = ((pattern.fullmatch(k), v) for k, v in weights.items() if v.ndim == 2)
        layers = {int(match.group(1)): int(v.shape[0]) for match, v in found if match}
        return [layers[index] for index in sorted(layers)]

    def both(actor: list[int], critic: list[int]) -> dict[str, str]:
        return {"network.net_arch": f"{{actor: {actor}, critic: {critic}}}"}

    if spec.family is Family.ON_POLICY:
        return both(sizes_of("mlp_extractor.policy_net"), sizes_of("mlp_extractor.value_net"))
    if spec.family is Family.EVOLUTION:
        sizes = sizes_of("action_net")
        if len(sizes) > 1:
            return {"network.policy": "mlp", "network.net_arch": str(sizes[:-1])}
        is_linear = any(name.startswith("action_net.") for name in weights)
        return {"network.policy": "linear", "network.net_arch": "null"} if is_linear else {}
    values = sizes_of("q_net.q_net") or sizes_of("quantile_net.quantile_net")
    if values:
        found = {"network.net_arch": str(values[:-1])}
        space = facts.get("action_space")
        n_actions = str(space.get("n", "")) if isinstance(space, dict) else ""
        if spec.name == "qrdqn" and n_actions.isdecimal() and len(n_actions) <= 6:
            found["network.n_quantiles"] = str(values[-1] // max(1, int(n_actions)))
        return found
    actor = sizes_of("actor.latent_pi") or sizes_of("actor.mu")[:-1]
    critic = sizes_of("critic.qf0")
    found = both(actor, critic[:-1]) if critic else {}
    if spec.name == "tqc" and critic:
        found["network.n_quantiles"] = str(critic[-1])
    return found


def _recurrence(weights: Weights, spec: AlgorithmSpec) -> dict[str, str]:
    first = weights.get("lstm_actor.weight_hh_l0")
    if not spec.recurrent or first is None or first.ndim != 2:
        return {}
    has_critic = any(name.startswith("lstm_critic.") for name in weights)
    is_shared = not has_critic and "critic.weight" not in weights
    layers = sum(1 for name in weights if re.fullmatch(r"lstm_actor\.weight_hh_l\d+", name))
    return {
        "network.lstm.hidden_size": str(first.shape[1]),
        "network.lstm.n_layers": str(layers),
        "network.lstm.shared": str(is_shared).lower(),
        "network.lstm.enable_critic": str(has_critic).lower(),
    }


def _exploration(weights: Weights) -> dict[str, str]:
    """State-dependent exploration has a matrix where others have a vector or a layer."""
    deviation = weights.get("log_std", weights.get("actor.log_std"))
    if deviation is None or deviation.ndim != 2:
        return {}
    found = {"algo.hyperparams.use_sde": "true"}
    names = ("action_net.weight", "actor.mu.weight", "actor.mu.0.weight")
    mean = next((weights[name] for name in names if name in weights), None)
    if mean is not None and deviation.shape[1] == 1 and mean.shape[0] > 1:
        found["network.full_std"] = "false"
    return found


def build(
    config: RunConfig,
    archive: Sb3Archive,
    statistics: PickledStatistics | None,
    about: dict[str, Any],
) -> Bundle:
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
        try:
            normalizer.check_fits(observation_space)
        except ValueError as error:
            shapes = ", ".join(str(mean.shape) for mean in normalizer.mean.values())
            raise ConfigError(
                f"--vecnormalize: {error}. Its statistics have shape {shapes}, the observations "
                f"are {observation_space}: they belong to another environment or model."
            ) from error
    return Bundle(
        config=acting_config(config),
        spaces={
            "observation": encode_space(observation_space),
            "action": encode_space(action_space),
        },
        weights={k: value.detach().numpy().copy() for k, value in network.state_dict().items()},
        normalization=None if normalizer is None else normalizer.state(),
        about=about,
    )


def write_run(run: RunDir, config: RunConfig, bundle: Bundle, command: str) -> None:
    """Write configuration, `best/` and `final/`, and a status, as a finished run has them."""
    run.start(config.model_dump(mode="json"), command, {"imported": bundle.about})
    for path in (run.best, run.final):
        save_bundle(path, bundle)
    run.write_status(FINISHED, num_timesteps=bundle.about["step"])


def about_file(path: Path, archive: Sb3Archive) -> dict[str, Any]:
    """Return what the bundle records of its origin: name, hash, and the steps it claims."""
    steps = archive.facts.get("num_timesteps")
    is_count = type(steps) is int and 0 <= steps < 2**53
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"step": steps if is_count else 0, "imported_from": path.name, "sha256": digest}


def _check_fit(wanted: Weights, given: Weights, config: RunConfig) -> None:
    lines = list(misfits(wanted, given).values())
    if not lines:
        return
    more = f"\n  ... and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
    shown = "".join(f"\n  {line}" for line in lines[:_MOST_LINES])
    ours, theirs = _input_sizes(wanted), _input_sizes(given)
    other = next((name for name in ours if theirs.get(name, ours[name]) != ours[name]), None)
    if other is not None:
        fix = (
            f"The file's policy reads {theirs[other]} numbers, {config.env.id} gives "
            f"{ours[other]}: name the environment it was trained in, with its env.wrappers and "
            "env.frame_stack."
        )
    elif "action_net" in lines[0] or "actor.mu" in lines[0]:
        fix = f"Is {config.env.id} the environment, and {config.algo.name} the algorithm?"
    else:
        override = next(text for part, text in _FIXES if part in lines[0])
        fix = f"Set {override}; or it was trained by another algorithm than {config.algo.name}."
    raise ConfigError(f"the weights do not fit the network:{shown}{more}\n{fix}")


def _input_sizes(weights: Weights) -> dict[str, int]:
    """Return the number of inputs of each first layer that reads observations."""
    matrices = {name: value for name, value in weights.items() if value.ndim == 2}
    found = (
        next((name for name in matrices if re.fullmatch(pattern, name)), None)
        for pattern in _FIRST_LAYERS
    )
    return {name: int(matrices[name].shape[1]) for name in found if name is not None}
