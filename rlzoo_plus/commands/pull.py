"""`rlzoo-plus pull`: bring a run from a store."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Bring a run here and print its directory."""
    parser = command_parser(
        "pull",
        "Bring a run from a store: logs and policies, with --state also what resuming needs. Every "
        "byte of policies and checkpoints is checked, and nothing is executed.",
        "s3://my-bucket/lab/runs/cartpole_bullet/ppo/2026-01-31_12-00-00-s0",
    )
    add = parser.add_argument
    add("run", metavar="STORE/runs/NAME", help="as `rlzoo-plus runs STORE` prints it")
    add("--to", type=Path, metavar="DIR", help="the run directory (default: outputs/NAME)")
    add("--state", action="store_true", help="bring checkpoints, too")
    options = parser.parse_args(arguments)

    from rlzoo_plus.store.cache import split_run_url
    from rlzoo_plus.store.contract import open_store
    from rlzoo_plus.store.mirror import pull_run

    url, name = split_run_url(options.run)
    path = options.to or OUTPUTS / name
    if path.exists():
        raise ConfigError(f"{path} exists. Choose another directory: --to DIR.")
    try:
        step = pull_run(open_store(url), name, path, state=options.state)
    except DamagedFolderError as error:
        raise ConfigError(f"{printable(options.run)} is damaged: {error}.") from error
    print(path)
    if step is not None:
        print(f"next: rlzoo-plus resume {path}   (from step {step:,})")
    elif options.state:
        print("it has no checkpoint, so it cannot be resumed")
    return 0
