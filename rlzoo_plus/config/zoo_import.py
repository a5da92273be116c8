"""Converts rl_zoo3 hyperparameter files into conf/tuned: pure data, nothing is run.

Glossary: an *entry* is one environment's block in an rl_zoo3 file; an *environment file* is
conf/env/<name>.yaml; a *tuned file* is conf/tuned/<algorithm>/<name>.yaml.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping
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
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments, fit_type
from rlzoo_plus.errors import ConfigError

# Classes of rl_zoo3, sb3_contrib, Gymnasium and Stable-Baselines3 that have a name here.
WRAPPER_NAMES = {
    **{path.split(":")[1]: name for name, path in WRAPPERS.items()},
    "AtariWrapper": "atari",
    "HistoryWrapper": "history",
    "HistoryWrapperObsDict": "history",
    "ActionNoiseWrapper": "noisy_action",
    "ActionSmoothingWrapper": "smooth_action",
    "DelayedRewardWrapper": "delayed_reward",
    "TruncatedOnSuccessWrapper": "truncate_on_success",
    "MaskVelocityWrapper": "mask_velocity",
    "YAMLCompatResizeObservation": "resize_observation",
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
CLASS_KEYS = {"activation_fn": "activation", "optimizer_class": "optimizer"}
_NETWORK_ARGUMENTS = (
    *("net_arch", "activation_fn", "log_std_init", "ortho_init", "full_std", "use_expln"),
    *("squash_output", "share_features_extractor", "n_critics", "n_quantiles"),
    *("optimizer_class", "optimizer_kwargs"),
)
NETWORK_KEYS = {name: CLASS_KEYS.get(name, name) for name in _NETWORK_ARGUMENTS}
_NETWORK_PARTS = ("pi", "vf", "qf")
LSTM_KEYS = {
    "lstm_hidden_size": "hidden_size",
    "n_lstm_layers": "n_layers",
    "shared_lstm": "shared",
    "enable_critic_lstm": "enable_critic",
}
NOISE_TYPES = {"normal": "normal", "ornstein-uhlenbeck": "ou"}
# Of a file with its anchors expanded; rl_zoo3's largest has some thousand.
_MOST_VALUES = 1_000_000
_KINDS = ("Mlp", "Cnn", "MultiInput")
AUTOMATIC_POLICIES = {f"{kind}{lstm}Policy" for kind in _KINDS for lstm in ("", "Lstm")}
# conf/algo adds exploration noise to these two; rl_zoo3 does not unless told to.
NOISY_BY_DEFAULT = ("ddpg", "td3")
# Arguments of HerReplayBuffer in Stable-Baselines3 1.
FORMER_HER = {"online_sampling", "max_episode_length"}
# rl_zoo3 keys that describe its own machinery and have no counterpart here.
UNSUPPORTED = {
    "callback": "add your own callback with callbacks=[...]",
    "vec_env_wrapper": "vectorized wrappers cannot be configured; frame_stack and normalize can",
    "monitor_kwargs": "the Monitor is set up by the run",
    "rollout_buffer_class": "the rollout buffer is chosen from the observation space",
}


@dataclass(frozen=True)
class ConvertedEntry:
    """One entry in the terms of this project."""

    values: dict[str, Any]  # Nested values of a tuned file, in the order in which they are written
    warnings: list[str]  # What could not be expressed, one sentence each


def read_zoo_file(path: Path) -> dict[str, Any]:
    """Read an rl_zoo3 hyperparameter file; anchors and merge keys are resolved.

    Args:
        path: A YAML file whose top level maps environment ids to entries, or a Python file that
            assigns such a dictionary to `hyperparams`; the source of its entries stays text.

    Raises:
        ConfigError: The file cannot be read, names Python objects, or is no such mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = _entries_of(text) if path.suffix == ".py" else yaml.load(text, _Loader)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Check the path.") from error
    except (yaml.YAMLError, ValueError, TypeError, SyntaxError, RecursionError) as error:
        if path.suffix == ".py":
            raise ConfigError(f"{path}: {error}. Its code is not run.") from error
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{path} is not plain YAML: {reason}. Tags that build Python objects are refused."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path} is not a mapping of names to values.")
    try:
        if _size(content, {}) > _MOST_VALUES:
            limit = f"more than {_MOST_VALUES:,} values"
            raise ConfigError(f"{path}: its YAML anchors expand to {limit}.")
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply.") from None
    return content


