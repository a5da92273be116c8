"""`rlzoo-plus resume`: an unfinished run goes on from its newest whole checkpoint."""

from __future__ import annotations

import argparse
from typing import Any

from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.config.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Resume the run named; return the exit code of `train`."""
    options = _parse(arguments)
    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.commands.train import plan_or_done, train_and_say
    from rlzoo_plus.runs.open import open_config
    from rlzoo_plus.runs.terminal import set_up_logging

    run_dir, before = open_config(options.run, trust=options.trust, to_train=True)
    # Whatever the run was started with: here it is to go on.
    data = before.model_dump() | {"resume": "auto", "restart": False}
    config = _with_overrides(data, options.overrides, str(run_dir.path))
    console = make_console()
    set_up_logging(config.log.level, console)
    begun = plan_or_done(config, console)
    if begun is None:
        return 0
    command = command_line(["rlzoo-plus", "resume", *arguments])
    return train_and_say(*begun, console, command)


def _with_overrides(data: dict[str, Any], overrides: list[str], path: str) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from rlzoo_plus.config.references import refuse_secrets
    from rlzoo_plus.config.resolve import validate_config

    for override in overrides:
        key, equals, _ = override.partition("=")
        if not key.strip() or not equals:
            raise ConfigError(f"{override}: must be KEY=VALUE, e.g. n_timesteps=200000.")
    try:
        changes = OmegaConf.from_dotlist(overrides)
        refuse_secrets(OmegaConf.to_container(changes, resolve=False))
        merged = OmegaConf.merge(OmegaConf.create(data), changes)
        values = OmegaConf.to_container(merged, resolve=False)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ConfigError(f"{' '.join(overrides)}: {str(error).splitlines()[0]}") from error
    assert isinstance(values, dict)
    # Wherever it was when it was started, it is here now.
    return validate_config({str(k): v for k, v in values.items()} | {"run_dir": path})


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus resume",
        description="Let an unfinished run go on from its newest whole checkpoint, bit for bit as "
        "if it had never stopped. It needs nothing but the directory.",
        epilog="Example: rlzoo-plus resume outputs/cartpole_bullet/ppo/2026-01-31_12-00-00-s0",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="what may change: n_timesteps (upwards), checkpoint.*, log.*, report.*",
    )
    parser.add_argument(
        "--trust", action="store_true", help="import the run's own packages, wrappers and callbacks"
    )
    return parser.parse_args(arguments)
