"""From overrides, typed or given from Python, to checked configurations."""

from __future__ import annotations

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
# What Hydra reads as something else.
_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "null", "none", "nan", "inf")


def compose(
    overrides: Iterable[str] = (), config_dir: str | Path | None = None, **values: Any
) -> RunConfig:
    """Compose and check the configuration of a run, as `rlzoo-plus train` does.

    Args:
        overrides: As on the command line, e.g. `["algo=sac", "env=cartpole_bullet"]`.
        config_dir: A folder like conf/ with files of your own, which come first.
        **values: More overrides: `seed=3`, `algo={"hyperparams": {"gamma": 0.9}}`, or
            `**{"algo.hyperparams.gamma": 0.9}`.

    Raises:
        ConfigError: Something in it is wrong.
    """
    words = words_of(overrides, config_dir, values)
    config, notes = compose_noting(words)
    for note in notes:
        log.warning("note: %s", note)
    return config


def compose_noting(arguments: list[str]) -> tuple[RunConfig, list[str]]:
    """Compose and check a configuration; return it, and what the user should know."""
    from rlzoo_plus.config.compose import compose_once

    return resolve_cfg(compose_once(arguments), arguments)


def compose_run(arguments: list[str]) -> RunConfig:
    """Compose and check a configuration as `train` does, without training.

    Args:
        arguments: Overrides and `--config-dir`, as on the command line.

    Raises:
        ConfigError: Something in it is wrong.
    """
    return compose_noting(arguments)[0]


def words_of(
    overrides: Iterable[str], config_dir: str | Path | None, values: Mapping[str, Any]
) -> list[str]:
    """Return overrides and keyword arguments as the words of a command line.

    Raises:
        ConfigError: An override is no text, a value cannot be written, or there is no such folder.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"{overrides}: give a list of overrides, e.g. [{overrides!r}].")
    words = list(overrides)
    for word in words:
        if not isinstance(word, str) or word.startswith("-"):
            raise ConfigError(f"{word!r}: an override is a text like 'algo=sac'.")
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(f"config_dir={config_dir}: no such directory.")
    options = [] if config_dir is None else ["--config-dir", str(config_dir)]
    return [*options, *words, *(word for key in values for word in _words(key, values[key]))]


def _words(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _words(f"{key}.{name}", item)
    else:
        yield f"{key}={_written(value, key)}"


def _written(value: Any, key: str) -> str:
    """Return a value as Hydra's command line reads it."""
    if isinstance(value, Path):
        value = str(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        if _PLAIN_TEXT.fullmatch(value) and value.lower() not in _NO_TEXTS:
            return value
        # Hydra reads a backslash as one, but before a quote.
        quoted = re.sub(r"(\\*)'", r"\1\1\\'", value)
        return "'" + re.sub(r"(\\+)$", r"\1\1", quoted) + "'"
    if isinstance(value, Mapping):
        items = (f"{name}: {_written(item, key)}" for name, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_written(item, key) for item in value) + "]"
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        # A number of NumPy's.
        return _written(value.item(), key)
    raise ConfigError(
        f"{key}: a {type(value).__name__} is no value of a configuration. Give a number, a text, "
        "a list, a dictionary or None."
    )


def resolve_cfg(
    composed: Composed, arguments: list[str], *, tunes: bool = False
) -> tuple[RunConfig, list[str]]:
    """Check what was composed; see `Resolver.resolve`."""
    return Resolver(arguments).resolve(composed, tunes=tunes)


class Resolver:
    """Checks the configurations of one command; what the choice of files decides, it does once."""

    def __init__(self, arguments: list[str]) -> None:
        """Begin with a command line."""
        from rlzoo_plus.config.compose import config_dirs

        self._dirs = config_dirs(arguments)
        self._names_tuned = any(word.lstrip("+").startswith("tuned=") for word in arguments)
        self._file_notes: dict[str, list[str]] = {}

    def resolve(self, composed: Composed, *, tunes: bool = False) -> tuple[RunConfig, list[str]]:
        """Return the configuration and what the user should know.

        Args:
            composed: What was composed.
            tunes: Whether it may be that of a study.

        Raises:
            ConfigError: Something in it is wrong.
        """
        from rlzoo_plus.config.compose import refuse_places
        from rlzoo_plus.config.resolve import resolve

        # A file of the user's may set them, too.
        refuse_places(composed.places)
        choices = composed.choices
        key = repr(sorted(choices.items()))
        if key not in self._file_notes:
            self._file_notes[key] = self._notes_on_files(choices)
        resolved = resolve(composed.values, env_name=choices.get("env"))
        if resolved.config.hpo is not None and not tunes:
            raise ConfigError(
                f"hpo={choices.get('hpo')} searches for values over many runs: add -m (and leave "
                "hydra/sweeper to hpo)."
            )
        config = resolved.config
        if config.init_from is not None:
            from rlzoo_plus.runs.warm_start import with_source

            config = with_source(config)
        return config, [*self._file_notes[key], *resolved.warnings]

    def _notes_on_files(self, choices: Mapping[str, Any]) -> list[str]:
        from rlzoo_plus.config.compose import group_options, missing_tuned
        from rlzoo_plus.config.search_path import shadowing_notes
        from rlzoo_plus.errors import unknown_name

        missing = missing_tuned(choices, self._dirs)
        if missing and self._names_tuned:
            known = group_options("tuned", self._dirs)
            raise ConfigError(unknown_name("tuned", missing, known, f"ls {self._dirs[-1]}/tuned/*"))
        notes = shadowing_notes(choices, self._dirs)
        if missing:
            notes.insert(
                0,
                f"no tuned values for {missing} (conf/tuned/{missing}.yaml): using the defaults "
                f"of conf/algo/{choices.get('algo')}.yaml",
            )
        return notes
