"""Checks a composed configuration and returns a `RunConfig`: types, names, cross-field rules."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rlzoo_plus.artifacts.run_dir import path_problem
from rlzoo_plus.artifacts.untrusted import has_control_characters
from rlzoo_plus.config.cadence import check_cadence
from rlzoo_plus.config.catalog import (
    ACTIVATIONS,
    ALGORITHMS,
    FEATURES_EXTRACTORS,
    LAUNCHERS,
    METRICS,
    OPTIMIZERS,
    POLICIES,
    VEC_ENVS,
    WRAPPERS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.hyperparams import (
    check_hyperparams,
    fit_hyperparams,
    has_rollout,
    rollout_steps,
)
from rlzoo_plus.config.jax_rules import check_jax
from rlzoo_plus.config.own_code import chosen_names, import_packages
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.schema import (
    IN_PROCESS,
    InfraConfig,
    InitConfig,
    PluginSection,
    RunConfig,
    is_own_vec_env,
)
from rlzoo_plus.config.sections import check_types
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments
from rlzoo_plus.errors import HELP, ConfigError, Mistakes, unknown_name
from rlzoo_plus.synonyms import key_meant

# Sections and keys that change nothing in the trained policy.
UNHASHED = (
    *("run_dir", "init_from", "sweep", "store", "resume", "restart", "log", "tracker", "report"),
    *("checkpoint", "infra", "export", "packages", "record_updates", "profile"),
)
_WITHOUT_OUTCOME: Any = {
    **dict.fromkeys(UNHASHED, True),
    **{"init": {"which"}, "eval": {"metrics", "beside"}},
}
# Each is a Python interpreter of 50 MB and more.
MOST_PROCESSES = 1024
_MOST_MISSING = 2
# Files of conf/env for any id of a kind: a run is named after the id.
_OF_ANY_ID = ("gym", "atari")
# The others are checked with the hyperparameters, or when they are loaded.
_CHECKED = (
    *(ACTIVATIONS, OPTIMIZERS, FEATURES_EXTRACTORS, POLICIES),
    *(VEC_ENVS, LAUNCHERS, WRAPPERS, METRICS),
)
_NAMED = "must be a list of {0}, and {{{1}: {{argument: value}}}} for one with arguments"
# For values of several types, where pydantic's text about each type alone would mislead.
_RULES = {
    "normalize": "must be true, false, or a mapping such as {observation: true, reward: false}",
    "network.net_arch": "must be a list of layer sizes, [64, 64], or one for each part, "
    "{actor: [64, 64], critic: [256, 256]}",
    **dict.fromkeys(
        ("eval.every_steps", "eval.max_episode_steps"),
        "must be a whole number of at least 1, auto, or null for none",
    ),
    **dict.fromkeys(
        ("eval.episodes", "eval.n_envs"), "must be a whole number from 1 to 100,000, or auto"
    ),
    **dict.fromkeys(("eval.metrics", "env.wrappers"), _NAMED.format("names", "name")),
    "callbacks": _NAMED.format("dotted paths", "path"),
    "profile": "must be true, false or torch",
    "device": "must be auto, cpu, cuda or cuda:<number>",
    "run_dir": "must be the path of a directory, or null",
    "freeze": "must be a list of names, e.g. [features_extractor]",
    "init.parts": "must be a list of policy, optimizer, buffer and normalization",
    "infra.workers": "must be a whole number of at least 1, or auto",
    "sweep": "must be a name, a path, or null for outputs/sweeps/default",
    "store": "must be s3://bucket/prefix, the path of a folder, or null for none",
    "num_threads": "must be a whole number from 1 to 1,024, or auto",
    **dict.fromkeys(("report.video", "log.progress"), "must be true, false or auto"),
}


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
    config = validate_config(_with_defaults(values, env_name), check_types)
    refuse_secrets(config.model_dump())
    import_packages(config)
    spec = get_algorithm(config.algo.name)
    mistakes, warnings = Mistakes(), []
    with mistakes.kept():
        config = config.model_copy(update={"algo": fit_hyperparams(config.algo, spec)})
        with mistakes.kept():
            warnings += check_hyperparams(config.algo, spec, config.n_envs)
        with mistakes.kept():
            if has_rollout(config.algo, spec):
                config = check_cadence(config, spec)
        with mistakes.kept():
            _check_network(config, spec)
        with mistakes.kept():
            check_jax(config, spec)
    with mistakes.kept():
        _check_names(config)
    with mistakes.kept():
        _check_init(config, spec)
    with mistakes.kept():
        _check_processes(config)
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
        raise ConfigError(f"env={_shown(data.get('env'))}: must be a mapping. Choose env=NAME.")
    env = dict(data["env"])
    if not env.get("name") and isinstance(env.get("id"), str):
        env["name"] = env_name if env_name not in (None, "", *_OF_ANY_ID) else env_slug(env["id"])
    if env.get("id") == "???":
        if env_name not in (None, "gym"):
            raise ConfigError(
                f"env={env_name}: env/{env_name}.yaml sets no id. Add a line to it, e.g. "
                "`id: Pendulum-v1`."
            )
        raise ConfigError("env=gym needs an environment. Add env.id=..., e.g. env.id=Pendulum-v1.")
    data["env"] = env
    tracker = data.get("tracker")
    if isinstance(tracker, Mapping) and "name" not in tracker:
        raise ConfigError(
            f"tracker.{next(iter(tracker), 'name')} is set, but no tracker is chosen. "
            "Add tracker=wandb or tracker=mlflow."
        )
    if isinstance(data.get("normalize"), bool):
        data["normalize"] = {} if data["normalize"] else None
    return data


def validate_config(
    data: dict[str, Any], check: Callable[[Any], RunConfig] = RunConfig.model_validate
) -> RunConfig:
    """Check the types and names of a complete configuration, e.g. of a stored one.

    Args:
        data: Its values.
        check: `check_types` where many configurations are only read.

    Raises:
        ConfigError: It names every key that is wrong.
    """
    with _as_config_error(data):
        return check(data)


def settings_of(section: PluginSection) -> Any:
    """Return the settings of the plugin that a section chooses; imports the plugin.

    Raises:
        ConfigError: There is no such plugin, or a setting is wrong.
    """
    key = section.registry.key.partition(".")[0]
    with _as_config_error({key: section.model_dump()}, key):
        return section.settings


def infra_of(values: Mapping[str, Any]) -> InfraConfig:
    """Check the section `infra` alone, e.g. overrides for stored jobs.

    Raises:
        ConfigError: It names every key that is wrong.
    """
    with _as_config_error({"infra": values}, "infra"):
        return InfraConfig.model_validate(values)


@contextmanager
def _as_config_error(data: Mapping[str, Any], *section: str) -> Iterator[None]:
    """Report errors as `ConfigError`, with the keys of the whole configuration."""
    try:
        yield
    except ValidationError as error:
        items = [{**item, "loc": (*section, *item["loc"])} for item in error.errors()]
        raise ConfigError("\n".join(_mistakes(items, data))) from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{'.'.join(section) or 'configuration'}: {error}.") from error


def _mistakes(items: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> list[str]:
    """Return a line for each mistake; of a section that was replaced, one line for all its keys."""
    missing = [".".join(map(str, item["loc"])) for item in items if item["type"] == "missing"]
    are_many = len(missing) > _MOST_MISSING
    lines = [_describe(i, data) for i in items if not (are_many and i["type"] == "missing")]
    if are_many:
        section = missing[0].rpartition(".")[0] or "the configuration"
        lines.append(
            f"{section} leaves out {', '.join(missing[:_MOST_MISSING])} and "
            f"{len(missing) - _MOST_MISSING} more. Change single keys, and leave the others."
        )
    return list(dict.fromkeys(lines))


def load_stored(
    values: Any, check: Callable[[Any], RunConfig] = RunConfig.model_validate
) -> RunConfig:
    """Check an untrusted configuration that was read from a file.

    Args:
        values: What was read.
        check: See `validate_config`.

    Raises:
        ValueError: It is not a configuration; `one_line` says why.
    """
    if has_control_characters(values):
        raise ValueError("a text has control characters")
    return check(values)


def _describe(item: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    # Without pydantic's names for the branches of a union.
    branches = ("int", "str", "float", "bool")
    path = [str(p) for p in item["loc"] if not (isinstance(p, str) and ("[" in p or p in branches))]
    key = ".".join(path)
    if item["type"] == "extra_forbidden":
        prefix = "".join(f"{part}." for part in path[:-1])
        known = [prefix + name for name in _fields_at(path[:-1], data)]
        # A section that does not exist was made for the keys below it.
        inside = item["input"] if isinstance(item["input"], Mapping) else {}
        typed = f"{key}.{next(iter(inside))}" if len(inside) == 1 else key
        return unknown_name("configuration key", typed, known, HELP, meant_key(typed, data))
    if item["type"] == "missing":
        return f"{key} is not set. Add it: {key}=..."
    whole = next((k for k in _RULES if f"{key}.".startswith(f"{k}.")), None)
    if whole is not None:
        return f"{whole}={_shown(_value_at(data, whole))}: {_RULES[whole]}."
    expected = item.get("ctx", {}).get("expected")
    rule = f"must be {expected}" if expected else item["msg"]
    rule = rule.removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{key}={_shown(item['input'])}: {rule}."


def _value_at(data: Mapping[str, Any], key: str) -> Any:
    value: Any = data
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _shown(value: Any) -> str:
    is_plain = not isinstance(value, (dict, list)) and str(value).isprintable()
    text = str(value) if is_plain else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def meant_key(name: str, data: Mapping[str, Any]) -> str | None:
    """Return the full path of the key that a wrong one stands for, None if nothing is near.

    Args:
        name: As it was typed.
        data: The configuration, as far as it is known.
    """
    keys = [*_keys_below(RunConfig)]
    chosen = _value_at(data, "algo.name")
    specs = [get_algorithm(chosen)] if chosen in ALGORITHMS else [*ALGORITHMS.values()]
    for spec in specs:
        # Of one that is not installed, the names are not known.
        with suppress(ConfigError):
            settable = (constructor_arguments(spec.entry_point) or {}).keys() - MANAGED.keys()
            keys += [f"algo.hyperparams.{argument}" for argument in sorted(settable)]
    return key_meant(name, keys)


def _keys_below(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field_info in model.model_fields.items():
        yield prefix + name
        for option in (field_info.annotation, *get_args(field_info.annotation)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                yield from _keys_below(option, f"{prefix}{name}.")


def _fields_at(path: Sequence[str], data: Mapping[str, Any]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for part in path:
        annotation = model.model_fields[part].annotation
        options = [annotation, *get_args(annotation)]
        sections = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not sections:
            return []
        model = sections[0]
    if issubclass(model, PluginSection):
        return model.keys_of(_value_at(data, ".".join([*path, "name"])))
    return list(model.model_fields)


def _check_names(config: RunConfig) -> None:
    for registry in _CHECKED:
        for name in chosen_names(config, registry):
            registry.check_name(name)
    for section in (config.infra, config.tracker):
        if section is not None and section.registry.is_own(section.name):
            settings_of(section)
    folder = PurePosixPath(str(config.env.name))
    if folder.is_absolute() or ".." in folder.parts or path_problem(folder) is not None:
        raise ConfigError(
            f"env.name={_shown(str(config.env.name))}: folders are named after it. Use letters, "
            "digits, dots and hyphens, e.g. env.name=my-robot."
        )
    for key in ("wrappers", "warmup_resets"):
        value = getattr(config.env, key)
        if value and is_own_vec_env(config.vec_env):
            raise ConfigError(
                f"env.{key}={value}: vec_env={config.vec_env} steps all environments at once, and "
                f"none can be wrapped alone. Remove it, or do the same in the environment."
            )
    most = config.eval.max_episode_steps
    if isinstance(most, int) and is_own_vec_env(config.vec_env):
        raise ConfigError(
            f"eval.max_episode_steps={most}: vec_env={config.vec_env} steps all environments at "
            "once, and no episode can be cut alone. End long episodes in the environment."
        )


def _check_processes(config: RunConfig) -> None:
    if config.vec_env == "subproc" and config.n_envs > MOST_PROCESSES:
        raise ConfigError(
            f"n_envs={config.n_envs} with vec_env=subproc starts that many processes. Set it to at "
            f"most {MOST_PROCESSES}, or vec_env=auto."
        )


def _check_network(config: RunConfig, spec: AlgorithmSpec) -> None:
    lstm_is_set = any(value is not None for value in config.network.lstm.model_dump().values())
    if lstm_is_set and not spec.recurrent:
        raise ConfigError(
            f"network.lstm is for recurrent_ppo; {spec.name} has no recurrent policy. "
            "Use algo=recurrent_ppo, or another network."
        )
    kinds = dict(spec.policies)
    policy = config.network.policy
    if policy not in ("auto", *kinds) and not POLICIES.is_own(policy):
        raise ConfigError(
            f"network.policy={policy}: {spec.name} has {', '.join(kinds)}. Choose one of them, "
            "auto, or a class of your own."
        )
    dropped = config.algo.hyperparams.get("top_quantiles_to_drop_per_net", 0)
    if dropped >= (n_quantiles := config.network.n_quantiles or 25):
        raise ConfigError(
            f"algo.hyperparams.top_quantiles_to_drop_per_net={dropped} leaves none of the "
            f"{n_quantiles} quantiles. Set it lower, or network.n_quantiles higher."
        )
    arch = config.network.net_arch
    if isinstance(arch, dict):
        unknown = next((p for p in arch if p not in ("actor", "critic", "pi", "vf", "qf")), None)
        if unknown is not None:
            what = "part of network.net_arch"
            raise ConfigError(unknown_name(what, unknown, ("actor", "critic")))
        if not {"actor", "pi"} & arch.keys() or not {"critic", "vf", "qf"} & arch.keys():
            raise ConfigError(
                f"network.net_arch={arch} leaves a part out. Give both actor and critic, "
                "e.g. network.net_arch={actor: [64, 64], critic: [256, 256]}."
            )
        if "Box" not in spec.actions and spec.family is Family.OFF_POLICY:
            raise ConfigError(
                f"network.net_arch={arch}: {spec.name} has one network, no actor and critic. "
                "Write a list, e.g. network.net_arch=[64,64]."
            )


def _check_init(config: RunConfig, spec: AlgorithmSpec) -> None:
    """Check what a warm start takes, as far as that is possible without its source."""
    init = config.init
    if config.init_from is None and init != InitConfig():
        raise ConfigError(
            "init.* says what a warm start takes, and there is none. Add init_from=RUN, or leave "
            "init.* out."
        )
    known = ("policy", "optimizer", "buffer", "normalization")
    for name in init.parts:
        if name not in known:
            raise ConfigError(unknown_name("part in init.parts", name, known))
    if not init.parts:
        raise ConfigError(f"init.parts=[] takes nothing. Choose from {', '.join(known)}.")
    if "buffer" in init.parts and spec.family is not Family.OFF_POLICY:
        raise ConfigError(
            f"init.parts={init.parts}: {spec.name} has no replay buffer. Leave buffer out."
        )
    if init.which not in ("best", "final") and not str(init.which).isdecimal():
        raise ConfigError(
            f"init.which={init.which}: must be best, final, or the step of a checkpoint."
        )


def _check_length(config: RunConfig, spec: AlgorithmSpec) -> list[str]:
    warnings = []
    rollout = rollout_steps(config.algo, spec, config.n_envs)
    if spec.family is Family.ON_POLICY and config.n_timesteps % rollout:
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
