"""The types of a run's configuration; the values are in conf/.

`RunConfig` is checked, complete, and plain data when dumped. `auto` and `null` are resolved in
`resolve.py`, except where that needs the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from rlzoo_plus.artifacts.encryption import VARIABLE
from rlzoo_plus.config.catalog import ALGORITHMS, LAUNCHERS, TRACKERS, AlgorithmSpec, Family
from rlzoo_plus.config.curriculum import StageConfig
from rlzoo_plus.config.exploration import ExplorationConfig
from rlzoo_plus.config.opponents import OpponentsConfig
from rlzoo_plus.config.section import (
    MOST_EPISODES,
    MOST_RANKS,
    MOST_THREADS,
    MOST_WAITING,
    MOST_WARMUP_RESETS,
    Count,
    EnvCount,
    Few,
    LayerSizes,
    Line,
    Named,
    NonNegative,
    NonNegativeFloat,
    Number,
    PositiveFloat,
    Section,
    Text,
)
from rlzoo_plus.config.unused_keys import OF_SOME_ALGORITHMS, WHOLE, without_unused
from rlzoo_plus.registry import Registry

# Environments in the process of the run; all of them give the same results, bit for bit.
IN_PROCESS = ("auto", "dummy", "batched")


def is_own_vec_env(vec_env: str) -> bool:
    """Tell whether a class of the user or of Gymnasium steps all environments at once."""
    return vec_env not in (*IN_PROCESS, "subproc")


class CreditConfig(Section):
    """What each agent learns from in place of its reward: see `teams/difference_reward.py`."""

    method: Literal["difference", "wonderful_life"] = "difference"
    default: Number | Annotated[list[Number], Field(min_length=1, max_length=1000)] | None = None


class EnvConfig(Section):
    """The environment and its wrappers."""

    id: Line
    name: Line | None = None
    packages: list[Line]
    python: Annotated[Line, Field(min_length=1)] | None = None
    worlds_per_process: EnvCount = 1
    groups: Annotated[dict[Line, list[Line]], Field(min_length=1, max_length=100)] | None = None
    kwargs: dict[str, Any]
    wrappers: Named
    frame_stack: Count
    time_limit: Count | None
    warmup_resets: Annotated[NonNegative, Field(le=MOST_WARMUP_RESETS)]
    max_return: Number | None
    solved_return: Number | None
    opponents: OpponentsConfig | None = None
    credit: CreditConfig | None = None

    @model_serializer(mode="wrap")
    def _without_unused(
        self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Leave out what came later and is not used."""
        data: dict[str, Any] = serialize(self)
        return data if info.context is WHOLE else without_unused({"env": data})["env"]


class NoiseConfig(Section):
    """Exploration noise on the actions of a deterministic policy, in units of the action range."""

    type: str
    std: NonNegativeFloat
    theta: PositiveFloat = 0.15
    dt: PositiveFloat = 0.01


class AlgoConfig(Section):
    """The algorithm and its constructor arguments in Stable-Baselines3.

    What has a default is for some algorithms: the runs of others lack it.
    """

    name: Line
    packages: list[Line]
    hyperparams: dict[str, Any]
    action_noise: NoiseConfig | None = None
    replay_buffer: str | None = None
    symmetry: Literal["augment", "loss"] | None = None
    symmetry_weight: PositiveFloat | None = None


class LstmConfig(Section):
    """The LSTM of a recurrent policy."""

    hidden_size: Count | None = None
    n_layers: Few | None = None
    shared: bool | None = None
    enable_critic: bool | None = None


