"""Follows a name that moves: a new version is loaded beside the old one, and replaces it whole."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.serving.policy_source import PolicySource
from rlzoo_plus.serving.served_policy import ServedPolicy
from rlzoo_plus.serving.service_metrics import ServiceMetrics

log = logging.getLogger(__name__)

POLL_S = 0.4


class Follower:
    """Follows a name that moves: what it names is loaded beside what is served, and replaces it."""

    def __init__(
        self,
        source: PolicySource,
        first: ServedPolicy,
        take: Callable[[ServedPolicy, Path], None],
        metrics: ServiceMetrics,
        label: str,
    ) -> None:
        """Begin to look, a few times a second.

        Args:
            source: What is followed.
            first: What is served now.
            take: Takes a new version, and its folder.
            metrics: Where failures are counted.
            label: What it is called there.
        """
        self._source, self._served, self._take = source, first, take
        self._metrics, self._label = metrics, label
        self._refused: str | None = None
        self._why = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name=f"follow {label}", daemon=True)
        self._tell()
        if source.moves:
            self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _look(self) -> None:
        while not self._ended.wait(POLL_S if not self._why else 2 * POLL_S):
            try:
                self._follow()
            # Of the store, the files or the graph: what is served goes on.
            except Exception as error:
                self._fail(None, one_line(error))

    def _follow(self) -> None:
        version = self._source.version()
        if version == self._served.version:
            if self._why:
                self._refused, self._why = None, ""
                self._tell()
            return
        if version == self._refused:
            return
        try:
            folder = self._source.folder(version)
            shielded = self._served.is_shielded
            policy = ServedPolicy(folder, self._served.name, version, is_shielded=shielded)
            if not policy.takes_the_same(self._served):
                raise ConfigError(
                    "it takes other observations, or has other actions or another shield"
                )
        except (ConfigError, RunError, OSError, ValueError) as error:
            self._fail(version, one_line(error))
            return
        self._take(policy, folder)
        self._served, self._refused, self._why = policy, None, ""
        self._metrics.moved(failed=False)
        self._tell()
        log.warning("%s: version %s is served now", self._label, version)

    def _fail(self, version: str | None, why: str) -> None:
        if (version, why) == (self._refused, self._why):
            return
        self._refused, self._why = version, why
        self._metrics.moved(failed=True)
        self._tell()
        log.error("%s: version %s is not taken: %s", self._label, version or "?", why)

    def _tell(self) -> None:
        told = {"name": self._served.name, "version": self._served.version}
        if self._why:
            told |= {"refused": self._refused or "?", "why": self._why}
        self._metrics.say(self._label, told)
