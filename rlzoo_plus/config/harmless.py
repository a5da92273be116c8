"""What overrides from a file may say without trust: nothing here imports, runs or reaches anything.

The words of a trial are stored where anybody may have written them. Every reader that composes
them passes `refuse_foreign`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import REGISTRIES
from rlzoo_plus.errors import ConfigError

_OVERRIDE = re.compile(r"[+~]{0,2}(?P<key>[A-Za-z_][\w./@]*)=(?P<value>.*)", re.DOTALL)
_HARMLESS = re.compile(
    r"(algo\.(hyperparams\.[\w.]+|action_noise(\.[\w.]+)?|replay_buffer|name)"
    r"|env\.(id|kwargs\.[\w.]+|frame_stack|time_limit|warmup_resets|max_return|solved_return)"
    r"|(network|normalize|eval|stop|checkpoint|log|report|export)\.[\w.]+"
    r"|algo|env|network|tuned|n_envs|vec_env|normalize|n_timesteps|seed|device|num_threads)"
)
_NAME = re.compile(r"\b[^\W\d][\w.]*")
# What else a value may say that names objects of ours, e.g. algo.action_noise={type: ou, std: 0.1}.
_NO_NAMES = ("null", "type", "std", "theta", "dt")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][\w-]*(/[A-Za-z0-9_][\w-]*)*")
_GROUPS = ("algo", "env", "network", "tuned")
# A window without a display ends the process.
_NEVER_HARMLESS = ("env.kwargs.render_mode",)


class UntrustedError(ConfigError):
    """What a file says may run code, and its user has not said that it is to be trusted."""


def refuse_foreign(
    words: Iterable[str], where: str, *, trust: bool, own: Collection[str] = ()
) -> None:
    """Refuse overrides that may import code or reach something.

    Args:
        words: Overrides that were read from a file.
        where: What they belong to, for the message.
        trust: Let all of them pass.
        own: Those that the user's own command line gives as well.

    Raises:
        UntrustedError: It names them.
    """
    foreign = [word for word in words if word not in own and not is_harmless(word)]
    if foreign and not trust:
        raise UntrustedError(
            f"{where} may import code that is not ours: {printable(', '.join(foreign))}. If you "
            "know where the study comes from, add --trust."
        )


def is_harmless(word: str) -> bool:
    """Tell whether an override can do no more than choose a shipped name or a plain value."""
    match = _OVERRIDE.fullmatch(word)
    # Hydra takes backslashes away: an interpolation need not look like one.
    if match is None or "$" in word or not _HARMLESS.fullmatch(match["key"]):
        return False
    if match["key"] in _NEVER_HARMLESS:
        return False
    if match["key"] in _GROUPS and not _PLAIN_NAME.fullmatch(match["value"]):
        return False
    if match["key"] not in _GROUPS and _asks_for_own_code(match["key"], match["value"]):
        return False
    # Gymnasium imports the module before a colon, and its bridges the module of their argument.
    is_id = match["key"] == "env.id"
    return not (is_id and (":" in match["value"] or "Environment" in match["value"]))


def _asks_for_own_code(key: str, value: str) -> bool:
    """Tell whether a value at, above or below a key that chooses an object names none of ours."""
    return any(
        word not in registry and word not in _NO_NAMES
        for registry in REGISTRIES
        if f"{key}.".startswith(f"{registry.key}.") or registry.key.startswith(f"{key}.")
        for word in _NAME.findall(value)
    )
