"""The override: what people say that is done, in place of every policy, until it expires."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.serving.request_checks import Refused, number, only, text
from rlzoo_plus.serving.served_policy import ServedPolicy

HOLD, STOP, ACTION, RELEASE = WORDS = ("hold", "stop", "action", "release")
DEFAULT_S, LONGEST_S, MOST = 60.0, 3600.0, 1000


@dataclass(frozen=True)
class Override:
    """One word, and until when it counts."""

    word: str
    action: np.ndarray | None
    ends: float  # Monotonic [s]


class Overrides:
    """The words that count now: one for all sessions, and one for some."""

    def __init__(self) -> None:
        self._by_session: dict[str | None, Override] = {}

    def __len__(self) -> int:
        return sum(one.ends > time.monotonic() for one in self._by_session.values())

    def set(
        self,
        asked: Mapping[str, Any],
        policy: ServedPolicy,
        sessions_of: Callable[[str], Sequence[str]],
    ) -> dict[str, Any]:
        """Take a word; the newest counts, and `release` without a session ends all.

        Args:
            asked: What was sent.
            policy: The one that is served.
            sessions_of: Returns the open sessions of an id or of a client's name.

        Raises:
            Refused: It is none, no such session is open, or the policy's robot cannot do it.
        """
        only(asked, ("word", "action", "for_s", "session"))
        word, session = asked.get("word"), asked.get("session")
        if word not in WORDS:
            raise Refused("word", "no such override", f"Known: {', '.join(WORDS)}")
        chosen: list[str | None] = [None]
        if session is not None:
            chosen = [*sessions_of(text(session, "session"))]
            # One that has ended can be released all the same.
            chosen = chosen or [key for key in self._by_session if key == session]
            if not chosen:
                fix = "Name one by its id or as its client does, or override all sessions"
                raise Refused("session", "no such session is open", fix, 404)
        seconds = number(asked.get("for_s", DEFAULT_S), "for_s", 0.01, LONGEST_S)
        action = None
        if word == ACTION:
            action = policy.action.of_json(asked.get("action"), "action")
        elif asked.get("action") is not None:
            raise Refused("action", f"{word} takes none", "Leave it out, or say `action`")
        if word == STOP and policy.neutral() is None:
            rule = "actions of this policy are choices, and none is known to stop"
            raise Refused("word", rule, "Say `action` with the choice that does")
        now = time.monotonic()
        # The newest counts: one for all ends those of single sessions.
        kept = {} if session is None else self._by_session
        kept = {key: one for key, one in kept.items() if one.ends > now}
        if word == RELEASE and None in kept and session is not None:
            rule = "what counts was said for all sessions"
            raise Refused("session", rule, "Release all: leave it out")
        for key in chosen:
            kept.pop(key, None)
            if word != RELEASE:
                if len(kept) >= MOST:
                    raise Refused("session", f"{MOST} overrides count", "Override all sessions")
                kept[key] = Override(word, action, now + seconds)
        self._by_session = kept
        return {"word": word, "session": session, "for_s": 0.0 if word == RELEASE else seconds}

    def active(self, session: str) -> Override | None:
        """Return the word that counts for a session, None if its policy decides."""
        if not self._by_session:
            return None
        found = self._by_session.get(session) or self._by_session.get(None)
        if found is not None and found.ends <= time.monotonic():
            # Another one may still count.
            self._by_session = {
                key: one for key, one in self._by_session.items() if one is not found
            }
            return self.active(session)
        return found
