"""The adapter to Hydra: composes from Python, from a command line, or all jobs of a sweep."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode

from rlzoo_plus.config.composer import ERRORS, Batch, Composed, Composer, compose_batch
from rlzoo_plus.config.hydra_errors import explain
from rlzoo_plus.config.overrides import (
    check_arguments,
    check_overrides,
    partition,
    prepare_overrides,
)
from rlzoo_plus.config.search_path import conf_dir, own_dirs, searched_first
from rlzoo_plus.errors import ConfigError, RunError

_COMPOSING = threading.RLock()


def compose_once(arguments: Sequence[str]) -> Composed:
    """Compose one configuration, without Hydra's command line and without touching `sys.argv`.

    Raises:
        ConfigError: It cannot be composed.
    """
    with _hydra_for(arguments) as overrides:
        return Composed.of(hydra.compose("config", overrides, return_hydra_config=True))


def compose_jobs(
    take: Callable[[Composed], None],
    arguments: Sequence[str],
    batch: Batch,
    parts: Iterable[Sequence[str]] = ((),),
) -> None:
    """Compose every job of a sweep, and give it to `take`; none is run.

    Each of `parts` has overrides that stand before the arguments, in jobs of its own.

    Raises:
        ConfigError: The overrides cannot be read.
    """
    check_overrides(arguments)
    with _hydra_for(arguments) as overrides:
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", overrides, RunMode.MULTIRUN)
        composer = Composer(loader, master)
        if master.get("hpo") is not None:
            batch.tune(overrides, lambda given: composer.compose(0, given))
            return
        # The loader resolves glob(*).
        parser = OverridesParser.create(config_loader=loader)
        for part in parts:
            parsed = parser.parse_overrides([*prepare_overrides(part), *overrides])
            (jobs,) = BasicSweeper.split_arguments(parsed, None)
            compose_batch(composer, jobs, take, batch)


@contextlib.contextmanager
def _hydra_for(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Start Hydra without its command line; yield the overrides as it takes them."""
    hydra_config = HydraConfig.instance()
    # Hydra has one state per process: that of a program around us is restored.
    with _COMPOSING, searched_first(own_dirs(arguments)):
        before = hydra_config.cfg
        try:
            with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
                yield partition(prepare_overrides(arguments))[1]
        except ConfigError:
            raise
        except ERRORS as error:
            raise ConfigError(explain(error, arguments)) from error
        finally:
            hydra_config.cfg = before


def run_hydra(
    job: Callable[[Composed], None], arguments: Sequence[str], batch: Batch | None = None
) -> None:
    """Compose what a command line says and call `job` with it, once for each job of a sweep.

    Args:
        job: Called with each configuration; it may raise ConfigError or RunError.
        arguments: The command line.
        batch: Runs the jobs of a sweep after `job` has taken all of them.

    Raises:
        ConfigError: The configuration cannot be composed.
    """
    check_arguments(arguments)
    # Otherwise Hydra prints errors itself and exits with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = [sys.argv[0], *prepare_overrides(arguments)]
    has_started, mistakes = False, list[Exception]()

    def entered(cfg: Any) -> None:
        nonlocal has_started
        has_started = True
        # Hydra would add a line of its own to an error that passes through it.
        try:
            # Our launcher and sweeper compose by themselves.
            job(cfg if isinstance(cfg, Composed) else Composed.of(cfg))
        except (ConfigError, RunError, *ERRORS[:2]) as error:
            mistakes.append(error)

    entered.batch = batch  # type: ignore[attr-defined]
    decorate = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
    try:
        with searched_first(own_dirs(arguments)):
            decorate(entered)()
        if mistakes:
            raise mistakes[0]
    except (ConfigError, RunError):
        raise
    except ERRORS as error:
        if has_started and not isinstance(error, ERRORS[:2]):
            raise
        raise ConfigError(explain(error, arguments)) from error
