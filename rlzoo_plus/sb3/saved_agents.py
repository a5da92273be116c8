"""Imports an agent that Stable-Baselines3 or the RL Zoo saved as a run; nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlzoo_plus.artifacts.run_dir import OUTPUTS, RunDir, new_run_dir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.overrides import as_arguments, typed_values
from rlzoo_plus.config.own_code import is_harmless, own_code
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import conf_dir, group_options
from rlzoo_plus.config.zoo_files import EnvFile, load_env_files
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export import sb3_archive, sb3_import, zoo_agent
from rlzoo_plus.runs.load import load

# Keys of names that are checked once the configuration is composed.
_CHECKED = ("env.wrappers=",)


@dataclass(frozen=True)
class Wanted:
    """What a user says about an agent; it wins over its files."""

    file: Path  # The zip, or a folder of the RL Zoo
    algo: str | None = None  # The algorithm that trained it
    env: str | None = None  # A file of conf/env, or a Gymnasium id
    vecnormalize: Path | None = None  # The statistics of its observations
    overrides: Sequence[str] = ()  # As for `train`
    config_dir: Path | None = None  # A folder like conf/
    output: Path | None = None  # The run directory; by default a new one below outputs/


@dataclass(frozen=True)
class Imported:
    """A run that was made of an agent."""

    run: RunDir
    read: list[Path] = field(default_factory=list)  # The files
    guessed: list[str] = field(default_factory=list)  # Overrides that they led to


def import_agent(wanted: Wanted, command: str, note: Callable[[str], None]) -> Imported:
    """Write a run directory with an agent's policy.

    Args:
        wanted: Which agent, and what is known of it.
        command: The command line, for the run.
        note: Called with each note for the user, before what may fail.

    Raises:
        ConfigError: The files are no such agent, say too little, or name code.
    """
    files = zoo_agent.find_files(wanted.file)
    if wanted.algo is not None:
        _check_algorithm(wanted.algo)
    settings = (
        None if files.settings is None else zoo_agent.read_settings(files.settings, wanted.algo)
    )
    algo = settings.algo if settings else wanted.algo
    if algo is None:
        raise ConfigError(f"{files.archive} has no config.yml and args.yml beside it: add --algo.")
    _check_algorithm(algo)
    archive = sb3_archive.read_archive(files.archive)
    pickled = wanted.vecnormalize or files.statistics
    statistics = None if pickled is None else sb3_archive.read_statistics(pickled)
    given = set(typed_values(list(wanted.overrides)))
    if settings and settings.normalizes_observations and not (statistics or "normalize" in given):
        raise ConfigError(
            f"{files.settings}/config.yml: the policy was trained on normalized observations, but "
            "vecnormalize.pkl is missing, and without its statistics it acts wrongly. Add "
            "--vecnormalize FILE.pkl; normalize=false imports it nevertheless."
        )
    chosen, told, notes = _environment(wanted, settings)
    guessed, more = sb3_import.guess(archive, algo, statistics, given, told)
    if statistics is None and settings is None:
        more.append("assumes training without normalisation; if not, add --vecnormalize FILE")
    for text in [*notes, *more]:
        note(text)
    overrides = [f"algo={algo}", *chosen, *guessed, *wanted.overrides]
    _refuse_foreign(guessed, files)
    config = load(as_arguments(overrides, wanted.config_dir, {}))
    _refuse_own_code(config, [*chosen, *wanted.overrides], files)
    about = sb3_import.about_file(files.archive, archive)
    bundle = sb3_import.build(config, archive, statistics, about)
    run = _claim(wanted.output, config)
    sb3_import.write_run(run, config, bundle, command)
    parts = (files.archive, files.settings, pickled)
    return Imported(run, [p for p in parts if p is not None and p != wanted.file], guessed)


def _check_algorithm(algo: str) -> None:
    if get_algorithm(algo).backend == "jax":
        raise ConfigError(
            f"--algo {algo}: a zip of sbx holds pickled networks, which are not read, "
            f"since that could run code. Train again with algo={algo}."
        )


def _environment(
    wanted: Wanted, settings: zoo_agent.AgentSettings | None
) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the override of the environment, the others of the settings, and notes."""
    dirs = [conf_dir(), *filter(None, [wanted.config_dir])]
    if (env := wanted.env) is not None:
        is_id = any(part in env for part in ("-v", "/", ":"))
        is_file = not is_id or env in group_options("env", dirs)
        chosen, notes = [f"env={env}" if is_file else f"env.id={env}"], list[str]()
        known = load_env_files(conf_dir() / "env")
        env_file = next((f for i, f in known.items() if env in (i, f.name)), EnvFile("gym"))
    elif settings and settings.env_id:
        values, env_file, notes = zoo_agent.environment_values(settings.env_id)
        chosen = as_arguments([], None, {"env": values})
    else:
        raise ConfigError(f"{wanted.file}: no args.yml says the environment: add --env.")
    if settings is None:
        return chosen, {}, notes
    values = {key: value for key, value in settings.values.items() if key != "normalize"}
    if "wrappers" in values.get("env", {}):
        values["env"]["wrappers"] = env_file.with_own(values["env"]["wrappers"])
    told = dict(text.split("=", 1) for text in as_arguments([], None, values))
    return chosen, told, [*notes, *settings.notes]


def _refuse_foreign(guessed: list[str], files: zoo_agent.AgentFiles) -> None:
    """Raise a ConfigError if a file sets what opens a window or imports a module."""
    foreign = [text for text in guessed if not text.startswith(_CHECKED) and not is_harmless(text)]
    if foreign:
        raise ConfigError(
            f"{files.settings}: its settings may run code: {printable(', '.join(foreign))}. If you "
            "trust them, repeat them as overrides of this command."
        )


def _refuse_own_code(config: RunConfig, trusted: list[str], files: zoo_agent.AgentFiles) -> None:
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
