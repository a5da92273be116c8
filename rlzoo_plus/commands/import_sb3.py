"""`rlzoo-plus import-sb3`: a Stable-Baselines3 or RL Zoo zip becomes a run directory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig


def main(arguments: list[str]) -> int:
    """Import a zip and print what to do next; return the exit code."""
    options = _parse(arguments)
    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.config.catalog import get_algorithm
    from rlzoo_plus.config.compose import conf_dir, group_options, iter_sweep_keys
    from rlzoo_plus.runs.compose import as_arguments, compose_run

    if get_algorithm(options.algo).backend == "jax":
        raise ConfigError(
            f"--algo {options.algo}: a zip of sbx holds pickled networks, which are not read, "
            "since that could run code. Train again with algo=" + options.algo + "."
        )

    from rlzoo_plus.export.sb3_archive import read_archive, read_statistics
    from rlzoo_plus.export.sb3_import import about_file, build, guess, write_run

    archive = read_archive(options.file)
    statistics = None if options.vecnormalize is None else read_statistics(options.vecnormalize)
    given = set(iter_sweep_keys(options.overrides))
    guessed, notes = guess(archive, options.algo, statistics, given)
    env, dirs = options.env, [conf_dir(), *filter(None, [options.config_dir])]
    is_id = any(part in env for part in ("-v", "/", ":")) and env not in group_options("env", dirs)
    chosen = [f"algo={options.algo}", f"env.id={env}" if is_id else f"env={env}"]
    overrides = [*chosen, *guessed, *options.overrides]
    config = compose_run(as_arguments(overrides, options.config_dir, {}))
    bundle = build(config, archive, statistics, about_file(options.file, archive))
    if statistics is None:
        notes = [*notes, "assumes training without normalisation; if not, add --vecnormalize FILE"]
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    run = _claim(options.output, config)
    write_run(run, config, bundle, command_line(["rlzoo-plus", "import-sb3", *arguments]))
    print(f"wrote {run.path}")
    print("read from the file: " + " ".join(guessed))
    tell(f"next: rlzoo-plus evaluate {run.path}")
    return 0


def _claim(output: Path | None, config: RunConfig) -> RunDir:
    from rlzoo_plus.artifacts.run_dir import OUTPUTS, RunDir, new_run_dir

    if output is None:
        run = new_run_dir(OUTPUTS, str(config.env.name), config.algo.name, config.seed)
    else:
        run = RunDir(output)
    try:
        run.claim()
    except FileExistsError:
        raise ConfigError(f"--output {output} already holds a run. Choose another.") from None
    except OSError as error:
        raise ConfigError(f"--output {output} cannot be made: {error}.") from error
    return run


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "import-sb3",
        "Import the policy of a Stable-Baselines3 or RL Zoo zip as a run directory, for evaluate, "
        "enjoy, record and export. Nothing in the zip is executed.",
        "model.zip --algo ppo --env cartpole_bullet",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.zip", help="written by `model.save` of SB3")
    overrides_help = "as for train, e.g. network.activation=relu"
    add("overrides", nargs="*", metavar="KEY=VALUE", help=overrides_help)
    add("--algo", required=True, help="the algorithm that trained it, e.g. ppo")
    add("--env", required=True, help="a file of conf/env, or the id of a Gymnasium environment")
    add("--vecnormalize", type=Path, metavar="FILE.pkl", help="its observation statistics")
    add("--output", type=Path, metavar="DIR", help="the run directory (default: below outputs/)")
    add("--config-dir", type=Path, metavar="DIR", help="a folder like conf/ with your own files")
    options = parser.parse_intermixed_args(arguments)
    for override in options.overrides:
        if "=" not in override:
            raise ConfigError(f"{override}: an override is written key=value.")
    return options
