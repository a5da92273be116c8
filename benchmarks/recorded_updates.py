"""Updates from recordings against those of Stable-Baselines3: the same training, in turn.

Each round trains with and without, in one process and with one thread, in alternating order. What
counts is processor time, which other processes disturb least: that of all updates, and that of
`learn()` as a whole. Both must end with the same weights.

    python -m benchmarks.recorded_updates [ppo a2c ...] [--rounds 5] [--json FILE]
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
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

import robots  # noqa: F401 - registers the environments
from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.agents.recorded.updates import RecordedUpdates, RecordsUpdates

_WIDE = {"log_std_init": -2, "ortho_init": False, "activation_fn": nn.ReLU}
_WIDE |= {"net_arch": {"pi": [256, 256], "vf": [256, 256]}}
_OFF_POLICY = {"learning_starts": 256, "batch_size": 256, "gamma": 0.98}
_GSDE = {"learning_rate": 7.3e-4, "tau": 0.02, "train_freq": 8, "gradient_steps": 8}
_GSDE |= {"use_sde": True, **_OFF_POLICY}
_LAYERS = {"net_arch": [400, 300]}


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
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"machine: {_machine()}", flush=True)
    print("| case | updates | learn() | same weights |\n|---|---|---|---|", flush=True)
    results = {name: _measure(name, options.rounds) for name in options.cases}
    if options.json is not None:
        record = {"machine": _machine(), "rounds": options.rounds, "cases": results}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def _measure(name: str, rounds: int) -> dict[str, Any]:
    updates, wholes, same = [], [], True
    for number in range(rounds):
        order = (True, False) if number % 2 else (False, True)
        found = {recorded: _train(name, recorded=recorded) for recorded in order}
        updates.append(found[False][0] / found[True][0])
        wholes.append(found[False][1] / found[True][1])
        same = same and torch.equal(found[False][2], found[True][2])
    print(
        f"| {name} | {_shown(updates)} | {_shown(wholes)} | {'yes' if same else 'NO'} |", flush=True
    )
    return {"updates": updates, "learn": wholes, "same": same}


def _train(name: str, *, recorded: bool) -> tuple[float, float, torch.Tensor]:
    """Return the processor times of the updates and of all of it [s], and the weights."""
    algorithm, env, n_envs, normalized, arguments, steps = CASES[name]
    venv = make_vec_env(env, n_envs, seed=0)
    agent = with_iteration_hook(algorithm, RecordsUpdates)(
        "MlpPolicy", VecNormalize(venv) if normalized else venv, seed=0, device="cpu", **arguments
    )
    agent.recorded = RecordedUpdates() if recorded else None
    spent, update = 0.0, agent.train

    def train(*args: Any, **kwargs: Any) -> None:
        nonlocal spent
        started = time.process_time()
        update(*args, **kwargs)
        spent += time.process_time() - started

    agent.train = train
    started = time.process_time()
    agent.learn(steps)
    whole = time.process_time() - started
    venv.close()
    if recorded and agent.recorded.reason:
        print(f"{name} is not recorded: {agent.recorded.reason}")
    weights = torch.cat([p.detach().flatten() for p in agent.policy.parameters()])
    return spent, whole, weights


def _shown(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    return f"{processor}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
