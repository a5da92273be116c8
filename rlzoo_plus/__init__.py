"""rlzoo_plus: one Hydra configuration into a trained, evaluated, reproducible robot policy.

Heavy libraries (torch, Stable-Baselines3) are imported when they are first needed, so that
`import rlzoo_plus` and the command line's help stay fast.

`robots` is always the package that is installed beside this one, also in a folder that has another
`robots` of its own: Python looks into the current folder first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "ExpManager": "rlzoo_plus.runs.exp_manager",
    "load_policy": "rlzoo_plus.agents.policy",
    "register_algorithm": "rlzoo_plus.config.catalog",
    "AlgorithmSpec": "rlzoo_plus.config.catalog",
    "ConfigError": "rlzoo_plus.config.errors",
}
__all__ = ["AlgorithmSpec", "ConfigError", "ExpManager", "load_policy", "register_algorithm"]


_ROBOTS = Path(__file__).resolve().parents[1] / "robots"


class _OwnRobots(MetaPathFinder):
    """Finds `robots` beside this package, before the search path is asked."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where `robots` is; nothing else is found here."""
        if fullname != "robots" or not (_ROBOTS / "__init__.py").is_file():
            return None
        return spec_from_file_location(
            fullname, _ROBOTS / "__init__.py", submodule_search_locations=[str(_ROBOTS)]
        )


def _find_own_robots() -> None:
    """See that `import robots` gives the package of this installation.

    Raises:
        ImportError: Another one was imported before.
    """
    file = getattr(sys.modules.get("robots"), "__file__", None)
    if file is not None and Path(file).resolve().parent != _ROBOTS:
        raise ImportError(
            f"{file} was imported as `robots`, which is a package of rlzoo_plus. Give it another "
            "name, or import rlzoo_plus before it."
        )
    if not any(isinstance(finder, _OwnRobots) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OwnRobots())


_find_own_robots()


def __getattr__(name: str) -> Any:
    """Import the public names on first use (PEP 562)."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
