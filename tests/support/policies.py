"""Untrained policies with random weights and statistics, for every algorithm and kind of space."""

from collections import OrderedDict

import numpy as np
import torch
from gymnasium import spaces
from support.libraries import ACTING, is_of_sbx
from support.training import tiny_config

from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.export.graph import PolicyGraph
from rlzoo_plus.export.parity import made_up
from rlzoo_plus.export.signature import make_signature

FLAT = spaces.Box(-np.inf, np.inf, (3,), np.float32)
DOUBLE = spaces.Box(-np.inf, np.inf, (3,), np.float64)
IMAGE = spaces.Box(0, 255, (3, 36, 36), np.uint8)
GOAL = spaces.Dict({k: FLAT for k in ("observation", "achieved_goal", "desired_goal")})
MIXED = spaces.Dict(
    OrderedDict(
        zeta=spaces.Box(-np.inf, np.inf, (2,), np.float32),
        kind=spaces.Discrete(3),
        action_masks=spaces.Box(-1, 1, (1,), np.float32),
        switches=spaces.MultiBinary(2),
        picture=IMAGE,
    )
)
TABLE = spaces.Box(-np.inf, np.inf, (4, 3), np.float32)
# Obstacles of which some are there, beside a robot, a choice and a picture.
CROWD = spaces.Dict(
    OrderedDict(
        robot=spaces.Box(-np.inf, np.inf, (2,), np.float32),
        obstacles=TABLE,
        there=spaces.MultiBinary(4),
        kind=spaces.Discrete(3),
        picture=IMAGE,
    )
)
ARM = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32))
FREE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
CHOICE = spaces.Discrete(4)
CHOICES = spaces.MultiDiscrete([3, 2])
SWITCHES = spaces.MultiBinary(3)
MASKED = ("network.features_extractor_kwargs.masks={obstacles: there}",)
ATTENTION = ("network=attention", "network.features_extractor_kwargs.width=16", *MASKED)
DEEP_SETS = ("network=deep_sets", "network.features_extractor_kwargs.element_arch=[8, 6]", *MASKED)
DISCRETE = ("dqn", "qrdqn", "sac_discrete", "maskable_ppo")
SDE = ("algo.hyperparams.use_sde=true",)
MINE = "support.user_policies"
CNN = ("network.features_extractor_kwargs={features_dim: 6}",)
COMBINED = ("network.features_extractor_kwargs={cnn_output_dim: 6}",)

