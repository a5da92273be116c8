"""What an environment takes besides its own arguments, and what it knows of a running episode."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict


class EnvOptions(TypedDict, total=False):
    """What every environment takes besides its own arguments; see ``BaseRobotEnv``."""

    episode_s: float
    render_mode: str | None
    render_width: int
    render_height: int
    renderer: Literal["tiny", "egl"]
    latency: int
    max_action_rate: float | None
    motor_strength: float
    randomization: Mapping[str, Any] | None
    safety: Mapping[str, Any] | None


@dataclass(slots=True)
class Episode:
    """What has happened since a reset.

    Attributes:
        start: State and seed of the environment's generator before it; None before the first.
        terms: Weighted terms of the reward, summed.
        actions: What ``step`` was given, as plain numbers.
        num_steps: Steps taken.
    """

    start: dict[str, Any] | None
    terms: dict[str, float]
    actions: list[Any] = field(default_factory=list)
    num_steps: int = 0
