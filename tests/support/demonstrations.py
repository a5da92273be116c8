"""Demonstrations in the tiny environments, by a policy that knows the way."""

import numpy as np

from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration


def expert(seen, discrete):
    """Return the action of TinyReach that goes to the goal."""
    move = np.clip((seen[1] - 5.0 - seen[0] / 10) / 0.3, -1, 1)
    return np.int64(round(move) + 1) if discrete else np.array([move], np.float32)


def demonstrate(env, n_episodes=6, act=None):
    """Return episodes of the expert, or of a function of what was seen."""
    discrete = not hasattr(env.action_space, "low")
    act = act or (lambda seen: expert(seen, discrete))
    episodes = []
    for seed in range(n_episodes):
        seen, rewards, actions = [env.reset(seed=seed)[0]], [], []
        ended = (False, False)
        while not any(ended):
            actions.append(act(seen[-1]))
            following, reward, *ended, _ = env.step(actions[-1])
            seen.append(following)
            rewards.append(reward)
        rows = (
            np.stack(seen)
            if not isinstance(seen[0], dict)
            else {key: np.stack([one[key] for one in seen]) for key in seen[0]}
        )
        found = Demonstration(rows, np.stack(actions), np.array(rewards), ended[0], seed)
        episodes.append(found)
    return Dataset(env.observation_space, env.action_space, episodes, {"dataset_id": "tiny/x-v0"})
