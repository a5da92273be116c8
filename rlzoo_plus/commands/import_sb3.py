"""`rlzoo-plus import-sb3`: a Stable-Baselines3 or RL Zoo zip becomes a run directory."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Import a zip and print what to do next; return the exit code."""
    parser = command_parser(
        "import-sb3",
        "Import the policy of a Stable-Baselines3 zip, or of a folder of the RL Zoo, as a run "
        "directory, for evaluate, enjoy, record and export. Nothing in the files is executed.",
        "model.zip --algo ppo --env cartpole_bullet",
    )
    add = parser.add_argument
    file_help = "written by `model.save` of SB3, or the folder of an agent of the RL Zoo"
    add("file", type=Path, metavar="FILE.zip", help=file_help)
    overrides_help = "as for train, e.g. network.activation=relu"
    add("overrides", nargs="*", metavar="KEY=VALUE", help=overrides_help)
    add("--algo", help="the algorithm that trained it, e.g. ppo (default: that of args.yml)")
    add("--env", help="a file of conf/env, or a Gymnasium id (default: that of args.yml)")
    add("--vecnormalize", type=Path, metavar="FILE.pkl", help="its observation statistics")
    add("--output", type=Path, metavar="DIR", help="the run directory (default: below outputs/)")
    add("--config-dir", type=Path, metavar="DIR", help="a folder like conf/ with your own files")
    options = parser.parse_intermixed_args(arguments)
    for override in options.overrides:
        if "=" not in override:
            raise ConfigError(f"{override}: an override is written key=value.")
    # torch is imported here, when the arguments are known to be right.
    from rlzoo_plus.sb3.saved_agents import Wanted, import_agent

    imported = import_agent(
        Wanted(**vars(options)),
        command_line(["rlzoo-plus", "import-sb3", *arguments]),
        lambda text: print(f"note: {text}", file=sys.stderr),
    )
    print(f"wrote {imported.run.path}")
    for part in imported.read:
        print(f"read {part}")
    print("read from the file: " + " ".join(imported.guessed))
    tell(f"next: rlzoo-plus evaluate {shlex.quote(str(imported.run.path))}")
    return 0
