"""Contract suites: the tests that every plugin of a kind must pass, for your own plugins.

Subclass a suite in a test file and define its fixture; pytest finds the tests:

    from rlzoo_plus.testing import LauncherContract

    class TestMyLauncher(LauncherContract):
        @pytest.fixture(scope="class")
        def launcher(self): ...

The tests of this project use the same suites. Nothing else in the package imports this, or pytest.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_SUITES = {
    "DriverContract": "driver_contract",
    "LauncherContract": "launcher_contract",
    "MetricContract": "metric_contract",
    "TrackerContract": "tracker_contract",
    "PartsContract": "parts_contract",
    "RunContract": "run_contract",
    "EngineContract": "engine_contract",
    "EnvironmentContract": "robot_contract",
    "RobotContract": "robot_contract",
    "NetworkContract": "run_contract",
    "VecEnvContract": "run_contract",
}
__all__ = [*_SUITES]


if "pytest" in sys.modules:
    # So that a failed comparison shows both sides.
    _modules = {f"{__name__}.{module}" for module in _SUITES.values()}
    sys.modules["pytest"].register_assert_rewrite(*_modules)


def __getattr__(name: str) -> Any:
    """Import a suite on first use: jobs that tests start need no pytest."""
    if name not in _SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_SUITES[name]}"), name)
