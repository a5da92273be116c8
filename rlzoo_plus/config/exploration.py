"""Exploration by name: the section `exploration`, and which keys of the algorithm it stands for.

What Stable-Baselines3 does itself becomes the keys of the algorithm, so that one training has one
configuration; what it lacks stays in the section.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from rlzoo_plus.config.catalog import AlgorithmSpec, Family
from rlzoo_plus.config.section import NonNegativeFloat, Number, Section
from rlzoo_plus.errors import ConfigError

Kind = Literal[
    "epsilon_greedy", "boltzmann", "ou", "normal", "pink", "gsde", "parameter_noise", "rnd"
]
NOISES = ("normal", "ou", "pink")
BONUS = "rnd"  # In the reward: how actions are chosen stays as the algorithm says
_EPSILON = {"start": "exploration_initial_eps", "end": "exploration_final_eps"}
_EPSILON |= {"fraction": "exploration_fraction"}
# The value at the start: a temperature, a standard deviation, a distance of actions, a weight.
_START = {"normal": 0.1, "ou": 0.1, "pink": 0.3, "parameter_noise": 0.2}
_START |= {"boltzmann": 1.0, BONUS: 20.0}


class ExplorationConfig(Section):
    """How the actions of a training are chosen, and a number that changes linearly."""

    kind: Kind | None = None
    start: NonNegativeFloat | None = None
    end: NonNegativeFloat | None = None
    fraction: Annotated[Number, Field(gt=0, le=1)] | None = None

    def given(self) -> dict[str, float]:
        """Return the numbers that are set."""
        return self.model_dump(exclude_none=True, exclude={"kind"})

    def value(self, progress: float) -> float:
        """Return the number after a share of the run."""
        assert self.start is not None
        if self.end is None:
            return self.start
        done = min(progress / (self.fraction or 1.0), 1.0)
        return self.start + (self.end - self.start) * done


def as_keys_of_algorithm(
    exploration: ExplorationConfig, hyperparams: Mapping[str, Any], spec: AlgorithmSpec
) -> tuple[ExplorationConfig, dict[str, Any], dict[str, Any] | None]:
    """Return what is left of the section, the hyperparameters, and the action noise.

    Raises:
        ConfigError: The algorithm cannot explore so, or a number is out of place.
    """
    kind, values, noise = exploration.kind, dict(hyperparams), None
    given = exploration.given()
    _check(exploration, values, spec)
    left = exploration.model_copy(update={"start": given.get("start", _START.get(str(kind)))})
    if "use_sde" in values and kind != BONUS:
        values["use_sde"] = kind == "gsde"
    if kind == "epsilon_greedy":
        return ExplorationConfig(), values | {_EPSILON[k]: v for k, v in given.items()}, None
    if kind == "gsde":
        return ExplorationConfig(), values, None
    if kind in NOISES:
        noise = {"type": str(kind), "std": left.start}
        if left.end in (None, left.start):
            left = ExplorationConfig()
    return left, values, noise


def _check(exploration: ExplorationConfig, values: Mapping[str, Any], spec: AlgorithmSpec) -> None:
    kind, given = exploration.kind, exploration.given()
    is_torch = spec.backend == "torch" and spec.clones is None
    acts = spec.family is Family.OFF_POLICY and "Box" in spec.actions
    is_deterministic = "target_policy_noise" in values or spec.name == "ddpg"
    fits = {
        "epsilon_greedy": ("dqn and qrdqn", "exploration_fraction" in values),
        "boltzmann": ("dqn and qrdqn", "exploration_fraction" in values and is_torch),
        "gsde": ("ppo, a2c, sac, tqc and others with use_sde", "use_sde" in values),
        "parameter_noise": ("td3 and ddpg", acts and is_torch and is_deterministic),
        BONUS: ("ppo, a2c, sac and others without memory", spec.has_plain_batches),
    }
    where, can = fits.get(str(kind), ("off-policy algorithms with continuous actions", acts))
    if not can or (kind == "gsde" and "use_sde" in spec.unused):
        own = "epsilon_greedy" if "exploration_fraction" in values else "normal" if acts else "gsde"
        raise ConfigError(
            f"exploration={kind} is for {where}, and not for {spec.name}. Leave it out, or try "
            f"exploration={own}."
        )
    if kind == "gsde" and given:
        raise ConfigError(
            f"exploration.{next(iter(given))}: gsde learns its own size. Leave it out, or set "
            "network.log_std_init."
        )
    if kind == "boltzmann" and 0 in given.values():
        raise ConfigError("exploration=boltzmann needs temperatures above 0. Set 0.01, say.")
    if kind == "epsilon_greedy" and max(given.values(), default=0) > 1:
        raise ConfigError("exploration=epsilon_greedy: start and end are shares from 0 to 1.")
    if "end" in given and kind in NOISES and given.get("start") == 0:
        raise ConfigError(f"exploration.start=0 with {kind} noise has no schedule. Set it above 0.")
    if "end" in given and kind in NOISES and not is_torch:
        raise ConfigError(f"exploration.end: the noise of {spec.name} cannot change. Leave it out.")
    if "fraction" in given and "end" not in given and kind != "epsilon_greedy":
        raise ConfigError("exploration.fraction: nothing changes. Set exploration.end, too.")
