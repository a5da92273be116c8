"""What no manager can be faster than: the physics alone, and the matrix products alone.

`limits.py physics VALUES.json STEPS THREADS` steps the environment with one action; `limits.py
products ...` does the matrix products that the updates cannot do without, forwards and backwards,
in single precision, and `limits.py bfloat16 ...` in that precision.
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
# How many networks an update passes forwards, computes the gradients of the weights of, and passes
# backwards. SAC and TQC pass the actor twice, two critics twice and their targets once; TD3 passes
# the actor and one critic at every other update.
_PASSES = {
    "ppo": (2, 2, 2),
    "a2c": (2, 2, 2),
    "sac": (8, 3, 5),
    "tqc": (8, 3, 5),
    "td3": (6, 2.5, 3),
}


def main() -> None:
    """Do one of the two."""
    what, values = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    torch.set_num_threads(int(sys.argv[4]))
    for name in values["packages"]:
        importlib.import_module(name)
    env = gymnasium.make(values["env"], **values["env_kwargs"])
    if what == "physics":
        _physics(env, int(sys.argv[3]))
    else:
        dtype = torch.bfloat16 if what == "bfloat16" else torch.float32
        _products(values, env, int(sys.argv[3]), dtype)


def _physics(env, steps: int) -> None:  # noqa: ANN001
    env.action_space.seed(0)
    env.reset(seed=0)
    action = env.action_space.sample()
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def _products(values, env, steps: int, dtype: torch.dtype) -> None:  # noqa: ANN001
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
        [torch.rand(shape).to(dtype) for shape in ((batch, a), (a, b), (batch, b))]
        for a, b in pairwise(sizes)
    ]
    forwards, of_weights, backwards = (int(updates * count) for count in _PASSES[algo])
    for inputs, weights, results in layers * forwards:
        torch.mm(inputs, weights, out=results)
    for inputs, weights, gradients in layers * of_weights:
        torch.mm(inputs.t(), gradients, out=weights)
    for inputs, weights, gradients in layers[1:] * backwards:
        torch.mm(gradients, weights.t(), out=inputs)


if __name__ == "__main__":
    main()
