"""The adapter to Hydra: where conf/ is, what the command line means, what its errors say."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.composer import Composed, Composer, compose_batch
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.resolve import meant_key
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import own_dirs, read_mapping, searched_first
from rlzoo_plus.errors import HELP, ConfigError, closest, unknown_name
from rlzoo_plus.synonyms import as_overrides

GROUPS = ("env", "algo", "network", "tuned", "infra", "tracker", "hpo", "experiment")
# Not an option of Hydra: whether code that a stored study names may be imported.
TRUST = "--trust"
_OPTIONS_WITH_VALUE = (
    *("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn"),
    *("--cfg", "-c", "--package", "-p", "--experimental-rerun"),
)
_OPTIONS = (
    *(*_OPTIONS_WITH_VALUE, TRUST, "--help", "-h", "--hydra-help", "--version", "--resolve"),
    *("--run", "-r", "--multirun", "-m", "--shell-completion", "--shell_completion", "-sc"),
    *("--info", "-i"),
)
# Keys whose value replaces the one before; Hydra would merge mappings, and fail on a list.
_REPLACED = ("network.net_arch", "hpo.objectives")
# Hydra's keys for directories: the value in conf/config.yaml, and what to use instead of the key.
_PLACES = {
    "hydra.run.dir": (".", "run_dir=DIRECTORY"),
    "hydra.sweep.dir": ("outputs/sweeps", "sweep=NAME, or sweep=PATH"),
    "hydra.sweep.subdir": (".", "sweep=NAME: its jobs are named by their content"),
    "hydra.job.chdir": ("False", "run_dir=DIRECTORY: the working directory stays yours"),
}
# Keys whose value may be a list.
_OF_LISTS = re.compile(
    r"env\.(kwargs|wrappers|packages)|algo\.(hyperparams|packages)|network\.(net_arch|\w+_kwargs)"
    r"|packages|callbacks|freeze|init\.parts|eval\.metrics|hpo\.|tracker\.kwargs"
)
_ASSIGNMENT = re.compile(r"(?P<prefix>[+~]*)(?P<key>[A-Za-z_][\w./@:]*)=(?P<value>.*)", re.DOTALL)

_COMPOSING = threading.RLock()
_GLOB = re.compile(r"(?<==)glob\((?P<arguments>[^()]*)\)$")


def conf_dir() -> Path:
    """Return the shipped conf/, which is beside the package in a checkout, otherwise inside it."""
    here = Path(__file__).resolve().parents[1]
    for candidate in (here / "conf", here.parent / "conf"):
        if (candidate / "config.yaml").is_file():
            return candidate
    raise ConfigError("conf/config.yaml is missing from the installation. Reinstall rlzoo-plus.")


def config_dirs(arguments: Sequence[str]) -> list[Path]:
    """Return the directories that are searched: the user's own, then conf/."""
    return [*own_dirs(arguments), conf_dir()]


def group_options(group: str, dirs: Sequence[Path]) -> list[str]:
    """Return the names that `group=<name>` may take, nested ones as `folder/name`."""
    folders = [root / group for root in dirs]
    files = ((f, p) for f in folders for p in f.rglob("[!_]*.yaml") if p.is_file())
    return sorted({p.relative_to(folder).with_suffix("").as_posix() for folder, p in files})


def prepare_overrides(arguments: Sequence[str]) -> list[str]:
    """Rewrite the command line so that Hydra does what its user means.

    `env.id=X` alone chooses the shipped environment file with that id, or the neutral one, so
    that no setting of the default environment is used for X. Dotted keys may be new or replace a
    value of another type; whether they exist is checked afterwards, with did-you-mean.
    """
    options, overrides = _partition(arguments)
    parsed = [_ASSIGNMENT.fullmatch(argument) for argument in overrides]
    keys = {match["key"]: match["value"] for match in parsed if match}
    prepared = []
    if "env.id" in keys and "env" not in keys:
        wanted = keys["env.id"].strip("'\"")
        paths = (p for d in config_dirs(arguments) for p in sorted((d / "env").glob("*.yaml")))
        data = ((p.stem, read_mapping(p)) for p in paths)
        prepared.append(f"env={next((n for n, env in data if env.get('id') == wanted), 'gym')}")
    for argument, match in zip(overrides, parsed, strict=True):
        key = "" if match is None or match["prefix"] else match["key"]
        is_hydra = key.split(".")[0].split("/")[0] == "hydra"
        if "." not in key or is_hydra or "/" in key or "@" in key:
            prepared.append(_GLOB.sub(_glob_of_choices, argument))
            continue
        if key in _REPLACED:
            prepared.append(f"++{key}=null")
        prepared.append(f"++{argument}")
    return [*(option for option in options if option != TRUST), *prepared]