class NetworkConfig(Section):
    """The policy's networks; null keeps the algorithm's own default.

    What has a default is for some algorithms: the runs of others lack it.
    """

    policy: Line
    net_arch: LayerSizes | dict[str, LayerSizes] | None
    activation: str | None
    log_std_init: Annotated[Number, Field(ge=-20, le=20)] | None
    ortho_init: bool | None
    full_std: bool | None
    use_expln: bool | None
    squash_output: bool | None
    share_features_extractor: bool | None
    features_extractor: str | None
    features_extractor_kwargs: dict[str, Any] | None
    normalize_images: bool | None
    n_critics: Few | None = None
    n_quantiles: Count | None = None
    layer_norm: Literal["critic", "all"] | None = None
    dropout: Annotated[Number, Field(gt=0, lt=1)] | None = None
    blocks: Literal["simba", "resnet"] | None = None
    critic_observation: Annotated[list[Line], Field(max_length=100)] | None = None
    optimizer: str | None
    optimizer_kwargs: dict[str, Any] | None
    lstm: LstmConfig = LstmConfig()
    policy_kwargs: dict[str, Any]


class NormalizeConfig(Section):
    """Running normalisation of observations and rewards (VecNormalize)."""

    observation: bool = True
    reward: bool = True
    clip_observation: PositiveFloat = 10.0
    clip_reward: PositiveFloat = 10.0
    epsilon: PositiveFloat = 1e-8


class CostConfig(Section):
    """A limit on the mean cost of an episode, kept by a weight in the reward (PID-Lagrangian)."""

    limit: NonNegativeFloat
    kp: NonNegativeFloat = 0.1
    ki: NonNegativeFloat = 0.01
    kd: NonNegativeFloat = 0.01
    every_episodes: Count = 5
    max_weight: PositiveFloat = 100.0


class DataConfig(Section):
    """Demonstrations, in the format of Minari; `sha256` of the content is set when a run starts."""

    path: Annotated[Line, Field(min_length=1)] | None = None
    share: Annotated[Number, Field(gt=0, lt=1)] = 0.5
    sha256: Line | None = None


class TeacherConfig(Section):
    """The policy that a run learns from; `observation` is the entry that it alone sees."""

    run: Annotated[Line, Field(min_length=1)] | None = None
    which: Line | NonNegative = "best"
    observation: Line | None = None
    sha256: Line | None = None


class RewardModelConfig(Section):
    """A learned reward in place of the environment's own."""

    path: Annotated[Line, Field(min_length=1)] | None = None
    sha256: Line | None = None


class InitConfig(Section):
    """What a new run takes from the training that `init_from` names.

    `sha256` is that of the parts taken. It is set when the source is read, so that the hashes of
    runs with different initial weights differ.
    """

    parts: list[Line] = Field(["policy", "normalization"])
    which: Line | NonNegative = "best"
    partial: bool = False
    sha256: Line | None = None


