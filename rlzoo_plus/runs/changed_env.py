"""A run's policy in a changed environment: which overrides may change it, and what must stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.plan import with_overrides

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from rlzoo_plus.agents.policy import Policy

_OF_ENV = ("env.kwargs.", "env.time_limit=", "eval.max_episode_steps=")


def changed_config(config: RunConfig, overrides: Sequence[str]) -> tuple[RunConfig, list[str]]:
    """Return a run's configuration to play with, and those of the overrides that change episodes.

    Raises:
        ConfigError: An override is of another key, or wrong.
    """
    for override in overrides:
        if not override.startswith((*_OF_ENV, "eval.metrics=")):
            raise ConfigError(
                f"{printable(override)}: evaluate plays the run's own environment; only "
                "env.kwargs.*, env.time_limit, eval.max_episode_steps and eval.metrics can be "
                "changed, e.g. env.kwargs.mass_scale=1.3."
            )
    changed = [override for override in overrides if override.startswith(_OF_ENV)]
    if not overrides:
        return config, changed
    return with_overrides(config.model_dump(), overrides, config.run_dir), changed


def check_spaces(policy: Policy, venv: VecEnv, changed: Sequence[str]) -> None:
    """Refuse environments whose spaces are not those of a policy; `changed` is why."""
    for kind in ("observation_space", "action_space"):
        there, own = getattr(venv, kind), getattr(policy, kind)
        if there != own:
            raise ConfigError(
                f"{printable(' '.join(changed))}: changes the {kind.replace('_', ' ')} from "
                f"{printable(own)} to {printable(there)}, which the policy was not trained for. "
                "Leave out what does."
            )
