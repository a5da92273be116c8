"""One score a run, and the sides of a comparison: which runs stand for what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import yaml

from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.series import EVALUATION_RETURN, Evaluation, finite, load_series
from rlzoo_plus.analysis.variants import differing_keys, settings_labels, shown_value
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.errors import ConfigError

Which = Literal["final", "best"]
# Of the environment, what decides neither its rewards nor its episodes.
_NOT_THE_TASK = (
    *("env.name", "env.packages", "env.solved_return", "env.max_return"),
    *("env.frame_stack", "env.warmup_resets"),
)
# What decides the return, and nothing else that is measured.
_REWARD = "env.kwargs.reward"
_SAME = ("n_timesteps", "eval.episodes", "eval.deterministic")
_MOST_NAMED = 6
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_NUMBERS = re.compile(rf"({_NUMBER.pattern.replace('(', '(?:')})")


@dataclass
class Side:
    """The runs of one variant, or of one variant on each environment."""

    name: str  # What sets it apart from the other sides
    # The runs that count by environment and seed
    runs: dict[str, dict[int | None, RunEntry]] = field(default_factory=dict)

    def scores(self, env: str, which: Which) -> list[float]:
        """Return the score of each seed on an environment."""
        found = (score_of(run, which) for run in self.runs[env].values())
        return [score for score in found if score is not None]


@dataclass(frozen=True)
class Scale:
    """The return that counts as 0 and the one that counts as 1, and where they are from."""

    zero: float
    one: float
    source: str

    def __call__(self, values: Sequence[float]) -> list[float]:
        """Return values on this scale."""
        return [(value - self.zero) / (self.one - self.zero) for value in values]


def score_of(run: RunEntry, which: Which) -> float | None:
    """Return the mean return of a run's last or best evaluation, None if it has none."""
    return run.summary.best if which == "best" else run.summary.final


def measured_by(run: RunEntry, metric: str) -> RunEntry:
    """Return a run whose evaluations have the values of a metric in place of the return."""
    if metric == EVALUATION_RETURN:
        return run
    series = load_series(run.run, metric)
    values = series.values.tolist()
    pairs = zip(series.steps.tolist(), values, strict=True)
    found = tuple(Evaluation(int(step), value, 0.0) for step, value in pairs)
    best, final = (max(values), values[-1]) if values else (None, None)
    return replace(run, evaluations=found, summary=replace(run.summary, best=best, final=final))


def make_sides(
    groups: Mapping[str, Sequence[RunEntry]], which: Which = "final"
) -> tuple[list[Side], list[str]]:
    """Divide runs into sides: each variant of each group is one, on all its environments.

    The groups are runs by what the user called them, and `which` is the score that a run needs.

    Returns:
        The sides, in the order of the groups, and a text for each run that does not count.
    """
    notes: list[str] = []
    entries = [run for runs in groups.values() for run in runs]
    labels = settings_labels({run.variant: run.values for run in entries})
    sides: dict[tuple[str, str], Side] = {}
    for group, runs in groups.items():
        for run in runs:
            if not run.is_finished or score_of(run, which) is None:
                why = run.reason or (
                    "it has no evaluation" if run.is_finished else f"it is {run.summary.state}"
                )
                notes.append(f"left out, {why}: {_shown(run)}")
                continue
            label = " ".join(filter(None, (run.algo, labels[run.variant])))
            side = sides.setdefault((group, label), Side(label))
            _add(side, run, notes)
    _name(sides)
    order = {group: place for place, group in enumerate(groups)}
    found = sorted(sides.items(), key=lambda item: (order[item[0][0]], _natural(item[1].name)))
    return [side for _, side in found], notes


def _natural(text: str) -> list[tuple[float, str]]:
    """Return a key that sorts numbers in texts by their value: 9 before 10, 3e-4 before 0.001."""
    return [
        (float(part), "") if _NUMBER.fullmatch(part) else (0.0, part)
        for part in _NUMBERS.split(text)
    ]


def _add(side: Side, run: RunEntry, notes: list[str]) -> None:
    """Add a run; of two with the same seed, the newest counts."""
    by_seed, seed = side.runs.setdefault(run.env, {}), run.summary.seed
    used, other = run, by_seed.get(seed)
    if other is not None:
        left, used = sorted((other, run), key=lambda each: each.summary.started_at or 0.0)
        notes.append(
            f"seed {seed} of {side.name} on {run.env} occurs twice: the newest run is used, "
            f"{_shown(used)}, not {_shown(left)}"
        )
    by_seed[seed] = used


