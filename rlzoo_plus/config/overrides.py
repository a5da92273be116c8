"""What a command line says: its options and overrides, what Hydra gets of them, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.conf_keys import GROUPS
from rlzoo_plus.config.mistakes import meant_key
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import config_dirs, group_options, read_mapping
from rlzoo_plus.errors import ConfigError, closest
from rlzoo_plus.synonyms import as_overrides

# Not an option of Hydra: whether code that a stored study names may be imported.
TRUST = "--trust"
_OPTIONS_WITH_VALUE = (
    *("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn"),
    *("--cfg", "-c", "--package", "-p", "--experimental-rerun"),
)
_OPTIONS = (
    *(*_OPTIONS_WITH_VALUE, TRUST, "--help", "-h", "--hydra-help", "--version", "--resolve"),
    *("--run", "-r", "--multirun", "-m", "--shell-completion", "--shell_completion", "-sc"),
    *("--info", "-i"),
)
# What Hydra's `-i` may be followed by; anything else is a trained agent of rl_zoo3.
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
# Keys whose value replaces the one before; Hydra would merge mappings, and fail on a list.
_REPLACED = ("network.net_arch", "hpo.objectives")
# Hydra's keys for directories: the value in conf/config.yaml, and what to use instead of the key.
_PLACES = {
    "hydra.run.dir": (".", "run_dir=DIRECTORY"),
    "hydra.sweep.dir": ("outputs/sweeps", "sweep=NAME, or sweep=PATH"),
    "hydra.sweep.subdir": (".", "sweep=NAME: its jobs are named by their content"),
    "hydra.job.chdir": ("False", "run_dir=DIRECTORY: the working directory stays yours"),
}
_ASSIGNMENT = re.compile(r"(?P<prefix>[+~]*)(?P<key>[A-Za-z_][\w./@:]*)=(?P<value>.*)", re.DOTALL)
_GLOB = re.compile(r"(?<==)glob\((?P<arguments>[^()]*)\)$")
# Of Gymnasium, or of a class that can be imported.
ENVIRONMENT_ID = re.compile(r"[A-Za-z_][\w/-]*(?:-v\d+|[.:][\w./:-]+)", re.ASCII)
_PLAIN_TEXT = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_NAMES = {"env": "env='cartpole', or an id as env={'id': 'CartPole-v1'}", "algo": "algo='ppo'"}
# Hydra reads these as other values.
_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "null", "none", "nan", "inf")


def partition(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate options and their values from overrides, which Hydra's parser expects together."""
    options, rest = apart(arguments)
    foreign = [word for word in rest if word.startswith("-")]
    return [*options, *foreign], [word for word in rest if not word.startswith("-")]


