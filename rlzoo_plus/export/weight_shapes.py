"""What the shapes and names of a policy's weights say about its configuration."""

from __future__ import annotations

import re
from typing import Any

import torch

from rlzoo_plus.config.catalog import ACTIVATIONS, FEATURES_EXTRACTORS, AlgorithmSpec, Family

Weights = dict[str, torch.Tensor]
_CLASS = re.compile(r"(?:class ')?[\w.]*?(\w+)'?>?$")
_HINTS = ("use_expln", "squash_output", "normalize_images")


def infer_overrides(weights: Weights, facts: dict[str, Any], spec: AlgorithmSpec) -> dict[str, str]:
    """Return the overrides that make our network fit the weights.

    Args:
        weights: Parameters by name.
        facts: The plain part of the zip's `data`; only compared with names known here.
        spec: The algorithm.
    """
    found = {**_layers(weights, facts, spec), **_recurrence(weights, spec), **_exploration(weights)}
    critics = {name.split(".")[1] for name in weights if re.match(r"critic\.qf\d+\.", name)}
    if critics and spec.family is Family.OFF_POLICY:
        found["network.n_critics"] = str(len(critics))
    picture = _first(weights, r"(.*\.)?features_extractor\.linear\.0\.weight")
    if picture is not None:
        found["network.features_extractor_kwargs"] = f"{{features_dim: {picture.shape[0]}}}"
    kwargs = facts.get("policy_kwargs")
    return {**found, **_hints(kwargs if isinstance(kwargs, dict) else {})}


def activation_hint(facts: dict[str, Any]) -> str | None:
    """Return our name of the activation that the zip speaks of, if it is one of ours."""
    kwargs = facts.get("policy_kwargs")
    text = kwargs.get("activation_fn") if isinstance(kwargs, dict) else None
    return _known(text, ACTIVATIONS)


def input_sizes(weights: Weights) -> dict[str, int]:
    """Return the number of inputs of each first layer that reads observations."""
    firsts = (
        r"mlp_extractor\.policy_net\.\d+\.weight", r"lstm_actor\.weight_ih_l0",
        r"actor\.(latent_pi|mu)\.\d+\.weight", r"q_net\.q_net\.\d+\.weight",
        r"quantile_net\.quantile_net\.\d+\.weight", r"action_net\.\d+\.weight",
    )  # fmt: skip
    return {
        name: int(layers[name].shape[1])
        for pattern in firsts
        for layers in [{k: v for k, v in weights.items() if re.fullmatch(pattern, k)}]
        for name in [next((k for k, v in layers.items() if v.ndim == 2), None)]
        if name is not None
    }


def _layers(weights: Weights, facts: dict[str, Any], spec: AlgorithmSpec) -> dict[str, str]:
    if spec.family is Family.ON_POLICY:
        return _parts(
            _sizes(weights, "mlp_extractor.policy_net."),
            _sizes(weights, "mlp_extractor.value_net."),
        )
    if spec.family is Family.EVOLUTION:
        sizes = _sizes(weights, "action_net.")
        if len(sizes) > 1:
            return {"network.policy": "mlp", "network.net_arch": _list(sizes[:-1])}
        is_linear = any(name.startswith("action_net.") for name in weights)
        return {"network.policy": "linear", "network.net_arch": "null"} if is_linear else {}
    for prefix in ("q_net.q_net.", "quantile_net.quantile_net."):
        sizes = _sizes(weights, prefix)
        if sizes:
            return {"network.net_arch": _list(sizes[:-1]), **_quantiles(sizes[-1], facts, spec)}
    actor = _sizes(weights, "actor.latent_pi.") or _sizes(weights, "actor.mu.")[:-1]
    critic = _sizes(weights, "critic.qf0.")
    found = _parts(actor, critic[:-1]) if critic else {}
    if spec.name == "tqc" and critic:
        found["network.n_quantiles"] = str(critic[-1])
    return found


def _quantiles(outputs: int, facts: dict[str, Any], spec: AlgorithmSpec) -> dict[str, str]:
    """Divide the outputs of a quantile network by the number of actions, if it is known."""
    space = facts.get("action_space")
    n_actions = str(space.get("n", "")) if isinstance(space, dict) else ""
    if spec.name != "qrdqn" or not n_actions.isdecimal() or len(n_actions) > 6:
        return {}
    return {"network.n_quantiles": str(outputs // max(1, int(n_actions)))}


def _parts(actor: list[int], critic: list[int]) -> dict[str, str]:
    return {"network.net_arch": f"{{actor: {_list(actor)}, critic: {_list(critic)}}}"}


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
    """State-dependent exploration has a matrix where there is else a vector or a layer."""
    deviation = weights.get("log_std", weights.get("actor.log_std"))
    if deviation is None or deviation.ndim != 2:
        return {}
    found = {"algo.hyperparams.use_sde": "true"}
    mean = weights.get("action_net.weight", weights.get("actor.mu.weight"))
    if mean is None:
        mean = weights.get("actor.mu.0.weight")
    if mean is not None and deviation.shape[1] == 1 and mean.shape[0] > 1:
        found["network.full_std"] = "false"
    return found


def _hints(kwargs: dict[str, Any]) -> dict[str, str]:
    found = {
        f"network.{name}": str(kwargs[name]).lower()
        for name in _HINTS
        if isinstance(kwargs.get(name), bool)
    }
    extractor = _known(kwargs.get("features_extractor_class"), FEATURES_EXTRACTORS)
    if extractor is not None:
        found["network.features_extractor"] = extractor
    return found


def _known(text: Any, catalog: dict[str, Any]) -> str | None:
    match = _CLASS.search(text) if isinstance(text, str) and len(text) < 200 else None
    names = {entry.partition(":")[2]: name for name, entry in catalog.items()}
    return names.get(match.group(1)) if match else None


def _sizes(weights: Weights, prefix: str) -> list[int]:
    """Return the output sizes of the linear layers below a prefix, in their order."""
    layers = {
        int(match.group(1)): int(value.shape[0])
        for name, value in weights.items()
        if value.ndim == 2 and (match := re.fullmatch(re.escape(prefix) + r"(\d+)\.weight", name))
    }
    return [layers[index] for index in sorted(layers)]


def _list(sizes: list[int]) -> str:
    return "[" + ", ".join(str(size) for size in sizes) + "]"


def _first(weights: Weights, pattern: str) -> torch.Tensor | None:
    return next((value for name, value in weights.items() if re.fullmatch(pattern, name)), None)
