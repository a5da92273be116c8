"""`EpisodeVideo`: records the policy while it learns."""

from __future__ import annotations

import logging
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.analysis.find_run import Place, read_config
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.evaluation import one_torch_thread
from rlzoo_plus.training.media import record_video

log = logging.getLogger(__name__)


class EpisodeVideo(BaseCallback):
    """Callback that records a video of the policy every so many environment steps.

    It is written to `videos/step-<steps>.mp4` in the run directory, in an environment of its own,
    without exploration and always with the same episodes. An error is a warning.
    """

    def __init__(self, every_steps: int = 50_000, seconds: float = 5.0) -> None:
        """Create a callback.

        Args:
            every_steps: Environment steps between two videos; the first is of the start.
            seconds: Their length [s].
        """
        super().__init__()
        if every_steps < 1 or seconds <= 0:
            raise ConfigError(f"every_steps={every_steps}, seconds={seconds}: must be above 0.")
        self.every_steps, self.seconds = every_steps, seconds
        self._next = 0

    def _on_rollout_start(self) -> None:
        step = self.model.num_timesteps
        if step < self._next:
            return
        self._next = (step // self.every_steps + 1) * self.every_steps
        run_dir = RunDir(Path(str(self.logger.dir)))
        out = run_dir.videos / f"step-{step:09d}.mp4"
        try:
            config = read_config(Place(run_dir.path))
            policy = Policy.of_agent(self.model)
            policy.about["step"] = step
            with generators_kept(), one_torch_thread():
                record_video(config, [(config.algo.name, policy)], out, seconds=self.seconds)
        # A renderer can fail in any way; the training must not.
        except Exception as error:
            log.warning("no %s: %s", out.name, error)

    def _on_step(self) -> bool:
        return True
