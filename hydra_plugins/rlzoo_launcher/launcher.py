"""A Hydra launcher that composes all jobs of a batch, then runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class RlzooLauncher(Launcher):
    """Gives each composed job to the task function, then lets its `batch` run them.

    The task function is that of `rlzoo_plus.config.compose.run_hydra`.
    """

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store what Hydra passes; refuse a secret in a file before Hydra writes it to disk."""
        from omegaconf import OmegaConf

        from rlzoo_plus.config.references import refuse_secrets

        values = OmegaConf.to_container(config, resolve=False)
        assert isinstance(values, dict)
        known = {str(key): value for key, value in values.items() if key != "hydra"}
        refuse_secrets(known, composed=False)
        self.context = hydra_context
        self.task = task_function
        self.config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Compose all jobs, run them, and return the mean return of each one's best evaluation."""
        from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
        from hydra.errors import HydraException

        from rlzoo_plus.config.composer import Composer, compose_batch

        batch = getattr(self.task, "batch", None)
        if batch is None:
            raise HydraException("hydra/launcher=rlzoo works with rlzoo-plus train only")
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        composer = Composer(self.context.config_loader, self.config)
        compose_batch(composer, job_overrides, self.task, batch, initial_job_idx)
        values: list[Any] = batch.run()
        returns = []
        for overrides, value in zip(job_overrides, values, strict=True):
            done = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
            done.return_value = value
            returns.append(done)
        return returns
