"""A Hydra sweeper: hands the command line, and a way to compose trials, to the study that runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra.plugins.sweeper import Sweeper

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class RlzooSweeper(Sweeper):
    """Lets the task function's `batch` tune; it asks for one composed configuration at a time.

    The task function is that of `rlzoo_plus.config.compose.run_hydra`.
    """

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what Hydra gives."""
        self.hydra_context = hydra_context
        self.task = task_function
        self.config = config

    def sweep(self, arguments: list[str]) -> Any:
        """Run the study; return what its batch returns."""
        from hydra.errors import HydraException

        from rlzoo_plus.config.compose import compose_job

        tune = getattr(getattr(self.task, "batch", None), "tune", None)
        if tune is None:
            raise HydraException("hydra/sweeper=rlzoo works with rlzoo-plus train only")
        numbers = itertools.count()

        def compose(overrides: Sequence[str]) -> DictConfig:
            assert self.hydra_context is not None
            return compose_job(self.hydra_context, self.config, next(numbers), overrides)

        return tune(arguments, compose)
