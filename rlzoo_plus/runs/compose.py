"""Composes and checks the configuration of a run, from overrides in the shell or in Python."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig

log = logging.getLogger(__name__)
_PLAIN_TEXT = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_NAMES = {"env": "env='cartpole', or an id as env={'id': 'CartPole-v1'}", "algo": "algo='ppo'"}
# Hydra reads these as other values.
_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "null", "none", "nan", "inf")


def compose(
    overrides: Iterable[str] = (), config_dir: str | Path | None = None, **values: Any
) -> RunConfig:
    """Compose and check the configuration of a run, as `rlzoo-plus train` does.

    Args:
        overrides: As on the command line, e.g. `["algo=sac", "env=cartpole_bullet"]`.
        config_dir: A folder like conf/ with your own files, which are searched first.
        **values: More overrides: `seed=3`, `algo={"hyperparams": {"gamma": 0.9}}`, or
            `**{"algo.hyperparams.gamma": 0.9}`.

    Raises:
        ConfigError: The configuration is wrong.
    """
    config, notes = compose_noting(as_arguments(overrides, config_dir, values))
    for note in notes:
        log.warning("note: %s", note)
    return config


def compose_noting(arguments: list[str]) -> tuple[RunConfig, list[str]]:
    """Compose and check a configuration; return it, and notes for the user."""
    from rlzoo_plus.config.compose import compose_once

    return Resolver(arguments).resolve(compose_once(arguments))


def compose_run(arguments: list[str]) -> RunConfig:
    """Compose and check a configuration as `train` does, without training.

    Args:
        arguments: Overrides and `--config-dir`, as on the command line.

    Raises:
        ConfigError: The configuration is wrong.
    """
    return compose_noting(arguments)[0]


def as_arguments(
    overrides: Iterable[str], config_dir: str | Path | None, values: Mapping[str, Any]
) -> list[str]:
    """Return overrides and keyword arguments as the arguments of a command line.

    Raises:
        ConfigError: An override is no text, a value cannot be written, or there is no such folder.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"{overrides}: give a list of overrides, e.g. [{overrides!r}].")
    arguments = list(overrides)
    for argument in arguments:
        if not isinstance(argument, str) or argument.startswith("-"):
            raise ConfigError(f"{argument!r}: an override is a text like 'algo=sac'.")
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(f"config_dir={config_dir}: no such directory.")
    options = [] if config_dir is None else ["--config-dir", str(config_dir)]
    return [*options, *arguments, *_assignments(values)]


def _assignments(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _assignments(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_as_text(value, prefix + key)}"


def _as_text(value: Any, key: str) -> str:
    """Return a value in the syntax of Hydra's command line."""
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        # A NumPy scalar.
        value = value.item()
    if value is None or isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, (str, Path)):
        text = str(value)
        if _PLAIN_TEXT.fullmatch(text) and text.lower() not in _NO_TEXTS:
            return text
        # A backslash needs escaping only before a quote.
        quoted = re.sub(r"(\\*)'", r"\1\1\\'", text)
        return "'" + re.sub(r"(\\+)$", r"\1\1", quoted) + "'"
    if isinstance(value, Mapping):
        items = (f"{name}: {_as_text(item, key)}" for name, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_as_text(item, key) for item in value) + "]"
    given = "a class" if isinstance(value, type) else f"an object of {type(value).__name__}"
    if key in ("env", "algo"):
        raise ConfigError(f"{key} expects a name, e.g. {_NAMES[key]}, not {given}.")
    raise ConfigError(f"{key} expects a number, a text, a list, a dictionary or None, not {given}.")


class Resolver:
    """Checks the configurations of one command; checks each choice of files only once."""

    def __init__(self, arguments: list[str]) -> None:
        """Initialize with the arguments of the command."""
        from rlzoo_plus.config.compose import config_dirs

        self._dirs = config_dirs(arguments)
        self._names_tuned = any(argument.lstrip("+").startswith("tuned=") for argument in arguments)
        self._file_notes: dict[str, list[str]] = {}

    def resolve(self, composed: Composed, *, tunes: bool = False) -> tuple[RunConfig, list[str]]:
        """Return the checked configuration, and notes for the user.

        Args:
            composed: The composed configuration.
            tunes: Whether it may be that of a study.

        Raises:
            ConfigError: The configuration is wrong.
        """
        from rlzoo_plus.config.compose import refuse_places
        from rlzoo_plus.config.resolve import resolve

        # The user's files may set them, too.
        refuse_places(composed.places)
        choices = composed.choices
        key = repr(sorted(choices.items()))
        if key not in self._file_notes:
            self._file_notes[key] = self._notes_on_files(choices)
        resolved = resolve(composed.values, env_name=choices.get("env"))
        config = resolved.config
        if config.hpo is not None and not tunes:
            raise ConfigError(
                f"hpo={choices.get('hpo')} is a study of many runs: add -m (and leave "
                "hydra/sweeper to hpo)."
            )
        if config.init_from is not None:
            from rlzoo_plus.training.warm_start import with_source

            config = with_source(config)
        return config, [*self._file_notes[key], *resolved.warnings]

    def _notes_on_files(self, choices: Mapping[str, Any]) -> list[str]:
        from rlzoo_plus.config.compose import group_options, missing_tuned
        from rlzoo_plus.config.search_path import shadowing_notes
        from rlzoo_plus.errors import unknown_name

        notes = shadowing_notes(choices, self._dirs)
        missing = missing_tuned(choices, self._dirs)
        if not missing:
            return notes
        if self._names_tuned:
            known = group_options("tuned", self._dirs)
            raise ConfigError(unknown_name("tuned", missing, known, f"ls {self._dirs[-1]}/tuned/*"))
        return [
            f"no tuned values for {missing} (conf/tuned/{missing}.yaml): using the defaults "
            f"of conf/algo/{choices.get('algo')}.yaml",
            *notes,
        ]
