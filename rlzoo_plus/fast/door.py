"""The door of this room: what `rlzoo_plus.accelerators` hands on to the rest of the package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.fast.handwritten.fast_updates import FastUpdates
from rlzoo_plus.fast.recorded.actions import RecordedActions, RecordsActions
from rlzoo_plus.fast.recorded.recorded_updates import RecordedUpdates, RecordsUpdates
from rlzoo_plus.fast.recorded.rollouts import RecordedRollouts, RecordsRollouts

MIXINS = (RecordsRollouts, RecordsActions, RecordsUpdates)


def accelerate(agent: Any, config: RunConfig) -> None:
    """Let an agent, whose class has `MIXINS`, record what repeats, as its configuration says."""
    if config.fast:
        rounds = config.fast == "bfloat16"
        agent.recorded = FastUpdates(records=config.record_updates, rounds=rounds)
    elif config.record_updates:
        agent.recorded = RecordedUpdates()
    if config.record_updates:
        family = get_algorithm(config.algo.name).family
        agent.rollouts = RecordedRollouts() if family is Family.ON_POLICY else None
        agent.actions = RecordedActions() if family is Family.OFF_POLICY else None


def native_worlds() -> Any:
    """Return what steps environments of pybullet-envs-gymnasium, which must be installed."""
    return import_module("rlzoo_plus.fast.worlds.bullet_kinds")
