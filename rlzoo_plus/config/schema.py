"""The types of a run's configuration; every value lives in conf/.

`RunConfig` is what the rest of the code sees: checked, complete, and plain data when dumped.
`auto` and `null` are resolved in `resolve.py`, except where the answer needs the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from rlzoo_plus.config.catalog import LAUNCHERS, TRACKERS
from rlzoo_plus.registry import Registry


def _whole_number(value: Any) -> Any:
    """Let 1e6 stand for 1000000, and refuse true and false as numbers."""
    if isinstance(value, bool):
        raise ValueError("needs a whole number")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_bool(value: Any) -> Any:
    """Refuse true and false as numbers."""
    if isinstance(value, bool):
        raise ValueError("needs a number")
    return value


# What a double still counts one by one, and far more steps than any run takes.
LARGEST = 10**15

Count = Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=LARGEST)]
NonNegative = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, le=LARGEST)]
Number = Annotated[float, BeforeValidator(_not_bool)]
NonNegativeFloat = Annotated[float, BeforeValidator(_not_bool), Field(ge=0)]
PositiveFloat = Annotated[float, BeforeValidator(_not_bool), Field(gt=0)]


def _one_line(value: str) -> str:
    """Refuse a text of several lines: in a log or a table, the second looks like one of ours."""
    if not value.isprintable():
        raise ValueError("must be one line without control characters")
    return value


# What is shown in messages and tables, and what files are named after.
Line = Annotated[str, AfterValidator(_one_line)]
# Each is the beginning of an episode, before the first step.
MOST_WARMUP_RESETS = 100
MOST_EPISODES = 100_000
# torch breaks down with many thousands.
MOST_THREADS = 1024
# Seeds of environments count up from the first; so many are kept free.
MOST_ENVS = 100_000

EnvCount = Annotated[Count, Field(le=MOST_ENVS)]
Few = Annotated[Count, Field(le=100)]
LayerSizes = list[Count]
# How environments share the run's process; with each, everything comes out the same, bit for bit.
IN_PROCESS = ("auto", "dummy", "batched")


def is_own_vec_env(vec_env: str) -> bool:
    """Tell whether all environments come as one object, not from our chain for each of them."""
    return vec_env not in (*IN_PROCESS, "subproc")


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, `model_dump` gives plain data."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False
    )


class EnvConfig(Section):
    """Which environment, and the wrappers of its one chain."""

    id: Line
    name: Line | None = None
    packages: list[Line]
    kwargs: dict[str, Any]
    wrappers: list[str | dict[str, dict[str, Any] | None]]
    frame_stack: Count
    time_limit: Count | None
    warmup_resets: Annotated[NonNegative, Field(le=MOST_WARMUP_RESETS)]
    max_return: Number | None
    solved_return: Number | None


class NoiseConfig(Section):
    """Exploration noise added to a deterministic policy's actions, in units of action range."""

    type: str
    std: NonNegativeFloat
    theta: PositiveFloat = 0.15
    dt: PositiveFloat = 0.01


class AlgoConfig(Section):
    """Which algorithm, and its Stable-Baselines3 constructor arguments."""

    name: Line
    packages: list[Line]
    hyperparams: dict[str, Any]
    action_noise: NoiseConfig | None
    replay_buffer: str | None


class LstmConfig(Section):
    """The recurrent part of a recurrent policy."""

    hidden_size: Count | None
    n_layers: Few | None
    shared: bool | None
    enable_critic: bool | None


class NetworkConfig(Section):
    """The policy's networks; null keeps the algorithm's own default."""

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
    n_critics: Few | None
    n_quantiles: Count | None
    optimizer: str | None
    optimizer_kwargs: dict[str, Any] | None
    lstm: LstmConfig
    policy_kwargs: dict[str, Any]


class NormalizeConfig(Section):
    """Running normalisation of observations and rewards (VecNormalize)."""

    observation: bool = True
    reward: bool = True
    clip_observation: PositiveFloat = 10.0
    clip_reward: PositiveFloat = 10.0
    epsilon: PositiveFloat = 1e-8


# What a new run can take from an earlier one.
INIT_PARTS = ("policy", "optimizer", "buffer", "normalization")


class InitConfig(Section):
    """What a new run takes from the training that `init_from` names.

    `sha256` is that of the parts taken. It is filled in when the source is read, and tells runs
    with other initial weights apart.
    """

    parts: list[Line] = ["policy", "normalization"]
    which: Line | NonNegative = "best"
    partial: bool = False
    sha256: Line | None = None


class EvalConfig(Section):
    """How and when the policy is evaluated while it trains.

    `metrics` has a default for runs that were started before there were any.
    """

    every_steps: Count | Literal["auto"] | None
    episodes: Annotated[Count, Field(le=MOST_EPISODES)] | Literal["auto"]
    n_envs: EnvCount | Literal["auto"]
    deterministic: bool
    at_start: bool
    metrics: list[str | dict[str, dict[str, Any] | None]] = []


class CheckpointConfig(Section):
    """When a checkpoint is written, and how many stay.

    The last two have defaults for runs that were started before there were such settings.
    """

    every_steps: Count | None
    every_minutes: PositiveFloat | None
    keep: Count
    keep_best: bool = False
    milestone_steps: Count | None = None


class StopConfig(Section):
    """Reasons to end before `n_timesteps`."""

    reward_threshold: Number | None
    no_improvement_evals: Count | None
    wall_clock_minutes: PositiveFloat | None


class LogConfig(Section):
    """What is shown and recorded."""

    level: Literal["debug", "info", "warning", "error"]
    interval: Count
    sb3: bool
    tensorboard: bool
    progress: bool | Literal["auto"]