def _entries_of(text: str) -> dict[str, str]:
    """Return the source of each entry of a Python file, by environment id; nothing is run.

    Raises:
        ValueError: There is no `hyperparams = {...}`, or a key of it is not a text.
    """
    entries: dict[str, str] = {}
    is_found, pairs = False, list[tuple[ast.expr | None, ast.expr]]()
    for node in ast.parse(text).body:
        match node:
            case ast.Assign([ast.Name("hyperparams")], ast.Dict(keys, values)):
                is_found, pairs = True, list(zip(keys, values, strict=True))
            case ast.Assign([ast.Subscript(ast.Name("hyperparams"), index)], entry):
                pairs = [(index, entry)]
            case _:
                continue
        for key, value in pairs:
            match key:
                case ast.Constant(str() as name):
                    entries[name] = ast.unparse(value)
                case _:
                    shown = "**" if key is None else ast.unparse(key)
                    raise ValueError(f"the key {shown} of hyperparams is not a text")
    if not is_found:
        raise ValueError("it does not assign a dictionary to hyperparams")
    return entries


def _size(value: object, known: dict[int, int]) -> int:
    """Return how many values it holds, those that YAML anchors repeat counted each time."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(value)]


class _Loader(yaml.SafeLoader):
    """Loader of plain YAML that reads a tuple as a list, and an ordered dictionary as a mapping."""


def _construct_tuple(loader: yaml.SafeLoader, node: Any) -> list[Any]:
    return loader.construct_sequence(node, deep=True)


def _construct_ordered(loader: yaml.SafeLoader, node: Any) -> dict[str, Any]:
    # The RL Zoo saves one beside its agents, as the call of its class with a list of pairs.
    return dict(*loader.construct_sequence(node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:python/tuple", _construct_tuple)
_Loader.add_constructor(
    "tag:yaml.org,2002:python/object/apply:collections.OrderedDict", _construct_ordered
)


def convert_entry(algorithm: str, entry: object) -> ConvertedEntry:
    """Convert one entry; keys that are no arguments of the algorithm are reported and left out.

    rl_zoo3 trains with one environment and without normalization by default, so
    `n_envs` and `normalize` are always written, and a missing noise of td3 and ddpg as null.

    Args:
        algorithm: The name in conf/algo, for example `ppo`.
        entry: The mapping under an environment id, or the text of a Python literal.

    Raises:
        ConfigError: A value is code, or the entry cannot be read as a whole.
    """
    if isinstance(entry, str):
        entry = parse_literal(entry)
    if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
        raise ConfigError("the entry is not a mapping of names to values.")
    if "model_class" in entry:
        raise ConfigError(
            f"model_class={entry['model_class']!r} is from before Stable-Baselines3 1.1, and "
            "rl_zoo3 no longer reads it. Write the entry with replay_buffer_class."
        )
    # YAML reads None as a text.
    rest = {k: None if isinstance(v, str) and v.strip() == "None" else v for k, v in entry.items()}
    warnings = list[str]()
    values: dict[str, Any] = {}
    if "n_timesteps" in rest:
        values["n_timesteps"] = _count("n_timesteps", rest.pop("n_timesteps"))
    values["n_envs"] = _count("n_envs", rest.pop("n_envs", 1))
    values["normalize"] = _normalize(rest.pop("normalize", None), warnings)
    sections = {
        "env": _env(rest, warnings),
        "network": _network(algorithm, rest, warnings),
        "algo": _algo(algorithm, rest, warnings),
    }
    hyperparams = sections["algo"].get("hyperparams", {})
    n_steps, batch_size = hyperparams.get("n_steps"), hyperparams.get("batch_size")
    if n_steps and batch_size and get_algorithm(algorithm).family is Family.ON_POLICY:
        rollout = n_steps * values["n_envs"]
        if batch_size > rollout:
            # A batch larger than a rollout is the whole rollout.
            hyperparams["batch_size"] = rollout
            warnings.append(
                f"batch_size {batch_size} is above one rollout (n_steps {n_steps} x n_envs "
                f"{values['n_envs']}): written as {rollout}, to the same effect"
            )
    values |= {name: sections[name] for name in ("env", "algo", "network") if sections[name]}
    return ConvertedEntry(values, warnings)


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
    wrappers = _wrappers(rest.pop("env_wrapper", None) or [], warnings)
    match wrappers:
        case [{"gymnasium.wrappers.TimeLimit": {"max_episode_steps": int() as steps}}, *others]:
            # Innermost, it is what env.time_limit asks of gymnasium.make.
            section["time_limit"], wrappers = steps, others
    if wrappers:
        section["wrappers"] = wrappers
    if (frame_stack := rest.pop("frame_stack", None)) is not None:
        section["frame_stack"] = _count("frame_stack", frame_stack)
    if kwargs := plain_mapping("env_kwargs", rest.pop("env_kwargs", None)):
        section["kwargs"] = kwargs
    return section


def _wrappers(value: object, warnings: list[str]) -> list[Any]:
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
            arguments = plain_mapping(path, kwargs)
            converted.append({name: arguments} if arguments else name)
    return converted


def _wrapper_name(path: str) -> str:
    """Return a wrapper's name in `env.wrappers`, or its dotted path."""
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
    arguments = read_mapping("policy_kwargs", rest.pop("policy_kwargs", None))
    for name, kind in CLASS_KEYS.items():
        given = arguments.get(name)
        if isinstance(given, str):
            arguments[name] = parse_symbol(given, kind)
        elif isinstance(given, Symbol) and given.kind == kind:
            arguments[name] = given.name
    match arguments.get("net_arch"):
        case [dict() as separate]:
            # [dict(pi=..., vf=...)] is the spelling from before Stable-Baselines3 1.8.
            arguments["net_arch"] = separate
        case [*layers] if any(isinstance(layer, dict) for layer in layers):
            raise ConfigError(
                f"net_arch={layers!r} shares layers between actor and critic, which "
                "Stable-Baselines3 dropped in 1.8. Write dict(pi=[...], vf=[...])."
            )
        case dict() as parts:
            arguments["net_arch"] = {name: parts[name] for name in parts if name in _NETWORK_PARTS}
            for part in sorted(parts.keys() - set(_NETWORK_PARTS)):
                text = f"policy_kwargs.net_arch.{part}={parts[part]!r}"
                warnings.append(f"{text}: Stable-Baselines3 ignores it.")
    plain = {name: plain_value(f"policy_kwargs.{name}", value) for name, value in arguments.items()}
    for name, ours in NETWORK_KEYS.items():
        if name in plain:
            section[ours] = plain.pop(name)
    if lstm := {ours: plain.pop(name) for name, ours in LSTM_KEYS.items() if name in plain}:
        section["lstm"] = lstm
    if plain:
        section["policy_kwargs"] = dict(sorted(plain.items()))
    return section