def latest_of_each_seed(runs: Sequence[RunEntry]) -> tuple[list[RunEntry], list[str]]:
    """Return the runs without repeats of a variant's seed, and a text for each that is left out."""
    notes: list[str] = []
    kept: dict[str, Side] = {}
    for run in runs:
        side = kept.setdefault(run.variant or str(run.summary.path), Side(run.algo))
        _add(side, run, notes)
    used = {
        run.summary.path for s in kept.values() for by in s.runs.values() for run in by.values()
    }
    return [run for run in runs if run.summary.path in used], notes


def _name(sides: Mapping[tuple[str, str], Side]) -> None:
    """Name a side by its group, too, where a label occurs in several."""
    of_group = Counter(group for group, _ in sides)
    of_label = Counter(label for _, label in sides)
    for (group, label), side in sides.items():
        if of_label[label] > 1:
            shown = printable(group, 60)
            side.name = shown if of_group[group] == 1 else f"{label} ({shown})"


def check_comparable(sides: Sequence[Side], metric: str = EVALUATION_RETURN) -> None:
    """Check that sides were measured alike.

    Raises:
        ConfigError: They differ in what decides the metric.
    """
    first = sides[0]
    for side in sides[1:]:
        if set(side.runs) != set(first.runs):
            raise ConfigError(
                f"{first.name} and {side.name} cannot be compared, they differ in env.name: "
                f"{', '.join(sorted(first.runs))} there, {', '.join(sorted(side.runs))} here. "
                "Compare runs on the same environments."
            )
    for env in first.runs:
        members = [run for side in sides for run in side.runs[env].values()]
        keys = [key for key in differing_keys([run.values for run in members]) if _must_agree(key)]
        of_reward = [key for key in keys if f"{key}.".startswith(f"{_REWARD}.")]
        if metric != EVALUATION_RETURN:
            keys = [key for key in keys if key not in of_reward]
        if keys:
            instead = "Compare runs with the same environment, steps and evaluation episodes."
            if keys == of_reward:
                instead = (
                    "Returns of other rewards measure something else: choose what both measure, "
                    "e.g. --metric success_rate, or mean_episode_length."
                )
            told = []
            for key in keys[:_MOST_NAMED]:
                values = dict.fromkeys(shown_value(key, r.values.get(key, "-")) for r in members)
                told.append(f"{key} ({', '.join(values)})")
            raise ConfigError(
                f"runs on {env} cannot be compared, they differ in {', '.join(told)}. {instead}"
            )


def _must_agree(key: str) -> bool:
    is_task = key.startswith("env.") and key not in _NOT_THE_TASK
    return is_task or key in _SAME


def scale_of(env: str, sides: Iterable[Side], metric: str = EVALUATION_RETURN) -> Scale:
    """Return how scores on an environment are put on one scale with those on others.

    Random and published score become 0 and 1, where conf/scores.yaml has them; else the lowest and
    the highest evaluation of these runs.
    """
    members = [run for side in sides for run in side.runs[env].values()]
    known = published_scores().get(str(members[0].values.get("env.id")))
    if known is not None and metric == EVALUATION_RETURN:
        return Scale(*known, "random and published score")
    seen = [each.mean_return for run in members for each in run.evaluations]
    for run in members:
        outcome = (run.summary.best, run.summary.final)
        seen += [score for score in outcome if score is not None]
    low, high = min(seen), max(seen)
    return Scale(low, high if high > low else low + 1.0, "range seen")


def published_scores() -> dict[str, tuple[float, float]]:
    """Return the returns of a random policy and of a published one by environment id."""
    file = conf_dir() / "scores.yaml"
    data = yaml.safe_load(file.read_text()) if file.is_file() else {}
    found = {}
    for env_id, row in data.items():
        random, published = finite(row.get("random")), finite(row.get("published"))
        if random is not None and published is not None and random != published:
            found[str(env_id)] = (random, published)
    return found


def _shown(run: RunEntry) -> str:
    return printable(run.summary.path, LONGEST_LINE)
