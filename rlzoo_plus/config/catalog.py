"""The registries that a configuration chooses from: algorithms, activations, wrappers, ...

Each maps the shipped names to import paths; `rlzoo_plus.registry` finds those of the user and of
installed packages. A name that maps to None is resolved where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import Registry


class Family(StrEnum):
    """How an algorithm collects experience."""

    ON_POLICY = "on_policy"
    OFF_POLICY = "off_policy"
    EVOLUTION = "evolution"


_MLP = ("mlp", "MlpPolicy")
_POLICIES = (_MLP, ("cnn", "CnnPolicy"), ("multi_input", "MultiInputPolicy"))
_LSTM_POLICIES = tuple((kind, name.replace("Policy", "LstmPolicy")) for kind, name in _POLICIES)
_NO_BOX = ("Discrete", "MultiDiscrete", "MultiBinary")
_ANY_ACTIONS = ("Box", *_NO_BOX)


@dataclass(frozen=True)
class AlgorithmSpec:
    """What is known about an algorithm before it is imported.

    Attributes:
        name: Its name in `algo.name`.
        entry_point: `module:Class` of a Stable-Baselines3 algorithm.
        family: How it collects experience.
        actions: Names of the Gymnasium action spaces it supports.
        policies: Pairs of network kind (`mlp`, `cnn`, `multi_input`, ...) and SB3 policy alias.
        schedules: Constructor arguments that accept a schedule.
        recurrent: Whether its policy has a recurrent state.
        maskable: Whether it needs the environment's `action_masks`.
        replay_buffer: Its default replay buffer.
        policy_defaults: Arguments that the algorithm itself passes to its policy class.
        backend: `torch`, or `jax` for those of sbx.
        unused: Constructor arguments that it takes and does not use as documented; they are
            refused.
        clones: Name of the algorithm whose policy class it trains, by demonstrations alone.
        is_taught: Whether a teacher gives the demonstrations while it acts.
        has_one_network: Whether its policy is the values of actions, without an actor.
    """

    name: str
    entry_point: str
    family: Family
    actions: tuple[str, ...] = ("Box",)
    policies: tuple[tuple[str, str], ...] = _POLICIES
    schedules: tuple[str, ...] = ("learning_rate",)
    recurrent: bool = False
    maskable: bool = False
    replay_buffer: str | None = None
    policy_defaults: tuple[tuple[str, Any], ...] = ()
    backend: str = "torch"
    unused: tuple[str, ...] = ()
    clones: str | None = None
    is_taught: bool = False
    has_one_network: bool = False

    @property
    def has_wide_critic(self) -> bool:
        """Whether its critic can see more than its policy."""
        if self.clones:
            return get_algorithm(self.clones).has_wide_critic
        is_plain = self.backend == "torch" and not self.recurrent
        can_be = self.family is Family.ON_POLICY or "Box" in self.actions
        return is_plain and can_be and self.family is not Family.EVOLUTION

    @property
    def has_plain_batches(self) -> bool:
        """Whether it learns from batches of single steps, without masks of actions."""
        others = self.recurrent or self.maskable or self.clones
        return self.backend == "torch" and not others and self.family is not Family.EVOLUTION

    @property
    def has_blocks(self) -> bool:
        """Whether the hidden layers of its networks can be residual blocks."""
        # CrossQ has batch normalisation in place of target networks.
        own = self.name.endswith("crossq") or self.family is Family.EVOLUTION
        return self.backend == "torch" and not own


_ON, _OFF = Family.ON_POLICY, Family.OFF_POLICY
_PPO_SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
# sbx repeats one draw of the noise where SB3 has noise that depends on the state.
_NO_GSDE = ("use_sde", "sde_sample_freq", "use_sde_at_warmup")
_PPO_UNUSED = ("clip_range_vf", "use_sde", "sde_sample_freq")


def _sbx(
    name: str, class_name: str, family: Family, kinds: tuple[str, ...], **more: Any
) -> AlgorithmSpec:
    """Return the specification of an algorithm of sbx, whose policies are of these kinds."""
    pairs = (*_POLICIES, ("simba", "SimbaPolicy"))
    policies = tuple(pair for pair in pairs if pair[0] in kinds)
    place = f"sbx.{name}.{name}:{class_name}"
    return AlgorithmSpec(f"sbx_{name}", place, family, policies=policies, backend="jax", **more)


def _cloning(name: str, class_name: str, clones: str, **more: Any) -> AlgorithmSpec:
    """Return the specification of behaviour cloning for the policies of an algorithm."""
    place = f"rlzoo_plus.demonstrations.cloning:{class_name}"
    unused = () if clones == "ppo" else ("ent_weight",)
    return AlgorithmSpec(name, place, Family.ON_POLICY, clones=clones, unused=unused, **more)


def _taught(name: str, class_name: str, clones: str, **more: Any) -> AlgorithmSpec:
    """Return the specification of DAgger for the policies of an algorithm."""
    place = f"rlzoo_plus.demonstrations.dagger:{class_name}"
    found = _cloning(name, class_name, clones, schedules=("learning_rate", "beta"), **more)
    return replace(found, entry_point=place, is_taught=True)


_SBX_PPO = {"actions": _ANY_ACTIONS, "schedules": _PPO_SCHEDULES[:2], "unused": _PPO_UNUSED}
_ALGORITHMS = (
    AlgorithmSpec(
        "ppo", "stable_baselines3.ppo.ppo:PPO", _ON, _ANY_ACTIONS, schedules=_PPO_SCHEDULES
    ),
    AlgorithmSpec(
        "mappo", "stable_baselines3.ppo.ppo:PPO", _ON, _ANY_ACTIONS, schedules=_PPO_SCHEDULES
    ),
    AlgorithmSpec("a2c", "stable_baselines3.a2c.a2c:A2C", _ON, _ANY_ACTIONS),
    AlgorithmSpec("sac", "stable_baselines3.sac.sac:SAC", _OFF),
    AlgorithmSpec("td3", "stable_baselines3.td3.td3:TD3", _OFF),
    AlgorithmSpec(
        "ddpg", "stable_baselines3.ddpg.ddpg:DDPG", _OFF, policy_defaults=(("n_critics", 1),)
    ),
    AlgorithmSpec(
        "dqn", "stable_baselines3.dqn.dqn:DQN", _OFF, ("Discrete",), has_one_network=True
    ),
    AlgorithmSpec("her", "stable_baselines3.sac.sac:SAC", _OFF, replay_buffer="her"),
    AlgorithmSpec("tqc", "sb3_contrib.tqc.tqc:TQC", _OFF),
    AlgorithmSpec("crossq", "sb3_contrib.crossq.crossq:CrossQ", _OFF, policies=(_MLP,)),
    AlgorithmSpec(
        "qrdqn", "sb3_contrib.qrdqn.qrdqn:QRDQN", _OFF, ("Discrete",), has_one_network=True
    ),
    AlgorithmSpec("trpo", "sb3_contrib.trpo.trpo:TRPO", _ON, _ANY_ACTIONS),
    AlgorithmSpec(
        "recurrent_ppo",
        "sb3_contrib.ppo_recurrent.ppo_recurrent:RecurrentPPO",
        _ON,
        _ANY_ACTIONS,
        policies=_LSTM_POLICIES,
        schedules=_PPO_SCHEDULES,
        recurrent=True,
    ),
    AlgorithmSpec(
        "maskable_ppo",
        "sb3_contrib.ppo_mask.ppo_mask:MaskablePPO",
        _ON,
        _NO_BOX,
        schedules=_PPO_SCHEDULES,
        maskable=True,
    ),
    AlgorithmSpec(
        "ars",
        "sb3_contrib.ars.ars:ARS",
        Family.EVOLUTION,
        ("Box", "Discrete"),
        policies=(_MLP, ("linear", "LinearPolicy")),
        schedules=("learning_rate", "delta_std"),
    ),
    AlgorithmSpec(
        "sac_discrete", "rlzoo_plus.algorithms.sac_discrete:SACDiscrete", _OFF, ("Discrete",)
    ),
    AlgorithmSpec(
        "recurrent_sac",
        "rlzoo_plus.algorithms.recurrent_sac:RecurrentSAC",
        _OFF,
        policies=_LSTM_POLICIES,
        recurrent=True,
    ),
    _cloning("bc", "BehaviorCloning", "ppo", actions=_ANY_ACTIONS),
    _cloning("bc_sac", "CloningSAC", "sac"),
    _cloning("bc_td3", "CloningTD3", "td3"),
    _cloning("bc_tqc", "CloningTQC", "tqc"),
    _cloning("bc_crossq", "CloningCrossQ", "crossq", policies=(_MLP,)),
    _cloning("bc_dqn", "CloningDQN", "dqn", actions=("Discrete",), has_one_network=True),
    _taught("dagger", "Dagger", "ppo", actions=_ANY_ACTIONS),
    _taught("distill", "Dagger", "ppo", actions=_ANY_ACTIONS),
    _taught("dagger_sac", "DaggerSAC", "sac"),
    _taught("dagger_td3", "DaggerTD3", "td3"),
    _taught("dagger_tqc", "DaggerTQC", "tqc"),
    _taught("dagger_crossq", "DaggerCrossQ", "crossq", policies=(_MLP,)),
    _taught("dagger_dqn", "DaggerDQN", "dqn", actions=("Discrete",), has_one_network=True),
    _sbx("ppo", "PPO", _ON, ("mlp", "cnn"), **_SBX_PPO),
    _sbx("sac", "SAC", _OFF, ("mlp", "multi_input", "simba"), unused=_NO_GSDE),
    _sbx("td3", "TD3", _OFF, ("mlp", "multi_input"), schedules=()),
    _sbx("ddpg", "DDPG", _OFF, ("mlp",), schedules=(), policy_defaults=(("n_critics", 1),)),
    _sbx("tqc", "TQC", _OFF, ("mlp", "multi_input", "simba"), unused=_NO_GSDE),
    _sbx("crossq", "CrossQ", _OFF, ("mlp", "multi_input", "simba"), schedules=(), unused=_NO_GSDE),
    _sbx(
        "dqn",
        "DQN",
        _OFF,
        ("mlp", "cnn"),
        actions=("Discrete",),
        schedules=(),
        has_one_network=True,
    ),
)


def _in(module: str, **names: str) -> dict[str, str]:
    """Return the path `module:Class` of each name."""
    return {name: f"{module}:{class_name}" for name, class_name in names.items()}


_SB3 = "stable_baselines3.common"

# Names of rl_zoo3 that are others here.
ALGORITHM_OF_STEM = {"ppo_lstm": "recurrent_ppo"}

ALGORITHMS = Registry(
    "algorithm",
    "algo.name",
    {spec.name: spec for spec in _ALGORITHMS},
    bases=[f"{_SB3}.base_class:BaseAlgorithm"],
)
ACTIVATIONS = Registry(
    "activation",
    "network.activation",
    {
        **_in("torch.nn", tanh="Tanh", relu="ReLU", elu="ELU", leaky_relu="LeakyReLU"),
        **_in("torch.nn", gelu="GELU", silu="SiLU", selu="SELU", mish="Mish"),
        **_in("torch.nn", softplus="Softplus", sigmoid="Sigmoid", identity="Identity"),
    },
    bases=["torch.nn.modules.module:Module"],
)
OPTIMIZERS = Registry(
    "optimizer",
    "network.optimizer",
    {
        **_in("torch.optim", adam="Adam", adamw="AdamW", radam="RAdam", nadam="NAdam"),
        **_in("torch.optim", sgd="SGD", rmsprop="RMSprop"),
        **_in(f"{_SB3}.sb2_compat.rmsprop_tf_like", rmsprop_tf="RMSpropTFLike"),
    },
    bases=["torch.optim.optimizer:Optimizer"],
)
FEATURES_EXTRACTORS = Registry(
    "features_extractor",
    "network.features_extractor",
    {
        **_in(f"{_SB3}.torch_layers", flatten="FlattenExtractor", nature_cnn="NatureCNN"),
        **_in(f"{_SB3}.torch_layers", combined="CombinedExtractor"),
        **_in("rlzoo_plus.agents.extractors", attention="AttentionExtractor"),
        **_in("rlzoo_plus.agents.extractors", deep_sets="DeepSetsExtractor"),
    },
    bases=[f"{_SB3}.torch_layers:BaseFeaturesExtractor"],
)
ACTION_NOISES = Registry(
    "action_noise",
    "algo.action_noise.type",
    {
        **_in(f"{_SB3}.noise", normal="NormalActionNoise", ou="OrnsteinUhlenbeckActionNoise"),
        **_in("rlzoo_plus.experience.pink_noise", pink="PinkActionNoise"),
    },
    bases=[f"{_SB3}.noise:ActionNoise"],
)
# Replay buffers whose algorithms update priorities; the second is what they are given for that.
PRIORITIZED = ("prioritized", "lap")
PRIORITIZED_UPDATES = "rlzoo_plus.experience.prioritized_updates"
_PRIORITIZED = "rlzoo_plus.experience.prioritized_replay"
REPLAY_BUFFERS = Registry(
    "replay_buffer",
    "algo.replay_buffer",
    {
        **_in(f"{_SB3}.buffers", default="ReplayBuffer", dict="DictReplayBuffer"),
        **_in(f"{_SB3}.buffers", nstep="NStepReplayBuffer"),
        **_in("stable_baselines3.her.her_replay_buffer", her="HerReplayBuffer"),
        **_in(_PRIORITIZED, prioritized="PrioritizedReplayBuffer", lap="LapReplayBuffer"),
    },
    bases=[f"{_SB3}.buffers:ReplayBuffer"],
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
        "reshape_observation": "gymnasium.wrappers:ReshapeObservation",
        "render_observation": "gymnasium.wrappers:AddRenderObservation",
        "filter_observation": "gymnasium.wrappers:FilterObservation",
        "time_aware_observation": "gymnasium.wrappers:TimeAwareObservation",
        "sticky_action": "gymnasium.wrappers:StickyAction",
        "max_and_skip": "gymnasium.wrappers:MaxAndSkipObservation",
        "reproducible_resets": "rlzoo_plus.envs.episodes:ReproducibleResets",
        "mask_observation": "rlzoo_plus.envs.wrappers:MaskObservation",
        "mask_velocity": "rlzoo_plus.envs.wrappers:MaskVelocity",
        "history": "rlzoo_plus.envs.wrappers:History",
        "plain_spaces": "rlzoo_plus.envs.wrappers:PlainSpaces",
        "frame_skip": "rlzoo_plus.envs.wrappers:FrameSkip",
        "delayed_reward": "rlzoo_plus.envs.wrappers:DelayedReward",
        "truncate_on_success": "rlzoo_plus.envs.wrappers:TruncateOnSuccess",
        "noisy_action": "rlzoo_plus.envs.wrappers:NoisyAction",
        "noisy_observation": "rlzoo_plus.envs.wrappers:NoisyObservation",
        "delayed_action": "rlzoo_plus.envs.wrappers:DelayedAction",
        "smooth_action": "rlzoo_plus.envs.wrappers:SmoothAction",
        "atari": "rlzoo_plus.envs.atari:AtariPreprocessing",
    },
    bases=["gymnasium.core:Wrapper"],
)
POLICIES = Registry(
    "policy",
    "network.policy",
    dict.fromkeys(("auto", "mlp", "cnn", "multi_input", "linear", "simba")),
    bases=[f"{_SB3}.policies:BasePolicy"],
)
VEC_ENVS = Registry(
    "vec_env",
    "vec_env",
    {
        **dict.fromkeys(("auto", "dummy", "batched", "subproc", "gymnasium")),
        "pettingzoo": "rlzoo_plus.teams.pettingzoo_vec_env:PettingZooVecEnv",
        "self_play": "rlzoo_plus.teams.one_sided:OneSidedVecEnv",
        "unity": "rlzoo_plus.interpreters.unity_vec_env:UnityVecEnv",
    },
    bases=[f"{_SB3}.vec_env.base_vec_env:VecEnv", "gymnasium.vector.vector_env:VectorEnv"],
)
CALLBACKS = Registry(
    "callback",
    "callbacks",
    _in(
        "rlzoo_plus.training.callbacks.shipped",
        histograms="Histograms",
        gradients="Gradients",
        q_values="QValues",
        reward_terms="RewardTerms",
        episode_video="EpisodeVideo",
    ),
    bases=[f"{_SB3}.callbacks:BaseCallback"],
)
METRICS = Registry(
    "metric",
    "eval.metrics",
    _in("rlzoo_plus.training.metrics", action_change="ActionChange", energy="Energy"),
    methods=["begin", "step", "end"],
)
LAUNCHERS = Registry(
    "launcher",
    "infra.name",
    {
        "local": "rlzoo_plus.sweeps.launchers.local:LocalLauncher",
        "debug": "rlzoo_plus.sweeps.launchers.debug:DebugLauncher",
        "slurm": "rlzoo_plus.sweeps.launchers.slurm:SlurmLauncher",
        "ray": "rlzoo_plus.sweeps.launchers.ray_launcher:RayLauncher",
        "workers": "rlzoo_plus.sweeps.launchers.workers:WorkersLauncher",
        "aws_batch": "rlzoo_plus.cloud.batch:BatchLauncher",
        "ec2_spot": "rlzoo_plus.cloud.fleet:FleetLauncher",
    },
    methods=["from_options", "submit", "wait"],
)
# They start machines in AWS; and all whose jobs workers train, which take them from a store.
IN_CLOUD = ("aws_batch", "ec2_spot")
ON_WORKERS = ("workers", *IN_CLOUD)
TRACKERS = Registry(
    "tracker",
    "tracker.name",
    {
        "mlflow": "rlzoo_plus.tracking.mlflow_tracker:MlflowTracker",
        "wandb": "rlzoo_plus.tracking.wandb_tracker:WandbTracker",
    },
    methods=["start", "log", "finish", "fail"],
)
# What adds mirror images to the experience of an agent, with `algo.symmetry`.
MIRRORED = "rlzoo_plus.experience.mirrored"
# What makes the networks of `network.blocks`; imported where it is set.
BLOCKS = "rlzoo_plus.algorithms.residual_blocks"
# What an agent explores with that Stable-Baselines3 lacks; imported where `exploration` says so.
EXPLORING = "rlzoo_plus.experience.exploring"
NOVELTY = "rlzoo_plus.experience.novelty"
# The callback that writes `log.actions`, imported where it is set; and what reads it.
ACTION_LOG = "rlzoo_plus.experience.action_log"
ACTION_FILE = "rlzoo_plus.experience.action_file"
# What gives an agent its demonstrations or its teacher; imported where a run has one of them.
DEMONSTRATIONS = "rlzoo_plus.demonstrations.data_of_run"
# The buffer of `data=`, a subclass of the run's own.
MIXED_BUFFER = "rlzoo_plus.demonstrations.mixed_replay.MixedReplayBuffer"
PREFERENCES = "rlzoo_plus.preferences.learned_reward"  # likewise, its reward of `reward_model`
# The policy of `env.groups`; imported where it is set.
GROUP_POLICY = "rlzoo_plus.teams.group_policy"
GROUP_BUFFER = f"{GROUP_POLICY}.GroupRolloutBuffer"
# What makes opponents of a run's own policies; imported where `env.opponents` is set.
SELF_PLAY = "rlzoo_plus.teams.self_play"
# What starts the other processes of a run with `distributed`; imported for such a run alone.
RANKS = "rlzoo_plus.ranks.rank_zero"
# What trains a run with `asynchronous`, likewise.
ASYNCHRONOUS = "rlzoo_plus.learner.asynchronous"
REGISTRIES = (
    *(ALGORITHMS, ACTIVATIONS, OPTIMIZERS, FEATURES_EXTRACTORS, POLICIES, ACTION_NOISES),
    *(REPLAY_BUFFERS, WRAPPERS, VEC_ENVS, CALLBACKS, METRICS, LAUNCHERS, TRACKERS),
)


def get_algorithm(name: str) -> AlgorithmSpec:
    """Return the specification of an algorithm, shipped or a class of the user.

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
        raise ConfigError(f"algorithm {spec.name!r} is registered already. Choose another name.")
    ALGORITHMS[spec.name] = spec


