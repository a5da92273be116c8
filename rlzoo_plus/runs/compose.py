"""From the words of a command line to checked configurations, as `train` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig


def compose_run(overrides: list[str]) -> RunConfig:
    """Compose and check a configuration as `train` does, without training.

    Raises:
        ConfigError: Something in it is wrong.
    """
    from rlzoo_plus.config.compose import run_hydra

    configs: list[RunConfig] = []
    mistakes: list[ConfigError] = []

    def job(composed: Composed) -> None:
        try:
            configs.append(resolve_cfg(composed, overrides)[0])
        except ConfigError as error:
            mistakes.append(error)

    run_hydra(job, overrides)
    if mistakes:
        raise mistakes[0]
    return configs[0]


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
        from rlzoo_plus.config.suggest import unknown_name

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
