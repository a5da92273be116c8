"""May a run go on with another configuration? What may change, and what decides the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.resolve import auto_evaluation_steps
from rlzoo_plus.config.schema import IN_PROCESS, RunConfig

# Changing these changes what is written or shown, not what is learned.
MAY_CHANGE = ("run_dir", "resume", "restart", "checkpoint", "log", "tracker", "report", "export")
_MAY_CHANGE_TOO = ("infra", "sweep")
_ABSENT = "not set"


def continued_config(before: RunConfig, now: RunConfig, where: str) -> RunConfig:
    """Return the configuration with which a run goes on.

    Args:
        before: The one it was started with.
        now: The one asked for.
        where: The run's directory, for the message.

    Raises:
        ConfigError: They differ in what decides the outcome; it names every such key.
    """
    if now.n_timesteps >= before.n_timesteps:
        now = _with_evaluations_of(before, now)
    changes = [
        (key, old, new)
        for key, old, new in _differences(before.model_dump(), now.model_dump())
        if not (_may_change(key) or _is_as_good(key, old, new))
    ]
    if changes:
        lines = "".join(f"\n  {key}: {old!r} there, {new!r} here" for key, old, new in changes)
        raise ConfigError(
            f"run_dir={where} holds a run with another configuration:{lines}\n"
            "Only n_timesteps (upwards), checkpoint.*, log.*, tracker and report.* may change. "
            "Use another run_dir, or restart=true to start anew and keep that run aside."
        )
    return now


def _may_change(key: str) -> bool:
    return key.split(".")[0] in (*MAY_CHANGE, *_MAY_CHANGE_TOO)


def _is_as_good(key: str, old: Any, new: Any) -> bool:
    if key == "vec_env":
        return old in IN_PROCESS and new in IN_PROCESS
    return key == "n_timesteps" and bool(new > old)


def _with_evaluations_of(before: RunConfig, now: RunConfig) -> RunConfig:
    """Keep the cadence that `auto` chose by a run's first length; it may be longer by now."""
    every, wanted = before.eval.every_steps, now.eval.every_steps
    is_automatic = wanted == auto_evaluation_steps(now)
    if not is_automatic or not isinstance(every, int) or every > auto_evaluation_steps(now):
        return now
    evaluation = now.eval.model_copy(update={"every_steps": every})
    return now.model_copy(update={"eval": evaluation})


def _differences(before: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(before.get(key, _ABSENT), now.get(key, _ABSENT), inner)
    elif before != now:
        yield path, before, now
