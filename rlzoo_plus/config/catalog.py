"""The closed sets a configuration chooses from: algorithms, activations, optimizers and the like.

Each is a plain dictionary from a name to where the object lives (`module:attribute`), so that a
configuration can be checked without importing torch, and nothing in a configuration is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.imports import import_user_module
from rlzoo_plus.config.suggest import HELP, unknown_name


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

ALGORITHMS: dict[str, AlgorithmSpec] = {
    spec.name: spec
    for spec in (
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
}

ACTIVATIONS: dict[str, str] = {
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
}

OPTIMIZERS: dict[str, str] = {
    "adam": "torch.optim:Adam",
    "adamw": "torch.optim:AdamW",
    "radam": "torch.optim:RAdam",
    "nadam": "torch.optim:NAdam",
    "sgd": "torch.optim:SGD",
    "rmsprop": "torch.optim:RMSprop",
    "rmsprop_tf": "stable_baselines3.common.sb2_compat.rmsprop_tf_like:RMSpropTFLike",
}

FEATURES_EXTRACTORS: dict[str, str] = {
    "flatten": "stable_baselines3.common.torch_layers:FlattenExtractor",
    "nature_cnn": "stable_baselines3.common.torch_layers:NatureCNN",
    "combined": "stable_baselines3.common.torch_layers:CombinedExtractor",
    "attention": "rlzoo_plus.agents.extractors:AttentionExtractor",
    "deep_sets": "rlzoo_plus.agents.extractors:DeepSetsExtractor",
}

ACTION_NOISES: dict[str, str] = {
    "normal": "stable_baselines3.common.noise:NormalActionNoise",
    "ou": "stable_baselines3.common.noise:OrnsteinUhlenbeckActionNoise",
}

REPLAY_BUFFERS: dict[str, str] = {
    "default": "stable_baselines3.common.buffers:ReplayBuffer",
    "dict": "stable_baselines3.common.buffers:DictReplayBuffer",
    "nstep": "stable_baselines3.common.buffers:NStepReplayBuffer",
    "her": "stable_baselines3.her.her_replay_buffer:HerReplayBuffer",
}

WRAPPERS: dict[str, str] = {
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
    "reproducible_resets": "rlzoo_plus.envs.wrappers:ReproducibleResets",
    "mask_observation": "rlzoo_plus.envs.wrappers:MaskObservation",
    "mask_velocity": "rlzoo_plus.envs.task_wrappers:MaskVelocity",
    "history": "rlzoo_plus.envs.task_wrappers:History",
    "frame_skip": "rlzoo_plus.envs.task_wrappers:FrameSkip",
    "delayed_reward": "rlzoo_plus.envs.task_wrappers:DelayedReward",
    "truncate_on_success": "rlzoo_plus.envs.task_wrappers:TruncateOnSuccess",
    "noisy_action": "rlzoo_plus.envs.task_wrappers:NoisyAction",
    "smooth_action": "rlzoo_plus.envs.task_wrappers:SmoothAction",
    "atari": "stable_baselines3.common.atari_wrappers:AtariWrapper",
}

LAUNCHERS = ("local", "debug", "slurm", "ray")


def get_algorithm(name: str) -> AlgorithmSpec:
    """Return the specification of an algorithm.

    Raises:
        ConfigError: No algorithm has that name.
    """
    if name not in ALGORITHMS:
        raise ConfigError(unknown_name("algorithm", name, ALGORITHMS, HELP))
    return ALGORITHMS[name]


def register_algorithm(spec: AlgorithmSpec) -> None:
    """Add an algorithm of your own, e.g. from a module named in `algo.packages`.

    Raises:
        ConfigError: The name is taken by another algorithm.
    """
    if ALGORITHMS.get(spec.name, spec) != spec:
        raise ConfigError(
            f"algorithm {spec.name!r} is registered already, as "
            f"{ALGORITHMS[spec.name].entry_point}. Choose another name."
        )
    ALGORITHMS[spec.name] = spec


def import_algorithm_packages(packages: list[str]) -> None:
    """Import the packages that register algorithms of the user's own.

    Raises:
        ConfigError: One cannot be imported.
    """
    for name in packages:
        import_user_module("algo.packages", name)


def load_named(what: str, name: str, known: dict[str, str]) -> Any:
    """Import the object that a name of one of the dictionaries above stands for.

    Raises:
        ConfigError: The name is not in the dictionary.
    """
    if name not in known:
        raise ConfigError(unknown_name(what, name, known, HELP))
    module, attribute = known[name].split(":")
    return getattr(import_module(module), attribute)
