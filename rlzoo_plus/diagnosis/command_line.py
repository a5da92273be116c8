"""What the command line of `doctor` asks for: one run, a sweep, or a study."""

from __future__ import annotations

MULTIRUN = ("-m", "--multirun")


def is_sweep_override(argument: str) -> bool:
    """Tell whether an argument stands for several values, as `seed=1,2` and `range` do."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if argument.startswith("-") or "=" not in argument:
        return False
    try:
        (override,) = OverridesParser.create().parse_overrides([argument])
    except HydraException:
        # It is told when the jobs are composed.
        return False
    return bool(override.is_sweep_override())


def is_search(arguments: list[str]) -> bool:
    """Tell whether a command line is that of a study: `hpo=ppo`."""
    values = {_key(argument): argument.partition("=")[2] for argument in arguments}
    return values.get("hpo", "none") not in ("none", "null")


def _key(argument: str) -> str:
    return argument.lstrip("+~").partition("=")[0]
