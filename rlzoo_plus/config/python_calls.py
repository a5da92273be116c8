"""Calls from Python as arguments of a command line: objects, positions, and names of SB3."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.config.catalog import ALGORITHMS, REGISTRIES, get_algorithm
from rlzoo_plus.config.conf_keys import GROUPS
from rlzoo_plus.config.overrides import ENVIRONMENT_ID, as_arguments, typed_values
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import config_dirs, group_options
from rlzoo_plus.config.signatures import constructor_arguments
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.given import PREFIX, give_again, given, import_path, name_object, names_in
from rlzoo_plus.registry import Registry

_OF_KEY = {registry.key: registry for registry in REGISTRIES}
_LISTS = ("callbacks", "env.wrappers", "eval.metrics")
# A resumed run takes objects at these; they are never values that change.
_OBJECT_KEYS = ("env", "env.id", "env.name", *_LISTS)
# Names of Stable-Baselines3 that are not those of our keys.
_SB3_NAMES = {
    **{"total_timesteps": "n_timesteps", "callback": "callbacks", "policy": "network.policy"},
    **{"action_noise": "algo.action_noise", "replay_buffer_class": "algo.replay_buffer"},
    **{"wrapper_class": "env.wrappers", "env_kwargs": "env.kwargs", "vec_env_cls": "vec_env"},
    **{"wrappers": "env.wrappers", "metrics": "eval.metrics", "log_interval": "log.interval"},
    "progress_bar": "log.progress",
}
_POLICY_NAMES = {
    **{"activation_fn": "activation", "optimizer_class": "optimizer"},
    "features_extractor_class": "features_extractor",
}
_LAYERS = {"pi": "actor", "vf": "critic", "qf": "critic"}
_POLICIES = {"MlpPolicy": "mlp", "CnnPolicy": "cnn", "MultiInputPolicy": "multi_input"}
_POLICIES |= {f"{n.removesuffix('Policy')}LstmPolicy": kind for n, kind in _POLICIES.items()}
_VEC_ENVS = {"DummyVecEnv": "dummy", "SubprocVecEnv": "subproc"}


def call_arguments(
    overrides: Iterable[Any],
    config_dir: str | Path | None,
    values: Mapping[str, Any],
    *,
    here: bool = True,
) -> list[str]:
    """Return the arguments of a call from Python as those of a command line.

    Args:
        overrides: Texts as on the command line; an algorithm and an environment may stand first.
        config_dir: A folder like conf/.
        values: Values by key, with dots or nested, or by the names of Stable-Baselines3.
        here: Whether the call trains in this process; others can only import objects.

    Raises:
        ConfigError: A value is of a kind that its key does not take.
    """
    if isinstance(overrides, str):
        return as_arguments(overrides, config_dir, {})
    words, named, placed = [], dict[str, Any](), list[Any]()
    for word in overrides:
        if isinstance(word, str) and ("=" in word or word.startswith(("-", "~"))):
            words.append(word)
            continue
        if isinstance(word, (int, float)) or word is None:
            raise ConfigError(f"{word!r}: an override is a text like 'algo=sac'.")
        placed.append(word)
    known = [w for w in placed if (w in ALGORITHMS if isinstance(w, str) else _is_algorithm(w))]
    # Of two unknown words the first is meant for the algorithm.
    algos = known or placed[:-1]
    for word in placed:
        key = "algo" if any(word is algo for algo in algos) else "env"
        if key in named:
            raise ConfigError(f"{word!r}: an override is a text like 'algo=sac'.")
        named[key] = word
    options = as_arguments(words, config_dir, {})
    for key in named:
        if key in values:
            raise ConfigError(f"{key} is given twice: {named[key]!r} and {values[key]!r}.")
    found = translated({**named, **values}, options)
    if not here and any(PREFIX in text for text in as_arguments((), None, found)):
        raise ConfigError(
            "Jobs of a sweep are processes of their own, and import what they use: define the "
            "class or function at the top level of a module, not in a script or a function."
        )
    return [*options, *as_arguments((), None, found)]


def translated(values: Mapping[str, Any], options: Iterable[str] = ()) -> dict[str, Any]:
    """Return values by dotted key, as plain data; `options` is the rest of the command line."""
    options = list(options)
    algo = values.get("algo", typed_values(options).get("algo", "ppo"))
    algo = _algorithm_name(algo) if _is_algorithm(algo) else algo
    named = algo if isinstance(algo, str) else "ppo"
    names: dict[str, str] = {}
    for name in values:
        if names.setdefault(key := _key_of(name, named), name) != name:
            raise ConfigError(f"{key} is given twice: as {names[key]} and as {name}.")
    found: dict[str, Any] = {}
    for key, value in _flat(values, named):
        if key == "env":
            found |= _environment(value, options)
        elif key == "algo" and not isinstance(value, (str, Mapping)):
            found[key] = _algorithm_name(value)
        elif key == "algo.action_noise" and not isinstance(value, (str, Mapping, type(None))):
            found |= _noise(value)
        else:
            found[key] = _plain(key, value)
    return found


def given_again(stored: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Let objects stand for those of a stored configuration; return the other values.

    Args:
        stored: The configuration, plain data.
        values: Values by dotted key, as `translated` returns them.

    Raises:
        ConfigError: The run was given none at a key, or another number of them.
    """
    rest = dict(values)
    for key, value in values.items():
        if key not in _OBJECT_KEYS and not any(names_in(value)):
            continue
        del rest[key]
        before: Any = stored
        for part in key.split("."):
            before = before.get(part) if isinstance(before, Mapping) else None
        if before == value or key in ("env", "env.name"):
            continue
        old, new = list(names_in(before)), list(names_in(value))
        if not new or len(old) != len(new):
            raise ConfigError(
                f"{key}: the run began with {before!r}, and {len(new)} objects cannot stand for "
                f"that. Leave out what can be imported, and pass {len(old)} in the same order."
            )
        for name, again in zip(old, new, strict=True):
            give_again(name, given(again, key))
    return rest


