"""Whose trials are whose, and which controllers are no more."""

from __future__ import annotations

import hashlib
import platform

from rlzoo_plus.sweeps.presence import Presence, is_present
from rlzoo_plus.tuning.plan import StudyPlan


class Ownership:
    """The name under which a controller takes trials.

    A journal lies in the study's directory, and so do the locks of all controllers that write to
    it. A database may have controllers in other directories and on other machines, of which
    only their heartbeats are known here; the name says where its lock is to be looked for.
    """

    def __init__(self, plan: StudyPlan, presence: Presence) -> None:
        self._folder = plan.folder
        self._here = "" if plan.hpo.storage == "journal" else _place(plan)
        self.owner = f"{self._here}{presence.name}"

    def is_mine(self, owner: str) -> bool:
        """Tell whether a trial is in the hands of this controller."""
        return owner == self.owner

    def is_dead(self, owner: str) -> bool | None:
        """Tell whether a controller is no more; None if that cannot be seen from here."""
        if not owner.startswith(self._here):
            return None
        name = owner.removeprefix(self._here)
        if not name or "/" in name or "\\" in name:
            return None
        return owner != self.owner and not is_present(self._folder, name)


def _place(plan: StudyPlan) -> str:
    folder = hashlib.sha256(str(plan.folder.resolve()).encode()).hexdigest()[:8]
    return f"{platform.node()}-{folder}-"