class EvalConfig(Section):
    """How and when the policy is evaluated; older runs lack the settings with defaults."""

    every_steps: Count | Literal["auto"] | None
    episodes: Annotated[Count, Field(le=MOST_EPISODES)] | Literal["auto"]
    n_envs: EnvCount | Literal["auto"]
    deterministic: bool
    at_start: bool
    metrics: Named = Field([])
    beside: Literal["auto", "never"] = "auto"
    max_episode_steps: Count | Literal["auto"] | None = "auto"

    @model_serializer(mode="wrap")
    def _without_unused(
        self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Leave out what came later and is not used."""
        data: dict[str, Any] = serialize(self)
        return data if info.context is WHOLE else without_unused({"eval": data})["eval"]


class CheckpointConfig(Section):
    """When a checkpoint is written, and how many are kept; older runs lack the last two."""

    every_steps: Count | None
    every_minutes: PositiveFloat | None
    keep: Count
    keep_best: bool = False
    milestone_steps: Count | None = None


class StopConfig(Section):
    """Conditions that end a run before `n_timesteps`."""

    reward_threshold: Number | None
    no_improvement_evals: Count | None
    wall_clock_minutes: PositiveFloat | None


class LogConfig(Section):
    """What is printed and logged; older runs lack the setting with a default."""

    level: Literal["debug", "info", "warning", "error"]
    interval: Count
    sb3: bool
    tensorboard: bool
    progress: bool | Literal["auto"]
    actions: bool = False


class ReportConfig(Section):
    """Plot and video of a finished run."""

    plot: bool
    video: bool | Literal["auto"]
    video_seconds: Annotated[PositiveFloat, Field(le=3600)]


class ExportConfig(Section):
    """Other formats that a run is exported to."""

    sb3_zip: bool


class PluginSection(Section):
    """A section whose other keys belong to the plugin that `name` chooses from `registry`.

    The plugin's class has their model in its attribute `Settings`. Keys of a shipped plugin are
    checked with the section. Those of the user's plugins are stored unchecked until `settings` is
    read, since the import needs trust.
    """

    model_config = ConfigDict(extra="allow")
    registry: ClassVar[Registry]
    name: Line

    @property
    def settings(self) -> Any:
        """The plugin's own keys, checked by its model; loads the plugin.

        Raises:
            ConfigError: There is no such plugin.
            ValidationError: They are wrong.
        """
        return _settings(self.registry, self.name, self.model_extra or {})

    @classmethod
    def keys_of(cls, name: str) -> list[str]:
        """Return the keys of such a section; loads the plugin."""
        return [*cls.model_fields, *_settings_model(cls.registry, name).model_fields]

    @model_validator(mode="before")
    @classmethod
    def _check_shipped(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not isinstance(name := data.get("name"), str):
            return data
        own = {key: value for key, value in data.items() if key not in cls.model_fields}
        if not own or name not in cls.registry:
            return data
        core = {key: value for key, value in data.items() if key not in own}
        return {**core, **_settings(cls.registry, name, own).model_dump()}


def _settings_model(registry: Registry, name: str) -> type[BaseModel]:
    # Section itself has no fields: a plugin may have no settings.
    return getattr(registry.load(name), "Settings", Section)


def _settings(registry: Registry, name: str, values: Mapping[str, Any]) -> BaseModel:
    """Check a plugin's own keys; keys of another plugin may be there with their defaults."""
    model = _settings_model(registry, name)
    mistakes: list[InitErrorDetails] = []
    for key in [key for key in values if key not in model.model_fields]:
        owners = (o for o in registry if key in _settings_model(registry, o).model_fields)
        owner = next(owners, None)
        kind: str | PydanticCustomError = "extra_forbidden"
        if owner is not None:
            field = _settings_model(registry, owner).model_fields[key]
            if values[key] == field.get_default(call_default_factory=True):
                continue
            group = registry.key.partition(".")[0]
            text = f"{key} is for {group}={owner}. Leave it out, or use {group}={owner}"
            kind = PydanticCustomError("another_plugin", text)
        mistakes.append({"type": kind, "loc": (key,), "input": values[key]})
    if mistakes:
        raise ValidationError.from_exception_data(name, mistakes)
    return model.model_validate({k: v for k, v in values.items() if k in model.model_fields})


Direction = Literal["maximize", "minimize"]


class RetrainConfig(Section):
    """Training of the best trials once more, with fresh seeds."""

    best: NonNegative  # How many of the best trials; 0 for none
    seeds: Count  # Fresh seeds that each is trained with, for the run's full `n_timesteps`
    episodes: Count  # Held-out episodes of the final evaluation of the winner


class HpoConfig(Section):
    """Settings of a study; conf/hpo/_study.yaml has their values and explains them."""

    algo: str | None
    study: Text | None
    n_trials: Count
    timeout_minutes: PositiveFloat | None
    n_timesteps: Count | None
    seeds: Count
    objectives: Annotated[dict[str, Direction], Field(min_length=1)]
    constraints: list[str]
    storage: Text
    heartbeat_s: Count
    sampler: str
    sampler_options: dict[str, Any]
    pruner: str
    pruner_options: dict[str, Any]
    seed: NonNegative
    warm_start: bool
    retries: NonNegative
    keep: Literal["all", "best", "none"]
    space: dict[str, Any]
    custom: str | None
    retrain: RetrainConfig
    experiment: Text | None


class TrackerConfig(PluginSection):
    """A tracking service besides TensorBoard."""

    registry = TRACKERS


class InfraConfig(PluginSection):
    """Where the jobs of a sweep run; older runs lack the settings with defaults."""

    registry = LAUNCHERS
    workers: Count | Literal["auto"] = "auto"
    memory_gib: PositiveFloat | None = None
    time_limit_minutes: PositiveFloat | None = None


class RunConfig(Section):
    """The complete configuration of one run, with one seed."""

    env: EnvConfig
    algo: AlgoConfig
    network: NetworkConfig
    infra: InfraConfig
    hpo: HpoConfig | None
    tracker: TrackerConfig | None
    packages: list[Line] = Field([])
    n_timesteps: Count
    seed: NonNegative
    n_envs: EnvCount
    distributed: Annotated[Count, Field(le=MOST_RANKS)] = 1
    asynchronous: bool | Annotated[Count, Field(le=MOST_WAITING)] = False
    encryption: Annotated[str, Field(pattern=rf"^{VARIABLE.pattern}$")] | None = None
    vec_env: Line
    normalize: NormalizeConfig | None
    cost: CostConfig | None = None
    curriculum: list[StageConfig] = Field([])
    data: DataConfig = DataConfig()
    teacher: TeacherConfig = TeacherConfig()
    reward_model: RewardModelConfig = RewardModelConfig()
    exploration: ExplorationConfig = ExplorationConfig()
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:[0-9]{1,4})?)$")]
    num_threads: Annotated[Count, Field(le=MOST_THREADS)] | Literal["auto"]
    record_updates: bool = True
    fast: bool | Literal["bfloat16"] = False
    profile: bool | Literal["torch"] = False
    run_dir: Text | None
    sweep: Text | None = None
    store: Text | None = None
    resume: Literal["auto", "never"] = "auto"
    restart: bool = False
    init_from: Annotated[Line, Field(min_length=1)] | None = None
    init: InitConfig = InitConfig()
    freeze: list[Line] = Field([])
    eval: EvalConfig
    checkpoint: CheckpointConfig
    stop: StopConfig
    log: LogConfig
    report: ReportConfig
    export: ExportConfig
    callbacks: Named

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, data: Any) -> Any:
        """Leave out a key that stored configurations still have, unless it is in use."""
        if not isinstance(data, dict) or "fast_math" not in data:
            return data
        if data["fast_math"] is not False:
            raise ValueError("fast_math was removed. Use fast=true or fast=bfloat16")
        return {key: value for key, value in data.items() if key != "fast_math"}

    def whole(self) -> dict[str, Any]:
        """Return every key that counts, as for config.yaml, and none of another algorithm."""
        data = self.model_dump(context=WHOLE)
        spec = ALGORITHMS.get(self.algo.name)
        if isinstance(spec, AlgorithmSpec):
            is_off_policy = spec.family is Family.OFF_POLICY
            has_critics = is_off_policy and "Box" in spec.actions
            uses = {"lstm": spec.recurrent, "replay_buffer": is_off_policy}
            uses |= dict.fromkeys(("n_critics", "action_noise"), has_critics)
            uses |= dict.fromkeys(("layer_norm", "dropout"), is_off_policy)
            uses |= {"critic_observation": spec.has_wide_critic, "blocks": spec.has_blocks}
            uses["n_quantiles"] = spec.name.endswith(("tqc", "qrdqn"))
            for section, keys in OF_SOME_ALGORITHMS.items():
                for key, unset in keys.items():
                    if not uses[key] and data[section][key] == unset:
                        del data[section][key]
        return data

    @model_serializer(mode="wrap")
    def _without_unused(
        self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Leave out what came later and is not used: hashes and bundles are those from before."""
        data = serialize(self)
        if info.context is WHOLE:
            return dict(data)
        # What is hashed has no `init_from`: the content of the weights counts, not their place.
        return without_unused(data, starts_fresh=self.init_from is None)