def _flat(values: Mapping[str, Any], algo: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values with dotted keys of ours."""
    for name, value in values.items():
        key = f"{prefix}{name}" if prefix else _key_of(name, algo)
        if key == "policy_kwargs":
            yield from _flat(_of_policy(value or {}), algo, "network.")
        elif key == "network.net_arch" and isinstance(value, Mapping):
            yield key, {_LAYERS.get(part, part): sizes for part, sizes in value.items()}
        elif isinstance(value, Mapping) and value:
            yield from _flat(value, algo, f"{key}.")
        else:
            yield key, value


def _key_of(name: str, algo: str) -> str:
    if name in RunConfig.model_fields or name in GROUPS or "." in name or name == "policy_kwargs":
        return name
    if name in _SB3_NAMES:
        return _SB3_NAMES[name]
    known = constructor_arguments(get_algorithm(algo).entry_point) if algo in ALGORITHMS else None
    return f"algo.hyperparams.{name}" if name in (known or ()) else name


def _of_policy(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return `policy_kwargs` of Stable-Baselines3 as keys of `network`."""
    fields = RunConfig.sections()["network"].model_fields
    found: dict[str, Any] = {}
    for name, value in kwargs.items():
        key = _POLICY_NAMES.get(name, name)
        found[key if key in fields else f"policy_kwargs.{name}"] = value
    return found


def _is_algorithm(value: Any) -> bool:
    return isinstance(value, type) and hasattr(value, "policy_aliases")


def _algorithm_name(value: Any) -> str:
    path = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    for name, spec in ALGORITHMS.items():
        if getattr(spec, "entry_point", None) == path:
            return name
    raise ConfigError(
        f"algo={path.replace(':', '.')}: this class is not registered. Register it: "
        "rz.register_algorithm(rz.AlgorithmSpec(...)), in a module that packages=[...] names."
    )


def _environment(value: Any, options: list[str]) -> dict[str, Any]:
    """Return the keys for an environment: a name, an id, a class, a function or an instance."""
    if value is None or isinstance(value, str):
        is_file = value is None or value in group_options("env", config_dirs(options))
        is_id = not is_file and ENVIRONMENT_ID.fullmatch(value or "")
        return {"env.id" if is_id else "env": value}
    if hasattr(value, "env_is_wrapped") or hasattr(value, "single_action_space"):
        raise ConfigError(
            f"env expects one environment, not a {type(value).__name__}: give its class or a "
            "function that makes one, and n_envs=N."
        )
    if not isinstance(value, type) and hasattr(value, "step"):
        spec: Any = getattr(value, "spec", None)
        entry = getattr(spec, "entry_point", None)
        if isinstance(entry, str) and not _wrapped_by_hand(value, spec):
            kwargs = {k: v for k, v in spec.kwargs.items() if k != "render_mode"}
            return {"env.id": spec.id, **{f"env.kwargs.{k}": v for k, v in kwargs.items()}}
        name = name_object(_Copies(value))
        label = type(value.unwrapped).__name__
    elif callable(value):
        path = import_path(value)
        module, _, last = (path or "").rpartition(".")
        name = f"{module}:{last}" if path else name_object(value)
        label = getattr(value, "__name__", type(value).__name__)
    else:
        raise ConfigError(f"env expects a name, an id, a class or a function, not {value!r}.")
    slug = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_") or "own"
    return {"env": "gym", "env.id": name, "env.name": slug}


def _wrapped_by_hand(env: Any, spec: Any) -> bool:
    """Tell whether an environment has more wrappers than `gymnasium.make` gives it."""
    given = ("PassiveEnvChecker", "OrderEnforcing", "TimeLimit")
    while env is not env.unwrapped:
        if type(env).__name__ not in given:
            return True
        env = env.env
    return bool(spec.additional_wrappers)


class _Copies:
    """Makes environments that are copies of one, as it was given."""

    def __init__(self, env: Any) -> None:
        self.__qualname__ = type(env.unwrapped).__qualname__
        self.made_class = type(env.unwrapped)
        self.metadata = getattr(env, "metadata", {})
        try:
            self._env = copy.deepcopy(env)
        # Simulators refuse it in their own ways.
        except Exception as error:
            raise ConfigError(
                f"env: this {self.made_class.__name__} cannot be copied for evaluations ({error}). "
                "Give its class, or a function that makes one."
            ) from error

    def __call__(self, render_mode: str | None = None) -> Any:
        """Return a copy."""
        made = copy.deepcopy(self._env)
        if render_mode is not None and made.render_mode != render_mode:
            raise TypeError("an instance was given: unexpected keyword argument 'render_mode'")
        return made


def _noise(value: Any) -> dict[str, Any]:
    """Return the keys for an action noise of Stable-Baselines3, or of the user."""
    kinds = {"NormalActionNoise": ("normal", "_mu"), "OrnsteinUhlenbeckActionNoise": ("ou", "_mu")}
    kind, mean = kinds.get(type(value).__name__, (None, ""))
    sigma: Any = getattr(value, "_sigma", None)
    is_plain = kind is not None and sigma is not None and len(set(sigma.flat)) == 1
    if is_plain and not getattr(value, mean).any() and sigma.flat[0] == float(sigma.flat[0]):
        found = {"type": kind, "std": float(sigma.flat[0])}
        if kind == "ou":
            found |= {"theta": float(value._theta), "dt": float(value._dt)}
        if getattr(value, "initial_noise", None) is None:
            return {"algo.action_noise": found}
    return {"algo.action_noise": {"type": name_object(value), "std": 0.0}}


def _plain(key: str, value: Any) -> Any:
    """Return a value with names in place of objects, where its key takes them."""
    registry = _OF_KEY.get(key)
    if key in _LISTS:
        entries = value if isinstance(value, (list, tuple)) else [value]
        return [_name(registry, entry) for entry in entries if entry is not None]
    if key.startswith("algo.hyperparams.") and callable(value):
        return import_path(value) or name_object(value)
    if key == "network.policy" and isinstance(value, str):
        return _POLICIES.get(value, value)
    if key == "vec_env" and getattr(value, "__name__", "") in _VEC_ENVS:
        return _VEC_ENVS[value.__name__]
    return value if registry is None else _name(registry, value)


def _name(registry: Registry | None, value: Any) -> Any:
    assert registry is not None
    if value is None or isinstance(value, (str, bool, int, float, Mapping, list, tuple, Path)):
        return value
    path = import_path(value)
    return (path and (registry.name_of_class(value) or path)) or name_object(value)
