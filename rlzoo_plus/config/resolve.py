"""Checks a composed configuration and returns a `RunConfig`: types, names, cross-field rules."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from rlzoo_plus.artifacts.run_dir import path_problem
from rlzoo_plus.artifacts.untrusted import has_control_characters
from rlzoo_plus.config.cadence import check_cadence
from rlzoo_plus.config.catalog import (
    ACTIVATIONS,
    FEATURES_EXTRACTORS,
    LAUNCHERS,
    METRICS,
    OPTIMIZERS,
    POLICIES,
    PRIORITIZED,
    VEC_ENVS,
    WRAPPERS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.critics import critic_mistakes, with_critic_observation
from rlzoo_plus.config.exploration import BONUS, as_keys_of_algorithm
from rlzoo_plus.config.groups import group_mistakes
from rlzoo_plus.config.hyperparams import (
    check_hyperparams,
    fit_hyperparams,
    has_rollout,
    rollout_steps,
)
from rlzoo_plus.config.jax_rules import check_jax
from rlzoo_plus.config.mistakes import as_config_error, shown
from rlzoo_plus.config.opponent_rules import self_play_mistakes
from rlzoo_plus.config.opponents import SELF_PLAY
from rlzoo_plus.config.own_code import chosen_names, import_packages
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.schema import (
    IN_PROCESS,
    DataConfig,
    InfraConfig,
    InitConfig,
    NoiseConfig,
    PluginSection,
    RunConfig,
    TeacherConfig,
    is_own_vec_env,
)
from rlzoo_plus.config.sections import check_types
from rlzoo_plus.config.shares import asynchronous_mistakes, distributed_mistakes
from rlzoo_plus.errors import ConfigError, Mistakes, unknown_name
from rlzoo_plus.given import is_given

# Sections and keys that change nothing in the trained policy.
UNHASHED = (
    *("run_dir", "init_from", "sweep", "store", "resume", "restart", "log", "tracker", "report"),
    *("checkpoint", "infra", "export", "packages", "record_updates", "profile"),
    "encryption",
)
_WITHOUT_OUTCOME: Any = {
    **dict.fromkeys(UNHASHED, True),
    **{"init": {"which"}, "eval": {"metrics", "beside"}, "data": {"path"}},
    "teacher": {"run", "which"},
    "reward_model": {"path"},
}
# Each is a Python interpreter of 50 MB and more.
MOST_PROCESSES = 1024
# Files of conf/env for any id of a kind: a run is named after the id.
_OF_ANY_ID = ("gym", "atari", "pettingzoo", "unity")
# Classes of worlds, n_envs of them, whose agents are rows of the batch.
_OF_AGENTS = ("pettingzoo", SELF_PLAY, "unity")
# How ids of shipped teams of robots begin.
TEAMS = "robots.teams."
# The others are checked with the hyperparameters, or when they are loaded.
_CHECKED = (
    *(ACTIVATIONS, OPTIMIZERS, FEATURES_EXTRACTORS, POLICIES),
    *(VEC_ENVS, LAUNCHERS, WRAPPERS, METRICS),
)


@dataclass(frozen=True)
class Resolved:
    """A checked configuration and warnings about it."""

    config: RunConfig
    warnings: list[str] = field(default_factory=list)


def resolve(values: Mapping[str, Any], *, env_name: str | None = None) -> Resolved:
    """Check a composed configuration.

    Args:
        values: Plain nested data, e.g. `OmegaConf.to_container(cfg, resolve=True)`.
        env_name: The environment's name in directories and tables.

    Raises:
        ConfigError: Names are unknown, or values have the wrong type, cannot work or contradict
            each other. It names all that can be told at once.
    """
    config = validate_config(_with_defaults(values, env_name))
    refuse_secrets(config.model_dump())
    import_packages(config)
    spec = get_algorithm(config.algo.name)
    mistakes, warnings = Mistakes(), []
    with mistakes.kept():
        config = _with_exploration(config, spec)
        config = config.model_copy(update={"algo": fit_hyperparams(config.algo, spec)})
        config = with_critic_observation(config)
        with mistakes.kept():
            rows = 0 if config.vec_env in _OF_AGENTS else config.n_envs
            warnings += check_hyperparams(config.algo, spec, rows)
        with mistakes.kept():
            if has_rollout(config.algo, spec):
                config = check_cadence(config, spec)
        for text in _of_network(config, spec):
            mistakes.add(text)
        with mistakes.kept():
            check_jax(config, spec)
    with mistakes.kept():
        _check_names(config)
    for text in (
        *(*_of_environments(config), *_of_init(config, spec), *_of_data(config, spec)),
        *(*_of_teacher(config, spec), *_of_action_log(config, spec)),
        *distributed_mistakes(config, spec),
        *group_mistakes(config, spec),
        *asynchronous_mistakes(config, spec),
        *self_play_mistakes(config, spec, TEAMS),
    ):
        mistakes.add(text)
    mistakes.tell()
    warnings += _check_length(config, spec)
    return Resolved(config, warnings)


def config_hash(config: RunConfig) -> str:
    """Return a hash of everything that changes the outcome of a run, 16 hexadecimal digits."""
    data = outcome_data(config)
    if config.vec_env in IN_PROCESS:
        data["vec_env"] = "dummy"  # the first of them, so that hashes stay what they were
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def outcome_data(config: RunConfig) -> dict[str, Any]:
    """Return what changes the outcome of a run; initial weights by content, not by place."""
    return config.model_dump(exclude=_WITHOUT_OUTCOME)


def env_slug(env_id: str) -> str:
    """Return an environment id as a folder name: `robots/CartPole-v0` -> `robots-cartpole-v0`."""
    return re.sub(r"[^a-z0-9._]+", "-", env_id.lower()).strip("-.") or "env"


def _with_defaults(values: Mapping[str, Any], env_name: str | None) -> dict[str, Any]:
    data = {key: value for key, value in values.items() if key != "hydra"}
    if not isinstance(data.get("env"), Mapping):
        raise ConfigError(f"env={shown(data.get('env'))}: must be a mapping. Choose env=NAME.")
    env = dict(data["env"])
    if not env.get("name") and isinstance(env.get("id"), str):
        env["name"] = env_name if env_name not in (None, "", *_OF_ANY_ID) else env_slug(env["id"])
    if env.get("id") == "???":
        if env_name not in (None, "gym", "pettingzoo"):
            example = "Add a line to it, e.g. `id: Pendulum-v1`."
            raise ConfigError(f"env={env_name}: env/{env_name}.yaml sets no id. {example}")
        example = "mpe2.simple_spread_v3" if env_name == "pettingzoo" else "Pendulum-v1"
        raise ConfigError(f"env={env_name or 'gym'} needs an id. Add one, e.g. env.id={example}.")
    if isinstance(env.get("credit"), str):
        env["credit"] = {"method": env["credit"]}
    data["env"] = env
    is_team = str(env.get("id")).startswith(TEAMS)
    if (env_name in _OF_AGENTS or is_team) and data.get("vec_env") == "auto":
        data["vec_env"] = "pettingzoo" if is_team else env_name
    if data.get("vec_env") in ("pettingzoo", SELF_PLAY):
        data["vec_env"] = "pettingzoo" if env.get("opponents") is None else SELF_PLAY
    tracker = data.get("tracker")
    if isinstance(tracker, Mapping) and "name" not in tracker:
        key = f"tracker.{next(iter(tracker), 'name')}"
        raise ConfigError(f"{key} needs a tracker. Add tracker=wandb or tracker=mlflow.")
    if isinstance(data.get("normalize"), bool):
        data["normalize"] = {} if data["normalize"] else None
    return data


def _with_exploration(config: RunConfig, spec: AlgorithmSpec) -> RunConfig:
    """Return a configuration in which `exploration` has what the algorithm has no key for."""
    if config.exploration.kind is None:
        if config.exploration.given():
            raise ConfigError("exploration.* needs a kind. Add exploration=NAME, or leave it out.")
        return config
    given = config.exploration, config.algo.hyperparams, spec
    left, hyperparams, noise = as_keys_of_algorithm(*given)
    made = None if noise is None else NoiseConfig.model_validate(noise)
    update = {"hyperparams": hyperparams, "action_noise": made}
    if config.exploration.kind == BONUS:
        update = {}
    algo = config.algo.model_copy(update=update)
    return config.model_copy(update={"algo": algo, "exploration": left})


def validate_config(data: dict[str, Any]) -> RunConfig:
    """Check the types and names of a complete configuration, e.g. of a stored one.

    Raises:
        ConfigError: It names every key that is wrong.
    """
    with as_config_error(data):
        return check_types(data)


def settings_of(section: PluginSection) -> Any:
    """Return the settings of the plugin that a section chooses; imports the plugin.

    Raises:
        ConfigError: There is no such plugin, or a setting is wrong.
    """
    key = section.registry.key.partition(".")[0]
    with as_config_error({key: section.model_dump()}, key):
        return section.settings


def infra_of(values: Mapping[str, Any]) -> InfraConfig:
    """Check the section `infra` alone, e.g. overrides for stored jobs.

    Raises:
        ConfigError: It names every key that is wrong.
    """
    with as_config_error({"infra": values}, "infra"):
        return InfraConfig.model_validate(values)


def load_stored(values: Any) -> RunConfig:
    """Check an untrusted configuration that was read from a file.

    Raises:
        ValueError: It is not a configuration; `one_line` says why.
    """
    if has_control_characters(values):
        raise ValueError("a text has control characters")
    return check_types(values)


def _check_names(config: RunConfig) -> None:
    for registry in _CHECKED:
        for name in chosen_names(config, registry):
            registry.check_name(name)
    for section in (config.infra, config.tracker):
        if section is not None and section.registry.is_own(section.name):
            settings_of(section)


def _of_environments(config: RunConfig) -> Iterator[str]:
    """Yield what is wrong with the environments."""
    if is_given(config.env.id) and config.vec_env == "subproc":
        yield (
            "vec_env=subproc: its processes import the environment. Define its class or function "
            "at the top level of a module, or leave vec_env out."
        )
    if is_given(config.env.id) and config.env.python is not None:
        yield (
            f"env.python={config.env.python}: another interpreter imports the environment. Define "
            "its class at the top level of a module, or leave env.python out."
        )
    if config.env.worlds_per_process > 1 and config.env.python is None:
        yield (
            f"env.worlds_per_process={config.env.worlds_per_process} is for environments of "
            "another interpreter. Set env.python, or leave it out."
        )
    folder = PurePosixPath(str(config.env.name))
    if folder.is_absolute() or ".." in folder.parts or path_problem(folder) is not None:
        yield (
            f"env.name={shown(str(config.env.name))}: folders are named after it. Use letters, "
            "digits, dots and hyphens, e.g. env.name=my-robot."
        )
    if is_own_vec_env(config.vec_env):
        most = config.eval.max_episode_steps
        set_keys = {
            "env.wrappers": config.env.wrappers,
            "env.python": None if config.vec_env == "unity" else config.env.python,
            "env.warmup_resets": config.env.warmup_resets,
            "eval.max_episode_steps": most if isinstance(most, int) else None,
        }
        for key, value in set_keys.items():
            if value:
                yield (
                    f"{key}={value}: vec_env={config.vec_env} steps all environments at once, and "
                    "none alone. Remove it, or do the same in the environment."
                )
    if config.vec_env == "subproc" and config.n_envs > MOST_PROCESSES:
        yield (
            f"n_envs={config.n_envs} with vec_env=subproc starts that many processes. Set it to at "
            f"most {MOST_PROCESSES}, or vec_env=auto."
        )


def _of_network(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what is wrong with the network."""
    has_lstm = any(value is not None for value in config.network.lstm.model_dump().values())
    if has_lstm and not spec.recurrent:
        yield (
            f"network.lstm is for recurrent_ppo and recurrent_sac; {spec.name} is not recurrent. "
            "Leave it out."
        )
    is_off_policy, lstm = spec.family is Family.OFF_POLICY, config.network.lstm
    if spec.recurrent and is_off_policy and (lstm.shared or lstm.enable_critic is False):
        key = "shared=true" if lstm.shared else "enable_critic=false"
        yield f"network.lstm.{key}: actor and critic of {spec.name} have an LSTM each. Omit it."
    kinds, policy = dict(spec.policies), config.network.policy
    if policy not in ("auto", *kinds) and not POLICIES.is_own(policy):
        yield (
            f"network.policy={policy}: {spec.name} has {', '.join(kinds)}. Choose one of them, "
            "auto, or a class of your own."
        )
    dropped = config.algo.hyperparams.get("top_quantiles_to_drop_per_net", 0)
    if dropped >= (n_quantiles := config.network.n_quantiles or 25):
        yield (
            f"algo.hyperparams.top_quantiles_to_drop_per_net={dropped} leaves none of the "
            f"{n_quantiles} quantiles. Set it lower, or network.n_quantiles higher."
        )
    yield from _of_layer_norm(config, spec)
    yield from critic_mistakes(config, spec)
    arch = config.network.net_arch
    if not isinstance(arch, dict):
        return
    unknown = [part for part in arch if part not in ("actor", "critic", "pi", "vf", "qf")]
    if unknown:
        yield unknown_name("part of network.net_arch", unknown[0], ("actor", "critic"))
    elif not {"actor", "pi"} & arch.keys() or not {"critic", "vf", "qf"} & arch.keys():
        yield (
            f"network.net_arch={arch} leaves a part out. Give both actor and critic, e.g. "
            "network.net_arch={actor: [64, 64], critic: [256, 256]}."
        )
    elif spec.has_one_network:
        yield (
            f"network.net_arch={arch}: {spec.name} has one network, no actor and critic. Write a "
            "list, e.g. network.net_arch=[64,64]."
        )


