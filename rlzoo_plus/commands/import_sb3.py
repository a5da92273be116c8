"""`rlzoo-plus import-sb3`: a Stable-Baselines3 or RL Zoo zip becomes a run directory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.arguments import note
from rlzoo_plus.commands.typed import CommandParser, tell
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig


def main(arguments: list[str]) -> int:
    """Import a zip and print what to do next; return the exit code."""
    options = _parse(arguments)
    from rlzoo_plus.config.catalog import get_algorithm
    from rlzoo_plus.config.compose import iter_sweep_keys
    from rlzoo_plus.runs.compose import as_arguments, compose_run

    get_algorithm(options.algo)

    from rlzoo_plus.export.sb3_archive import read_archive, read_statistics
    from rlzoo_plus.export.sb3_import import about_file, build, guess, write_run

    archive = read_archive(options.file)
    statistics = None if options.vecnormalize is None else read_statistics(options.vecnormalize)
    given = set(iter_sweep_keys(options.overrides))
    guessed, notes = guess(archive, options.algo, statistics, given)
    chosen = [f"algo={options.algo}", _environment(options.env, options.config_dir)]
    words = as_arguments([*chosen, *guessed, *options.overrides], options.config_dir, {})
    config = compose_run(words)
    bundle = build(config, archive, statistics, about_file(options.file, archive))
    for text in notes:
        note(f"note: {text}")
    if statistics is None:
        note("note: taken as trained without normalisation; --vecnormalize FILE if there was any")
    run = _claim(options.output, config)
    write_run(run, config, bundle, _command(arguments))
    print(f"wrote {run.path}")
    print("read off the file: " + " ".join(guessed))
    tell(f"next: rlzoo-plus evaluate {run.path}")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus import-sb3",
        description="Take the weights of a Stable-Baselines3 or RL Zoo zip into a run directory "
        "that evaluate, enjoy, record and export open. Nothing in the zip is executed. "
        "Example: rlzoo-plus import-sb3 model.zip --algo ppo --env cartpole_bullet",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.zip", help="what `model.save` of SB3 wrote")
    add(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="as for train, e.g. network.activation=relu",
    )
    add("--algo", required=True, help="the algorithm that trained it, e.g. ppo")
    add("--env", required=True, help="a file of conf/env, or the id of a Gymnasium environment")
    add("--vecnormalize", type=Path, metavar="FILE.pkl", help="its observation statistics")
    add("--output", type=Path, metavar="DIR", help="the run directory (default: below outputs/)")
    add("--config-dir", type=Path, metavar="DIR", help="configuration files of your own")
    options = parser.parse_intermixed_args(arguments)
    for word in options.overrides:
        if "=" not in word:
            raise ConfigError(f"{word}: an override is written key=value.")
    return options


def _environment(name: str, config_dir: Path | None) -> str:
    """Return the override for a shipped environment, or for any Gymnasium id."""
    from rlzoo_plus.config.compose import conf_dir, group_options

    dirs = [*([config_dir] if config_dir else []), conf_dir()]
    looks_like_id = "-v" in name or "/" in name or ":" in name
    is_file = name in group_options("env", dirs)
    return f"env.id={name}" if looks_like_id and not is_file else f"env={name}"


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


def _command(arguments: list[str]) -> str:
    from rlzoo_plus.artifacts.provenance import command_line

    return command_line(["rlzoo-plus", "import-sb3", *arguments])
