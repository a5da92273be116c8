"""What a branch may change: what is read again from the configuration, and nothing that is stored.

A resume restores networks, optimizers, buffers and statistics. A key that shaped one of them would
be ignored, or would not fit, so it is refused. But layers may become wider, see `growth`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.compare import outcome_values
from rlzoo_plus.config.resolve import UNHASHED
from rlzoo_plus.config.schema import IN_PROCESS, RunConfig
from rlzoo_plus.errors import ConfigError

Changes = dict[str, tuple[Any, Any]]
ABSENT = "not set"
NET_ARCH = "network.net_arch"
_MAY = (
    *("n_timesteps", "env.kwargs", "env.time_limit", "env.solved_return", "env.max_return"),
    *("algo.hyperparams", "algo.action_noise", "eval", "stop", "freeze", "callbacks", "cost"),
    *("normalize.clip_observation", "normalize.clip_reward", "normalize.epsilon"),
    *("data.share", "exploration", "device", "num_threads", "fast", *UNHASHED),
)
# Of the constructor's arguments, what shapes a part that is restored.
_SHAPES = (
    *("buffer_size", "optimize_memory_usage", "replay_buffer_kwargs", "rollout_buffer_kwargs"),
    *("use_sde", "stats_window_size", "policy_kwargs", "policy"),
)
_WHY = {
    "seed": "the random generators are restored, so it would have no effect",
    "network": "the weights are those of the checkpoint's networks",
    "algo": "the checkpoint holds the parts of that algorithm",
    "normalize": "the policy was trained on observations and rewards as they were",
    "n_envs": "the checkpoint holds an episode of each environment",
    "env": "the weights and the episodes are of that environment and its wrappers",
    "init": "the run has begun already",
}
_LONGEST = 60


def changes_of(before: RunConfig, now: RunConfig) -> Changes:
    """Return the old and the new value of each key that decides the outcome and differs."""
    old, new = outcome_values(before), outcome_values(now)
    old["n_timesteps"], new["n_timesteps"] = before.n_timesteps, now.n_timesteps
    keys = [key for key in {**old, **new} if old.get(key, ABSENT) != new.get(key, ABSENT)]
    return {key: (old.get(key, ABSENT), new.get(key, ABSENT)) for key in keys}


def check_changes(changes: Changes, before: RunConfig, now: RunConfig) -> None:
    """Refuse what cannot change in the middle of a run.

    Raises:
        ConfigError: It names the first such key.
    """
    is_jax = get_algorithm(now.algo.name).backend == "jax"
    for key, (old, new) in changes.items():
        why = _why_not(key, old, new)
        if is_jax and key.startswith("algo."):
            why = "the state of an algorithm in JAX holds its hyperparameters"
        if why is not None:
            raise _refusal(key, old, new, why)
    for section in ("normalize", "cost"):
        old, new = getattr(before, section), getattr(now, section)
        if (old is None) != (new is None):
            raise _refusal(section, old, new, "its state is part of the checkpoint")
    if (before.eval.every_steps is None) != (now.eval.every_steps is None) and before.callbacks:
        values = before.eval.every_steps, now.eval.every_steps
        raise _refusal("eval.every_steps", *values, "the callbacks are restored by their position")
    if now.callbacks[: len(before.callbacks)] != before.callbacks:
        why = "the callbacks of the run are restored; more may be added behind them"
        raise _refusal("callbacks", before.callbacks, now.callbacks, why)


def may_change(key: str, old: Any, new: Any) -> bool:
    """Return whether a key may change from one value to another in the middle of a run."""
    return _why_not(key, old, new) is None


def _why_not(key: str, old: Any, new: Any) -> str | None:
    """Return why a key may not change, None if it may."""
    if key == "vec_env":
        return None if {old, new} <= {*IN_PROCESS, "subproc"} else _WHY["env"]
    name = key.removeprefix("algo.hyperparams.").split(".")[0].split("[")[0]
    if key.startswith("algo.hyperparams."):
        if name in _SHAPES:
            return "it shapes what the checkpoint holds"
        if name == "ent_coef" and any(isinstance(value, str) for value in (old, new)):
            return "a learned coefficient is restored; only a number may become another number"
        return None
    if any(key == part or key.startswith((f"{part}.", f"{part}[")) for part in _MAY):
        return None
    if key == NET_ARCH or key.startswith(f"{NET_ARCH}."):
        return None if is_wider(old, new) else "layers may become wider, and nothing else"
    section = key.split(".")[0].split("[")[0]
    return _WHY.get(section, "it is not among what a branch may change")


def is_wider(old: Any, new: Any) -> bool:
    """Return whether layers become wider and nothing else; what null means is not known here."""
    if None in (old, new):
        return True
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(is_wider(old[part], new[part]) for part in old)
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(a <= b for a, b in zip(old, new, strict=True))
    return False


def _refusal(key: str, old: Any, new: Any, why: str) -> ConfigError:
    was, wanted = printable(old, _LONGEST), printable(new, _LONGEST)
    return ConfigError(
        f"{key}={wanted}: cannot change in the middle of a run, where it is {was}: {why}. Leave it "
        "out, or begin a new run with these weights: train ... init_from=RUN."
    )
