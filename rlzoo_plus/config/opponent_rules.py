"""Rules between `env.opponents` and the other keys."""

from __future__ import annotations

from collections.abc import Iterator

from rlzoo_plus.config.catalog import AlgorithmSpec, Family
from rlzoo_plus.config.critics import JOINT, OF_TEAMS
from rlzoo_plus.config.opponents import SELF_PLAY
from rlzoo_plus.config.schema import RunConfig


def self_play_mistakes(config: RunConfig, spec: AlgorithmSpec, teams: str) -> Iterator[str]:
    """Yield what is wrong with `env.opponents`; ids of shipped teams begin with `teams`."""
    if config.env.opponents is None:
        return
    where = "env.opponents"
    if config.env.id.startswith(teams):
        yield (
            f"{where} with env.id={config.env.id}: its robots work together, and none has an "
            f"opponent. Leave {where} out."
        )
    elif config.vec_env != SELF_PLAY:
        yield (
            f"{where} with vec_env={config.vec_env}: opponents are for worlds of PettingZoo. Add "
            f"env=pettingzoo, or leave {where} out."
        )
    if config.algo.name == OF_TEAMS or config.env.kwargs.get(JOINT):
        yield f"{where}: a critic that sees all agents would see the opponent. Use algo=ppo."
    learns = spec.family in (Family.ON_POLICY, Family.OFF_POLICY) and spec.clones is None
    if spec.backend != "torch" or spec.recurrent or not learns:
        yield (
            f"{where} with algo={spec.name}: its policy cannot be an opponent. Use ppo, "
            "maskable_ppo, sac or another algorithm of torch without a memory."
        )
    others = {
        "distributed": config.distributed > 1,
        "asynchronous": config.asynchronous is not False,
        "curriculum": bool(config.curriculum),
        "env.frame_stack": config.env.frame_stack > 1,
        "env.credit": config.env.credit is not None,
        "env.groups": config.env.groups is not None,
    }
    for key in (key for key, is_set in others.items() if is_set):
        yield f"{key} with {where}: opponents act where the run learns. Leave one of them out."
