"""Trains with Stable-Baselines3 alone: `plain_sb3.py VALUES.json STEPS`, with one thread."""

import importlib
import json
import sys
from pathlib import Path

import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize


def main() -> None:
    """Train, and save the model."""
    values, steps = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    torch.set_num_threads(1)
    for name in values["packages"]:
        importlib.import_module(name)

    def make(n_envs: int, seed: int):  # noqa: ANN202
        venv = make_vec_env(values["env"], n_envs, seed, env_kwargs=values["env_kwargs"])
        if not values["normalize"]:
            return venv
        gamma = values["hyperparams"].get("gamma", 0.99)
        return VecNormalize(venv, gamma=gamma, **values["normalize"])

    venv = make(values["n_envs"], 0)
    policy = dict(values["policy_kwargs"])
    if "activation_fn" in policy:
        policy["activation_fn"] = getattr(torch.nn, policy["activation_fn"])
    arguments = {name: _schedule(value) for name, value in values["hyperparams"].items()}
    if values["noise"]:
        size, std = venv.action_space.shape, values["noise"]["std"]
        arguments["action_noise"] = NormalActionNoise(
            torch.zeros(size).numpy(), torch.full(size, std).numpy()
        )
    name = "CrossQ" if values["algo"] == "crossq" else values["algo"].upper()
    algorithm = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    agent = algorithm(
        "MlpPolicy", venv, policy_kwargs=policy or None, seed=0, device="cpu", **arguments
    )
    callbacks = []
    if values["saves"] is not None:
        every = max(values["saves"] // values["n_envs"], 1)
        callbacks.append(EvalCallback(make(1, 1), n_eval_episodes=5, eval_freq=every))
        callbacks.append(CheckpointCallback(every, "checkpoints"))
    agent.learn(steps, callback=callbacks or None)
    agent.save("model.zip")


def _schedule(value):  # noqa: ANN001, ANN202
    if isinstance(value, str) and value.startswith("lin_"):
        start = float(value.removeprefix("lin_"))
        return lambda remaining: start * remaining
    return value


if __name__ == "__main__":
    main()