def _of_layer_norm(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what layer normalisation, dropout of critics and blocks do not go with."""
    network = config.network
    for key in ("layer_norm", "dropout", "blocks"):
        value = getattr(network, key)
        if value is None or spec.backend == "jax":
            continue
        if key == "blocks" and (network.layer_norm or network.dropout):
            yield f"network.blocks={value} has no layer_norm or dropout. Leave them out."
        elif key == "blocks" and not spec.has_blocks:
            yield (
                f"network.blocks={value}: {spec.name} has networks of its own kind. Use ppo, sac "
                "or another algorithm of torch."
            )
        elif key != "blocks" and spec.family is not Family.OFF_POLICY:
            yield f"network.{key}={value}: {spec.name} is not off-policy. Leave it out."
        elif config.export.sb3_zip:
            yield (
                f"network.{key}={value} with export.sb3_zip=true: Stable-Baselines3 has no such "
                "network. Leave one of them out."
            )


def _of_init(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what is wrong with what a warm start takes, as far as its source need not be read."""
    init = config.init
    if config.init_from is None and init != InitConfig():
        yield "init.* says what a warm start takes. Add init_from=RUN, or leave init.* out."
    known = ("policy", "optimizer", "buffer", "normalization")
    unknown = [name for name in init.parts if name not in known]
    if unknown:
        yield unknown_name("part in init.parts", unknown[0], known)
    if not init.parts:
        yield f"init.parts=[] takes nothing. Choose from {', '.join(known)}."
    if "buffer" in init.parts and spec.family is not Family.OFF_POLICY:
        yield f"init.parts={init.parts}: {spec.name} has no replay buffer. Leave buffer out."
    if init.which not in ("best", "final") and not str(init.which).isdecimal():
        yield f"init.which={init.which}: must be best, final, or the step of a checkpoint."


def _of_data(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what is wrong with the demonstrations, as far as they need not be read."""
    data = config.data
    if data.path is None:
        if data != DataConfig():
            yield "data.* is about demonstrations. Add data=DATASET, or leave data.* out."
        elif spec.clones and not spec.is_taught:
            yield f"{spec.name} learns from demonstrations. Add data=DATASET."
    elif spec.is_taught:
        yield (
            f"data={shown(data.path)}: {spec.name} learns from what its teacher does. Leave it "
            "out, or use algo=bc."
        )
    elif not spec.clones and not (spec.family is Family.OFF_POLICY and spec.has_plain_batches):
        yield (
            f"data={shown(data.path)}: {spec.name} takes no demonstrations. Use algo=sac or "
            "another off-policy algorithm of torch; or clone them with algo=bc, and begin from "
            "that with init_from."
        )
    elif config.algo.replay_buffer in PRIORITIZED:
        yield (
            f"data={shown(data.path)}: demonstrations have no priorities. Leave "
            f"algo.replay_buffer={config.algo.replay_buffer} out."
        )
    elif not spec.clones and (config.cost is not None or config.reward_model.path is not None):
        other = "cost" if config.cost is not None else "reward_model"
        yield (
            f"data={shown(data.path)}: demonstrations have the environment's reward, and {other} "
            "changes that of the agent's own steps. Leave one of them out, or clone the "
            "demonstrations with algo=bc and begin from that with init_from."
        )


def _of_teacher(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield what is wrong with the teacher, as far as it need not be read."""
    teacher = config.teacher
    if teacher.run is None:
        if teacher != TeacherConfig():
            yield "teacher.* is about a teacher. Add teacher=RUN, or leave teacher.* out."
        elif spec.is_taught:
            yield f"{spec.name} learns from a teacher. Add teacher=RUN."
    elif not spec.is_taught:
        yield (
            f"teacher={shown(teacher.run)}: {spec.name} learns without a teacher. Use "
            "algo=dagger or algo=distill."
        )


def _of_action_log(config: RunConfig, spec: AlgorithmSpec) -> Iterator[str]:
    """Yield why the actions of a training cannot be logged."""
    if not config.log.actions:
        return
    acts = spec.family is not Family.EVOLUTION and spec.clones is None and spec.backend == "torch"
    if not acts or spec.recurrent or spec.maskable:
        yield f"log.actions=true: the actions of {spec.name} cannot be logged. Leave it out."
    if config.distributed > 1:
        yield f"log.actions=true with distributed={config.distributed}: set one of them alone."


def _check_length(config: RunConfig, spec: AlgorithmSpec) -> list[str]:
    warnings = []
    rollout = rollout_steps(config.algo, spec, config.n_envs)
    is_known = spec.family is Family.ON_POLICY and config.vec_env not in _OF_AGENTS
    if is_known and config.n_timesteps % rollout:
        total = -(-config.n_timesteps // rollout) * rollout
        warnings.append(
            f"n_timesteps={config.n_timesteps} is not a multiple of one rollout "
            f"({rollout} steps): the run ends at {total}."
        )
    learning_starts = config.algo.hyperparams.get("learning_starts", 0)
    if spec.family is Family.OFF_POLICY and learning_starts >= config.n_timesteps:
        warnings.append(
            f"algo.hyperparams.learning_starts={learning_starts} is not below "
            f"n_timesteps={config.n_timesteps}: nothing will be learned."
        )
    return warnings
