"""Owns the conversion of rl_zoo3 hyperparameter files into conf/tuned: pure data, nothing is run.

Glossary: an *entry* is one environment's block in an rl_zoo3 file; an *environment file* is
conf/env/<name>.yaml; a *tuned file* is conf/tuned/<algorithm>/<name>.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlzoo_plus.config.catalog import WRAPPERS, Family, get_algorithm
from rlzoo_plus.config.literals import (
    Symbol,
    parse_literal,
    parse_symbol,
    plain_mapping,
    plain_value,
    read_mapping,
    schedule_of_lambda,
)
from rlzoo_plus.errors import ConfigError

# Wrappers of rl_zoo3, sb3_contrib, Gymnasium and Stable-Baselines3 that have a name here.
WRAPPER_NAMES = {
    "TimeFeatureWrapper": "time_feature",
    "FrameSkip": "frame_skip",
    "HistoryWrapper": "history",
    "HistoryWrapperObsDict": "history",
    "ActionNoiseWrapper": "noisy_action",
    "ActionSmoothingWrapper": "smooth_action",
    "DelayedRewardWrapper": "delayed_reward",
    "TruncatedOnSuccessWrapper": "truncate_on_success",
    "MaskVelocityWrapper": "mask_velocity",
    "YAMLCompatResizeObservation": "resize_observation",
    "AtariWrapper": "atari",
    **{path.split(":")[1]: n for n, path in WRAPPERS.items() if path.startswith("gymnasium.")},
}
_WRAPPER_HOMES = re.compile(
    r"(rl_zoo3|utils)\.wrappers|sb3_contrib\.common\.wrappers(\.\w+)?|gymnasium\.wrappers(\.\w+)?"
    r"|stable_baselines3\.common\.atari_wrappers"
)
NORMALIZE_KEYS = {
    "norm_obs": "observation",
    "norm_reward": "reward",
    "clip_obs": "clip_observation",
    "clip_reward": "clip_reward",
    "epsilon": "epsilon",
}
# Policy arguments with a key of their own under network; any other goes to network.policy_kwargs.
NETWORK_KEYS = {
    "net_arch": "net_arch",
    "activation_fn": "activation",
    "log_std_init": "log_std_init",
    "ortho_init": "ortho_init",
    "full_std": "full_std",
    "use_expln": "use_expln",
    "squash_output": "squash_output",
    "share_features_extractor": "share_features_extractor",
    "n_critics": "n_critics",
    "n_quantiles": "n_quantiles",
    "optimizer_class": "optimizer",
    "optimizer_kwargs": "optimizer_kwargs",
}
CLASS_KEYS = {"activation_fn": "activation", "optimizer_class": "optimizer"}
LSTM_KEYS = {
    "lstm_hidden_size": "hidden_size",
    "n_lstm_layers": "n_layers",
    "shared_lstm": "shared",
    "enable_critic_lstm": "enable_critic",
}
NOISE_TYPES = {"normal": "normal", "ornstein-uhlenbeck": "ou"}
_KINDS = ("Mlp", "Cnn", "MultiInput")
AUTOMATIC_POLICIES = {f"{kind}{lstm}Policy" for kind in _KINDS for lstm in ("", "Lstm")}
# conf/algo gives these two exploration noise; rl_zoo3 gives them none unless told to.
NOISY_BY_DEFAULT = ("ddpg", "td3")
# rl_zoo3 keys that describe its own machinery and have no counterpart here.
UNSUPPORTED = {
    "callback": "add your own callback with callbacks=[...]",
    "vec_env_wrapper": "vectorised wrappers cannot be configured; frame_stack and normalize can",
    "monitor_kwargs": "the Monitor is set up by the run",
    "rollout_buffer_class": "the rollout buffer is chosen from the observation space",
}
# YAML reads `!!float 1e6` as a float where Stable-Baselines3 needs an int.
WHOLE_NUMBERS = (
    "batch_size",
    "buffer_size",
    "cg_max_steps",
    "gradient_steps",
    "learning_starts",
    "line_search_max_iter",
    "n_critic_updates",
    "n_delta",
    "n_epochs",
    "n_eval_episodes",
    "n_steps",
    "n_top",
    "policy_delay",
    "sde_sample_freq",
    "sub_sampling_factor",
    "target_update_interval",
    "top_quantiles_to_drop_per_net",
    "train_freq",
)


@dataclass(frozen=True)
class ConvertedEntry:
    """One entry in the terms of this project.

    Attributes:
        values: Nested values of a tuned file, in the order in which they are written.
        warnings: What could not be expressed, one sentence each.
    """

    values: dict[str, Any]
    warnings: list[str]


def read_zoo_file(path: Path) -> dict[str, Any]:
    """Read an rl_zoo3 hyperparameter file; anchors and merge keys are resolved.

    Args:
        path: A YAML file whose top level maps environment ids to entries.

    Raises:
        ConfigError: If the file cannot be read, names Python objects, or is no such mapping.
    """
    try:
        # A SafeLoader, which knows tuples as well.
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Check the path.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not plain YAML: {error}. Tags that build Python objects are refused."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path} is not a mapping of names to values.")
    return content


class _Loader(yaml.SafeLoader):
    """Reads plain YAML, and the tag of a tuple as a list."""


def _construct_tuple(loader: yaml.SafeLoader, node: yaml.Node) -> list[Any]:
    if not isinstance(node, yaml.SequenceNode):
        raise yaml.constructor.ConstructorError(None, None, "a tuple is a list", node.start_mark)
    return loader.construct_sequence(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:python/tuple", _construct_tuple)


def convert_entry(
    algorithm: str, entry: object, known_arguments: Collection[str] | None = None
) -> ConvertedEntry:
    """Convert one entry.

    rl_zoo3 trains with one environment and without normalisation unless told otherwise, so
    `n_envs` and `normalize` are always written, and an absent noise of td3 and ddpg as null.

    Args:
        algorithm: The name in conf/algo, for example `ppo`.
        entry: The mapping under an environment id.
        known_arguments: Constructor arguments of the algorithm that may be set; other keys are
            reported and left out. None lets every key pass.

    Raises:
        ConfigError: If a value is code, or the entry cannot be read as a whole.
    """
    if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
        raise ConfigError("the entry is not a mapping of names to values.")
    if "model_class" in entry:
        raise ConfigError(
            f"model_class={entry['model_class']!r} is from before Stable-Baselines3 1.1, and "
            "rl_zoo3 no longer reads it. Write the entry with replay_buffer_class."
        )
    rest, warnings = dict(entry), list[str]()
    values: dict[str, Any] = {}
    if "n_timesteps" in rest:
        values["n_timesteps"] = _count("n_timesteps", rest.pop("n_timesteps"))
    values["n_envs"] = _count("n_envs", rest.pop("n_envs", 1))
    values["normalize"] = _normalize(rest.pop("normalize", None), warnings)
    sections = {
        "env": _env(rest, warnings),
        "network": _network(algorithm, rest, warnings),
        "algo": _algo(algorithm, rest, known_arguments, warnings),
    }
    _fit_batch(algorithm, sections["algo"], values["n_envs"], warnings)
    values |= {name: sections[name] for name in ("env", "algo", "network") if sections[name]}
    return ConvertedEntry(values, warnings)


def _fit_batch(algorithm: str, algo: dict[str, Any], n_envs: int, warnings: list[str]) -> None:
    """Write a batch larger than a rollout as the rollout, which is what such a batch comes to."""
    hyperparams = algo.get("hyperparams", {})
    n_steps, batch_size = hyperparams.get("n_steps"), hyperparams.get("batch_size")
    is_on_policy = get_algorithm(algorithm).family is Family.ON_POLICY
    if is_on_policy and n_steps and batch_size and batch_size > n_steps * n_envs:
        hyperparams["batch_size"] = n_steps * n_envs
        warnings.append(
            f"batch_size {batch_size} is above one rollout (n_steps {n_steps} x n_envs {n_envs}): "
            f"written as {n_steps * n_envs}, to the same effect"
        )


def _normalize(value: object, warnings: list[str]) -> bool | dict[str, Any]:
    if isinstance(value, str):
        value = parse_literal(value)
    if value is None or isinstance(value, bool):
        return bool(value)
    options = plain_mapping("normalize", value)
    if "gamma" in options:
        warnings.append(f"normalize.gamma={options.pop('gamma')!r}: the algorithm's is used.")
    for name in sorted(options.keys() - NORMALIZE_KEYS.keys()):
        warnings.append(f"normalize.{name}={options.pop(name)!r}: there is no such setting here.")
    known = {ours: options[name] for name, ours in NORMALIZE_KEYS.items() if name in options}
    return known or True


def _env(rest: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    wrappers = _wrappers(rest.pop("env_wrapper", None), warnings)
    match wrappers:
        case [{"gymnasium.wrappers.TimeLimit": {"max_episode_steps": int() as steps}}, *others]:
            # Innermost, it is what env.time_limit asks of gymnasium.make.
            section["time_limit"], wrappers = steps, others
    if wrappers:
        section["wrappers"] = wrappers
    if (frame_stack := rest.pop("frame_stack", None)) is not None:
        section["frame_stack"] = _count("frame_stack", frame_stack)
    if kwargs := plain_mapping("env_kwargs", rest.pop("env_kwargs", None) or {}):
        section["kwargs"] = kwargs
    return section


def _wrappers(value: object, warnings: list[str]) -> list[Any]:
    if not value:
        return []
    converted: list[Any] = []
    for item in value if isinstance(value, list) else [value]:
        # A mapping may hold several wrappers, each with its arguments.
        named = item if isinstance(item, Mapping) else {item: None}
        for path, kwargs in named.items():
            if not isinstance(path, str):
                raise ConfigError(f"env_wrapper={path!r} is not the dotted path of a class.")
            name = _wrapper_name(path)
            if name not in WRAPPERS and not name.startswith("gymnasium."):
                warnings.append(f"env_wrapper={path}: it needs the package {path.split('.')[0]}.")
            arguments = plain_mapping(path, kwargs or {})
            converted.append({name: arguments} if arguments else name)
    return converted


def _wrapper_name(path: str) -> str:
    """Return what `env.wrappers` calls a wrapper: a name of ours, or its dotted path."""
    home, _, kind = path.rpartition(".")
    if not _WRAPPER_HOMES.fullmatch(home):
        name = str(plain_value("env_wrapper", path))
        if "." not in name:
            raise ConfigError(f"env_wrapper={path!r} is not the dotted path of a class.")
        return name
    if kind in WRAPPER_NAMES:
        return WRAPPER_NAMES[kind]
    if home.startswith(("rl_zoo3", "utils")):
        raise ConfigError(f"env_wrapper={path}: rl_zoo3 2.9.2 has no such wrapper, nor is it here.")
    # Gymnasium 1.0 and later has all of them in one module.
    return f"gymnasium.wrappers.{kind}" if home.startswith("gymnasium.") else path


def _network(algorithm: str, rest: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    policy = rest.pop("policy", None)
    if policy == "LinearPolicy" and algorithm == "ars":
        section["policy"] = "linear"
    elif policy is not None and policy not in AUTOMATIC_POLICIES:
        warnings.append(f"policy={policy!r}: the policy class is chosen automatically.")
    arguments = read_mapping("policy_kwargs", rest.pop("policy_kwargs", None) or {})
    for name, kind in CLASS_KEYS.items():
        given = arguments.get(name)
        if isinstance(given, str):
            arguments[name] = parse_symbol(given, kind)
        elif isinstance(given, Symbol) and given.kind == kind:
            arguments[name] = given.name
    if "net_arch" in arguments:
        arguments["net_arch"] = _net_arch(arguments["net_arch"])
    plain = {name: plain_value(f"policy_kwargs.{name}", value) for name, value in arguments.items()}
    for name, ours in NETWORK_KEYS.items():
        if name in plain:
            section[ours] = plain.pop(name)
    if lstm := {ours: plain.pop(name) for name, ours in LSTM_KEYS.items() if name in plain}:
        section["lstm"] = lstm
    if plain:
        section["policy_kwargs"] = dict(sorted(plain.items()))
    return section


def _net_arch(value: object) -> object:
    match value:
        case [dict() as separate]:
            # [dict(pi=..., vf=...)] is the spelling from before Stable-Baselines3 1.8.
            return separate
        case [*layers] if any(isinstance(layer, dict) for layer in layers):
            raise ConfigError(
                f"net_arch={value!r} shares layers between actor and critic, which "
                "Stable-Baselines3 dropped in 1.8. Write dict(pi=[...], vf=[...])."
            )
        case _:
            return value


def _algo(
    algorithm: str, rest: dict[str, Any], known: Collection[str] | None, warnings: list[str]
) -> dict[str, Any]:
    section: dict[str, Any] = {}
    if (noise := _action_noise(rest)) or algorithm in NOISY_BY_DEFAULT:
        section["action_noise"] = noise
    if (replay_buffer := rest.pop("replay_buffer_class", None)) is not None:
        section["replay_buffer"] = parse_symbol(str(replay_buffer), "replay_buffer")
    for name in sorted(rest.keys() & UNSUPPORTED.keys()):
        warnings.append(f"{name}={rest.pop(name)!r}: {UNSUPPORTED[name]}.")
    hyperparams: dict[str, Any] = {}
    for name, value in sorted(rest.items()):
        if known is not None and name not in known:
            warnings.append(f"{name}={value!r}: the algorithm has no such argument.")
        elif name.endswith("_kwargs"):
            hyperparams[name] = plain_mapping(name, value or {})
        elif isinstance(value, str) and value.lstrip().startswith(("(", "[", "lambda")):
            # Tuples such as (1, 'episode'), which YAML has not, and functions of progress.
            is_function = value.lstrip().startswith("lambda")
            parsed = schedule_of_lambda(name, value) if is_function else parse_literal(value)
            hyperparams[name] = plain_value(name, parsed)
        else:
            hyperparams[name] = _whole(name, plain_value(name, value))
    if hyperparams:
        section["hyperparams"] = hyperparams
    return section


def _action_noise(rest: dict[str, Any]) -> dict[str, Any] | None:
    kind = rest.pop("noise_type", None)
    if kind is None:
        return None
    name = NOISE_TYPES.get(str(kind).strip())
    if name is None:
        raise ConfigError(f"noise_type={kind!r} is unknown. Known: {', '.join(NOISE_TYPES)}.")
    std = plain_value("noise_std", rest.pop("noise_std", None))
    if isinstance(std, bool) or not isinstance(std, int | float):
        raise ConfigError(f"noise_std={std!r} is not a number. Give the noise's deviation.")
    return {"type": name, "std": std}


def _whole(name: str, value: Any) -> Any:
    is_whole = name in WHOLE_NUMBERS and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _count(name: str, value: object) -> int:
    number = plain_value(name, value)
    if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number):
        raise ConfigError(f"{name}={value!r} is not a whole number.")
    if number < 1:
        raise ConfigError(f"{name}={value!r} is below 1.")
    return int(number)