def _algo(algorithm: str, rest: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    if (noise := _action_noise(rest)) or algorithm in NOISY_BY_DEFAULT:
        section["action_noise"] = noise
    match rest.pop("replay_buffer_class", None):
        case None:
            pass
        case Symbol("replay_buffer", known_buffer):
            section["replay_buffer"] = known_buffer
        case replay_buffer:
            section["replay_buffer"] = parse_symbol(str(replay_buffer), "replay_buffer")
    for name in sorted(rest.keys() & UNSUPPORTED.keys()):
        warnings.append(f"{name}={rest.pop(name)!r}: {UNSUPPORTED[name]}.")
    episodes = rest.pop("n_episodes_rollout", 1)
    if rest.get("train_freq") == -1:
        # How Stable-Baselines3 1.0 wrote that updates wait for the end of an episode.
        rest["train_freq"] = [_count("n_episodes_rollout", episodes), "episode"]
    known = constructor_arguments(get_algorithm(algorithm).entry_point)
    hyperparams: dict[str, Any] = {}
    for name, value in sorted(rest.items()):
        if known is not None and (name not in known or name in MANAGED):
            warnings.append(f"{name}={value!r}: the algorithm has no such argument.")
        elif name.endswith("_kwargs"):
            hyperparams[name] = plain_mapping(name, value)
            for former in sorted(hyperparams[name].keys() & FORMER_HER):
                text = f"{former}={hyperparams[name].pop(former)!r}"
                warnings.append(f"{name}.{text}: Stable-Baselines3 2 has no such argument.")
        elif isinstance(value, str) and value.lstrip().startswith("lambda"):
            hyperparams[name] = plain_value(name, schedule_of_lambda(name, value))
        elif isinstance(value, str) and value.lstrip().startswith(("(", "[")):
            # Tuples such as (1, 'episode'), which YAML does not have.
            hyperparams[name] = plain_value(name, parse_literal(value))
        else:
            hyperparams[name] = plain_value(name, value)
            with contextlib.suppress(ValueError):
                # YAML reads `!!float 1e6` as a float where Stable-Baselines3 needs an int.
                hyperparams[name] = fit_type(hyperparams[name], (known or {}).get(name, ""))
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


def _count(name: str, value: object) -> int:
    number = plain_value(name, value)
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or number != int(number) or number < 1:
        raise ConfigError(f"{name}={value!r} is not a whole number of at least 1.")
    return int(number)