# A policy of sbx computes with JAX and has no export.
EXPORTED = [algo for algo in ACTING if not is_of_sbx(algo)]
# algorithm, observations, actions, normalised, overrides
VARIANTS = {
    **{
        algo: (
            algo, GOAL if algo == "her" else FLAT, CHOICE if algo in DISCRETE else ARM, False, ()
        )
        for algo in EXPORTED
    },
    **{
        f"{algo}-normalized": (
            algo, GOAL if algo == "her" else FLAT, CHOICE if algo in DISCRETE else ARM, True, ()
        )
        for algo in EXPORTED
    },
    **{
        f"{algo}-gsde": (algo, FLAT, ARM, True, SDE)
        for algo in ("ppo", "a2c", "trpo", "recurrent_ppo", "sac", "tqc")
    },
    **{
        f"{algo}-image": (algo, IMAGE, CHOICE if algo in DISCRETE else ARM, False, CNN)
        for algo in ("ppo", "sac", "td3", "tqc", "dqn", "qrdqn", "recurrent_ppo", "maskable_ppo")
    },
    **{
        f"{algo}-dict": (algo, MIXED, CHOICE if algo in DISCRETE else ARM, True, COMBINED)
        for algo in ("ppo", "sac", "td3", "dqn", "recurrent_ppo", "maskable_ppo")
    },
    **{
        f"{algo}-attention": (algo, CROWD, CHOICE if algo in DISCRETE else ARM, True, ATTENTION)
        for algo in ("ppo", "sac", "td3", "dqn", "recurrent_ppo", "maskable_ppo")
    },
    **{
        f"{algo}-deep_sets": (algo, CROWD, CHOICE if algo in DISCRETE else ARM, True, DEEP_SETS)
        for algo in ("ppo", "sac", "qrdqn")
    },
    "ppo-attention-frames": (
        "ppo", spaces.Box(-np.inf, np.inf, (6,), np.float32), ARM, True,
        ("network=attention", "env.frame_stack=2"),
    ),
    "sac-attention-numbers": ("sac", FLAT, ARM, True, ("network=attention",)),
    "crossq-deep_sets-alone": ("crossq", TABLE, ARM, True, ("network=deep_sets",)),
    **{
        f"{algo}-critic": (
            algo, MIXED, CHOICE if algo in DISCRETE else ARM, True,
            (*COMBINED, "network.critic_observation=[zeta]"),
        )
        for algo in ("ppo", "sac", "td3", "maskable_ppo")
    },
    "sac-layer_norm": ("sac", FLAT, ARM, True, ("network.layer_norm=all",)),
    "sac-simba": ("sac", FLAT, ARM, True, ("network=simba", "network.net_arch=[8, 8]")),
    "ppo-simba": ("ppo", MIXED, ARM, True, (*COMBINED, "network=simba")),
    "dqn-resnet": ("dqn", FLAT, CHOICE, True, ("network=resnet", "network.net_arch=[8]")),
    "dqn-droq": ("dqn", FLAT, CHOICE, True, ("network=droq",)),
    "ppo-squashed": ("ppo", FLAT, ARM, True, (*SDE, "network.squash_output=true")),
    "ppo-double": ("ppo", DOUBLE, ARM, True, ()),
    "ppo-unbounded": ("ppo", FLAT, FREE, True, ()),
    "ppo-discrete": ("ppo", FLAT, CHOICE, True, ()),
    "ppo-choices": ("ppo", FLAT, CHOICES, True, ()),
    "ppo-switches": ("ppo", FLAT, SWITCHES, True, ()),
    "ppo-of-choices": ("ppo", CHOICES, ARM, False, ()),
    "ppo-of-a-choice": ("ppo", CHOICE, ARM, False, ()),
    "maskable_ppo-choices": ("maskable_ppo", FLAT, CHOICES, True, ()),
    "maskable_ppo-switches": ("maskable_ppo", FLAT, SWITCHES, True, ()),
    "recurrent_ppo-shared": (
        "recurrent_ppo", FLAT, ARM, True,
        ("network.lstm.shared=true", "network.lstm.enable_critic=false", "network.lstm.n_layers=2"),
    ),
    "recurrent_sac-layers": ("recurrent_sac", FLAT, ARM, True, ("network.lstm.n_layers=2",)),
    "recurrent_sac-image": ("recurrent_sac", IMAGE, ARM, False, CNN),
    "recurrent_sac-dict": ("recurrent_sac", MIXED, ARM, True, COMBINED),
    "recurrent_ppo-discrete": ("recurrent_ppo", FLAT, CHOICE, True, ()),
    "ars-linear": ("ars", FLAT, ARM, True, ("network.policy=linear", "network.net_arch=null")),
    "ars-discrete": ("ars", FLAT, CHOICE, True, ()),
    "own-ppo": ("ppo", FLAT, ARM, False, (f"network.policy={MINE}.Shifted",)),
    "own-sac": ("sac", FLAT, ARM, False, (f"network.policy={MINE}.ShiftedSAC",)),
    "own-td3": ("td3", FLAT, ARM, False, (f"network.policy={MINE}.ShiftedTD3",)),
    "own-choices": ("ppo", FLAT, CHOICE, False, (f"network.policy={MINE}.Chooses",)),
    "own-extractor": ("ppo", FLAT, ARM, True, (f"network.features_extractor={MINE}.Scaled",)),
    "ppo-tanh-parts": (
        "ppo", FLAT, ARM, True,
        ("network.net_arch={actor: [8], critic: [6, 6]}", "network.activation=gelu"),
    ),
}  # fmt: skip


def random_policy(name, seed=0):
    """Return a policy of `VARIANTS` and its configuration; it reacts to every observation."""
    algo, observations, actions, normalized, overrides = VARIANTS[name]
    config = tiny_config(algo, "tests/TinyReach-v0", *overrides)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = make_policy(config, observations, actions)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            size = 0.3 * parameter.std() if parameter.ndim > 1 else 0.1
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
        for key, buffer in network.named_buffers():
            if key.endswith("ra_mean"):
                buffer.add_(0.3 * torch.randn(buffer.shape, generator=generator))
    normalizer = _statistics(observations, np.random.default_rng(seed)) if normalized else None
    policy = Policy(network, normalizer, maskable=ALGORITHMS[algo].maskable)
    _spread(policy)
    return policy, config


def _spread(policy):
    """Scale the last layer, so that actions are neither saturated nor all the same."""
    signature = make_signature(policy)
    graph = PolicyGraph(policy, signature)
    seen = []
    hooks = [
        part.register_forward_hook(lambda module, inputs, output: seen.append((module, output)))
        for name, part in graph.named_modules()
        # The width of a distribution does not decide.
        if isinstance(part, torch.nn.Linear) and not name.endswith("log_std")
    ]
    recorded = made_up(policy, signature).inputs
    with torch.no_grad():
        graph(*(torch.from_numpy(recorded[port.name]) for port in signature.inputs))
        last, output = seen[-1]
        mean = output.mean(dim=0)
        # No more than a trained policy would: a larger gain blows up rounding too.
        std = torch.maximum(output.std(dim=0), 0.1 * output.abs().mean(dim=0))
        last.weight.div_(std[:, None])
        if last.bias is not None:
            last.bias.copy_((last.bias - mean) / std)
    for hook in hooks:
        hook.remove()


def _statistics(space, generator):
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    boxes = {k: p.shape for k, p in parts.items() if isinstance(p, spaces.Box) and len(p.shape) < 3}
    return ObservationNormalizer(
        # Far from zero and narrow: in single precision it would not come out right.
        mean={key: 1000.0 * generator.normal(size=shape) for key, shape in boxes.items()},
        var={key: generator.uniform(0.5, 2.0, shape) for key, shape in boxes.items()},
        count={key: 100.0 for key in boxes},
        clip=5.0,
        epsilon=1e-8,
    )
