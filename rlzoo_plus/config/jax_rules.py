"""What the algorithms of sbx, which compute with JAX, cannot do; told before they are imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlzoo_plus.config.catalog import CALLBACKS, AlgorithmSpec
from rlzoo_plus.config.own_code import chosen_names
from rlzoo_plus.config.schema import NetworkConfig, RunConfig
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
    if spec.backend != "jax":
        return
    name, mistakes = spec.name, Mistakes()
    if config.device not in ("auto", "cpu"):
        mistakes.add(
            f"device={config.device}: {name} computes with JAX on the processor. Use device=cpu."
        )
    if config.freeze:
        mistakes.add(f"freeze={config.freeze}: parts of {name} cannot be kept. Leave freeze out.")
    if config.export.sb3_zip:
        mistakes.add(
            "export.sb3_zip=true: a zip of sbx holds pickled code. Leave it out; the bundles, "
            "best/ and final/, hold none."
        )
    for callback in _OF_TORCH:
        if callback in chosen_names(config, CALLBACKS):
            mistakes.add(
                f"callbacks=[{callback}] is for networks of torch, and {name} computes with JAX. "
                "Leave it out."
            )
    rate = config.algo.hyperparams.get("learning_rate")
    if isinstance(rate, str) and "learning_rate" not in spec.schedules:
        mistakes.add(
            f"algo.hyperparams.learning_rate={rate}: {name} keeps its learning rate. Set a number."
        )
    for mistake in _mistakes_of_network(config.network, spec):
        mistakes.add(mistake)
    mistakes.tell()


def _mistakes_of_network(network: NetworkConfig, spec: AlgorithmSpec) -> Iterator[str]:
    for key, value, known in (
        ("activation", network.activation, ACTIVATIONS),
        ("optimizer", network.optimizer, OPTIMIZERS),
    ):
        if value is not None and value not in known:
            yield (
                f"network.{key}={value}: {spec.name} computes with JAX, and has "
                f"{', '.join(known)}. Choose one of them."
            )
    module, _, class_name = spec.entry_point.partition(":")
    if not module.startswith("sbx."):
        return  # a class of the user may use more
    used = (*_USED, *_USED_BY[class_name.lower()])
    for key, value in network.model_dump(exclude={"lstm"}).items():
        if value is not None and key not in used:
            yield f"network.{key}={value}: {spec.name} does not use it. Leave it out."
    arch = network.net_arch
    # It takes the first size alone.
    if class_name == "DQN" and arch is not None and (len(arch) != 2 or len(set(arch)) != 1):
        yield (
            f"network.net_arch={arch}: {spec.name} has two layers of the same size, "
            "e.g. network.net_arch=[256,256]."
        )
