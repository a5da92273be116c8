"""What a configuration imports that this project does not ship, and whether it may.

Nothing of an untrusted run is imported without `--trust`. Whatever opens a stored configuration
asks `own_code` first, whatever trains with one calls `import_packages`, and every reader that
composes stored overrides passes `refuse_foreign`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ALGORITHMS, REGISTRIES
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.given import is_given, is_path
from rlzoo_plus.registry import Registry, import_user_module

# Packages of environments that conf/env names, and the extra that brings each.
EXTRAS = {
    **{"pybullet": "bullet", "pybullet_envs_gymnasium": "bullet"},
    **{"panda_gym": "panda", "ale_py": "atari", "pettingzoo": "pettingzoo", "mpe2": "pettingzoo"},
}
_SHIPPED_PACKAGES = (*EXTRAS, "robots")
_OVERRIDE = re.compile(r"[+~]{0,2}(?P<key>[A-Za-z_][\w./@]*)=(?P<value>.*)", re.DOTALL)
# A window without a display ends the process (render_mode); a build of Unity is a program.
_HARMLESS = re.compile(
    r"(algo\.(hyperparams\.[\w.]+|action_noise(\.[\w.]+)?|replay_buffer|name)"
    r"|env\.kwargs\.(?!(render_mode|executable|args)\b)[\w.]+"
    r"|env\.(id|frame_stack|time_limit|warmup_resets|max_return|solved_return)"
    r"|(network|normalize|cost|eval|stop|checkpoint|log|report|export)\.[\w.]+"
    r"|algo|env|network|tuned|n_envs|vec_env|normalize|cost|n_timesteps|seed|device|num_threads)"
)
# Hydra groups whose value names a file.
_GROUPS = ("algo", "env", "network", "tuned")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][\w-]*(/[A-Za-z0-9_][\w-]*)*")
_NAME = re.compile(r"\b[^\W\d][\w.]*")
# Other words of values that name shipped objects, e.g. algo.action_noise={type: ou, std: 0.1}.
_NO_NAMES = ("null", "type", "std", "theta", "dt")
# Kinds of objects that a policy needs to act, and those that only training needs.
_TO_ACT = ("algorithm", "policy", "features_extractor", "activation", "optimizer")
_TO_TRAIN = ("action_noise", "replay_buffer", "callback", "tracker")
_ANY_PATH = re.compile(r"\b[^\W\d]\w*\.[^\W\d]")
Use = Literal["train", "play", "act"]


def own_code(config: RunConfig, use: Use = "train") -> list[str]:
    """Return what in a configuration runs code of the user: what it imports, and an interpreter.

    Args:
        config: A checked configuration; nothing of it is imported.
        use: What it is opened for: to train, to play its policy in its environment, or to let the
            policy act without one. An algorithm that is registered already needs no package.
    """
    names = (name for name, _ in named_modules(config, use))
    return list(dict.fromkeys([*interpreters_of(config, use), *names]))


def interpreters_of(config: RunConfig, use: Use = "train") -> list[str]:
    """Return the interpreter that a configuration starts; no trust file can cover it."""
    return [config.env.python] if use != "act" and config.env.python is not None else []


def named_modules(config: RunConfig, use: Use = "train") -> list[tuple[str, str]]:
    """Return each name that `own_code` returns, with the module that it imports."""
    names = packages_of(config)
    if use == "act":
        names = [] if config.algo.name in ALGORITHMS else names
    else:
        module = env_module(config.env.id)
        packages = [*config.env.packages, *([module] if module else [])]
        packages = [] if config.env.python else packages
        names = [*(n for n in packages if n.split(".")[0] not in _SHIPPED_PACKAGES), *names]
        if use == "train":
            names += [path.rpartition(".")[0] for path in functions_of(config)]
    of_classes = [(name, registry.module_of(name)) for registry, name in _own_classes(config, use)]
    return list(dict.fromkeys([*((name, name) for name in names), *of_classes]))


def env_module(env_id: str) -> str:
    """Return the module that an id such as `my_env:PointEnv` or `my_env.PointEnv` imports."""
    module, colon, _ = env_id.partition(":")
    if colon:
        return module
    return env_id.rpartition(".")[0] if is_path(env_id) else ""


def functions_of(config: RunConfig) -> list[str]:
    """Return the dotted paths of the functions that are schedules."""
    spec = ALGORITHMS.get(config.algo.name)
    values = [config.algo.hyperparams.get(key) for key in getattr(spec, "schedules", ())]
    return [value for value in values if isinstance(value, str) and is_path(value)]


def own_modules(config: RunConfig) -> list[str]:
    """Return the top-level modules of what `own_code` returns."""
    return list(dict.fromkeys(module.partition(".")[0] for _, module in named_modules(config)))


def import_own_classes(config: RunConfig, use: Use) -> dict[str, type]:
    """Import the classes of the user that a configuration names; return them by these names.

    Raises:
        ConfigError: One cannot be imported, or is of another kind.
    """
    return {name: registry.load(name) for registry, name in _own_classes(config, use)}


def _own_classes(config: RunConfig, use: Use) -> list[tuple[Registry, str]]:
    """Return the names of classes that are not shipped, each with the registry that loads it."""
    kinds = {registry.kind for registry in REGISTRIES}
    # A launcher starts jobs and is no part of one.
    kinds -= {"launcher", *(_TO_TRAIN if use == "play" else ())}
    if use == "act":
        kinds = set(_TO_ACT)
    of_use = [registry for registry in REGISTRIES if registry.kind in kinds]
    return [
        (registry, name)
        for registry in of_use
        for name in chosen_names(config, registry)
        if registry.is_own(name) and not is_given(name)
    ]


def import_packages(config: RunConfig) -> None:
    """Import the packages that register algorithms, environments and the like.

    Raises:
        ConfigError: One cannot be imported.
    """
    for key, packages in (("packages", config.packages), ("algo.packages", config.algo.packages)):
        for name in packages:
            import_user_module(key, name)


def packages_of(config: RunConfig) -> list[str]:
    """Return what `import_packages` imports; processes of environments need it as well."""
    return [*config.packages, *config.algo.packages]


def chosen_names(config: RunConfig, registry: Registry) -> list[str]:
    """Return the names at a registry's key: a text, or a list of texts and of `{name: {...}}`."""
    value: Any = config
    for part in registry.key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    entries: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
    names = [name for e in entries for name in (e if isinstance(e, Mapping) else [e])]
    return [name for name in names if isinstance(name, str)]


