"""Keys that a stored configuration lacks where they change nothing: hashes stay what they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The keys that came later, with the value that changes nothing.
_UNUSED: dict[str, Any] = {
    **{"freeze": [], "store": None, "cost": None, "record_updates": True, "curriculum": []},
    **{"distributed": 1, "encryption": None},
    "exploration": dict.fromkeys(("kind", "start", "end", "fraction")),
    **dict.fromkeys(("fast", "fast_math", "profile", "asynchronous"), False),
}
_UNUSED_OF_NETWORK: dict[str, Any] = dict.fromkeys(
    ("layer_norm", "dropout", "blocks", "critic_observation")
)
_UNUSED_OF_ENV: dict[str, Any] = dict.fromkeys(("python", "groups", "opponents", "credit"))
_UNUSED_OF_ENV["worlds_per_process"] = 1
_UNUSED_OF_ALGO: dict[str, Any] = dict.fromkeys(("symmetry", "symmetry_weight"))
_USED = object()
# The keys of some algorithms that config.yaml of a run with another one lacks.
OF_SOME_ALGORITHMS: dict[str, dict[str, Any]] = {
    "network": {
        "lstm": dict.fromkeys(("hidden_size", "n_layers", "shared", "enable_critic")),
        **{"n_critics": None, "n_quantiles": None, **_UNUSED_OF_NETWORK},
    },
    "algo": {"action_noise": None, "replay_buffer": None},
}
# Asks for a configuration with all of them.
WHOLE = {"whole": True}


def without_unused(data: Mapping[str, Any], *, starts_fresh: bool | None = None) -> dict[str, Any]:
    """Return a configuration without what came later and is not used: hashes stay what they were.

    Args:
        data: Plain data; it may be untrusted or incomplete.
        starts_fresh: Whether it starts from no earlier weights; None if `init_from` tells.
    """
    if starts_fresh is None:
        starts_fresh = data.get("init_from") is None
    kept = {key: value for key, value in data.items() if value != _UNUSED.get(key, _USED)}
    if starts_fresh:
        kept = {key: value for key, value in kept.items() if key not in ("init_from", "init")}
    unused = {"env": _UNUSED_OF_ENV, "network": _UNUSED_OF_NETWORK, "algo": _UNUSED_OF_ALGO}
    for section, values in unused.items():
        if isinstance(found := kept.get(section), Mapping):
            kept[section] = {k: v for k, v in found.items() if v != values.get(k, _USED)}
    # The content counts; what is hashed has no path.
    for section, name in (("data", "path"), ("reward_model", "path"), ("teacher", "run")):
        names = (name, "sha256")
        if isinstance(found := kept.get(section), Mapping) and not any(map(found.get, names)):
            del kept[section]
    if isinstance(found := kept.get("eval"), Mapping):
        auto = [name for name in ("beside", "max_episode_steps") if found.get(name) == "auto"]
        kept["eval"] = {key: value for key, value in found.items() if key not in auto}
    return kept
