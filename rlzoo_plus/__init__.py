"""rlzoo_plus: train, evaluate and reproduce robot policies, each from one Hydra configuration.

Use from Python::

    import rlzoo_plus as rz

    run = rz.train("algo=ppo", "env=cartpole_bullet", n_timesteps=25_000, seed=3)
    run.evaluate(100)["mean_return"]
    run.evaluations()                     # a data frame where pandas is installed
    policy = run.policy()                 # the best; or rz.load_policy("latest")
    actions, _ = policy.predict(observation)

    rz.Run.open("outputs/cartpole_bullet/ppo/...").resume(n_timesteps=50_000)
    for run in rz.runs("outputs"):
        print(run)

A run is the same as the command's, bit for bit, in the same directory. Heavy libraries (torch,
Stable-Baselines3) are imported on first use, so that `import rlzoo_plus` and `--help` stay fast.

`robots` is always the package that is installed beside this one, even if the current folder, which
Python searches first, has another `robots`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.version import __version__ as __version__

# Where each public name is defined; it is imported on first use (PEP 562).
_LAZY = {
    "Agent": "rlzoo_plus.sb3.agent",
    "AlgorithmSpec": "rlzoo_plus.config.catalog",
    "ConfigError": "rlzoo_plus.errors",
    "ExpManager": "rlzoo_plus.training.exp_manager",
    "Overrides": "rlzoo_plus.runs.typed_overrides",
    "Policy": "rlzoo_plus.agents.policy",
    "Run": "rlzoo_plus.runs.run",
    "RunConfig": "rlzoo_plus.config.schema",
    "RunError": "rlzoo_plus.errors",
    "Sweep": "rlzoo_plus.sweeps.sweep",
    "compose": "rlzoo_plus.runs.load",
    "load": "rlzoo_plus.sb3.agent",
    "load_policy": "rlzoo_plus.runs.run",
    "make": "rlzoo_plus.sb3.agent",
    "read_checkpoint": "rlzoo_plus.contracts.checkpoint_schema",
    "register_algorithm": "rlzoo_plus.config.catalog",
    "register_callback": "rlzoo_plus.config.catalog",
    "register_tracker": "rlzoo_plus.config.catalog",
    "seed_all": "rlzoo_plus.envs.seeding",
    "sweep": "rlzoo_plus.sweeps.sweep",
    "train": "rlzoo_plus.runs.run",
}
__all__ = [*_LAZY, "runs"]

if TYPE_CHECKING:
    from rlzoo_plus import runs as runs
    from rlzoo_plus.agents.policy import Policy as Policy
    from rlzoo_plus.config.catalog import AlgorithmSpec as AlgorithmSpec
    from rlzoo_plus.config.catalog import register_algorithm as register_algorithm
    from rlzoo_plus.config.catalog import register_callback as register_callback
    from rlzoo_plus.config.catalog import register_tracker as register_tracker
    from rlzoo_plus.config.schema import RunConfig as RunConfig
    from rlzoo_plus.contracts.checkpoint_schema import read_checkpoint as read_checkpoint
    from rlzoo_plus.envs.seeding import seed_all as seed_all
    from rlzoo_plus.errors import ConfigError as ConfigError
    from rlzoo_plus.errors import RunError as RunError
    from rlzoo_plus.runs.load import compose as compose
    from rlzoo_plus.runs.run import Run as Run
    from rlzoo_plus.runs.run import load_policy as load_policy
    from rlzoo_plus.runs.run import train as train
    from rlzoo_plus.runs.typed_overrides import Overrides as Overrides
    from rlzoo_plus.sb3.agent import Agent as Agent
    from rlzoo_plus.sb3.agent import load as load
    from rlzoo_plus.sb3.agent import make as make
    from rlzoo_plus.sweeps.sweep import Sweep as Sweep
    from rlzoo_plus.sweeps.sweep import sweep as sweep
    from rlzoo_plus.training.exp_manager import ExpManager as ExpManager

_ROBOTS = Path(__file__).resolve().parents[1] / "robots"


class _OwnRobots(MetaPathFinder):
    """Finds `robots` beside this package, before the search path."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where `robots` is; nothing else is found here."""
        file = _ROBOTS / "__init__.py"
        if fullname != "robots" or not file.is_file():
            return None
        return spec_from_file_location(fullname, file, submodule_search_locations=[str(_ROBOTS)])


_imported = getattr(sys.modules.get("robots"), "__file__", None)
if _imported is not None and Path(_imported).resolve().parent != _ROBOTS:
    raise ImportError(
        f"{_imported} was imported as `robots`, which is a package of rlzoo_plus. Give it another "
        "name, or import rlzoo_plus before it."
    )
sys.meta_path.insert(0, _OwnRobots())


def __getattr__(name: str) -> Any:
    if name == "runs":
        # A package that is also the function; see its docstring.
        return import_module("rlzoo_plus.runs")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]