class UntrustedError(ConfigError):
    """A file may run code, and its user has not passed `--trust`."""


def refuse_foreign(
    overrides: Iterable[str], where: str, *, trust: bool, own: Collection[str] = ()
) -> None:
    """Refuse overrides that may import code or open a connection.

    Args:
        overrides: Overrides that were read from a file.
        where: What they belong to, for the message.
        trust: Accept all of them.
        own: Those that are also on the user's own command line.

    Raises:
        UntrustedError: It names them.
    """
    foreign = [text for text in overrides if text not in own and not is_harmless(text)]
    if foreign and not trust:
        raise UntrustedError(
            f"{where} may import code that is not ours: {printable(', '.join(foreign))}. If you "
            "know where the study comes from, add --trust."
        )


def is_harmless(override: str) -> bool:
    """Tell whether an override can do no more than choose a shipped name or a plain value."""
    match = _OVERRIDE.fullmatch(override)
    # Hydra removes backslashes: an interpolation need not look like one.
    if match is None or "$" in override or not _HARMLESS.fullmatch(match["key"]):
        return False
    key, value = match["key"], match["value"]
    if key in _GROUPS:
        return _PLAIN_NAME.fullmatch(value) is not None
    # Gymnasium imports the module before a colon, and its bridges the module of their argument.
    if key == "env.id" and (env_module(value.strip("'\"")) or "Environment" in value):
        return False
    # So are functions of the user that are schedules.
    if key.startswith("algo.hyperparams.") and _ANY_PATH.search(value):
        return False
    # At, above or below a key that chooses an object, only shipped names may be named.
    return all(
        name in registry or name in _NO_NAMES
        for registry in REGISTRIES
        if f"{key}.".startswith(f"{registry.key}.") or registry.key.startswith(f"{key}.")
        for name in _NAME.findall(value)
    )
