"""The registries that a configuration chooses from: algorithms, activations, wrappers, ...

Each maps the shipped names to where the object lives; own and installed ones are found by
`rlzoo_plus.registry`. A name that maps to None stands for what depends on more than the name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import Registry


class Family(StrEnum):
    """How an algorithm gathers experience; decides buffers, threads and cadence."""

    ON_POLICY = "on_policy"
    OFF_POLICY = "off_policy"
    EVOLUTION = "evolution"


_POLICIES = {"mlp": "MlpPolicy", "cnn": "CnnPolicy", "multi_input": "MultiInputPolicy"}
_LSTM_POLICIES = {
    "mlp": "MlpLstmPolicy",
    "cnn": "CnnLstmPolicy",
    "multi_input": "MultiInputLstmPolicy",
}
_ANY_ACTIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


@dataclass(frozen=True)
class AlgorithmSpec:
    """What the manager must know about an algorithm before it is imported.

    Attributes:
        name: The name in `algo.name`.
        entry_point: `module:Class` of a Stable-Baselines3 algorithm.
        family: How it gathers experience.
        actions: Names of the Gymnasium action spaces it can act in.
        policies: Kind of network (`mlp`, `cnn`, `multi_input`, ...) to SB3's policy alias.
        schedules: Constructor arguments that accept a schedule.
        recurrent: Whether its policy carries a state from step to step.
        maskable: Whether it needs the environment's `action_masks`.
        replay_buffer: The replay buffer it uses unless told otherwise.
        policy_defaults: Arguments that the algorithm itself gives its policy class.
    """

    name: str
    entry_point: str
    family: Family
    actions: tuple[str, ...] = ("Box",)
    policies: tuple[tuple[str, str], ...] = tuple(_POLICIES.items())
    schedules: tuple[str, ...] = ("learning_rate",)
    recurrent: bool = False
    maskable: bool = False
    replay_buffer: str | None = None
    policy_defaults: tuple[tuple[str, Any], ...] = ()


_ON, _OFF = Family.ON_POLICY, Family.OFF_POLICY
_PPO_SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")

_ALGORITHMS = (
    AlgorithmSpec(
        "ppo", "stable_baselines3.ppo.ppo:PPO", _ON, _ANY_ACTIONS, schedules=_PPO_SCHEDULES
    ),
    AlgorithmSpec("a2c", "stable_baselines3.a2c.a2c:A2C", _ON, _ANY_ACTIONS),
    AlgorithmSpec("sac", "stable_baselines3.sac.sac:SAC", _OFF),
    AlgorithmSpec("td3", "stable_baselines3.td3.td3:TD3", _OFF),
    AlgorithmSpec(
        "ddpg",
        "stable_baselines3.ddpg.ddpg:DDPG",
        _OFF,
        policy_defaults=(("n_critics", 1),),
    ),
    AlgorithmSpec("dqn", "stable_baselines3.dqn.dqn:DQN", _OFF, ("Discrete",)),
    AlgorithmSpec("her", "stable_baselines3.sac.sac:SAC", _OFF, replay_buffer="her"),
    AlgorithmSpec("tqc", "sb3_contrib.tqc.tqc:TQC", _OFF),
    AlgorithmSpec(
        "crossq",
        "sb3_contrib.crossq.crossq:CrossQ",
        _OFF,
        policies=(("mlp", "MlpPolicy"),),
    ),
    AlgorithmSpec("qrdqn", "sb3_contrib.qrdqn.qrdqn:QRDQN", _OFF, ("Discrete",)),
    AlgorithmSpec("trpo", "sb3_contrib.trpo.trpo:TRPO", _ON, _ANY_ACTIONS),
    AlgorithmSpec(
        "recurrent_ppo",
        "sb3_contrib.ppo_recurrent.ppo_recurrent:RecurrentPPO",
        _ON,
        _ANY_ACTIONS,
        policies=tuple(_LSTM_POLICIES.items()),
        schedules=_PPO_SCHEDULES,
        recurrent=True,
    ),
    AlgorithmSpec(
        "maskable_ppo",
        "sb3_contrib.ppo_mask.ppo_mask:MaskablePPO",
        _ON,
        ("Discrete", "MultiDiscrete", "MultiBinary"),
        schedules=_PPO_SCHEDULES,
        maskable=True,
    ),
    AlgorithmSpec(
        "ars",
        "sb3_contrib.ars.ars:ARS",
        Family.EVOLUTION,
        ("Box", "Discrete"),
        policies=(("mlp", "MlpPolicy"), ("linear", "LinearPolicy")),
        schedules=("learning_rate", "delta_std"),
    ),
)

ALGORITHMS = Registry(
    "algorithm",
    "algo.name",
    {spec.name: spec for spec in _ALGORITHMS},
    bases=["stable_baselines3.common.base_class:BaseAlgorithm"],
)

ACTIVATIONS = Registry(
    "activation",
    "network.activation",
    {
        "tanh": "torch.nn:Tanh",
        "relu": "torch.nn:ReLU",
        "elu": "torch.nn:ELU",
        "leaky_relu": "torch.nn:LeakyReLU",
        "gelu": "torch.nn:GELU",
        "silu": "torch.nn:SiLU",
        "selu": "torch.nn:SELU",
        "mish": "torch.nn:Mish",
        "softplus": "torch.nn:Softplus",
        "sigmoid": "torch.nn:Sigmoid",
        "identity": "torch.nn:Identity",
    },
    bases=["torch.nn.modules.module:Module"],
)

OPTIMIZERS = Registry(
    "optimizer",
    "network.optimizer",
    {
        "adam": "torch.optim:Adam",
        "adamw": "torch.optim:AdamW",
        "radam": "torch.optim:RAdam",
        "nadam": "torch.optim:NAdam",
        "sgd": "torch.optim:SGD",
        "rmsprop": "torch.optim:RMSprop",
        "rmsprop_tf": "stable_baselines3.common.sb2_compat.rmsprop_tf_like:RMSpropTFLike",
    },
    bases=["torch.optim.optimizer:Optimizer"],
)

FEATURES_EXTRACTORS = Registry(
    "features_extractor",
    "network.features_extractor",
    {
        "flatten": "stable_baselines3.common.torch_layers:FlattenExtractor",
        "nature_cnn": "stable_baselines3.common.torch_layers:NatureCNN",
        "combined": "stable_baselines3.common.torch_layers:CombinedExtractor",
        "attention": "rlzoo_plus.agents.extractors:AttentionExtractor",
        "deep_sets": "rlzoo_plus.agents.extractors:DeepSetsExtractor",
    },
    bases=["stable_baselines3.common.torch_layers:BaseFeaturesExtractor"],
)

ACTION_NOISES = Registry(
    "action_noise",
    "algo.action_noise.type",
    {
        "normal": "stable_baselines3.common.noise:NormalActionNoise",
        "ou": "stable_baselines3.common.noise:OrnsteinUhlenbeckActionNoise",
    },
    bases=["stable_baselines3.common.noise:ActionNoise"],
)

REPLAY_BUFFERS = Registry(
    "replay_buffer",
    "algo.replay_buffer",
    {
        "default": "stable_baselines3.common.buffers:ReplayBuffer",
        "dict": "stable_baselines3.common.buffers:DictReplayBuffer",
        "nstep": "stable_baselines3.common.buffers:NStepReplayBuffer",
        "her": "stable_baselines3.her.her_replay_buffer:HerReplayBuffer",
    },
    bases=["stable_baselines3.common.buffers:ReplayBuffer"],
)

WRAPPERS = Registry(
    "wrapper",
    "env.wrappers",
    {
        "time_feature": "sb3_contrib.common.wrappers:TimeFeatureWrapper",
        "flatten_observation": "gymnasium.wrappers:FlattenObservation",
        "rescale_action": "gymnasium.wrappers:RescaleAction",
        "clip_action": "gymnasium.wrappers:ClipAction",
        "clip_reward": "gymnasium.wrappers:ClipReward",
        "grayscale_observation": "gymnasium.wrappers:GrayscaleObservation",
        "resize_observation": "gymnasium.wrappers:ResizeObservation",
        "render_observation": "gymnasium.wrappers:AddRenderObservation",
        "filter_observation": "gymnasium.wrappers:FilterObservation",
        "time_aware_observation": "gymnasium.wrappers:TimeAwareObservation",
        "sticky_action": "gymnasium.wrappers:StickyAction",
        "max_and_skip": "gymnasium.wrappers:MaxAndSkipObservation",
        "reproducible_resets": "rlzoo_plus.envs.episodes:ReproducibleResets",
        "mask_observation": "rlzoo_plus.envs.wrappers:MaskObservation",
        "mask_velocity": "rlzoo_plus.envs.wrappers:MaskVelocity",
        "history": "rlzoo_plus.envs.wrappers:History",
        "frame_skip": "rlzoo_plus.envs.wrappers:FrameSkip",
        "delayed_reward": "rlzoo_plus.envs.wrappers:DelayedReward",
        "truncate_on_success": "rlzoo_plus.envs.wrappers:TruncateOnSuccess",
        "noisy_action": "rlzoo_plus.envs.wrappers:NoisyAction",
        "smooth_action": "rlzoo_plus.envs.wrappers:SmoothAction",
        "atari": "stable_baselines3.common.atari_wrappers:AtariWrapper",
    },
    bases=["gymnasium.core:Wrapper"],
)

POLICIES = Registry(
    "policy",
    "network.policy",
    dict.fromkeys(("auto", "mlp", "cnn", "multi_input", "linear")),
    bases=["stable_baselines3.common.policies:BasePolicy"],
)

VEC_ENVS = Registry(
    "vec_env",
    "vec_env",
    dict.fromkeys(("auto", "dummy", "batched", "subproc", "gymnasium")),
    bases=[
        "stable_baselines3.common.vec_env.base_vec_env:VecEnv",
        "gymnasium.vector.vector_env:VectorEnv",
    ],
)

CALLBACKS = Registry(
    "callback", "callbacks", bases=["stable_baselines3.common.callbacks:BaseCallback"]
)

METRICS = Registry(
    "metric",
    "eval.metrics",
    {"action_change": "rlzoo_plus.metrics:ActionChange", "energy": "rlzoo_plus.metrics:Energy"},
    methods=["begin", "step", "end"],
)

LAUNCHERS = Registry(
    "launcher",
    "infra.name",
    {
        "local": "rlzoo_plus.infra.local:LocalLauncher",
        "debug": "rlzoo_plus.infra.debug:DebugLauncher",
        "slurm": "rlzoo_plus.infra.slurm:SlurmLauncher",
        "ray": "rlzoo_plus.infra.ray_launcher:RayLauncher",
    },
    methods=["from_options", "submit", "wait"],
)

TRACKERS = Registry(
    "tracker",
    "tracker.name",
    {
        "mlflow": "rlzoo_plus.tracking.mlflow_tracker:MlflowTracker",
        "wandb": "rlzoo_plus.tracking.wandb_tracker:WandbTracker",
    },
    methods=["start", "log", "finish", "fail"],
)

REGISTRIES = (
    *(ALGORITHMS, ACTIVATIONS, OPTIMIZERS, FEATURES_EXTRACTORS, POLICIES, ACTION_NOISES),
    *(REPLAY_BUFFERS, WRAPPERS, VEC_ENVS, CALLBACKS, METRICS, LAUNCHERS, TRACKERS),
)


def get_algorithm(name: str) -> AlgorithmSpec:
    """Return the specification of an algorithm; a class of the user's is asked for its own.

    Raises:
        ConfigError: No algorithm has that name.
    """
    found = ALGORITHMS.load(name)
    return found if isinstance(found, AlgorithmSpec) else _spec_of(name, found)


def register_algorithm(spec: AlgorithmSpec) -> None:
    """Add an algorithm of your own, e.g. from a module named in `packages`.

    Raises:
        ConfigError: The name is taken by another algorithm.
    """
    if ALGORITHMS.get(spec.name, spec) != spec:
        raise ConfigError(
            f"algorithm {spec.name!r} is registered already, as "
            f"{ALGORITHMS[spec.name].entry_point}. Choose another name."
        )
    ALGORITHMS[spec.name] = spec


def _spec_of(name: str, algorithm: type) -> AlgorithmSpec:
    """Describe a class by the algorithm of ours that it extends, else by how it gathers.

    A class says itself what is otherwise, in an attribute `spec`.
    """
    own = vars(algorithm).get("spec")
    if isinstance(own, AlgorithmSpec):
        return replace(own, name=name)
    place = f"{algorithm.__module__}:{algorithm.__qualname__}"
    classes = [f"{kind.__module__}:{kind.__qualname__}" for kind in algorithm.__mro__]
    for known in _ALGORITHMS:
        if known.entry_point in classes:
            return replace(known, name=name, entry_point=place)
    base = "stable_baselines3.common.on_policy_algorithm:OnPolicyAlgorithm"
    if base in classes:
        return AlgorithmSpec(name, place, _ON, _ANY_ACTIONS)
    return AlgorithmSpec(name, place, _OFF)
