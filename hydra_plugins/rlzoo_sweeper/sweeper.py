"""A Hydra sweeper that runs every combination of values, or with `hpo` a study."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

    from rlzoo_plus.config.composer import Composed


class RlzooSweeper(BasicSweeper):
    """Hydra's basic sweeper; a study asks for one composed configuration at a time instead.

    The task function is that of `rlzoo_plus.config.compose.run_hydra`.
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
        from hydra.errors import HydraException

        from rlzoo_plus.config.composer import Composer

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
        from hydra.core.override_parser.overrides_parser import OverridesParser

        from hydra_plugins.rlzoo_launcher.launcher import RlzooLauncher

        assert self.hydra_context is not None
        assert self.launcher is not None
        # Which files glob(*) stands for is known to the loader.
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        words = [*(f"{key}={value}" for key, value in (self.params or {}).items()), *arguments]
        returns: list[Any] = []
        number = 0
        for batch in self.split_arguments(parser.parse_overrides(words), self.max_batch_size):
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
