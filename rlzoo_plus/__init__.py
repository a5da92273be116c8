"""rlzoo_plus: one Hydra configuration into a trained, evaluated, reproducible robot policy.

Heavy libraries (torch, Stable-Baselines3) are imported when they are first needed, so that
`import rlzoo_plus` and the command line's help stay fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "ExpManager": "rlzoo_plus.exp_manager",
    "load_policy": "rlzoo_plus.agents.policy",
    "register_algorithm": "rlzoo_plus.config.catalog",
    "AlgorithmSpec": "rlzoo_plus.config.catalog",
    "ConfigError": "rlzoo_plus.config.errors",
}
__all__ = ["AlgorithmSpec", "ConfigError", "ExpManager", "load_policy", "register_algorithm"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use (PEP 562)."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
