"""Moves a run through the stages of its curriculum."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import numpy as np

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.config.curriculum import StageCondition
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.training.callbacks.base import RunCallback
from rlzoo_plus.training.callbacks.checkpoint_callback import CheckpointCallback
from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback

log = logging.getLogger(__name__)


class StageOver(StopTraining):
    """End training in the environment of a stage; it goes on in that of another one."""


class CurriculumCallback(RunCallback):
    """Callback that changes the stage at the top of an iteration, with a checkpoint.

    The run goes on from that checkpoint in new environments, as it would after a kill, so that both
    are the same.

    Attributes:
        stage: Number of the stage; that of the run's own environment is the highest.
    """

    def __init__(
        self,
        config: RunConfig,
        stage: int,
        checkpoint: CheckpointCallback,
        evaluation: EvaluationCallback | None,
    ) -> None:
        super().__init__()
        self.stages, self.stage = config.curriculum, stage
        self.checkpoint, self.evaluation = checkpoint, evaluation
        self._begun_at = 0
        # Return and success of the newest training episodes of the stage, NaN where unknown.
        self._recent: deque[tuple[float, float]] = deque(
            maxlen=max(one.episodes for one in self.stages)
        )
        checkpoint.snapshot.stage = stage

    def on_iteration(self) -> None:
        """Log the stage, and change it if a condition holds.

        Raises:
            StageOver: It was changed.
        """
        self.logger.record("curriculum/stage", self.stage)
        target = self._target()
        if target is None:
            return
        step, before = int(self.model.num_timesteps), (self.stage, self._begun_at)
        recent = list(self._recent)
        self.stage, self._begun_at = target, step
        self._recent.clear()
        snapshot = self.checkpoint.snapshot
        snapshot.stage, snapshot.begins_stage = target, True
        self.checkpoint.save(waits=True)
        if not self.checkpoint.has_saved(step):
            # The reason is logged; the next iteration tries again.
            self.stage, self._begun_at = before
            self._recent.extend(recent)
            snapshot.stage, snapshot.begins_stage = self.stage, False
            return
        name = "own environment" if target == len(self.stages) else f"stage {target}"
        log.info("step %s: the curriculum goes on to %s", f"{step:,}", name)
        # As after a kill: what goes on from the checkpoint logs at its usual steps.
        raise StageOver(f"stage {before[0]} of the curriculum is over", interrupted=True)

    def _target(self) -> int | None:
        """Return the stage to change to, None to stay."""
        if self.stage < len(self.stages):
            one = self.stages[self.stage]
            if self._holds(one.until, one.episodes, least=True):
                return self.stage + 1
        if self.stage > 0:
            one = self.stages[self.stage - 1]
            if one.fall_back is not None and self._holds(one.fall_back, one.episodes, least=False):
                return self.stage - 1
        return None

    def _holds(self, condition: StageCondition, episodes: int, *, least: bool) -> bool:
        """Return whether all that a condition names is known, and at least, or at most, that."""
        for name, bound in condition.given().items():
            value = self._value(name, episodes)
            if value is None or not (value >= bound if least else value <= bound):
                return False
        return True

    def _value(self, name: str, episodes: int) -> float | None:
        if name == "steps":
            return int(self.model.num_timesteps) - self._begun_at
        if name.startswith("eval_"):
            last = None if self.evaluation is None else self.evaluation.last
            if last is None or last["step"] <= self._begun_at:
                return None
            return last["success_rate"] if name == "eval_success_rate" else last["mean_return"]
        if len(self._recent) < episodes:
            return None
        newest = list(self._recent)[-episodes:]
        mean = float(np.mean([one[name == "success_rate"] for one in newest]))
        return None if np.isnan(mean) else mean

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if (episode := info.get("episode")) is not None:
                success = info.get("is_success")
                share = float("nan") if success is None else float(success)
                self._recent.append((float(episode["r"]), share))
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the stage, when it began, and its newest episodes."""
        recent = np.array(self._recent, np.float64).reshape(-1, 2)
        return {"stage": self.stage, "begun_at": self._begun_at, "recent": recent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        recent = state["recent"]
        is_whole = type(state["begun_at"]) is int and isinstance(recent, np.ndarray)
        if not is_whole or recent.ndim != 2 or recent.shape[1] != 2 or state["stage"] != self.stage:
            raise ValueError("the state of the curriculum is malformed")
        self._begun_at = state["begun_at"]
        self._recent.clear()
        self._recent.extend((float(r), float(s)) for r, s in recent)
