"""Decides: sessions, which policy and version is theirs, and what comes before the policy."""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.serving.audit_log import AuditLog
from rlzoo_plus.serving.decision import FALLBACK, OVERRIDE, POLICY, SHIELD, Decision
from rlzoo_plus.serving.limits import RateLimit
from rlzoo_plus.serving.overriding import STOP, Overrides
from rlzoo_plus.serving.request_checks import Refused
from rlzoo_plus.serving.served_policy import Arrays, ServedPolicy
from rlzoo_plus.serving.served_shield import STATE, Commands
from rlzoo_plus.serving.service_metrics import ServiceMetrics
from rlzoo_plus.serving.shadow import Shadow

log = logging.getLogger(__name__)

MOST_SESSIONS = 4096
_IDLE_S = 3600.0


def session_key(agent: str, name: str) -> str:
    """Return what finds a session again: clients name those of their agent."""
    return f"{agent}\n{name}"


class Session:
    """One control loop: its policy with what it remembers, and its last action."""

    def __init__(self, agent: str, policy: ServedPolicy) -> None:
        self.id = secrets.token_hex(8)
        self.agent = agent
        self.used = time.monotonic()
        self.begin(policy)

    def begin(self, policy: ServedPolicy) -> None:
        """Begin an episode, with a policy."""
        self.policy, self.runtime = policy, policy.episode()
        self.step = 0  # Decisions of this episode
        self.last: Any = None
        self.decided = -np.inf  # When its policy did so last, monotonic [s]
        self.applied = None if policy.shield is None else policy.shield.begin()


class Service:
    """What every way to ask uses; in one thread, but for `current`, which is replaced whole.

    Attributes:
        current: The policy of new episodes.
        is_ending: Whether no new session begins.
        loops: Ids of the sessions whose WebSockets are open.
    """

    def __init__(
        self,
        policy: ServedPolicy,
        metrics: ServiceMetrics,
        *,
        audit: AuditLog | None = None,
        shadow: Shadow | None = None,
        rate: float | None = None,
        interval_s: float = 0.0,
    ) -> None:
        """Serve a policy.

        Args:
            policy: The policy.
            metrics: What is counted.
            audit: Where decisions are written, None for nowhere.
            shadow: The candidate that decides beside it.
            rate: Requests a second that each client may make.
            interval_s: Least time between decisions of a session [s].
        """
        self.current, self.metrics = policy, metrics
        self.audit, self.shadow = audit, shadow
        self.limit, self.overrides = RateLimit(rate), Overrides()
        self.interval_s, self.is_ending = interval_s, False
        self.loops: set[str] = set()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def open(self, agent: str, key: str | None = None) -> Session:
        """Begin a session; with a key, `find` finds it again.

        What was not used for longest is forgotten, if there are too many.
        """
        session = Session(agent, self.current)
        if key is not None:
            self._sessions[key] = session
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def find(self, key: str) -> Session | None:
        """Return a session that was begun with a key, None if it ended or was idle for long."""
        session = self._sessions.get(key)
        if session is None or time.monotonic() - session.used > _IDLE_S:
            self._sessions.pop(key, None)
            return None
        self._sessions.move_to_end(key)
        return session

    def sessions_of(self, name: str) -> list[str]:
        """Return the ids of open sessions with an id, or that clients call so."""
        now, found = time.monotonic(), list(self.loops & {name})
        for key, one in self._sessions.items():
            is_meant = name in (one.id, key.partition("\n")[2])
            found += [one.id] if is_meant and now - one.used <= _IDLE_S else []
        return found

    def close(self, key: str) -> None:
        """Forget a session."""
        self._sessions.pop(key, None)

    @property
    def n_kept(self) -> int:
        """Number of sessions that can be found by a key."""
        return len(self._sessions)

    def follow(self, session: Session, *, begins: bool = False) -> ServedPolicy:
        """Return the policy that decides next: a new version takes over where nothing is lost.

        What a policy remembers of an episode means nothing to another one.
        """
        current = self.current
        has_state = session.policy.has_state or current.has_state
        if begins:
            session.begin(current)
        elif session.policy is not current and (not has_state or session.step == 0):
            session.policy, session.runtime = current, current.episode()
        return session.policy

    def decide(
        self, session: Session, given: Arrays, *, reward: float | None = None, paced: bool = True
    ) -> Decision:
        """Decide once; the caller has called `follow` and checked what is given.

        Args:
            session: Whose decision it is.
            given: The arrays by name.
            reward: What the client earned since the last decision.
            paced: Whether the least interval counts.

        Raises:
            Refused: The audit log is full, or nothing can be held.
        """
        start = time.perf_counter()
        if self.audit is not None and self.audit.is_stopped():
            raise Refused("audit", "its queue is full", "Ask again later", 503, 1.0)
        session.used = time.monotonic()
        action, source, reason, value = self._choose(session, given, paced)
        commands, changes = self._commands(session, action, source, given)
        if changes and source == POLICY:
            source, reason = SHIELD, ", ".join(changes)
        session.last = action
        decision = Decision(
            *(action, session.policy.version, session.id, source, session.step, reason, value),
            *(commands, changes),
        )
        if self.shadow is not None and source in (POLICY, SHIELD):
            self.shadow.offer(session.policy, decision, given)
        session.step += 1
        took = time.perf_counter() - start
        self.metrics.decided(decision.version, source, took, changes)
        if self.audit is not None:
            self.audit.decided(decision, session.agent, reward, took)
        return decision

    def _choose(
        self, session: Session, given: Arrays, paced: bool
    ) -> tuple[Any, str, str | None, float | None]:
        override = self.overrides.active(session.id)
        if override is not None:
            action: Any
            if override.action is not None:
                action = override.action if override.action.ndim else int(override.action)
            elif override.word == STOP:
                action = session.policy.neutral()
            else:
                action = self._held(session)
            return action, OVERRIDE, override.word, None
        is_early = session.used - session.decided < self.interval_s
        if paced and is_early and session.last is not None:
            return session.last, FALLBACK, "interval", None
        try:
            action = session.policy.act(session.runtime, given)
            if not np.isfinite(action).all():
                raise ValueError("the action is not finite")
        # Whatever the graph does: a robot waits for the answer.
        except Exception as error:
            log.error("%s fails: %s", session.policy.version, one_line(error))
            self.metrics.failed()
            return self._held(session), FALLBACK, "error", None
        session.decided = session.used
        return action, POLICY, None, session.runtime.value

    def _commands(
        self, session: Session, action: Any, source: str, given: Arrays
    ) -> tuple[Commands | None, dict[str, float]]:
        """Return what a shield lets the joints be told, and what it changed of that."""
        shield = session.policy.shield
        if shield is None or session.applied is None:
            return None, {}
        try:
            # What people say is done as they say it.
            is_free = source == OVERRIDE
            return shield.commands(session.applied, action, given[STATE], is_free=is_free)
        # Whatever its numbers do: a robot waits for the answer.
        except Exception as error:
            log.error("%s: the shield fails: %s", session.policy.version, one_line(error))
            self.metrics.failed()
            rule = "no command is known to keep the limits"
            raise Refused("state", rule, "Stop the robot", 409) from None

    def _held(self, session: Session) -> Any:
        held = session.policy.neutral() if session.last is None else session.last
        if held is None:
            rule = "no action to hold yet, and none of this policy's is known to be safe"
            raise Refused("session", rule, "Stop the robot", 409)
        return held
