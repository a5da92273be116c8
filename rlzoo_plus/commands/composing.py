"""From the words of a command line to checked configurations, as `train` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlzoo_plus.config.schema import RunConfig


def compose_run(overrides: list[str]) -> RunConfig:
    """Compose and check a configuration as `train` does, without training.

    Raises:
        ConfigError: Something in it is wrong.
    """
    from rlzoo_plus.config.compose import run_hydra

    configs: list[RunConfig] = []
    mistakes: list[ConfigError] = []

    def job(cfg: DictConfig) -> None:
        try:
            configs.append(resolve_cfg(cfg, overrides)[0])
        except ConfigError as error:
            mistakes.append(error)

    run_hydra(job, overrides)
    if mistakes:
        raise mistakes[0]
    return configs[0]


def resolve_cfg(
    cfg: DictConfig, arguments: list[str], *, tunes: bool = False
) -> tuple[RunConfig, list[str]]:
    """Check what Hydra composed; return the configuration and what the user should know.

    Args:
        cfg: The composed configuration.
        arguments: The command line.
        tunes: Whether it may be that of a study.

    Raises:
        ConfigError: Something in it is wrong.
    """
    from hydra.core.hydra_config import HydraConfig

    from rlzoo_plus.config.compose import config_dirs, group_options, missing_tuned, refuse_places
    from rlzoo_plus.config.references import plain_values
    from rlzoo_plus.config.resolve import resolve
    from rlzoo_plus.config.search_path import shadowing_notes
    from rlzoo_plus.config.suggest import unknown_name

    hydra = HydraConfig.get()
    # A file of the user's may set them, too.
    places = {"hydra.run.dir": hydra.run.dir, "hydra.sweep.dir": hydra.sweep.dir}
    refuse_places({**places, "hydra.job.chdir": hydra.job.chdir})
    choices = dict(hydra.runtime.choices)
    dirs = config_dirs(arguments)
    missing = missing_tuned(choices, dirs)
    if missing and any(argument.lstrip("+").startswith("tuned=") for argument in arguments):
        raise ConfigError(
            unknown_name("tuned", missing, group_options("tuned", dirs), f"ls {dirs[-1]}/tuned/*")
        )
    resolved = resolve(plain_values(cfg), env_name=choices.get("env"))
    if resolved.config.hpo is not None and not tunes:
        raise ConfigError(
            f"hpo={choices.get('hpo')} searches for values over many runs: add -m (and leave "
            "hydra/sweeper to hpo)."
        )
    notes = [*shadowing_notes(choices, dirs), *resolved.warnings]
    if missing:
        notes.insert(
            0,
            f"no tuned values for {missing} (conf/tuned/{missing}.yaml): using the defaults of "
            f"conf/algo/{choices.get('algo')}.yaml",
        )
    return resolved.config, notes
