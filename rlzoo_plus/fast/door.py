"""The door of this room: what `rlzoo_plus.accelerators` hands on to the rest of the package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.fast.handwritten.fast_updates import FastUpdates
from rlzoo_plus.fast.recorded.known_code import Accelerated
from rlzoo_plus.fast.recorded.recorded_updates import RecordedUpdates
from rlzoo_plus.fast.recorded.rollouts import RecordedRollouts

__all__ = ["Accelerated", "accelerate", "native_worlds", "record"]


def accelerate(agent: Any, config: RunConfig) -> None:
    """Let an agent, whose class is `Accelerated`, be as fast as its configuration says."""
    if config.record_updates:
        record(agent)
    if config.fast:
        rounds = config.fast == "bfloat16"
        agent.recorded = FastUpdates(records=config.record_updates, rounds=rounds)


def record(agent: Any) -> None:
    """Let an agent, whose class is `Accelerated`, record what it does again and again."""
    agent.recorded, agent.rollouts = RecordedUpdates(), RecordedRollouts(agent)


def native_worlds(package: str) -> Any:
    """Return what steps environments of an installed package, see `NATIVE_WORLDS`."""
    return import_module(f"rlzoo_plus.fast.worlds.{package}_kinds")
