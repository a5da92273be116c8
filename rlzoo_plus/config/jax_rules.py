"""What the algorithms of sbx, which compute with JAX, cannot do; told before they are imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo_plus.config.catalog import CALLBACKS, AlgorithmSpec
from rlzoo_plus.config.own_code import chosen_names
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import Mistakes

ACTIVATIONS = (
    *("tanh", "relu", "elu", "leaky_relu", "gelu", "silu", "selu", "mish"),
    *("softplus", "sigmoid", "identity"),
)
OPTIMIZERS = ("adam", "adamw", "radam", "nadam", "sgd", "rmsprop")
_USED = ("policy", "net_arch", "activation", "optimizer", "optimizer_kwargs", "policy_kwargs")
# Further keys of `network` that an algorithm's policies use; of others they only take the names.
_USED_BY: Mapping[str, tuple[str, ...]] = {
    "ppo": ("log_std_init", "ortho_init"),
    "tqc": ("n_quantiles",),
    **dict.fromkeys(("sac", "td3", "ddpg", "crossq"), ("n_critics",)),
    "dqn": (),
}
# Callbacks that read torch's gradients or call its critics.
_OF_TORCH = ("gradients", "q_values")


def check_jax(config: RunConfig, spec: AlgorithmSpec) -> None:
    """Refuse what would have no effect, or cannot be done, with an algorithm of sbx.

    Raises:
        ConfigError: The text names all such keys.
    """
    mistakes = Mistakes()
    for key, value, why in _refused(config, spec) if spec.backend == "jax" else ():
        mistakes.add(f"{key}={value}: {spec.name} {why}")
    mistakes.tell()


def _refused(config: RunConfig, spec: AlgorithmSpec) -> Iterator[tuple[str, Any, str]]:
    """Yield each such key, its value, and why, with the mend."""
    if config.device not in ("auto", "cpu"):
        yield "device", config.device, "computes with JAX on the processor. Use device=cpu."
    if config.freeze:
        yield "freeze", config.freeze, "cannot keep parts as they are. Leave freeze out."
    if config.export.sb3_zip:
        yield "export.sb3_zip", "true", "would need pickled code. Use the bundles best/ or final/."
    for callback in sorted({*_OF_TORCH} & {*chosen_names(config, CALLBACKS)}):
        yield "callbacks", callback, "has no networks of torch. Leave it out."
    rate = config.algo.hyperparams.get("learning_rate")
    if isinstance(rate, str) and "learning_rate" not in spec.schedules:
        yield "algo.hyperparams.learning_rate", rate, "keeps its learning rate. Set a number."
    network = config.network
    for key, known in (("activation", ACTIVATIONS), ("optimizer", OPTIMIZERS)):
        value = getattr(network, key)
        if value is not None and value not in known:
            yield f"network.{key}", value, f"has {', '.join(known)}. Choose one of them."
    module, _, class_name = spec.entry_point.partition(":")
    if not module.startswith("sbx."):
        return  # a class of the user may use more
    used = (*_USED, *_USED_BY[class_name.lower()])
    for key, value in network.model_dump(exclude={"lstm"}).items():
        if value is not None and key not in used:
            yield f"network.{key}", value, "does not use it. Leave it out."
    arch = network.net_arch
    # It takes the first size alone.
    if class_name == "DQN" and arch is not None and (len(arch) != 2 or len(set(arch)) != 1):
        yield "network.net_arch", arch, "has two layers of the same size, e.g. [256,256]."