def apart(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate Hydra's options, with their values, from all else."""
    ours, theirs, rest = list[str](), list[str](), list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        is_agent = name == "-i" and bool(rest) and rest[0] not in _INFO
        if name not in _OPTIONS or is_agent:
            theirs.append(word)
            continue
        ours.append(word)
        takes_value = name in _OPTIONS_WITH_VALUE and not equals
        if rest and (takes_value or (name in ("-i", "--info") and rest[0] in _INFO)):
            ours.append(rest.pop(0))
    return ours, theirs


def config_options(arguments: Sequence[str]) -> list[str]:
    """Return the options for directories of configuration files."""
    options, _ = partition(arguments)
    kept = []
    for position, option in enumerate(options):
        name, equals, _ = option.partition("=")
        if name in ("--config-dir", "-cd"):
            kept += [option] if equals else options[position : position + 2]
    return kept


def typed_values(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of a command line by their keys, in their order, without prefixes."""
    return {m["key"]: m["value"] for m in map(_ASSIGNMENT.fullmatch, arguments) if m}


def prepare_overrides(arguments: Sequence[str]) -> list[str]:
    """Rewrite the command line so that Hydra does what its user means.

    `env.id=X` alone chooses the shipped environment file with that id, or the neutral one, so
    that no setting of the default environment is used for X; `env=X` with the id of an environment
    means the same. Dotted keys may be new or replace a value of another type; whether they exist
    is checked afterwards, with did-you-mean.
    """
    options, overrides = partition(arguments)
    files = group_options("env", config_dirs(arguments))
    overrides = [_id_of_environment(argument, files) for argument in overrides]
    # Two keys below it may be set, too.
    overrides = [re.sub(r"^(data|reward_model)=(?!\{|null$)", r"\1.path=", w) for w in overrides]
    overrides = [re.sub(r"^teacher=(?!\{|null$)", "teacher.run=", text) for text in overrides]
    overrides = [re.sub(r"^exploration=(?!\{)", "exploration.kind=", text) for text in overrides]
    keys, prepared = typed_values(overrides), []
    if "env.id" in keys and "env" not in keys:
        wanted = keys["env.id"].strip("'\"")
        paths = (p for d in config_dirs(arguments) for p in sorted((d / "env").glob("*.yaml")))
        data = ((p.stem, read_mapping(p, with_text=wanted)) for p in paths)
        prepared.append(f"env={next((n for n, env in data if env.get('id') == wanted), 'gym')}")
    for argument in overrides:
        match = _ASSIGNMENT.fullmatch(argument)
        key = "" if match is None or match["prefix"] else match["key"]
        if "." not in key or re.match(r"hydra[./]", key) or "/" in key or "@" in key:
            prepared.append(_GLOB.sub(_glob_of_choices, argument))
            continue
        if key in _REPLACED:
            prepared.append(f"++{key}=null")
        prepared.append(f"++{argument}")
    return [*(option for option in options if option != TRUST), *prepared]


def _id_of_environment(argument: str, files: Sequence[str]) -> str:
    """Return `env=CartPole-v1` as `env.id=CartPole-v1`; other arguments as they are."""
    key, _, value = argument.partition("=")
    names = [name.strip() for name in value.split(",")]
    is_id = key == "env" and all(ENVIRONMENT_ID.fullmatch(name) for name in names)
    return f"env.id={value}" if is_id and not set(names) & set(files) else argument


def _glob_of_choices(found: re.Match[str]) -> str:
    """Exclude files that others build on, such as env/_base.yaml, from a glob."""
    include, comma, exclude = (found["arguments"] or "").partition("exclude=")
    if not comma:
        return f"glob({include}, exclude=_*)"
    names = exclude.strip().removeprefix("[").removesuffix("]")
    return f"glob({include}exclude=[{names},_*])"


def check_overrides(arguments: Sequence[str]) -> None:
    """Check the arguments of a call from Python, which has no options but those for directories.

    Raises:
        ConfigError: The text names what to write instead.
    """
    known = (*config_options(arguments), TRUST)
    if other := [option for option in partition(arguments)[0] if option not in known]:
        raise ConfigError(f"{other[0]}: an override is written key=value, e.g. seed=3.")
    check_arguments(arguments)


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse what Hydra would ignore, print its usage for, or write to a file.

    Raises:
        ConfigError: The text names what to write instead.
    """
    typed = typed_values(arguments)
    _refuse_options(arguments)
    for group in GROUPS:
        value = typed.get(group, "")
        if value.startswith("[") or value.replace(".", "").isdigit():
            instead = f" Write network.net_arch={value}." if group == "network" else ""
            raise ConfigError(f"{group}={value}: {group} takes the name of a file.{instead}")
    name = typed.get("algo.name")
    if name in ALGORITHMS and "algo" not in typed:
        raise ConfigError(f"algo.name={name} keeps another's hyperparameters. Write algo={name}.")
    refuse_places(typed)
    # Checked before Hydra writes the command line of a sweep.
    refuse_secrets(typed, composed=False)


def refuse_places(settings: Mapping[str, Any]) -> None:
    """Refuse Hydra's own keys for directories, which would be ignored, with other values than ours.

    Raises:
        ConfigError: The text says what to use instead.
    """
    for key, (ours, instead) in _PLACES.items():
        if str(settings.get(key, ours)).lower() != ours.lower():
            raise ConfigError(f"{key}={settings[key]} places nothing here. Use {instead}.")


def _refuse_options(arguments: Sequence[str]) -> None:
    """Refuse options that are none here; those of other programs are translated."""
    options = [word.partition("=")[0] for word in partition(arguments)[0] if word[0] == "-"]
    foreign = [name for name in options if not any(o.startswith(name) for o in _OPTIONS)]
    if not foreign:
        return
    overrides, unknown = as_overrides(
        apart(arguments)[1],
        lambda name: name if name in RunConfig.model_fields else meant_key(name, {}),
        group_options("env", config_dirs(arguments)),
    )
    hint = closest(foreign[0], _OPTIONS) if unknown else None
    instead = f"Did you mean {hint!r}? " if hint else ""
    instead += f"Write {' '.join(overrides)}." if overrides else "Leave it out, or see --help."
    raise ConfigError(
        f"{', '.join(foreign)}: no option of this command; settings are key=value. {instead}"
    )


def as_arguments(
    overrides: Iterable[str], config_dir: str | Path | None, values: Mapping[str, Any]
) -> list[str]:
    """Return overrides and keyword arguments as the arguments of a command line.

    Raises:
        ConfigError: An override is no text, a value cannot be written, or there is no such folder.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"{overrides}: give a list of overrides, e.g. [{overrides!r}].")
    arguments = list(overrides)
    for argument in arguments:
        if not isinstance(argument, str) or argument.startswith("-"):
            raise ConfigError(f"{argument!r}: an override is a text like 'algo=sac'.")
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(f"config_dir={config_dir}: no such directory.")
    options = [] if config_dir is None else ["--config-dir", str(config_dir)]
    return [*options, *arguments, *_assignments(values)]


def _assignments(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value and f"{prefix}{key}" not in _REPLACED:
            yield from _assignments(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_as_text(value, prefix + key)}"


def _as_text(value: Any, key: str) -> str:
    """Return a value in the syntax of Hydra's command line."""
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        # A NumPy scalar.
        value = value.item()
    if value is None or isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, (str, Path)):
        text = str(value)
        if _PLAIN_TEXT.fullmatch(text) and text.lower() not in _NO_TEXTS:
            return text
        # A backslash needs escaping only before a quote.
        quoted = re.sub(r"(\\*)'", r"\1\1\\'", text)
        return "'" + re.sub(r"(\\+)$", r"\1\1", quoted) + "'"
    if isinstance(value, Mapping):
        items = (f"{name}: {_as_text(item, key)}" for name, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_as_text(item, key) for item in value) + "]"
    given = "a class" if isinstance(value, type) else f"an object of {type(value).__name__}"
    if key in _NAMES:
        raise ConfigError(f"{key} expects a name, e.g. {_NAMES[key]}, not {given}.")
    raise ConfigError(f"{key} expects a number, a text, a list, a dictionary or None, not {given}.")
