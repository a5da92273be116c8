"""What a critic sees beyond its policy: the default of `critic_observation`, and its rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlzoo_plus.config.catalog import AlgorithmSpec
from rlzoo_plus.config.schema import RunConfig

# The algorithm whose critic sees all agents of a world, and the option of worlds that shows them.
OF_TEAMS, JOINT = "mappo", "joint_observation"
# Entries that this option adds; and the one of robots that have `privileged`.
TEAM_KEYS = ["team", "present"]
PRIVILEGED = "privileged"


def with_critic_observation(config: RunConfig) -> RunConfig:
    """Fill in `network.critic_observation=null`, and what mappo needs of its worlds."""
    given, kwargs = config.network.critic_observation, config.env.kwargs
    changed: dict[str, Any] = {}
    if config.algo.name == OF_TEAMS and config.vec_env == "pettingzoo":
        env = config.env.model_copy(update={"kwargs": {**kwargs, JOINT: True}})
        given, changed = TEAM_KEYS if given is None else given, {"env": env}
    elif given is None:
        of_teacher = config.teacher.observation
        hidden = [*([PRIVILEGED] if kwargs.get(PRIVILEGED) is True else []), of_teacher]
        given = [key for key in dict.fromkeys(hidden) if key] or None
    network = config.network.model_copy(update={"critic_observation": given})
    return config.model_copy(update={"network": network, **changed})


def critic_mistakes(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what is wrong with what the critic sees."""
    network = config.network
    if config.algo.name == OF_TEAMS and config.vec_env not in ("pettingzoo", "self_play"):
        yield (
            f"algo={OF_TEAMS}: its critic sees all agents of a world, and vec_env="
            f"{config.vec_env} has none. Add env=pettingzoo, or use algo=ppo."
        )
    if not network.critic_observation:
        return
    key = f"network.critic_observation={network.critic_observation}"
    if not spec.has_wide_critic:
        yield (
            f"{key}: {spec.name} has no critic that can see more than its policy. Use ppo, sac or "
            "another actor-critic of torch; network.critic_observation=[] shows all to the policy."
        )
    if network.share_features_extractor:
        yield (
            f"{key} with network.share_features_extractor=true: policy and critic see different "
            "entries. Leave one of them out."
        )
    if config.export.sb3_zip:
        yield (
            f"{key} with export.sb3_zip=true: Stable-Baselines3 has no such network. Leave one of "
            "them out."
        )
