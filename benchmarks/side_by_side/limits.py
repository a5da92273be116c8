"""What no manager can be faster than: the physics alone, and the matrix products alone.

`limits.py physics VALUES.json STEPS` steps the environment with one action; `limits.py products
VALUES.json STEPS` does the matrix products of the updates, forwards and backwards.
"""

import importlib
import json
import sys
from itertools import pairwise
from pathlib import Path

import gymnasium
import torch

# Of a multilayer perceptron that the policy classes of Stable-Baselines3 build by default.
_DEFAULT_ARCH = {"a2c": [64, 64], "ppo": [64, 64]}
# Forward and backward passes of networks in one update: their products of matrices.
_NETWORKS = {"ppo": 2, "a2c": 2, "sac": 8, "td3": 6, "tqc": 8}


def main() -> None:
    """Do one of the two."""
    what, values = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    torch.set_num_threads(1)
    for name in values["packages"]:
        importlib.import_module(name)
    env = gymnasium.make(values["env"], **values["env_kwargs"])
    {"physics": _physics, "products": _products}[what](values, env, int(sys.argv[3]))


def _physics(_values, env, steps: int) -> None:  # noqa: ANN001
    env.action_space.seed(0)
    env.reset(seed=0)
    action = env.action_space.sample()
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def _products(values, env, steps: int) -> None:  # noqa: ANN001
    hyperparams, algo = values["hyperparams"], values["algo"]
    arch = values["policy_kwargs"].get("net_arch", _DEFAULT_ARCH.get(algo, [256, 256]))
    hidden = arch["pi"] if isinstance(arch, dict) else arch
    sizes = [gymnasium.spaces.flatdim(env.observation_space), *hidden, 1]
    if "n_epochs" in hyperparams:
        batch, updates = hyperparams["batch_size"], steps * hyperparams["n_epochs"]
        updates //= batch
    elif algo == "a2c":
        batch = hyperparams["n_steps"] * values["n_envs"]
        updates = steps // batch
    else:
        batch = hyperparams["batch_size"]
        updates = max(steps - hyperparams["learning_starts"], 0)
    layers = [
        (torch.rand(batch, a), torch.rand(a, b), torch.rand(batch, b)) for a, b in pairwise(sizes)
    ]
    for _ in range(updates * _NETWORKS[algo]):
        for inputs, weights, gradients in layers:
            inputs @ weights
            inputs.T @ gradients
            gradients @ weights.T


if __name__ == "__main__":
    main()
