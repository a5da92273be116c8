"""One run: composed, planned, claimed, trained, opened again.

Called, as `rlzoo_plus.runs("outputs")`, it returns the runs below a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlzoo_plus.runs.run import Run


class _Runs(ModuleType):
    """This package, which Python finds under the name that its function has for users."""

    def __call__(self, folder: str | Path = "outputs") -> list[Run]:
        """Return the runs below a folder, the newest first.

        Raises:
            ConfigError: There is no such folder.
        """
        from rlzoo_plus.runs.run import runs_below

        return runs_below(Path(folder))


sys.modules[__name__].__class__ = _Runs
