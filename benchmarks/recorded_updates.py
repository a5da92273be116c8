"""Recorded updates and rollouts against those of Stable-Baselines3: the same training, in turn.

Each round trains with and without, in one process and with one thread of torch, in alternating
order. Shown are all updates, all rollouts, and `learn()` as a whole: in processor time, which other
processes disturb least, and on the clock, since a second lane trades one for the other. `taskset -c
0` leaves one lane. Both must end with the same weights.

    python -m benchmarks.recorded_updates [ppo a2c ...] [--rounds 5] [--json FILE]
                                          [--fast [true|bfloat16]]

With `--fast`, updates of `fast=true` or `fast=bfloat16` are measured against recorded ones;
weights differ by rounding.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sb3_contrib import TQC
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

import robots  # noqa: F401 - registers the environments
from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.fast.door import Accelerated, record
from rlzoo_plus.fast.handwritten.fast_updates import FastUpdates

PLAIN, RECORDED, FAST, HALF = "plain", "recorded", "true", "bfloat16"
_WIDE = {"log_std_init": -2, "ortho_init": False, "activation_fn": nn.ReLU}
_WIDE |= {"net_arch": {"pi": [256, 256], "vf": [256, 256]}}
_OFF_POLICY = {"learning_starts": 256, "batch_size": 256, "gamma": 0.98}
_GSDE = {"learning_rate": 7.3e-4, "tau": 0.02, "train_freq": 8, "gradient_steps": 8}
_GSDE |= {"use_sde": True, **_OFF_POLICY}
_LAYERS = {"net_arch": [400, 300]}

_PARTS = ("updates", "rollouts", "learn()")
_MEASURES = tuple(f"{part}{clock}" for part in _PARTS for clock in ("", ", wall"))


def _linear(value: float) -> Callable[[float], float]:
    return lambda remaining: value * remaining


# Algorithm, environment, how many, normalised, arguments, steps. The values are those of rl_zoo3.
CASES: dict[str, tuple[Any, str, int, bool, dict[str, Any], int]] = {
    "ppo-cartpole": (
        *(PPO, "CartPole-v1", 8, False),
        {
            **{"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20},
            **{"learning_rate": _linear(0.001), "clip_range": _linear(0.2)},
        },
        10_240,
    ),
    "ppo-halfcheetah": (
        *(PPO, "robots/HalfCheetah-v0", 16, True),
        {
            **{"n_steps": 512, "batch_size": 128, "n_epochs": 20, "gamma": 0.99},
            **{"gae_lambda": 0.9, "learning_rate": 3e-5, "clip_range": 0.4, "use_sde": True},
            **{"sde_sample_freq": 4, "policy_kwargs": _WIDE},
        },
        24_576,
    ),
    "a2c-halfcheetah": (
        *(A2C, "robots/HalfCheetah-v0", 4, True),
        {
            **{"n_steps": 8, "gae_lambda": 0.9, "vf_coef": 0.4, "use_sde": True},
            **{"learning_rate": _linear(0.00096)},
            "policy_kwargs": {"log_std_init": -2, "ortho_init": False},
        },
        8_192,
    ),
    "sac-halfcheetah": (
        *(SAC, "robots/HalfCheetah-v0", 1, False),
        {**_GSDE, "policy_kwargs": {"log_std_init": -3, **_LAYERS}},
        768,
    ),
    "tqc-halfcheetah": (
        *(TQC, "robots/HalfCheetah-v0", 1, False),
        {**_GSDE, "policy_kwargs": {"log_std_init": -3, "use_expln": True, **_LAYERS}},
        768,
    ),
    "td3-halfcheetah": (
        *(TD3, "robots/HalfCheetah-v0", 1, False),
        {**_OFF_POLICY, "learning_rate": 7e-4, "policy_kwargs": _LAYERS},
        768,
    ),
    "dqn-cartpole": (
        *(DQN, "CartPole-v1", 1, False),
        {
            **{"learning_rate": 2.3e-3, "batch_size": 64, "learning_starts": 1000, "gamma": 0.99},
            **{"train_freq": 256, "gradient_steps": 128, "target_update_interval": 10},
            "policy_kwargs": {"net_arch": [256, 256]},
        },
        4_096,
    ),
}


def main() -> None:
    """Measure in turn and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    told = "fast=true, or fast=bfloat16, against recorded updates"
    parser.add_argument("--fast", nargs="?", const=FAST, choices=[FAST, HALF], help=told)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"machine: {_machine()}", flush=True)
    columns = ["case", *_MEASURES, "same weights"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    kinds = (RECORDED, options.fast) if options.fast else (PLAIN, RECORDED)
    results = {name: _measure(name, options.rounds, kinds) for name in options.cases}
    if options.json is not None:
        record = {"machine": _machine(), "rounds": options.rounds, "cases": results}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def _measure(name: str, rounds: int, kinds: tuple[str, str]) -> dict[str, Any]:
    ratios: list[list[float]] = [[] for _ in _MEASURES]
    same = True
    for number in range(rounds):
        found = {kind: _train(name, kind) for kind in (kinds[::-1] if number % 2 else kinds)}
        slow, quick = (found[kind] for kind in kinds)
        for column, before, after in zip(ratios, slow[0], quick[0], strict=True):
            column.append(before / after)
        same = same and torch.equal(slow[1], quick[1])
    shown = " | ".join(map(_shown, ratios))
    print(f"| {name} | {shown} | {'yes' if same else 'NO'} |", flush=True)
    return dict(zip(_MEASURES, ratios, strict=True)) | {"same": same}


def _train(name: str, kind: str) -> tuple[list[float], torch.Tensor]:
    """Return the times of `_MEASURES` [s], and the weights."""
    recorded = kind != PLAIN
    algorithm, env, n_envs, normalized, arguments, steps = CASES[name]
    venv = make_vec_env(env, n_envs, seed=0, vec_env_cls=DummyVecEnv)
    agent = with_iteration_hook(algorithm, Accelerated)(
        "MlpPolicy", VecNormalize(venv) if normalized else venv, seed=0, device="cpu", **arguments
    )
    if recorded:
        record(agent)
    if kind in (FAST, HALF):
        agent.recorded = FastUpdates(rounds=kind == HALF)
    update, collect = _Timed(agent.train), _Timed(agent.collect_rollouts)
    agent.train, agent.collect_rollouts = update, collect
    whole = _Timed(agent.learn)
    whole(steps)
    venv.close()
    for found in (agent.recorded, agent.rollouts, agent.actions):
        if found is not None and found.reason:
            print(f"{name} is not recorded: {found.reason}")
    weights = torch.cat([p.detach().flatten() for p in agent.policy.parameters()])
    return [t for timed in (update, collect, whole) for t in timed.spent], weights


class _Timed:
    """Calls a function, and adds up the processor time and the time on the clock [s]."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.spent = function, [0.0, 0.0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        started = time.process_time(), time.perf_counter()
        try:
            return self._function(*args, **kwargs)
        finally:
            self.spent[0] += time.process_time() - started[0]
            self.spent[1] += time.perf_counter() - started[1]


def _shown(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    return f"{processor}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
