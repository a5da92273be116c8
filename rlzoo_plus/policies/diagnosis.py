"""The diagnosis of a policy: its critic, actions, units, saliency, and the reward it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.analysis.style import DPI, INK, PALETTE, save_plot
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.attribution import Saliency, evenly_spread, outputs, saliency
from rlzoo_plus.policies.audit import Finding, audit, play_baselines
from rlzoo_plus.policies.calibration import calibrate
from rlzoo_plus.policies.entries import as_parts, joined, stacked
from rlzoo_plus.policies.episode import Episode
from rlzoo_plus.policies.recorder import record_episodes
from rlzoo_plus.policies.units import watch_units
from rlzoo_plus.policies.values import Values, as_tensors
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import one_torch_thread

_MOST_FOR_UNITS = 2000
_AT_BOUND, _OFTEN = 0.01, 0.5
_MANY_DEAD, _WEAK = 0.25, 0.3
_COMPLETE = 0.05
_MOST_SHOWN = 8


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    findings: list[Finding]  # In the order of their topics
    saliency: Saliency | None  # Of each entry of the observation; None if it has no continuous part
    names: list[str] | None  # Of the entries; None for pictures
    # The mean picture that the policy saw, channels first; None without pictures
    picture: np.ndarray | None


def diagnose(run: Run, which: str | None = None, episodes: int = 10, seed: int = 0) -> Diagnosis:
    """Play episodes and diagnose the policy that played them.

    Raises:
        ConfigError: There is no such policy, or the run needs trust.
    """
    run.require_trust()
    policy, seeds = run.policy(which), held_out_seeds(episodes, seed)
    played, names = record_episodes(run, policy, seeds)
    seen = stacked([row for episode in played for row in episode.observations or ()])
    actions = np.concatenate([episode.actions for episode in played])
    found = None
    if get_algorithm(run.config.algo.name).backend == "jax":
        text = "it computes with JAX: its critic, units and saliency are not looked at"
        findings = [Finding("value", text), *_of_actions(policy, actions)]
    else:
        with one_torch_thread():
            findings = [*_of_values(run, policy, played), *_of_actions(policy, actions)]
            findings += _of_units(policy, seen, actions)
            parts = parts_of(policy.observation_space).values()
            if any(isinstance(part, spaces.Box) for part in parts):
                found = saliency(policy, seen)
                findings += _of_saliency(policy, found, names)
    findings += audit(played, play_baselines(run, policy, seeds))
    picture = None
    if names is None:
        pictures = [part for part in as_parts(seen).values() if part.ndim == 4]
        picture = pictures[0].mean(axis=0) if pictures else None
    return Diagnosis(findings, found, names, picture)


def _of_values(run: Run, policy: Policy, played: Sequence[Episode]) -> list[Finding]:
    values, config = Values(policy), run.config
    if values.kind is None:
        return [Finding("value", "the policy has no critic")]
    gamma = float(config.algo.hyperparams.get("gamma", 0.99))
    is_scaled = config.normalize is not None and config.normalize.reward
    after = [float(np.asarray(e.values)[-1]) for e in played]
    if not hasattr(policy.network, "lstm_actor"):
        # A recurrent one would need its memory of the episode: its last value stands for it.
        last = stacked([episode.last_observation for episode in played])
        starts = np.ones(len(played), dtype=bool)
        after = values(last, policy.predict(last, episode_start=starts)[0], starts).tolist()
    c = calibrate(played, after, gamma, is_scaled=is_scaled)
    weak = c.correlation is not None and c.correlation < _WEAK
    r = "not defined" if c.correlation is None else f"{c.correlation:.2f}"
    unit = f", divided by {c.scale:.3g}, since it knows normalised rewards" if is_scaled else ""
    over = "over" if c.bias > 0 else "under"
    data = {"bias": c.bias, "mean_return": c.mean_return, "scale": c.scale}
    return [
        Finding(
            "value",
            f"{values.kind} {over}estimates the discounted return, {c.mean_return:.4g} on average, "
            f"by {abs(c.bias):.4g}{unit}",
            data,
            abs(c.bias) > max(abs(c.mean_return), 1e-9),
        ),
        Finding(
            "value",
            f"{values.kind} correlates {r} with the return that follows",
            {"correlation": c.correlation},
            weak,
        ),
        Finding(
            "value",
            f"the TD error is {c.td_error:.4g} on average, the standard deviation of {values.kind} "
            f"{c.spread:.4g}",
            {"td_error": c.td_error, "spread": c.spread},
            c.td_error > c.spread,
        ),
    ]


def _of_actions(policy: Policy, actions: np.ndarray) -> list[Finding]:
    space = policy.action_space
    if isinstance(space, spaces.Box):
        margin = _AT_BOUND * (space.high - space.low)
        with np.errstate(invalid="ignore"):
            at_bound = (actions <= space.low + margin) | (actions >= space.high - margin)
        each = at_bound.reshape(len(actions), -1).mean(axis=0)
        share, worst = float(each.mean()), int(each.argmax())
        text = f"{100 * share:.0f}% of the actions are at a bound"
        if len(each) > 1:
            text += f", of entry {worst} {100 * each[worst]:.0f}%"
        data = {"share": share, "entries": each.tolist()}
        return [Finding("actions", text, data, share > _OFTEN)]
    choices, counts = np.unique(actions.reshape(len(actions), -1), axis=0, return_counts=True)
    share, choice = float(counts.max() / len(actions)), choices[counts.argmax()].tolist()
    shown = choice[0] if len(choice) == 1 else choice
    text = f"the most frequent action, {shown}, is taken in {100 * share:.0f}% of the steps"
    return [Finding("actions", text, {"action": shown, "share": share}, share > 0.99)]


def _of_units(policy: Policy, seen: Any, actions: np.ndarray) -> list[Finding]:
    rows = evenly_spread(len(actions), _MOST_FOR_UNITS)
    some = joined({key: part[rows] for key, part in as_parts(seen).items()})

    def act() -> None:
        with torch.no_grad():
            policy.network.set_training_mode(False)
            outputs(policy, as_tensors(policy, some))
        Values(policy)(some, actions[rows], np.ones(len(rows), dtype=bool))

    found = []
    for layer in watch_units(policy.network, act):
        share = layer.n_dead / layer.n_units
        never = "are never active" if layer.kind == "ReLU" else "are always saturated"
        always = "are never 0" if layer.kind == "ReLU" else "never saturate"
        text = (
            f"{layer.n_dead} of {layer.n_units} units of {layer.name} ({layer.kind}) {never}, "
            f"{layer.n_always} {always}"
        )
        data = {"layer": layer.name, "dead": layer.n_dead, "units": layer.n_units}
        found.append(Finding("units", text, {**data, "always": layer.n_always}, share > _MANY_DEAD))
    return found


def _of_saliency(policy: Policy, found: Saliency, names: list[str] | None) -> list[Finding]:
    memory = ", with an empty memory" if hasattr(policy.network, "lstm_actor") else ""
    text = f"attributions sum up to the change of the output within {100 * found.residual:.2g}%"
    is_off = found.residual > _COMPLETE
    check = Finding("saliency", f"{text}{memory}", {"residual": found.residual}, is_off)
    if names is None:
        return [check]
    shares = found.entries()
    order = np.argsort(-shares, kind="stable")
    # Not those that the critic alone sees.
    keys = parts_of(policy.observation_space)
    acts_on = np.concatenate([np.full(part.size, key in keys) for key, part in found.parts.items()])
    order = order[acts_on[order]]
    shown = [f"{names[i]} {100 * shares[i]:.1f}%" for i in order[:_MOST_SHOWN]]
    more = f", {len(order) - len(shown)} more" if len(order) > len(shown) else ""
    last = order[-1]
    return [
        Finding(
            "saliency",
            f"actions depend most on {', '.join(shown)}{more}",
            {names[i]: float(shares[i]) for i in order},
        ),
        Finding(
            "saliency",
            f"they depend least on {names[last]}, {100 * shares[last]:.2g}%",
            {"entry": names[last], "share": float(shares[last])},
        ),
        check,
    ]


def draw(found: Diagnosis, out: Path) -> Path:
    """Draw the saliency: bars of the entries by name, or a heat map over the mean picture.

    Raises:
        ConfigError: There is none, or the file cannot be written.
    """
    if found.saliency is None or (found.names is None and found.picture is None):
        raise ConfigError("--picture: there is no saliency to draw of this observation.")
    figure = Figure(figsize=(9.0, 5.6), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    if found.names is not None:
        shares = found.saliency.entries()
        order = np.argsort(shares, kind="stable")[-30:]
        axes = figure.add_subplot()
        labels = [found.names[i] for i in order]
        axes.barh(range(len(order)), 100 * shares[order], color=PALETTE[0])
        axes.set_yticks(range(len(order)), labels, fontsize=9 if len(order) > 15 else 12)
        axes.set_xlabel("share of the saliency [%]", fontsize=13, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        return save_plot(figure, out)
    assert found.picture is not None
    heat = next(part for part in found.saliency.parts.values() if part.ndim == 3)
    left, right = figure.subplots(1, 2)
    left.imshow(found.picture[-1], cmap="gray")
    left.set_title("mean picture", color=INK)
    right.imshow(found.picture[-1], cmap="gray", alpha=0.4)
    right.imshow(heat.sum(axis=0), cmap="inferno", alpha=0.7)
    right.set_title("saliency", color=INK)
    for axes in (left, right):
        axes.set_axis_off()
    return save_plot(figure, out)
