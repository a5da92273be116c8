"""The algorithms under the names of Stable-Baselines3: change the import, and a script makes runs.

`from rlzoo_plus.sb3 import PPO` replaces `from stable_baselines3 import PPO`. The defaults are
those of Stable-Baselines3: no tuned values, no normalization, one environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlzoo_plus.config.signatures import PLAIN_SEED
from rlzoo_plus.sb3.agent import Agent, load, make

# They say what is printed and where, which a run decides by itself.
_WITHOUT = ("tensorboard_log", "_init_setup_model")
_OF_LOAD = ("device", "custom_objects", "print_system_info", "force_reset")


class _Algorithm:
    """Makes agents of one algorithm."""

    name = ""

    def __new__(cls, policy: Any, env: Any, verbose: int = 0, **values: Any) -> Any:
        """Return an agent; the arguments are those of the class in Stable-Baselines3."""
        kept = {key: value for key, value in values.items() if key not in _WITHOUT}
        if kept.get("seed", 0) is None:
            del kept["seed"]
        plain = {"tuned": "none", "policy": policy, "env": env, "algo.hyperparams.seed": PLAIN_SEED}
        if cls.name == "td3":
            # Here TD3 explores with noise unless it is told not to.
            plain["action_noise"] = None
        return make(cls.name, quiet=not verbose, **plain | kept)

    @classmethod
    def load(
        cls, path: str | Path, env: Any = None, *, trust: bool = False, **values: Any
    ) -> Agent:
        """Return the agent that `save` has written; see `rlzoo_plus.load`."""
        kept = {key: value for key, value in values.items() if key not in _OF_LOAD}
        return load(path, env, trust=trust, **kept)


class PPO(_Algorithm):
    """Proximal policy optimization."""

    name = "ppo"


class A2C(_Algorithm):
    """Advantage actor critic."""

    name = "a2c"


class SAC(_Algorithm):
    """Soft actor critic."""

    name = "sac"


class TD3(_Algorithm):
    """Twin delayed deep deterministic policy gradient."""

    name = "td3"


class DQN(_Algorithm):
    """Deep Q network."""

    name = "dqn"
