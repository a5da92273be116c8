"""A training with recordings beside the one of Stable-Baselines3, and all that they leave."""

import copy

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from support.training import assert_same_tree

from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.envs.plain_state import to_plain
from rlzoo_plus.fast.door import Accelerated, record

_MEMORY = ("observations", "actions", "rewards", "dones")


def policy_for(space):
    """Return the name of the policy for a space of observations."""
    if isinstance(space, spaces.Dict):
        return "MultiInputPolicy"
    return "CnnPolicy" if is_image_space(space) else "MlpPolicy"


def make_agent(case, *, recorded, n_envs=4, policy=None, limit=None, wrap=None):
    """Return an agent for a case: algorithm, environment, whether it is normalized, arguments."""
    algorithm, env, normalized, arguments = case
    torch.set_num_threads(1)
    venv = make_vec_env(env, n_envs, seed=0, wrapper_class=limit)
    venv = wrap(venv) if wrap else venv
    venv = VecNormalize(venv) if normalized else venv
    kind = with_iteration_hook(algorithm, Accelerated) if recorded else algorithm
    policy = policy or policy_for(venv.observation_space)
    agent = kind(policy, venv, seed=0, device="cpu", **copy.deepcopy(arguments))
    if recorded:
        record(agent)
    return agent


def train(case, steps, *, recorded, callback=None, **options):
    """Return a trained agent."""
    agent = make_agent(case, recorded=recorded, **options)
    agent.learn(steps, callback)
    return agent


def memory_of(agent):
    """Return what the replay buffer of an agent holds, and the mode of its modules."""
    buffer = getattr(agent, "replay_buffer", None)
    if buffer is None:
        return {}
    used = buffer.buffer_size if buffer.full else buffer.pos
    arrays = {name: getattr(buffer, name) for name in _MEMORY}
    parts = arrays.pop("observations")
    arrays |= parts if isinstance(parts, dict) else {"observations": parts}
    held = {name: array[:used] for name, array in arrays.items()}
    return held | {"used": used, "mode": [m.training for m in agent.policy.modules()]}


def outcome(agent):
    """Return all that a training leaves, but for what its callback saw."""
    entropy = getattr(agent, "log_ent_coef", None)
    statistics = [v for v in vars(agent.env).values() if isinstance(v, RunningMeanStd)]
    return {
        "parameters": to_plain(agent.get_parameters()),
        "entropy": np.zeros(1) if entropy is None else entropy.detach().numpy(),
        "memory": memory_of(agent),
        "steps": [agent.num_timesteps, agent._n_updates, agent._episode_num],
        "episodes": [{key: each[key] for key in "rl"} for each in agent.ep_info_buffer],
        "normalization": [vars(each) for each in statistics],
        "random": [torch.get_rng_state().numpy(), np.random.get_state()[1]],
    }


def same_as_sb3(case, steps, **options):
    """Train both ways, compare what is left, and return the agent with recordings."""
    plain = outcome(train(case, steps, recorded=False, **options))
    agent = train(case, steps, recorded=True, **options)
    assert_same_tree(outcome(agent), plain)
    return agent
