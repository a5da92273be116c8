"""What a configuration imports that this project does not ship: of the user's own, or installed.

From someone else's run none of it is imported unless the user trusts it. Whatever opens a stored
configuration asks `own_code` first, whatever trains with one calls `import_packages`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ALGORITHMS, REGISTRIES
from rlzoo_plus.config.schema import EnvConfig, RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import Registry, import_user_module

# Packages of environments that conf/env names, and the extra that brings each.
EXTRAS = {"pybullet_envs_gymnasium": "bullet", "panda_gym": "panda"}
_SHIPPED_PACKAGES = (*EXTRAS, "robots")
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
# The kinds that a policy needs to act, and those that only training needs. A launcher starts jobs,
# it is no part of one.
_TO_ACT = ("algorithm", "policy", "features_extractor", "activation", "optimizer")
_TO_TRAIN = ("action_noise", "replay_buffer", "callback", "tracker")
_OUTSIDE = ("launcher",)


def own_code(config: RunConfig, use: Literal["train", "play", "act"] = "train") -> list[str]:
    """Return the packages and names of a configuration that import what is not ours.

    Args:
        config: A checked configuration; nothing of it is imported.
        use: What it is opened for: to train, to play its policy in its environment, or to let the
            policy act without one. An algorithm that is registered already needs no package.
    """
    packages = packages_of(config)
    if use == "act":
        names = [] if config.algo.name in ALGORITHMS else packages
        left_out = {registry.kind for registry in REGISTRIES}.difference(_TO_ACT)
    else:
        names = [*_packages(config.env), *packages]
        left_out = {*_OUTSIDE, *(_TO_TRAIN if use == "play" else ())}
    for registry in REGISTRIES:
        if registry.kind not in left_out:
            names += [name for name in _chosen(config, registry) if registry.is_own(name)]
    return list(dict.fromkeys(names))


def own_modules(config: RunConfig) -> list[str]:
    """Return the top-level modules that `own_code` stands for."""
    modules = {module: None for name in own_code(config) for module in _modules_of(name)}
    return [name.partition(".")[0].partition(":")[0] for name in modules]


def import_packages(config: RunConfig) -> None:
    """Import the packages that register algorithms, environments and the like.

    Raises:
        ConfigError: One cannot be imported.
    """
    for key, packages in (("packages", config.packages), ("algo.packages", config.algo.packages)):
        for name in packages:
            import_user_module(key, name)


def packages_of(config: RunConfig) -> list[str]:
    """Return what `import_packages` imports, which processes of environments need as well."""
    return [*config.packages, *config.algo.packages]


def _packages(spec: EnvConfig) -> list[str]:
    module, colon, _ = spec.id.partition(":")
    packages = [*spec.packages, *([module] if colon else [])]
    return [name for name in packages if name.split(".")[0] not in _SHIPPED_PACKAGES]


def _modules_of(name: str) -> Iterator[str]:
    found = [module for registry in REGISTRIES if (module := registry.installed_module(name))]
    yield from found or [name]


def _chosen(config: RunConfig, registry: Registry) -> list[str]:
    """Return the names at a registry's key: a text, or a list of texts and of `{name: {...}}`."""
    value: Any = config
    for part in registry.key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    entries: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
    names = [name for e in entries for name in (e if isinstance(e, Mapping) else [e])]
    return [name for name in names if isinstance(name, str)]


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