class ReportConfig(Section):
    """What is drawn and filmed when a run has ended."""

    plot: bool
    video: bool | Literal["auto"]
    video_seconds: Annotated[PositiveFloat, Field(le=3600)]


class ExportConfig(Section):
    """Other formats written beside the bundles."""

    sb3_zip: bool


class PluginSection(Section):
    """A section whose other keys belong to the plugin that `name` chooses, in its `registry`.

    The plugin's class owns their model, in an attribute `Settings`. Keys of a shipped plugin are
    checked with the section. Those of the user's own are kept as they are until `settings` is
    asked for, since its import needs trust.
    """

    model_config = ConfigDict(extra="allow")
    registry: ClassVar[Registry]
    name: Line

    @property
    def settings(self) -> Any:
        """The plugin's own keys, by its model; loads the plugin.

        Raises:
            ConfigError: There is no such plugin.
            ValidationError: They are wrong.
        """
        return _settings(self.registry, self.name, self.model_extra or {})

    @classmethod
    def keys_of(cls, name: str) -> list[str]:
        """Return the keys that such a section takes; loads the plugin."""
        return [*cls.model_fields, *_model_of(cls.registry, name).model_fields]

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


class NoSettings(Section):
    """The settings of a plugin that has none."""


def _model_of(registry: Registry, name: str) -> type[BaseModel]:
    return getattr(registry.load(name), "Settings", NoSettings)


def _settings(registry: Registry, name: str, values: Mapping[str, Any]) -> BaseModel:
    """Check a plugin's own keys; one of another plugin at its default does no harm."""
    model = _model_of(registry, name)
    mistakes: list[InitErrorDetails] = []
    for key in [key for key in values if key not in model.model_fields]:
        owner, default = _owner_of(registry, key)
        if owner is None:
            # Whatever a model of the user's own would make of it.
            mistakes.append({"type": "extra_forbidden", "loc": (key,), "input": values[key]})
        elif values[key] != default:
            group = registry.key.partition(".")[0]
            text = f"{key} is for {group}={owner}. Leave it out, or use {group}={owner}"
            kind = PydanticCustomError("another_plugin", text)
            mistakes.append({"type": kind, "loc": (key,), "input": values[key]})
    if mistakes:
        raise ValidationError.from_exception_data(name, mistakes)
    return model.model_validate({k: v for k, v in values.items() if k in model.model_fields})


def _owner_of(registry: Registry, key: str) -> tuple[str | None, Any]:
    """Return the shipped plugin that has a setting, and the setting's default."""
    for name in registry:
        if (field := _model_of(registry, name).model_fields.get(key)) is not None:
            return name, field.get_default(call_default_factory=True)
    return None, None


Direction = Literal["maximize", "minimize"]


class RetrainConfig(Section):
    """The best trials, trained again: what is reported is not what they were chosen by.

    Attributes:
        best: How many of the best trials; 0 for none.
        seeds: Fresh seeds that each of them is trained with, at the run's full `n_timesteps`.
        episodes: Held-out episodes that the winner plays for the last figure.
    """

    best: NonNegative
    seeds: Count
    episodes: Count


class HpoConfig(Section):
    """A study; the values and what they mean are in conf/hpo/_study.yaml."""

    algo: str | None
    study: Annotated[str, Field(min_length=1)] | None
    n_trials: Count
    timeout_minutes: PositiveFloat | None
    n_timesteps: Count | None
    seeds: Count
    objectives: Annotated[dict[str, Direction], Field(min_length=1)]
    constraints: list[str]
    storage: Annotated[str, Field(min_length=1)]
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
    experiment: Annotated[str, Field(min_length=1)] | None


class TrackerConfig(PluginSection):
    """A service that follows the run besides TensorBoard."""

    registry = TRACKERS


class InfraConfig(PluginSection):
    """Where the jobs of a sweep run; the defaults are for runs from before there were any."""

    registry = LAUNCHERS
    workers: Count | Literal["auto"] = "auto"
    memory_gib: PositiveFloat | None = None
    time_limit_minutes: PositiveFloat | None = None


class RunConfig(Section):
    """One training, complete: one configuration, one seed."""

    env: EnvConfig
    algo: AlgoConfig
    network: NetworkConfig
    infra: InfraConfig
    hpo: HpoConfig | None
    tracker: TrackerConfig | None
    packages: list[Line] = []
    n_timesteps: Count
    seed: NonNegative
    n_envs: EnvCount
    vec_env: Line
    normalize: NormalizeConfig | None
    device: Line
    num_threads: Annotated[Count, Field(le=MOST_THREADS)] | Literal["auto"]
    run_dir: Annotated[str, Field(min_length=1)] | None
    sweep: Annotated[str, Field(min_length=1)] | None = None
    resume: Literal["auto", "never"] = "auto"
    restart: bool = False
    init_from: Annotated[Line, Field(min_length=1)] | None = None
    init: InitConfig = InitConfig()
    freeze: list[Line] = []
    eval: EvalConfig
    checkpoint: CheckpointConfig
    stop: StopConfig
    log: LogConfig
    report: ReportConfig
    export: ExportConfig
    callbacks: list[str | dict[str, dict[str, Any] | None]]

    @model_serializer(mode="wrap")
    def _without_warm_start(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what was not asked for: hashes and bundles stay what they were without it."""
        unused = [] if self.freeze else ["freeze"]
        unused += ["init_from", "init"] if self.init_from is None else []
        return {key: value for key, value in serialize(self).items() if key not in unused}
