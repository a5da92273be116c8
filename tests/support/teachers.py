"""Teachers for the tiny environments: linear policies whose weights are written down."""

import numpy as np
import torch
from gymnasium import spaces
from support.training import tiny_config

from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.agents.policy import save_weights
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.envs.single import make_env


def write_teacher(
    path, *overrides, env="tests/TinyReach-v0", statistics=False, scale=1.0, sees=None
):
    """Write the bundle of a policy that goes to the goal of TinyReach.

    Args:
        path: Of the bundle.
        overrides: Of its configuration.
        env: Id of its environment, TinyReach or TinyDict.
        statistics: Whether it normalizes what it sees.
        scale: Factor on its weights, 1 for the right ones.
        sees: How many numbers it sees; None for what its environment shows.
    """
    config = tiny_config("ppo", env, "network.net_arch=[]", *overrides)
    made = make_env(config.env)
    space, actions = made.observation_space, made.action_space
    made.close()
    if sees is not None:
        space = spaces.Box(-np.inf, np.inf, (sees,), np.float32)
    network = make_policy(config, space, actions)
    # What it sees is ten times the place, the goal plus 5, and more that does not count.
    size = network.action_net.in_features
    weight, bias = np.zeros(size), -5.0 / 0.3
    weight[:2] = -1.0 / 3.0, 1.0 / 0.3
    normalizer = None
    if statistics:
        mean, var = np.linspace(1, 2, size), np.linspace(4, 9, size)
        bias += float(weight @ mean)
        weight *= np.sqrt(var)
        normalizer = ObservationNormalizer({"": mean}, {"": var}, {"": 9.0}, 1e6, 0.0)
    if hasattr(actions, "low"):
        rows, biases = weight[None], [bias]
    else:
        # The largest of 2 m k - k^2 is at the k in -1, 0, 1 that is nearest to m.
        rows = np.stack([2 * k * weight for k in (-1, 0, 1)])
        biases = [2 * k * bias - k * k for k in (-1, 0, 1)]
    with torch.no_grad():
        network.action_net.weight.copy_(torch.as_tensor(scale * rows))
        network.action_net.bias.copy_(torch.as_tensor(scale * np.array(biases)))
    weights = {name: value.numpy().copy() for name, value in network.state_dict().items()}
    save_weights(path, network, config, {"step": 7}, weights, normalizer)
    return path
