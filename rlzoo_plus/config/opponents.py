"""Opponents of a run's own past: who plays the other side of a PettingZoo world with two sides."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from rlzoo_plus.config.section import Count, Few, Line, Number, PositiveFloat, Section

# The `vec_env` of such worlds, and the side that changes with each episode.
SELF_PLAY, ALTERNATE = "self_play", "alternate"
CHECKPOINTS, RANDOM = "checkpoints", "random"

# No class body can name `from`, a keyword of Python.
_source: Any = {"from": (Literal["checkpoints", "random"], CHECKPOINTS)}
_WithSource = create_model("_WithSource", __base__=Section, **_source)


class OpponentsConfig(_WithSource):
    """Who plays the other side while one side learns.

    `pool`, `every_steps` and `latest_ratio` are like `window`, `save_steps` and
    `play_against_latest_model_ratio` of ML-Agents, `elo_start` its `initial_elo`; the rating is
    that of Elo, "The Rating of Chessplayers", 1978.
    """

    pool: Few = 10  # how many of the newest snapshots play
    every_steps: Count = 20_000  # environment steps between two snapshots
    latest_ratio: Annotated[Number, Field(ge=0, le=1)] = 0.5  # share of episodes against the newest
    side: Line = ALTERNATE  # the side that learns: alternate, or an agent, or a group of them
    elo_start: PositiveFloat = 1200.0
    elo_k: PositiveFloat = 16.0  # the most that one episode changes a rating

    @property
    def learns_from_itself(self) -> bool:
        """Whether the opponents are snapshots of the run."""
        return bool(getattr(self, "from") == CHECKPOINTS)
