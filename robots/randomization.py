"""How randomization is stated: which quantities differ from episode to episode, and by how much."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robots.distributions import Distribution, known_name, read_distribution, read_number


class Quantity(NamedTuple):
    """What can be randomized."""

    nominal: float
    """What it is without randomization: 1 for factors, 0 for what is added."""
    at_least: float = -np.inf
    """The lowest value that makes sense."""
    each: bool = False
    """Whether every link, joint or object may have a draw of its own."""


QUANTITIES = {
    "mass": Quantity(1.0, 0.01, each=True),
    "inertia": Quantity(1.0, 0.01, each=True),
    "friction": Quantity(1.0, 0.0, each=True),
    "joint_damping": Quantity(0.0, 0.0, each=True),
    "ground_friction": Quantity(1.0, 0.0),
    "object_mass": Quantity(1.0, 0.01, each=True),
    "object_friction": Quantity(1.0, 0.0, each=True),
    "gravity": Quantity(1.0, 0.0),
    "motor_strength": Quantity(1.0, 0.0),
    "latency": Quantity(0.0, 0.0),
    "initial_position": Quantity(0.0),
    "initial_velocity": Quantity(0.0),
    "observation_bias": Quantity(0.0),
    "observation_noise": Quantity(0.0),
}
"""In the order in which they are drawn."""

_SETTINGS = ("push", "curriculum")


@dataclass(frozen=True)
class RandomizationSpec:
    """A configuration that was found to be in order."""

    draws: dict[str, Distribution]
    """What the quantities are drawn from, in the order in which they are drawn."""
    push_every_s: float = 0.0
    """Mean time between pushes [s]; 0: none."""
    push_velocity: float = 0.0
    """Greatest velocity that a push adds [m/s or rad/s]."""
    curriculum_episodes: int = 0
    """Episodes over which the spread grows from none to full; 0: it is full at once."""


def read_randomization(config: object) -> RandomizationSpec:
    """Return what a configuration states; ``docs/robots/randomization.md`` lists the entries.

    Raises:
        ValueError: If an entry is unknown or does not fit.
    """
    if not isinstance(config, Mapping):
        raise ValueError(
            f"randomization={config!r} must be a mapping, as {{mass: {{uniform: [0.8, 1.2]}}}}."
        )
    for name in config:
        known_name("randomization", name, (*QUANTITIES, *_SETTINGS))
    draws = {name: _read(name, config[name]) for name in QUANTITIES if name in config}
    push = _read_settings("push", config.get("push"), ("every_s", "velocity"))
    curriculum = _read_settings("curriculum", config.get("curriculum"), ("episodes",))
    episodes = curriculum.get("episodes", 0.0)
    if episodes != int(episodes) or 0.0 in (*push.values(), *curriculum.values()):
        raise ValueError(
            f"randomization.push={push} and randomization.curriculum={curriculum} must be above 0, "
            "and episodes whole. Set for example every_s=2.0, velocity=0.5 and episodes=200."
        )
    return RandomizationSpec(
        draws, push.get("every_s", 0.0), push.get("velocity", 0.0), int(episodes)
    )


def _read(name: str, value: object) -> Distribution:
    where, quantity = f"randomization.{name}", QUANTITIES[name]
    distribution = read_distribution(where, value, quantity.nominal)
    if distribution.low < quantity.at_least:
        raise ValueError(
            f"{where}={value!r} can be as low as {distribution.low:.4g}, and must be at least "
            f"{quantity.at_least:g}. Narrow it; a normal distribution reaches three deviations."
        )
    if name == "latency" and not distribution.whole:
        raise ValueError(
            f"{where}={value!r} must be whole control steps. Write for example "
            "{choice: [0, 1, 2]}."
        )
    if distribution.each and not quantity.each:
        able = ", ".join(name for name, other in QUANTITIES.items() if other.each)
        raise ValueError(f"{where}: each has no meaning there. Leave it out; it is for {able}.")
    return distribution


def _read_settings(name: str, value: object, keys: tuple[str, ...]) -> dict[str, float]:
    """Return settings that are numbers; none if they are not set."""
    where = f"randomization.{name}"
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not set(keys) <= set(value):
        raise ValueError(f"{where}={value!r} must be a mapping with {' and '.join(keys)}.")
    for key in value:
        known_name(where, key, keys)
    return {key: read_number(f"{where}.{key}", value[key], 0.0) for key in keys}
