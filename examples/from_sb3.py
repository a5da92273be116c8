# ruff: noqa: ANN001, ANN201, ANN202, ANN204, D102
"""A script as a user of Stable-Baselines3 writes it.

python examples/from_sb3.py PPO

With `import rlzoo_plus.sb3 as sb3` in place of `import stable_baselines3 as sb3`, and nothing else
changed, it trains the same weights into a run directory.
"""

import argparse

import gymnasium
import numpy as np
import stable_baselines3 as sb3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

parser = argparse.ArgumentParser()
parser.add_argument("algorithm", choices=["PPO", "A2C", "SAC", "TD3", "DQN"])
name = parser.parse_args().algorithm


class Point(gymnasium.Env):
    """A point that is pushed to the origin, from the same place each time."""

    def __init__(self, discrete=False):
        self.observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        if discrete:
            self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = np.array([1, 0], np.float32), 0
        return self.state.copy(), {}

    def step(self, action):
        is_discrete = isinstance(self.action_space, gymnasium.spaces.Discrete)
        force = float(action) - 1 if is_discrete else float(action[0])
        velocity = self.state[1] + 0.1 * force
        self.state = np.array([self.state[0] + 0.1 * velocity, velocity], np.float32).clip(-10, 10)
        self.steps += 1
        return self.state.copy(), -abs(float(self.state[0])), False, self.steps >= 50, {}


class Counter(BaseCallback):
    """Counts the calls of the environments."""

    calls = 0

    def _on_step(self):
        self.calls += 1
        return True


env, counter = Point(discrete=name == "DQN"), Counter()
more = {"n_steps": 64} if name in ("PPO", "A2C") else {"learning_starts": 64}
algorithm = getattr(sb3, name)
model = algorithm(
    "MlpPolicy",
    env,
    learning_rate=lambda progress_remaining: 1e-3 * progress_remaining,
    policy_kwargs={"net_arch": [16]},
    seed=0,
    device="cpu",
    **more,
)
before, _ = model.predict(np.ones(2, np.float32), deterministic=True)
model.learn(total_timesteps=256, callback=counter)
mean, _ = evaluate_policy(model, env, n_eval_episodes=2, warn=False)
model.save("point")
action, _ = algorithm.load("point").predict(np.zeros(2, np.float32), deterministic=True)
weights = {key: value.numpy().sum() for key, value in model.policy.state_dict().items()}
print(before.tolist(), counter.calls, mean, action.tolist())
print([float(value).hex() for value in weights.values()])
