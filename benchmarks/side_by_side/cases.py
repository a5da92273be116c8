"""The jobs that are measured, and what each tool is told so that all do the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "elu": "ELU"}
# Keys of `network` that policies of Stable-Baselines3 know under the same name.
_SAME_NAME = ("log_std_init", "ortho_init", "n_critics", "n_quantiles")


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        algo: The algorithm, by the name that all tools use.
        env: Our name of the environment.
        first: Steps of the shortest training; what it takes is start-up, and taken away from the
            rest. Off-policy, learning begins after it.
        steps: Steps of the whole training.
        tuned: Whether it uses the tuned values, or Stable-Baselines3's defaults.
        saves: Every how many steps it evaluates and writes a checkpoint, None for not at all.
        episodes: Episodes of each evaluation.
    """

    algo: str
    env: str
    first: int
    steps: int
    tuned: bool = True
    saves: int | None = None
    episodes: int = 5

    @property
    def overrides(self) -> list[str]:
        """What our command line has to say."""
        words = [f"algo={self.algo}", f"env={self.env}", "device=cpu", "report.plot=false"]
        words += ["report.video=false", "log.tensorboard=false"]
        words += [] if self.tuned else ["tuned=none"]
        if self.saves is None:
            return [*words, "eval.every_steps=null", "checkpoint.every_minutes=null"]
        words += [f"eval.every_steps={self.saves}", f"checkpoint.every_steps={self.saves}"]
        return [*words, f"eval.episodes={self.episodes}", "checkpoint.every_minutes=null"]


CASES = {
    "ppo HalfCheetah": Case("ppo", "halfcheetah_bullet", 8_192, 40_960),
    "a2c HalfCheetah": Case("a2c", "halfcheetah_bullet", 32, 20_000),
    "sac HalfCheetah": Case("sac", "halfcheetah_bullet", 10_000, 12_500),
    "td3 HalfCheetah": Case("td3", "halfcheetah_bullet", 10_000, 12_500),
    "tqc HalfCheetah": Case("tqc", "halfcheetah_bullet", 10_000, 12_500),
    "crossq Pendulum": Case("crossq", "pendulum", 100, 8_000),
    "qrdqn CartPole": Case("qrdqn", "cartpole", 1_000, 12_000),
    "ppo CartPole": Case("ppo", "cartpole", 256, 50_000),
    "ppo our cart-pole": Case("ppo", "cartpole_bullet", 1_024, 20_480),
    "ppo our half-cheetah": Case("ppo", "halfcheetah", 4_096, 24_576),
    "ppo our A1": Case("ppo", "a1_walk", 2_048, 20_480),
    "ppo, defaults, saving": Case("ppo", "halfcheetah_bullet", 2_048, 20_480, False, 4_096),
    "sac, defaults, saving": Case("sac", "halfcheetah_bullet", 128, 3_000, False, 1_000),
}


@cache
def values_of(case: Case) -> dict[str, Any]:
    """Return a case as our manager resolves it: the values that all tools are given."""
    from rlzoo_plus.runs.load import load

    config = load(case.overrides).model_dump()
    network = config["network"]
    policy = {name: network[name] for name in _SAME_NAME if network[name] is not None}
    if network["net_arch"] is not None:
        policy["net_arch"] = network["net_arch"]
    if network["activation"] is not None:
        policy["activation_fn"] = ACTIVATIONS[network["activation"]]
    normalize = config["normalize"]
    return {
        "algo": case.algo,
        "env": config["env"]["id"],
        "packages": config["env"]["packages"],
        "env_kwargs": config["env"]["kwargs"],
        "n_envs": config["n_envs"],
        "normalize": normalize and {"norm_obs": True, "norm_reward": True},
        "noise": config["algo"]["action_noise"],
        "hyperparams": {k: v for k, v in config["algo"]["hyperparams"].items() if v is not None},
        "policy_kwargs": policy,
        "saves": case.saves,
    }


def write_zoo_file(case: Case, folder: Path) -> Path:
    """Write the values of a case as rl_zoo3 reads them; return the file."""
    values = values_of(case)
    entry: dict[str, Any] = {"n_timesteps": case.steps, "n_envs": values["n_envs"]}
    entry |= {"policy": "MlpPolicy", **values["hyperparams"]}
    if values["normalize"]:
        entry["normalize"] = values["normalize"]
    if values["noise"]:
        entry |= {"noise_type": values["noise"]["type"], "noise_std": values["noise"]["std"]}
    if values["policy_kwargs"]:
        entry["policy_kwargs"] = _as_python(values["policy_kwargs"])
    path = folder / "zoo.yml"
    path.write_text(yaml.safe_dump({values["env"]: entry}), encoding="utf-8")
    return path


def write_sb3_file(case: Case, folder: Path) -> Path:
    """Write the values of a case for `plain_sb3`; return the file."""
    path = folder / "sb3.json"
    path.write_text(json.dumps(values_of(case)), encoding="utf-8")
    return path


def _as_python(policy: Mapping[str, Any]) -> str:
    """Return arguments of a policy as rl_zoo3's files have them: an expression."""
    texts = [
        f"{name}=nn.{value}" if name == "activation_fn" else f"{name}={value!r}"
        for name, value in policy.items()
    ]
    return f"dict({', '.join(texts)})"
