"""The constructor arguments of an algorithm, read from its source without importing it.

Importing Stable-Baselines3 means importing torch, about a second; a typing mistake should be
answered faster than that. Parsing the installed file gives the same names.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from rlzoo_plus.config.errors import ConfigError

MANAGED: dict[str, str] = {
    "policy": "the network kind is chosen from the observation space, or set network.policy",
    "env": "use env=...",
    "policy_kwargs": "use network.<key>, or network.policy_kwargs.<key>",
    "seed": "use seed=...",
    "device": "use device=...",
    "verbose": "use log.sb3=true for the tables of Stable-Baselines3",
    "tensorboard_log": "use log.tensorboard=true",
    "action_noise": "use algo.action_noise={type: normal, std: 0.1}",
    "replay_buffer_class": "use algo.replay_buffer=her|nstep|default",
    "rollout_buffer_class": "it is chosen from the observation space",
    "_init_setup_model": "the manager sets it",
}


@lru_cache(maxsize=64)
def constructor_arguments(entry_point: str) -> frozenset[str] | None:
    """Return the names of a class's constructor arguments, without `self`.

    Args:
        entry_point: `package.module:Class`.

    Returns:
        The names, or None when they cannot be known from the source (`**kwargs`, no `__init__`
        of its own): then the check is left to the constructor itself.

    Raises:
        ConfigError: There is no such module or class.
    """
    module, class_name = entry_point.split(":")
    source = _source_of(module)
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return _arguments_of(node)
    raise ConfigError(f"{entry_point}: {source.name} has no class {class_name}.")


def _source_of(module: str) -> Path:
    root, *rest = module.split(".")
    spec = find_spec(root)
    if spec is None:
        raise ConfigError(f"the package {root!r} is not installed. Run: pip install {root}")
    if not spec.submodule_search_locations:
        return Path(str(spec.origin))
    path = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    raise ConfigError(f"there is no module {module!r} in {root}.")


def _arguments_of(node: ast.ClassDef) -> frozenset[str] | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            if item.args.kwarg is not None:
                return None
            names = [a.arg for a in (*item.args.posonlyargs, *item.args.args)]
            return frozenset(names[1:]) | {a.arg for a in item.args.kwonlyargs}
    return None
