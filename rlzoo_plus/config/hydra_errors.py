"""What Hydra and OmegaConf refuse, told in terms of a command line or of a user's file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from omegaconf.errors import OmegaConfBaseException

from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM
from rlzoo_plus.config.mistakes import meant_key
from rlzoo_plus.config.overrides import ENVIRONMENT_ID, typed_values
from rlzoo_plus.config.search_path import config_dirs, group_options, read_mapping, yaml_problem
from rlzoo_plus.errors import HELP, ConfigError, unknown_name

# Keys whose value may be a list.
_OF_LISTS = re.compile(
    r"env\.(kwargs|wrappers|packages)|algo\.(hyperparams|packages)|network\.(net_arch|\w+_kwargs)"
    r"|packages|callbacks|freeze|init\.parts|eval\.metrics|hpo\.|tracker\.kwargs"
)


@contextmanager
def checked_file(path: Path) -> Iterator[None]:
    """Check a configuration file of the user's before it is read, and report why it cannot be.

    Raises:
        ConfigError: It is no configuration; the text has the line and the fix.
    """
    read_mapping(path)
    try:
        yield
    except yaml.YAMLError as error:
        # Hydra refuses a key that is there twice.
        raise ConfigError(f"{path}{yaml_problem(error)}") from None
    except (OmegaConfBaseException, RecursionError) as error:
        raise ConfigError(f"{path}{_refused_value(path.read_text(), error)}") from None


def _refused_value(text: str, error: Exception) -> str:
    """Return the line of a value that OmegaConf cannot read, what is wrong and the fix."""
    if isinstance(error, RecursionError):
        return ": an alias contains itself, or it is nested too deeply. Write its value out."
    value = str(getattr(error, "value", ""))
    lines = enumerate(text.splitlines(), 1)
    number = next((number for number, line in lines if value and value in line), 1)
    if "${" in value:
        name = getattr(error, "full_key", None)
        return f", line {number}: {name}={value} is not closed. Write ${{key}} or ${{oc.env:NAME}}."
    return f", line {number}: {' '.join(str(error).split())}."


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
        meant = f"env.id={name}" if group == "env" and ENVIRONMENT_ID.fullmatch(name) else None
        if group == "algo":
            meant = ALGORITHM_OF_STEM.get(name)
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
