"""Rules of a training by several processes, and the share of its configuration that each has."""

from __future__ import annotations

from collections.abc import Iterator

from rlzoo_plus.config.catalog import AlgorithmSpec
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.given import names_in

JOINT = ("ppo", "a2c", "trpo")
# Off-policy, with a network that acts alone, and rewards that need no environment.
APART = ("sac", "td3", "crossq", "tqc", "ddpg", "dqn", "qrdqn")
# Transitions of each environment that may wait to be learned from, unless a number is given.
_WAITING = 16


def share_of(config: RunConfig) -> RunConfig:
    """Return what one process of a run builds: its share of environments and of each minibatch.

    `n_envs` and `batch_size` of a run are those of all its processes together.
    """
    size = config.distributed
    if size == 1:
        return config
    values = dict(config.algo.hyperparams)
    if values.get("batch_size"):
        values["batch_size"] //= size
    algo = config.algo.model_copy(update={"hyperparams": values})
    return config.model_copy(update={"n_envs": config.n_envs // size, "algo": algo})


def distributed_mistakes(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what does not work in a training by several processes."""
    size = config.distributed
    if size == 1:
        return
    where = f"distributed={size}"
    if spec.name not in JOINT:
        yield (
            f"{where}: {spec.name} is trained by one process. Use algo=ppo, a2c or trpo, or leave "
            "distributed out."
        )
        return
    counts = {"n_envs": config.n_envs}
    if batch_size := config.algo.hyperparams.get("batch_size"):
        counts["algo.hyperparams.batch_size"] = batch_size
    for key, count in counts.items():
        if isinstance(count, int) and count % size:
            yield (
                f"{key}={count} is no multiple of {where}, and each process has the same share. "
                f"Set it to {-(-count // size) * size}."
            )
    kind, is_loss = config.exploration.kind, config.algo.symmetry == "loss"
    of_one = {"curriculum": bool(config.curriculum), "cost": config.cost is not None}
    of_one |= {"algo.symmetry=loss": is_loss, f"exploration={kind}": bool(kind)}
    for key in filter(of_one.get, of_one):
        yield f"{key} with {where}: it is learned by one process. Leave one of them out."
    if config.fast:
        yield (
            f"fast={str(config.fast).lower()} with {where}: such updates cannot be averaged. Leave "
            "one of them out."
        )
    if config.device == "mps" or ":" in config.device:
        yield (
            f"device={config.device} with {where}: each process takes a GPU of its own. Use "
            "device=cuda or device=cpu."
        )
    for name in names_in(config.model_dump()):
        yield (
            f"{where}: {name.partition('.')[2]} is an object of this Python process, and others "
            "import what they need. Define it at the top level of a module, or leave distributed "
            "out."
        )


def queue_of(config: RunConfig) -> int:
    """Return how many transitions of a run with `asynchronous` may wait to be learned from."""
    given = config.asynchronous
    return _WAITING * config.n_envs if given is True else int(given)


def asynchronous_mistakes(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what does not work where one process collects while another learns."""
    given = config.asynchronous
    if given is False:
        return
    where = f"asynchronous={str(given).lower()}"
    if spec.name not in APART:
        yield (
            f"{where}: {spec.name} cannot learn from what older weights did in another process. "
            f"Use algo={', '.join(APART[:-1])} or {APART[-1]}, or leave asynchronous out."
        )
        return
    if queue_of(config) < config.n_envs:
        yield (
            f"{where} is below n_envs={config.n_envs}: each step gives that many transitions. Set "
            f"it to at least {config.n_envs}."
        )
    values = {"algo.replay_buffer": config.algo.replay_buffer == "her", "cost": config.cost}
    more = {"algo.symmetry": config.algo.symmetry, "curriculum": config.curriculum}
    for key, is_set in {**values, **more}.items():
        if is_set:
            yield f"{key} with {where}: it needs the environments here. Leave one of them out."
    if config.encryption is not None:
        yield (
            f"encryption={config.encryption} with {where}: transitions pass between the processes "
            "in plain files. Leave one of them out."
        )
    if config.exploration.kind is not None or config.log.actions:
        key = "log.actions" if config.log.actions else f"exploration={config.exploration.kind}"
        yield f"{key} with {where}: another process chooses the actions. Leave one of them out."
    for name in names_in(config.model_dump()):
        yield (
            f"{where}: {name.partition('.')[2]} is an object of this Python process, and the other "
            "one imports what it needs. Define it at the top level of a module, or leave "
            "asynchronous out."
        )