def _glob_of_choices(found: re.Match[str]) -> str:
    """Exclude files that others build on, such as env/_base.yaml, from a glob."""
    include, comma, exclude = (found["arguments"] or "").partition("exclude=")
    if not comma:
        return f"glob({include}, exclude=_*)"
    names = exclude.strip().removeprefix("[").removesuffix("]")
    return f"glob({include}exclude=[{names},_*])"


def config_options(arguments: Sequence[str]) -> list[str]:
    """Return the options for directories of configuration files."""
    options, _ = _partition(arguments)
    kept = []
    for position, option in enumerate(options):
        name, equals, _ = option.partition("=")
        if name in ("--config-dir", "-cd"):
            kept += [option] if equals else options[position : position + 2]
    return kept


def overrides_of(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that are neither options nor values of options."""
    return _partition(arguments)[1]


def _partition(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate options from overrides, which Hydra's parser expects together."""
    options, overrides = [], []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        options.append(argument)
        if argument in _OPTIONS_WITH_VALUE and rest:
            options.append(rest.pop(0))
    return options, overrides


class Batch(Protocol):
    """What the launcher of a sweep calls, besides the job itself for each configuration."""

    def refuse(self, error: Exception, overrides: Sequence[str]) -> None:
        """Record why the configuration of a job with these overrides cannot be composed."""

    def run(self) -> list[float | None]:
        """Run the jobs collected since the last call; return a value for each."""

    def begin(self, n_jobs: int) -> None:
        """Set up composing for the number of jobs that will be composed until `run` is called."""

    def tune(self, arguments: Sequence[str], compose: Callable[[Sequence[str]], Composed]) -> None:
        """Search for hyperparameters: compose a configuration, run it, and repeat.

        Args:
            arguments: The overrides of the command line, sweeps among them.
            compose: Returns the configuration of a list of overrides.
        """


def refuse_places(settings: Mapping[str, Any]) -> None:
    """Refuse Hydra's own keys for directories: they would be ignored.

    Args:
        settings: Values by their key.

    Raises:
        ConfigError: One is set to another value than ours.
    """
    for key, (ours, instead) in _PLACES.items():
        if str(settings.get(key, ours)).lower() != ours.lower():
            raise ConfigError(f"{key}={settings[key]} places nothing here. Use {instead}.")


def compose_once(arguments: Sequence[str]) -> Composed:
    """Compose one configuration, without Hydra's command line and without touching `sys.argv`.

    Args:
        arguments: Overrides, and options for directories of configuration files.

    Raises:
        ConfigError: It cannot be composed.
    """
    with _hydra_for(arguments) as overrides:
        from hydra import compose

        return Composed.of(compose("config", overrides, return_hydra_config=True))


def compose_jobs(take: Callable[[Composed], None], arguments: Sequence[str], batch: Batch) -> None:
    """Compose every job of a sweep; none is run.

    Args:
        take: Called with each configuration.
        arguments: Overrides, and options for directories of configuration files.
        batch: Is told how many jobs there are, and why one cannot be composed.

    Raises:
        ConfigError: The overrides cannot be read.
    """
    with _hydra_for(arguments) as overrides:
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
        from hydra.core.global_hydra import GlobalHydra
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.types import RunMode

        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", overrides, RunMode.MULTIRUN)
        composer = Composer(loader, master)
        if master.get("hpo") is not None:
            batch.tune(overrides, lambda given: composer.compose(0, given))
            return
        # The loader resolves glob(*).
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(overrides)
        (jobs,) = BasicSweeper.split_arguments(parsed, None)
        compose_batch(composer, jobs, take, batch)


@contextlib.contextmanager
def _hydra_for(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Start Hydra without its command line; yield the overrides as it takes them."""
    places = config_options(arguments)
    other = [option for option in _partition(arguments)[0] if option not in (*places, TRUST)]
    if other:
        raise ConfigError(f"{other[0]}: an override is written key=value, e.g. seed=3.")
    _check_typed(arguments)
    from hydra import initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    hydra_config = HydraConfig.instance()
    # Hydra has one state per process: that of a program around us is restored.
    with _COMPOSING, searched_first(own_dirs(arguments)):
        before = hydra_config.cfg
        try:
            with initialize_config_dir(str(conf_dir()), version_base="1.3"):
                yield _partition(prepare_overrides(arguments))[1]
        except ConfigError:
            raise
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise ConfigError(explain(error, arguments)) from error
        finally:
            hydra_config.cfg = before


def typed_values(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of a command line by their keys, without prefixes."""
    return {m["key"]: m["value"] for m in map(_ASSIGNMENT.fullmatch, arguments) if m}


def _check_typed(arguments: Sequence[str]) -> None:
    """Refuse on a command line what Hydra would ignore, print its usage for, or write to a file."""
    typed = typed_values(arguments)
    _refuse_options(arguments, typed)
    refuse_places(typed)
    # Checked before Hydra writes the command line of a sweep.
    refuse_secrets(typed, composed=False)


def _refuse_options(arguments: Sequence[str], typed: Mapping[str, str]) -> None:
    options = [word.partition("=")[0] for word in _partition(arguments)[0] if word[0] == "-"]
    foreign = [name for name in options if not any(o.startswith(name) for o in _OPTIONS)]
    if foreign:
        overrides, unknown = as_overrides(
            [word for word in arguments if word.partition("=")[0] not in _OPTIONS],
            lambda name: name if name in RunConfig.model_fields else meant_key(name, {}),
            group_options("env", config_dirs(arguments)),
        )
        hint = closest(foreign[0], _OPTIONS) if unknown else None
        instead = f"Did you mean {hint!r}? " if hint else ""
        instead += f"Write {' '.join(overrides)}." if overrides else "Leave it out, or see --help."
        raise ConfigError(
            f"{', '.join(foreign)}: no option of this command; settings are key=value. {instead}"
        )
    for group in GROUPS:
        value = typed.get(group, "")
        if value.startswith("[") or value.replace(".", "").isdigit():
            instead = f" Write network.net_arch={value}." if group == "network" else ""
            raise ConfigError(f"{group}={value}: {group} takes the name of a file.{instead}")
    name = typed.get("algo.name")
    if name in ALGORITHMS and "algo" not in typed:
        raise ConfigError(
            f"algo.name={name} would keep the hyperparameters of another algorithm. "
            f"Write algo={name}."
        )


def run_hydra(
    job: Callable[[Composed], None], arguments: Sequence[str], batch: Batch | None = None
) -> None:
    """Compose the configuration and call `job` with it, once for each job of a sweep.

    Args:
        job: Called with each configuration.
        arguments: The command line.
        batch: Runs the jobs of a sweep after `job` has taken all of them.

    Raises:
        ConfigError: The configuration cannot be composed.
    """
    import sys

    _check_typed(arguments)
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    # Otherwise Hydra prints errors itself and exits with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = [sys.argv[0], *prepare_overrides(arguments)]
    started: list[bool] = []
    unresolved: list[OmegaConfBaseException] = []

    def entered(cfg: Any) -> None:
        started.append(True)
        try:
            # Our launcher and sweeper compose by themselves.
            composed = cfg if isinstance(cfg, Composed) else Composed.of(cfg)
        except OmegaConfBaseException as error:
            # Hydra would add a line of its own to an error that passes through it.
            unresolved.append(error)
        else:
            job(composed)

    entered.batch = batch  # type: ignore[attr-defined]
    decorate = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
    try:
        with searched_first(own_dirs(arguments)):
            decorate(entered)()
        for error in unresolved:
            raise error
    except ConfigError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if started and not isinstance(error, HydraException | OmegaConfBaseException):
            raise
        raise ConfigError(explain(error, arguments)) from error


def explain(error: Exception, arguments: Sequence[str]) -> str:
    """Say what is wrong with a command line in terms of its arguments."""
    text = str(error)
    # Hydra and OmegaConf raise it as it is.
    if type(error) is ValueError:
        if "group override" in text:
            return (
                "a configuration group cannot be set to null on the command line. Choose one of "
                "its files, or tuned=none, tracker=none, hpo=none."
            )
        if any("net_arch." in argument for argument in arguments):
            return (
                "network.net_arch is a list here. Write both parts: "
                "network.net_arch={actor: [64, 64], critic: [256, 256]}."
            )
        return text
    missing = re.search(r"Could not find '([^'/]+)/([^']+)'", text)
    if missing:
        group, name = missing.groups()
        meant = f"env.id={name}" if group == "env" and re.search(r"-v\d+$", name) else None
        known = group_options(group, config_dirs(arguments))
        message = unknown_name(group, name, known, HELP, meant)
        return f"{group}={name}: {message}"
    override = re.search(r"Could not (?:override|delete)[^']*'([^']+)'", text)
    if override:
        key = override.group(1)
        hint = meant_key(key, {"algo": {"name": typed_values(arguments).get("algo")}})
        suggestion = f" Did you mean {hint!r}?" if hint else ""
        if (hint or "").startswith("hpo"):
            suggestion += " A study is started with -m hpo=ALGORITHM."
        return (
            f"unknown configuration key {_shortened(key)!r}.{suggestion} See --cfg job for all "
            "keys."
        )
    if "Parse" in type(error).__name__:
        return _unreadable(text, arguments)
    several = re.search(r"Ambiguous value for argument '([^']+)'", text)
    if several:
        word = several.group(1).lstrip("+")
        key, _, values = word.partition("=")
        text = f"{_shortened(word)}: several values are for a sweep. Add -m to run one job for each"
        if _OF_LISTS.match(key):
            text += f"; a list is written {key}=[{_shortened(values)}]"
        return f"{text}."
    if (problem := _in_a_file(text, getattr(error, "full_key", None))) is not None:
        return problem
    first_lines = [line for line in text.splitlines() if line.strip() and "hydra.cc" not in line]
    bad = next((a for a in arguments if not a.startswith("-") and a in text), None)
    about = f"{bad}: " if bad and not text.startswith("Error parsing override") else ""
    return _shortened(about) + _shortened(" ".join(first_lines[:3]), 600)


def _in_a_file(text: str, key: str | None) -> str | None:
    """Return what is wrong with a file that can be read, None if it is something else."""
    name = r"Interpolation key '(?P<key>[^']+)'|Unsupported interpolation type (?P<type>\w+)"
    if (reference := re.search(name, text)) is not None:
        wrong = reference["key"] or f"{reference['type']}:..."
        near = meant_key(wrong, {}) if reference["key"] else None
        hint = f" Did you mean '${{{near}}}'?" if near else " Write ${key}, or ${oc.env:NAME}."
        return f"{key} refers to ${{{wrong}}}, which there is not.{hint}"
    found = re.search(r"In '(?P<file>[^']+)': (?P<rest>.*)", text, re.DOTALL)
    if found is None:
        return None
    missing = re.search(r"Could not (?:load|find) '([^']+)'", found["rest"])
    if missing is not None:
        why = f"its defaults name {missing[1]}, which there is not. Name a file beside it"
    elif "Cannot merge" in found["rest"]:
        why = "a mapping stands where conf/ has a list, or a list where it has a mapping"
    else:
        why = " ".join(found["rest"].split()).rstrip(".")
    return f"{found['file']}.yaml: {why}."


def _shortened(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else text[:longest] + "..."


def _unreadable(text: str, arguments: Sequence[str]) -> str:
    """Return what is wrong with an argument; Hydra's parser speaks of its own grammar."""
    found = re.search(r"input '(.*)'|LexerNoViableAltException: (.*)", text)
    part = next((group for group in found.groups() if group), text) if found else text
    candidates = [a for a in arguments if part.lstrip("+") in a or a in text]
    bad = max(candidates, key=len, default=part.splitlines()[0])
    home = " The shell leaves ~ as it is there: write $HOME." if "=~" in bad else ""
    return (
        f"{_shortened(bad)}: this cannot be read.{home} Write key=value, close every bracket, and "
        "quote what holds commas, brackets or spaces: 'key=\"a, b\"'."
    )


def missing_tuned(choices: Mapping[str, Any], dirs: Sequence[Path]) -> str | None:
    """Return the name of a chosen `tuned` file that does not exist."""
    name = choices.get("tuned")
    if not name or any((root / "tuned" / f"{name}.yaml").is_file() for root in dirs):
        return None
    return str(name)


def iter_sweep_keys(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the keys of a command line, as typed, without prefixes."""
    yield from (match["key"] for match in map(_ASSIGNMENT.fullmatch, arguments) if match)
