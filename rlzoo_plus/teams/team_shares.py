"""Each agent's share of its team's return: what would be missing if it did nothing all along.

The same episodes are played again for each agent, with another one in its place. The others act by
the policy, on what they then see.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.analysis.statistics import stratified_bootstrap_ci
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.seeding import generators_kept, held_out_seeds, seed_generators
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.changed_env import check_spaces
from rlzoo_plus.runs.run import Run
from rlzoo_plus.teams.idle_actions import idle_actions, refuse_turns
from rlzoo_plus.teams.pettingzoo_vec_env import PettingZooVecEnv, worlds_of
from rlzoo_plus.training.evaluation import one_torch_thread, play

IDLE, RANDOM = "idle", "random"
_KEY = "--shares"
# What an agent does in place of its action.
_Instead = Callable[[], Any]


def measure_shares(
    run: Run,
    episodes: int = 100,
    *,
    instead: str = IDLE,
    which: str | None = None,
    seed: int = 0,
    deterministic: bool = True,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Play held-out episodes with all agents, and again without each of them.

    Args:
        run: A run of many agents.
        episodes: How many, each with all agents.
        instead: What stands for an agent: `idle`, the default action of `env.credit`, or `random`.
        which: The policy, as for `Run.policy`.
        seed: Another set of episodes.
        deterministic: Act without exploration.
        overrides: `KEY=VALUE` each, as for `Run.evaluate`.

    Returns:
        What `rlzoo-plus evaluate --shares --json` prints.

    Raises:
        ConfigError: It has one agent, agents act in turns, or as `Run.evaluate`.
    """
    run.require_trust()
    if run.config.vec_env != "pettingzoo":
        raise ConfigError(
            f"{_KEY}: vec_env={run.config.vec_env} has no team. Name a run with env=pettingzoo, "
            "without env.opponents."
        )
    name, policy = which or run.which, run.policy(which)
    config, changed = run.changed_config(list(overrides))
    other = run.require_environment()
    with one_torch_thread(), closing(run.env(1, config=config)) as venv:
        if changed:
            check_spaces(policy, venv, changed)
        worlds = worlds_of(venv)
        acting = partial(_returns, policy, venv, episodes, seed, deterministic=deterministic)
        whole = acting({})
        stand_ins = _stand_ins(config, worlds, instead, seed)
        rest = {agent: acting({agent: act}) for agent, act in stand_ins.items()}
    return {
        "run": None if run.path is None else str(run.path),
        "which": name,
        "step": policy.step or 0,
        "deterministic": deterministic,
        "episodes": episodes,
        "overrides": changed,
        "other_environment": other,
        "instead": instead,
        "team": _estimated(_of_team(whole, worlds.agents)),
        "shares": {
            str(agent): _estimated(_of_team(whole, team) - _of_team(rest[agent], team))
            for agent in worlds.agents
            for team in [worlds.team_of(agent)]
        },
    }


def shares_table(record: Mapping[str, Any]) -> str:
    """Return the shares as lines of a table, with their intervals."""
    mode = "deterministic" if record["deterministic"] else "stochastic"
    rows = [("policy", f"{record['which']} of {record['run']}, saved at step {record['step']:,}")]
    if record["overrides"]:
        rows.append(("changed", f"{' '.join(record['overrides'])}; not as it was trained"))
    if record["other_environment"]:
        rows.append(
            ("environment", f"another than in training: {'; '.join(record['other_environment'])}")
        )
    rows += [
        ("episodes", f"{record['episodes']}, {mode}; again for each agent: {record['instead']}"),
        ("return of all", _shown(record["team"])),
        *((f"share of {agent}", _shown(share)) for agent, share in record["shares"].items()),
    ]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows)


def _shown(found: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['mean']:.2f} [{low:.2f}, {high:.2f}]"


def _estimated(values: np.ndarray) -> dict[str, Any]:
    """Return the mean over episodes with its interval, and each of them."""
    low, high = stratified_bootstrap_ci([values], np.mean)
    return {"mean": float(values.mean()), "interval": [low, high], "episodes": values.tolist()}


def _of_team(returns: Sequence[Mapping[Any, float]], team: Sequence[Any]) -> np.ndarray:
    return np.array([sum(one[agent] for agent in team) for one in returns])


def _stand_ins(
    config: RunConfig, worlds: PettingZooVecEnv, instead: str, seed: int
) -> dict[Any, _Instead]:
    """Return what stands for each agent."""
    inner, credit = worlds.worlds[0].inner, config.env.credit
    default = None if credit is None else credit.default
    if instead == IDLE:
        idle = idle_actions(_KEY, config.env.id, inner, default)
        return {agent: partial(copy.copy, action) for agent, action in idle.items()}
    refuse_turns(_KEY, config.env.id, inner)
    spaces = {agent: copy.deepcopy(inner.action_space(agent)) for agent in worlds.agents}
    for space in spaces.values():
        space.seed(seed)
    return {agent: space.sample for agent, space in spaces.items()}


def _returns(
    policy: Policy,
    venv: Any,
    episodes: int,
    seed: int,
    instead: Mapping[Any, _Instead],
    *,
    deterministic: bool,
) -> list[dict[Any, float]]:
    """Return what each agent earned in each episode; those of one seed begin the same."""
    worlds = worlds_of(venv)
    (world,) = worlds.worlds
    own_action = world.own_action
    world.own_action = lambda agent, action: (
        instead[agent]() if agent in instead else own_action(agent, action)
    )
    venv.env_method("set_episode_seeds", held_out_seeds(1, seed), indices=0)
    found: list[dict[Any, float]] = []
    try:
        with generators_kept():
            seed_generators(seed)
            for step in play(policy, venv, deterministic=deterministic):
                ends = [info.get("episode_returns", {}) for info in step.infos]
                if all("team" in end for end in ends):
                    pairs = zip(worlds.agents, ends, strict=True)
                    found.append({agent: end[str(agent)] for agent, end in pairs})
                if len(found) == episodes:
                    return found
    finally:
        world.own_action = own_action
    raise AssertionError("play goes on")
