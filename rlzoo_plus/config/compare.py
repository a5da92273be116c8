"""Which settings decide the outcome of a run, and which may change when it is resumed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo_plus.artifacts.secrets import is_secret
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.resolve import UNHASHED, config_hash, outcome_data
from rlzoo_plus.config.schema import IN_PROCESS, RunConfig
from rlzoo_plus.errors import ConfigError

_ABSENT = "not set"
# The length is reported separately; hpo steers a search, not a run.
_COMPARED_ELSEWHERE = ("n_timesteps", "hpo")
# Texts below these keys may be secrets: only a hash is stored, which shows that one was changed.
_FREE_FORM = ("env.kwargs.", "curriculum[", "env.wrappers[", "callbacks[", "network.policy_kwargs.")
_HASHED = "sha256:"
_MOST_CHANGES = 8
ENGINE_KEY = "env.kwargs.engine"
# Where something is, whose content counts; and what changes no training.
_OF_A_PLACE = ("init.which", "eval.metrics", "data.path", "teacher.run", "teacher.which")


def continued_config(before: RunConfig, now: RunConfig, where: str) -> RunConfig:
    """Return the configuration with which a run is continued.

    Args:
        before: The one it was started with; it decides what is `auto` in `now.eval`.
        now: The one asked for.
        where: The run's directory, for the message.

    Raises:
        ConfigError: They differ in what decides the outcome; it names every such key.
    """
    if before.eval.every_steps is not None:
        keys = ("every_steps", "episodes", "n_envs")
        kept = {key: getattr(before.eval, key) for key in keys if getattr(now.eval, key) == "auto"}
        now = now.model_copy(update={"eval": now.eval.model_copy(update=kept)})
    changes = [
        (key, old, new)
        for key, old, new in _differences(before.model_dump(), now.model_dump())
        if not _may_change(key, old, new)
    ]
    if changes:
        lines = "".join(f"\n  {key}: {old!r} there, {new!r} here" for key, old, new in changes)
        raise ConfigError(
            f"run_dir={where} holds a run with another configuration:{lines}\n"
            "Only checkpoint.*, eval.metrics, log.*, tracker, store and report.* may change, and "
            "n_timesteps may grow. Use another run_dir, or restart=true for a new run, which moves "
            "that one aside."
        )
    return now


def outcome_values(config: RunConfig) -> dict[str, Any]:
    """Return what decides the outcome of a run by dotted key, as a checkpoint stores it.

    A text that may be a secret becomes a hash.
    """
    data = outcome_data(config)
    data = {key: value for key, value in data.items() if key not in _COMPARED_ELSEWHERE}
    if config.vec_env in IN_PROCESS:
        data["vec_env"] = IN_PROCESS[0]
    return {key: _stored(key, value) for key, value in _leaves(data)}


def differing_values(one: RunConfig, other: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Return both values of each setting that decides the outcome and differs, None for none.

    Values that may be secrets are hashes.
    """
    hashed = [outcome_values(config) for config in (one, other)]
    plain = [dict(_leaves(outcome_data(config))) for config in (one, other)]
    keys = [key for key in {**hashed[0], **hashed[1]} if hashed[0].get(key) != hashed[1].get(key)]

    def value(key: str, side: int) -> Any:
        is_hidden = is_secret(key, plain[side].get(key))
        return (hashed if is_hidden else plain)[side].get(key)

    return {key: (value(key, 0), value(key, 1)) for key in keys}


def changed_values(about: Mapping[str, Any], config: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Compare a checkpoint's configuration with the current one.

    Args:
        about: The checkpoint's manifest, which is untrusted.
        config: The run as it is continued.

    Returns:
        Old and new value of each key that decides the outcome and differs.
    """
    before = about.get("config")
    if isinstance(before, Mapping):
        found = list(_differences(before, outcome_values(config)))
        # A section that was added or removed is reported by its entries.
        # The engine of a run that named none is in the fingerprint; naming it changes nothing.
        found = [one for one in found if one[:2] != (ENGINE_KEY, _ABSENT)]
        keys = " ".join(key for key, _, _ in found)
        return {key: (old, new) for key, old, new in found if f" {key}." not in f" {keys}"}
    # Earlier versions stored the hash alone.
    length = about.get("n_timesteps", config.n_timesteps)
    now = config_hash(config.model_copy(update={"n_timesteps": length}))
    old_hash = about.get("config_hash", now)
    return {} if old_hash == now else {"the hash of the configuration": (old_hash, now)}


def describe_changes(changes: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return a text for each changed value, and one for those beyond the first few."""
    texts = []
    for key, values in list(changes.items())[:_MOST_CHANGES]:
        is_hashed = any(isinstance(value, str) and value.startswith(_HASHED) for value in values)
        change = "is another text" if is_hashed else f"was {values[0]}, is {values[1]}"
        texts.append(printable(f"{key} {change}"))
    beyond = len(changes) - _MOST_CHANGES
    return texts if beyond <= 0 else [*texts, f"{beyond} more settings differ"]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested data; a list of numbers counts as one value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(
        isinstance(item, (str, list, tuple, Mapping)) for item in value
    ):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    else:
        yield path, value


def _stored(key: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_stored(key, item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    # The name of a wrapper or callback is a whole entry, its arguments are below it.
    is_free = key.startswith(_FREE_FORM) and not key.endswith("]")
    if not isinstance(value, str) or not is_free:
        return value
    return _HASHED + hashlib.sha256(value.encode()).hexdigest()[:16]


def _may_change(key: str, old: Any, new: Any) -> bool:
    if key == "vec_env":
        return old in IN_PROCESS and new in IN_PROCESS
    if key == "n_timesteps":
        return bool(new > old)
    return key.split(".")[0] in UNHASHED or key in _OF_A_PLACE


def _differences(before: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(before.get(key, _ABSENT), now.get(key, _ABSENT), inner)
    elif before != now:
        yield path, before, now
