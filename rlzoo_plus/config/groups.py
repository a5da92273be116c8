"""Rules of `env.groups`: which agents of a world share a policy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlzoo_plus.config.catalog import AlgorithmSpec
from rlzoo_plus.config.critics import JOINT
from rlzoo_plus.config.schema import RunConfig

# Each needs no more of its policy than actions, their probabilities and values.
WITH_GROUPS = ("ppo", "a2c")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def group_mistakes(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what does not work with a policy for each group of agents."""
    if config.env.groups is None:
        return
    for name, patterns in config.env.groups.items():
        if not _NAME.fullmatch(name) or name == "group" or not patterns:
            yield (
                f"env.groups: {name}={patterns}. Name groups by letters, digits and _, not "
                "`group`, and give each at least one agent: {good: [agent_*]}."
            )
    if config.vec_env != "pettingzoo":
        yield (
            f"env.groups: vec_env={config.vec_env} has one agent. Add env=pettingzoo, or leave "
            "env.groups out."
        )
    if spec.name not in WITH_GROUPS:
        yield (
            f"env.groups: {spec.name} cannot train several policies. Use "
            f"algo={' or '.join(WITH_GROUPS)}, or leave env.groups out."
        )
    others = {
        f"env.kwargs.{JOINT}": config.env.kwargs.get(JOINT),
        "env.frame_stack": config.env.frame_stack if config.env.frame_stack > 1 else None,
        "network.critic_observation": config.network.critic_observation,
        "network.squash_output": config.network.squash_output,
        "algo.hyperparams.use_sde": config.algo.hyperparams.get("use_sde"),
        "distributed": config.distributed if config.distributed > 1 else None,
        "export.sb3_zip": config.export.sb3_zip,
    }
    for key, value in others.items():
        if value:
            yield f"{key}={value} with env.groups: leave one of them out."
