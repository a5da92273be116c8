"""The Hydra plugins of rlzoo_plus: a launcher, a sweeper, a search path and its files."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from rlzoo_plus.config.composer import Composed, Composer, compose_batch
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.search_path import first_dirs

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.config_source import ConfigResult
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class RlzooSearchPath(SearchPathPlugin):
    """Adds the user's directories, those of `rlzoo_plus.config.search_path.searched_first`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Search the user's directories before the primary one."""
        for folder in first_dirs():
            search_path.prepend("user", f"own://{folder}", SearchPathQuery(provider="main"))


class RlzooFiles(FileConfigSource):
    """Reads configuration files of the user's own, and says what is wrong with one."""

    @staticmethod
    def scheme() -> str:
        """Return the scheme of a search path that is read like this."""
        return "own"

    def load_config(self, config_path: str) -> ConfigResult:
        """Load a file.

        Raises:
            ConfigError: It is no configuration; the text has the line and the fix.
        """
        # It takes pydantic, which other programs with Hydra must not wait for.
        from rlzoo_plus.config.hydra_errors import checked_file

        name = self._normalize_file_name(config_path)
        with checked_file(Path(self.path) / name):
            return super().load_config(config_path)


class RlzooLauncher(Launcher):
    """Composes all jobs of a batch with the task function, then lets its `batch` run them.

    The task function is that of `rlzoo_plus.config.hydra_app.run_hydra`.
    """

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store what Hydra passes; refuse a secret in a file before Hydra writes it to disk."""
        values = OmegaConf.to_container(config, resolve=False)
        assert isinstance(values, dict)
        own = {str(key): value for key, value in values.items() if key != "hydra"}
        refuse_secrets(own, composed=False)
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Compose all jobs, run them, and return the mean return of each one's best evaluation."""
        batch = getattr(self.task, "batch", None)
        if batch is None:
            raise HydraException("hydra/launcher=rlzoo works with rlzoo-plus train only")
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        composer = Composer(self.context.config_loader, self.config)
        compose_batch(composer, job_overrides, self.task, batch, initial_job_idx)
        returns = []
        for overrides, value in zip(job_overrides, batch.run(), strict=True):
            done = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
            done.return_value = value
            returns.append(done)
        return returns


class RlzooSweeper(BasicSweeper):
    """Hydra's basic sweeper; with `hpo`, a study that composes one configuration at a time.

    The task function is that of `rlzoo_plus.config.hydra_app.run_hydra`.
    """

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store what Hydra passes."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.task = task_function

    def sweep(self, arguments: list[str]) -> Any:
        """Run the jobs, or the study; return what the launcher or the study returns."""
        if self.config is None or self.config.get("hpo") is None:
            return self._run_batches(arguments)
        tune = getattr(getattr(self.task, "batch", None), "tune", None)
        if tune is None:
            raise HydraException("hpo works with rlzoo-plus train only")
        if self.params or self.max_batch_size is not None:
            raise HydraException(
                "hydra.sweeper.params and hydra.sweeper.max_batch_size are for sweeps. "
                "Set the space of a study on the command line or in hpo.space."
            )
        numbers = itertools.count()
        composer = Composer(self.hydra_context.config_loader, self.config)

        def compose(overrides: Sequence[str]) -> Composed:
            return composer.compose(next(numbers), overrides)

        return tune(arguments, compose)

    def _run_batches(self, arguments: list[str]) -> list[Any]:
        assert self.hydra_context is not None
        assert self.launcher is not None
        # The loader knows which files glob(*) stands for.
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = [*(f"{key}={value}" for key, value in (self.params or {}).items()), *arguments]
        returns: list[Any] = []
        number = 0
        for batch in self.split_arguments(parser.parse_overrides(overrides), self.max_batch_size):
            # Our launcher composes all jobs of a batch before the first begins.
            if not isinstance(self.launcher, RlzooLauncher):
                self.validate_batch_is_legal(batch)
            results = self.launcher.launch(batch, initial_job_idx=number)
            for result in results:
                # Raises what the job has raised.
                _ = result.return_value
            returns.append(results)
            number += len(batch)
        return returns
