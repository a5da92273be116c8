"""`rlzoo-plus import-sb3`: a Stable-Baselines3 or RL Zoo zip becomes a run directory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.run_dir import OUTPUTS, RunDir, new_run_dir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.overrides import as_arguments, typed_values
from rlzoo_plus.config.own_code import is_harmless, own_code
from rlzoo_plus.config.search_path import conf_dir, group_options
from rlzoo_plus.config.zoo_files import EnvFile, load_env_files
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load

# Keys of names that are checked once the configuration is composed.
_CHECKED = ("env.wrappers=",)

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.export.zoo_agent import AgentFiles, AgentSettings


def main(arguments: list[str]) -> int:
    """Import a zip and print what to do next; return the exit code."""
    options = _parse(arguments)
    from rlzoo_plus.export import sb3_archive, sb3_import, zoo_agent

    files = zoo_agent.find_files(options.file)
    if options.algo is not None:
        _check_algorithm(options.algo)
    settings = (
        None if files.settings is None else zoo_agent.read_settings(files.settings, options.algo)
    )
    algo = settings.algo if settings else options.algo
    if algo is None:
        raise ConfigError(f"{files.archive} has no config.yml and args.yml beside it: add --algo.")
    _check_algorithm(algo)
    archive = sb3_archive.read_archive(files.archive)
    pickled = options.vecnormalize or files.statistics
    statistics = None if pickled is None else sb3_archive.read_statistics(pickled)
    given = set(typed_values(options.overrides))
    if settings and settings.normalizes_observations and not (statistics or "normalize" in given):
        raise ConfigError(
            f"{files.settings}/config.yml: the policy was trained on normalized observations, but "
            "vecnormalize.pkl is missing, and without its statistics it acts wrongly. Add "
            "--vecnormalize FILE.pkl; normalize=false imports it nevertheless."
        )
    chosen, told, notes = _environment(options, settings)
    guessed, more = sb3_import.guess(archive, algo, statistics, given, told)
    if statistics is None and settings is None:
        more.append("assumes training without normalisation; if not, add --vecnormalize FILE")
    # Before what may fail: they say why.
    for note in [*notes, *more]:
        print(f"note: {note}", file=sys.stderr)
    overrides = [f"algo={algo}", *chosen, *guessed, *options.overrides]
    _refuse_foreign(guessed, files)
    config = load(as_arguments(overrides, options.config_dir, {}))
    _refuse_own_code(config, [*chosen, *options.overrides], files)
    about = sb3_import.about_file(files.archive, archive)
    bundle = sb3_import.build(config, archive, statistics, about)
    run = _claim(options.output, config)
    sb3_import.write_run(
        run, config, bundle, command_line(["rlzoo-plus", "import-sb3", *arguments])
    )
    print(f"wrote {run.path}")
    for part in (files.archive, files.settings, pickled):
        if part is not None and part != options.file:
            print(f"read {part}")
    print("read from the file: " + " ".join(guessed))
    tell(f"next: rlzoo-plus evaluate {run.path}")
    return 0


def _check_algorithm(algo: str) -> None:
    if get_algorithm(algo).backend == "jax":
        raise ConfigError(
            f"--algo {algo}: a zip of sbx holds pickled networks, which are not read, "
            f"since that could run code. Train again with algo={algo}."
        )


def _environment(
    options: argparse.Namespace, settings: AgentSettings | None
) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the override of the environment, the others of the settings, and notes."""
    from rlzoo_plus.export.zoo_agent import environment_values

    dirs = [conf_dir(), *filter(None, [options.config_dir])]
    if (env := options.env) is not None:
        is_id = any(part in env for part in ("-v", "/", ":"))
        is_file = not is_id or env in group_options("env", dirs)
        chosen, notes = [f"env={env}" if is_file else f"env.id={env}"], list[str]()
        known = load_env_files(conf_dir() / "env")
        env_file = next((f for i, f in known.items() if env in (i, f.name)), EnvFile("gym"))
    elif settings and settings.env_id:
        values, env_file, notes = environment_values(settings.env_id)
        chosen = as_arguments([], None, {"env": values})
    else:
        raise ConfigError(f"{options.file}: no args.yml says the environment: add --env.")
    if settings is None:
        return chosen, {}, notes
    values = {key: value for key, value in settings.values.items() if key != "normalize"}
    if "wrappers" in values.get("env", {}):
        values["env"]["wrappers"] = env_file.with_own(values["env"]["wrappers"])
    told = dict(text.split("=", 1) for text in as_arguments([], None, values))
    return chosen, told, [*notes, *settings.notes]


def _refuse_foreign(guessed: list[str], files: AgentFiles) -> None:
    """Raise a ConfigError if a file sets what opens a window or imports a module."""
    foreign = [text for text in guessed if not text.startswith(_CHECKED) and not is_harmless(text)]
    if foreign:
        raise ConfigError(
            f"{files.settings}: its settings may run code: {printable(', '.join(foreign))}. If you "
            "trust them, repeat them as overrides of this command."
        )


def _refuse_own_code(config: RunConfig, trusted: list[str], files: AgentFiles) -> None:
    """Raise a ConfigError if a file names code that is neither shipped nor named by the user."""
    foreign = [name for name in own_code(config) if name not in " ".join(trusted)]
    if files.settings is not None and foreign:
        raise ConfigError(
            f"{files.settings}/config.yml names code that is not shipped: "
            f"{printable(', '.join(foreign))}. If you trust it, name it yourself, e.g. "
            "env.wrappers=[my_module.MyWrapper]."
        )


def _claim(output: Path | None, config: RunConfig) -> RunDir:
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
    return options
