"""One way into a configuration: what was typed becomes a checked `RunConfig`, in four stages.

1. Arguments (`config.overrides`): options and overrides are checked, and rewritten for Hydra.
2. Hydra (`config.hydra_app`) composes the files of conf/ and of the user with them.
3. Resolution (`config.resolve`): types, names and hyperparameters are checked, and `auto` replaced.
4. What needs more than the values: chosen files, a study without `-m`, a warm start's source.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.catalog import DEMONSTRATIONS, PREFERENCES
from rlzoo_plus.config.overrides import (
    check_overrides,
    refuse_places,
    typed_values,
)
from rlzoo_plus.config.python_calls import call_arguments
from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.config.search_path import (
    config_dirs,
    group_options,
    missing_tuned,
    shadowing_notes,
)
from rlzoo_plus.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig

log = logging.getLogger(__name__)


def load(arguments: list[str]) -> RunConfig:
    """Return the configuration of a command line, as `train` does, without training.

    Raises:
        ConfigError: The configuration is wrong.
    """
    return load_noting(arguments)[0]


def load_noting(arguments: list[str]) -> tuple[RunConfig, list[str]]:
    """Return the configuration of a command line, and notes for the user."""
    # Hydra takes a fifth of a second to import.
    from rlzoo_plus.config.hydra_app import compose_once

    check_overrides(arguments)
    composed = compose_once(arguments)
    return Resolver(arguments).resolve(composed)


def load_typed(arguments: list[str]) -> Iterator[tuple[RunConfig, list[str]]]:
    """Yield what `load_noting` returns, with the command line that Hydra has in the shell.

    Nothing where an option such as `--cfg job` or `--info` has printed what it asks for; several
    where the user's own files make Hydra compose several jobs.

    Raises:
        ConfigError: The configuration is wrong.
    """
    from rlzoo_plus.config.hydra_app import run_hydra

    found: list[Composed] = []
    variables: dict[str, str] = {}

    def take(composed: Composed) -> None:
        found.append(composed)
        variables.update(os.environ)

    # Nothing is trained inside of Hydra, which would only be between the command and the run.
    run_hydra(take, arguments)
    # Those of hydra.job.env_set are for the training.
    os.environ.update(variables)
    resolver = Resolver(arguments)
    for composed in found:
        yield resolver.resolve(composed)


def compose(
    overrides: Iterable[Any] = (), config_dir: str | Path | None = None, **values: Any
) -> RunConfig:
    """Compose and check the configuration of a run, as `rlzoo-plus train` does.

    Args:
        overrides: As on the command line, e.g. `["algo=sac", "env=cartpole_bullet"]`.
        config_dir: A folder like conf/ with your own files, which are searched first.
        **values: More overrides: `seed=3`, `algo={"hyperparams": {"gamma": 0.9}}`, or
            `**{"algo.hyperparams.gamma": 0.9}`; objects and names of SB3 as for `train`.

    Raises:
        ConfigError: The configuration is wrong.
    """
    config, notes = load_noting(call_arguments(overrides, config_dir, values))
    for note in notes:
        log.warning("note: %s", note)
    return config


def with_sources(config: RunConfig) -> RunConfig:
    """Return a configuration that names what it learns and begins from by their hashes."""
    if any(config.reward_model.model_dump().values()):
        config = import_module(PREFERENCES).with_digest(config)
    if config.data.path is not None or config.teacher.run is not None:
        config = import_module(DEMONSTRATIONS).with_digest(config)
    if config.init_from is None:
        return config
    # Reading weights takes torch.
    from rlzoo_plus.training.warm_start import with_source

    return with_source(config)


class Resolver:
    """The stages after Hydra, for all jobs of a command; each choice of files is checked once."""

    def __init__(self, arguments: list[str]) -> None:
        """Initialize with the arguments of the command."""
        self._dirs = config_dirs(arguments)
        self._names_tuned = "tuned" in typed_values(arguments)
        self._file_notes: dict[str, list[str]] = {}

    def resolve(self, composed: Composed, *, tunes: bool = False) -> tuple[RunConfig, list[str]]:
        """Return the checked configuration, and notes for the user.

        Raises:
            ConfigError: The configuration is wrong.
        """
        # The user's files may set them, too.
        refuse_places(composed.places)
        choices = composed.choices
        key = repr(sorted(choices.items()))
        if key not in self._file_notes:
            self._file_notes[key] = self._notes_on_files(choices)
        resolved = resolve(composed.values, env_name=choices.get("env"))
        config = resolved.config
        if config.hpo is not None and not tunes:
            raise ConfigError(f"hpo={choices.get('hpo')} is a study of many runs: add -m.")
        return with_sources(config), [*self._file_notes[key], *resolved.warnings]

    def _notes_on_files(self, choices: Mapping[str, Any]) -> list[str]:
        """Return notes on the chosen files; refuse a `tuned` that was typed and does not exist."""
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
