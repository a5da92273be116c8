"""Steps through one episode: what the policy saw, did, got and expected, in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.policies.entries import entry_names, flat_entries
from rlzoo_plus.policies.episode import Episode
from rlzoo_plus.policies.recorder import record_episodes
from rlzoo_plus.policies.replay import play_again
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import one_torch_thread

_PROMPT = "[Enter] next, s spike, b back, e end, q quit > "
_MOST_COLUMNS = 6


@dataclass(frozen=True)
class StepView:
    """What is known of one step."""

    step: int  # Its number, from 1
    observation: dict[str, float]  # The entries that the policy saw, by name; empty for pictures
    action: list[float]  # What it did
    reward: float  # What it got
    terms: dict[str, float]  # The weighted terms of the reward by name
    value: float | None  # What it expected; None without a critic
    end: str | None  # Why the episode ended with it; None if it goes on


def views_of_run(
    run: Run, policy: Policy, seed: int, *, deterministic: bool = True
) -> tuple[Episode, list[StepView]]:
    """Play one episode with a policy; return it and its steps."""
    (episode,), names = record_episodes(run, policy, [seed], deterministic=deterministic)
    assert episode.observations is not None
    return episode, _views(episode, episode.observations, names)


def views_of_file(run: Run, episode: Episode, config: RunConfig) -> list[StepView]:
    """Return the steps of a saved episode; it is played again for what was seen."""
    with one_torch_thread(), closing(run.env(1, config=config)) as venv:
        names = entry_names(venv)
        seen = [step.observation for step in play_again(episode, venv)]
    return _views(episode, seen, names)


def _views(
    episode: Episode, observations: Sequence[Any], names: Sequence[str] | None
) -> list[StepView]:
    return [
        StepView(
            step=at + 1,
            # Pictures have no names.
            observation=dict(zip(names or (), flat_entries(observation).tolist(), strict=False)),
            action=np.ravel(episode.actions[at]).tolist(),
            reward=float(episode.rewards[at]),
            terms={name: float(values[at]) for name, values in episode.terms.items()},
            value=None if episode.values is None else float(episode.values[at]),
            end=episode.end_reason if at + 1 == episode.n_steps else None,
        )
        for at, observation in enumerate(observations)
    ]


def spikes(views: Sequence[StepView]) -> list[int]:
    """Return the indices of the steps by their change of reward or value, the largest first.

    Changes are in standard deviations of the episode, so that one unit does not hide the other.
    """
    change = np.zeros(len(views))
    columns = [[view.reward for view in views]]
    if views and views[0].value is not None:
        columns.append([float(view.value or 0.0) for view in views])
    for column in columns:
        spread = np.std(column)
        if spread > 0:
            change[1:] = np.maximum(change[1:], np.abs(np.diff(column)) / spread)
    return [int(i) for i in np.argsort(-change, kind="stable") if change[i] > 0]


def step_through(
    views: Sequence[StepView], read: Callable[[str], str], show: Callable[[str], None]
) -> None:
    """Show the steps that the user asks for, until the end or `q`."""
    order, at, jumps = spikes(views), 0, 0
    while True:
        show(page(views, at))
        try:
            key = read(_PROMPT).strip().lower()[:1]
        except EOFError:
            return
        if key == "q" or (at + 1 == len(views) and key in ("", "n", "e")):
            return
        if key == "s" and order:
            at, jumps = order[jumps % len(order)], jumps + 1
        elif key == "b":
            at = max(at - 1, 0)
        elif key == "e":
            at = len(views) - 1
        elif key in ("", "n"):
            at += 1


def page(views: Sequence[StepView], at: int) -> str:
    """Return one step as text, with what changed since the step before."""
    view, rows = views[at], _rows(views[at])
    earlier = _rows(views[at - 1]) if at else {}
    width = max(len(printable(name)) for _, name in rows) + 2
    lines = [f"step {view.step} of {len(views)}"]
    for key, value in rows.items():
        change = value - earlier.get(key, value)
        told = f"  ({change:+.3g})" if change and key[0] != "action" else ""
        lines.append(f"  {printable(key[1]):<{width}}{value:>12.5g}{told}")
    if view.end is not None:
        lines.append(f"  the end: {printable(view.end)}")
    return "\n".join(lines)


def _rows(view: StepView) -> dict[tuple[str, str], float]:
    """Return the numbers of a step by their kind and name."""
    several = len(view.action) > 1
    actions = {f"action {i}" if several else "action": x for i, x in enumerate(view.action)}
    rows = {("observation", name): value for name, value in view.observation.items()}
    rows |= {("action", name): value for name, value in actions.items()}
    rows["reward", "reward"] = view.reward
    rows |= {("terms", f"  {name}"): value for name, value in view.terms.items()}
    return rows if view.value is None else rows | {("value", "value"): view.value}


def table(views: Sequence[StepView]) -> str:
    """Return the steps as lines of a table; of many entries the first ones."""
    first = views[0]
    entries = list(first.observation)[:_MOST_COLUMNS]
    names = ["step", *entries, *(["action"] if first.action else []), "reward", *first.terms]
    names += [] if first.value is None else ["value"]
    rows = [tuple(printable(name, 24) for name in names)]
    for view in views:
        numbers = [view.observation[name] for name in entries]
        shown = " ".join(f"{x:.3g}" for x in view.action[:_MOST_COLUMNS])
        row = [str(view.step), *(f"{x:.4g}" for x in numbers), shown, f"{view.reward:.4g}"]
        row += [f"{view.terms[name]:.4g}" for name in first.terms]
        row += [] if view.value is None else [f"{view.value:.4g}"]
        rows.append(tuple(row))
    lines = aligned(rows, right=rows[0])
    hidden = len(first.observation) - len(entries)
    if hidden:
        lines.append(f"{hidden} more entries of the observation: --json")
    return "\n".join([*lines, f"the end: {printable(views[-1].end or 'not reached')}"])


def as_data(episode: Episode, views: Sequence[StepView]) -> dict[str, Any]:
    """Return the episode and all its steps for JSON."""
    facts = {
        "seed": episode.seed,
        "n_steps": episode.n_steps,
        "return": episode.episode_return,
        "success": episode.success,
        "end_reason": episode.end_reason,
        "value_kind": episode.value_kind,
        "spikes": [index + 1 for index in spikes(views)[:10]],
    }
    data: dict[str, Any] = finite({**facts, "steps": [asdict(view) for view in views]})
    return data
