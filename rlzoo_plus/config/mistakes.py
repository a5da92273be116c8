"""What is wrong with a configuration, told by the keys that its user knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pydantic import ValidationError

from rlzoo_plus.config.catalog import ALGORITHMS, get_algorithm
from rlzoo_plus.config.schema import PluginSection, RunConfig
from rlzoo_plus.config.section import Section
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments
from rlzoo_plus.errors import HELP, ConfigError, unknown_name
from rlzoo_plus.synonyms import key_meant

_MOST_MISSING = 2
_NAMED = "must be a list of {0}, and {{{1}: {{argument: value}}}} for one with arguments"
# For values of several types, where pydantic's text about each type alone would mislead.
RULES = {
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
    "env.groups": "must be names of groups with patterns of their agents, "
    "{adversary: [adversary_*], good: [agent_*]}, or null",
    "callbacks": _NAMED.format("dotted paths", "path"),
    "profile": "must be true, false or torch",
    "cost": "must be a mapping, {limit: 10}, or null",
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


@contextmanager
def as_config_error(data: Mapping[str, Any], *section: str) -> Iterator[None]:
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
        if section == "hpo":
            given = ", ".join(f"hpo.{name}" for name in list(data["hpo"])[:_MOST_MISSING])
            return [
                f"{given}: no study is chosen. Add hpo=ALGORITHM, for example: train -m hpo=ppo."
            ]
        lines.append(
            f"{section} leaves out {', '.join(missing[:_MOST_MISSING])} and "
            f"{len(missing) - _MOST_MISSING} more. Change single keys, and leave the others."
        )
    return list(dict.fromkeys(lines))


def _describe(item: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    # Without pydantic's names for the branches of a union.
    branches = ("int", "str", "float", "bool")
    path = [str(p) for p in item["loc"] if not (isinstance(p, str) and ("[" in p or p in branches))]
    key = ".".join(path)
    if item["type"] == "extra_forbidden":
        prefix = "".join(f"{part}." for part in path[:-1])
        known = [prefix + name for name in _fields_at(path[:-1], data)]
        if any(part.isdigit() for part in path):  # It is in a list, so no key by itself.
            return unknown_name("configuration key", key, known, HELP)
        # A section that does not exist was made for the keys below it.
        inside = item["input"] if isinstance(item["input"], Mapping) else {}
        typed = f"{key}.{next(iter(inside))}" if len(inside) == 1 else key
        return unknown_name("configuration key", typed, known, HELP, meant_key(typed, data))
    if item["type"] == "missing":
        return f"{key} is not set. Add it: {key}=..."
    whole = next((k for k in RULES if f"{key}.".startswith(f"{k}.")), None)
    if whole is not None:
        return f"{whole}={shown(_value_at(data, whole))}: {RULES[whole]}."
    expected = item.get("ctx", {}).get("expected")
    rule = f"must be {expected}" if expected else item["msg"]
    rule = rule.removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{key}={shown(item['input'])}: {rule}."


def _value_at(data: Mapping[str, Any], key: str) -> Any:
    value: Any = data
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
    is_plain = not isinstance(value, (dict, list)) and str(value).isprintable()
    text = str(value) if is_plain else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def meant_key(name: str, data: Mapping[str, Any]) -> str | None:
    """Return the full path of the key that a wrong one stands for, None if nothing is near."""
    keys = [*keys_below(RunConfig)]
    chosen = _value_at(data, "algo.name")
    specs = [get_algorithm(chosen)] if chosen in ALGORITHMS else [*ALGORITHMS.values()]
    for spec in specs:
        # Of one that is not installed, the names are not known.
        with suppress(ConfigError):
            settable = (constructor_arguments(spec.entry_point) or {}).keys() - MANAGED.keys()
            keys += [f"algo.hyperparams.{argument}" for argument in sorted(settable)]
    return key_meant(name, keys)


def keys_below(model: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a section, and of the sections in it."""
    sections = model.sections()
    for name in model.model_fields:
        yield prefix + name
        if name in sections:
            yield from keys_below(sections[name], f"{prefix}{name}.")


def _fields_at(path: Sequence[str], data: Mapping[str, Any]) -> list[str]:
    model: type[Section] = RunConfig
    for part in path:
        if part.isdigit():
            continue  # of a list of sections
        if part not in model.sections():
            return []
        model = model.sections()[part]
    if issubclass(model, PluginSection):
        return model.keys_of(_value_at(data, ".".join([*path, "name"])))
    return list(model.model_fields)
