"""Counts what is served, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

_BUCKETS_S = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 0.1, 1.0)
_PREFIX = "rlzoo_plus_"
# Versions that are counted apart; an alias may move for years.
_MOST_VERSIONS = 100
Labels = tuple[tuple[str, str], ...]


class ServiceMetrics:
    """All counters; gauges are asked for when somebody looks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._answers: Counter[tuple[str, int]] = Counter()
        self._shielded: Counter[str] = Counter()
        self._counts = Counter({"policy_failures": 0, "alias_load_failures": 0, "alias_moves": 0})
        self._took = [0] * (len(_BUCKETS_S) + 1)
        self._seconds = 0.0
        self._infos: dict[str, Mapping[str, str]] = {}
        self.gauges: dict[str, tuple[str, Callable[[], int]]] = {}

    def decided(
        self, version: str, source: str, took_s: float, shielded: Iterable[str] = ()
    ) -> None:
        """Count a decision, and the limits for which a shield changed its commands."""
        self._decisions[version, source] += 1
        self._shielded.update(shielded)
        self._took[bisect_left(_BUCKETS_S, took_s)] += 1
        self._seconds += took_s
        if len(self._decisions) > 4 * _MOST_VERSIONS:
            oldest = next(iter(self._decisions))
            self._decisions["older", oldest[1]] += self._decisions.pop(oldest)

    def answered(self, route: str, status: int) -> None:
        """Count an answer of a route, which is one of few."""
        self._answers[route, status] += 1

    def failed(self) -> None:
        """Count a policy that raised an error."""
        self._counts["policy_failures"] += 1

    def moved(self, *, failed: bool) -> None:
        """Count an alias that moved, or whose new version cannot be loaded."""
        with self._lock:
            self._counts["alias_load_failures" if failed else "alias_moves"] += 1

    def say(self, name: str, labels: Mapping[str, str]) -> None:
        """Say something as text: which version is served, and the like."""
        with self._lock:
            self._infos[name] = dict(labels)

    def text(self) -> str:
        """Return all of it as Prometheus reads it."""
        with self._lock:
            infos, counts = dict(self._infos), Counter(self._counts)
        lines = _series("decisions_total", "counter", "Decisions by version and source.", {
            (("version", version), ("source", source)): n
            for (version, source), n in self._decisions.items()
        })  # fmt: skip
        lines += _series("answers_total", "counter", "Answers by route and status.", {
            (("route", route), ("status", str(status))): n
            for (route, status), n in self._answers.items()
        })  # fmt: skip
        if self._shielded:
            lines += _series("shielded_total", "counter", "Commands that a limit changed.", {
                (("limit", limit),): n for limit, n in self._shielded.items()
            })  # fmt: skip
        for name, count in counts.items():
            lines += _series(f"{name}_total", "counter", f"Number of {name}.", {(): count})
        lines += self._histogram()
        for name, labels in infos.items():
            lines += _series(f"{name}_info", "gauge", f"The {name}.", {tuple(labels.items()): 1})
        for name, (meaning, ask) in self.gauges.items():
            lines += _series(name, "gauge", meaning, {(): int(ask())})
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = f"{_PREFIX}decision_seconds"
        lines, total = [f"# HELP {name} Time to decide.", f"# TYPE {name} histogram"], 0
        for bound, count in zip((*_BUCKETS_S, "+Inf"), self._took, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self._seconds}", f"{name}_count {total}"]


def _series(name: str, kind: str, meaning: str, values: Mapping[Labels, float]) -> list[str]:
    name = _PREFIX + name
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in values.items():
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        lines.append(f"{name}{{{told}}} {value}" if told else f"{name} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