def register_callback(name: str, callback: type) -> None:
    """Add a callback of your own under a name, e.g. from a module named in `packages`.

    Then `callbacks=[name]` chooses it.

    Raises:
        ConfigError: The name is taken, or the class is no `BaseCallback`.
    """
    CALLBACKS.register(name, callback)


def register_tracker(name: str, tracker: type) -> None:
    """Add a tracking service of your own under a name; `tracker.name=name` chooses it.

    Raises:
        ConfigError: The name is taken, or the class has not the methods of a tracker.
    """
    TRACKERS.register(name, tracker)


def _spec_of(name: str, algorithm: type) -> AlgorithmSpec:
    """Return a class's own `spec`, else the one of the algorithm it extends, else a default."""
    own = vars(algorithm).get("spec")
    if isinstance(own, AlgorithmSpec):
        return replace(own, name=name)
    place = f"{algorithm.__module__}:{algorithm.__qualname__}"
    classes = [f"{kind.__module__}:{kind.__qualname__}" for kind in algorithm.__mro__]
    for known in _ALGORITHMS:
        if known.entry_point in classes:
            return replace(known, name=name, entry_point=place)
    if f"{_SB3}.on_policy_algorithm:OnPolicyAlgorithm" in classes:
        return AlgorithmSpec(name, place, _ON, _ANY_ACTIONS)
    return AlgorithmSpec(name, place, _OFF)
