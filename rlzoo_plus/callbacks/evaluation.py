"""Evaluate while training, keep the record, and keep the best policy."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlzoo_plus.agents.finite import require_finite
from rlzoo_plus.agents.policy import Policy, save_policy
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.result import EvaluationRecord, recorded_numbers
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.callbacks.base import RunCallback, StopRequest
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.seeding import evaluation_seeds
from rlzoo_plus.evaluation import EvaluationStopped, evaluate
from rlzoo_plus.metrics import load_metrics

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

log = logging.getLogger(__name__)


class EvaluationCallback(RunCallback):
    """Evaluates every so many environment steps.

    Attributes:
        last: The record of the newest evaluation, None before the first.
        best: The record with the highest mean return so far.
        since_best: Evaluations since then.
    """

    def __init__(
        self, config: RunConfig, run_dir: RunDir, venv: VecEnv, stop: StopRequest | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.run_dir = run_dir
        self.venv = venv
        self.stop = stop or StopRequest()
        self.metrics = load_metrics(config.eval.metrics)
        self.seeds = evaluation_seeds(int(config.eval.episodes))
        self.last: EvaluationRecord | None = None
        self.best: EvaluationRecord | None = None
        self.since_best = 0
        # What the environments remember after the last whole evaluation.
        self._accounts: list[dict[str, Any]] = []
        self.listeners: list[Callable[[EvaluationRecord, bool], None]] = []
        self._next = 0 if config.eval.at_start else config.eval.every_steps

    def on_iteration(self) -> None:
        """Evaluate if it is time."""
        if self._next is None or self.model.num_timesteps < self._next:
            return
        try:
            self.evaluate_now()
        except EvaluationStopped:
            return  # due still: the run stops at this step, and makes it when it goes on
        every = self.config.eval.every_steps
        if not isinstance(every, int):
            self._next = None
        else:
            self._next = (self.model.num_timesteps // every + 1) * every

    def evaluate_now(self) -> EvaluationRecord:
        """Evaluate the policy as it is, unless that was done at this very step.

        Raises:
            EvaluationStopped: The run is to end.
        """
        step = self.model.num_timesteps
        if self.last is not None and self.last["step"] == step:
            return self.last
        require_finite(self.model)
        deterministic = self.config.eval.deterministic
        policy = Policy.of_agent(self.model)
        result = evaluate(
            policy,
            self.venv,
            self.seeds,
            deterministic=deterministic,
            metrics=self.metrics,
            is_asked_to_stop=lambda: self.stop.signal_number is not None,
        )
        self._accounts = self.venv.env_method("accounts")
        self.last = result.record(step)
        self._record(self.last)
        self._write_metrics(self.last)
        is_best = self._is_best(self.last["mean_return"])
        self.since_best = 0 if is_best else self.since_best + 1
        if is_best:
            self.best = self.last
            save_policy(self.run_dir.best, self.model, self.config, self.last)
            if self.config.export.sb3_zip:
                export_sb3(self.model, self.run_dir, "best")
        for listener in self.listeners:
            listener(self.last, is_best)
        return self.last

    def _record(self, record: EvaluationRecord) -> None:
        """Append a record to the run's file; an error costs the record, not the training."""
        file = self.run_dir.evaluations_file
        try:
            append_records(file, [record])
        except OSError as error:
            log.warning("%s lacks step %s: %s; training goes on", file, record["step"], error)

    def state_dict(self) -> dict[str, Any]:
        """Return the outcome so far, and when the next evaluation is."""
        return {
            "last": self.last,
            "best": self.best,
            "since_best": self.since_best,
            "next": self._next,
            "accounts": self._accounts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from an outcome."""
        self.last, self.best = (_checked_record(state[name]) for name in ("last", "best"))
        self.since_best, self._next = state["since_best"], state["next"]
        if not all(type(number) is int for number in (self.since_best, self._next or 0)):
            raise ValueError("when the next evaluation is does not say it")
        self._accounts = state.get("accounts", [])
        for rank, remembered in enumerate(self._accounts):
            (problem,) = self.venv.env_method("load_accounts", remembered, indices=rank)
            if problem is not None:
                raise ValueError(f"evaluation environment {rank}: {problem}")

    def missing_best(self) -> list[str]:
        """Return that best/ is lost, if the evaluations so far had found one."""
        try:
            if self.best is not None:
                load_bundle(self.run_dir.best)
        except DamagedFolderError:
            return [f"best/ of step {self.best['step']} is missing or damaged"]
        return []

    def keep_saved_best(self) -> None:
        """Take the policy in best/ for the best if it is better than what is remembered.

        A run that goes on inexactly from an earlier step may not find that policy again.
        """
        try:
            about = load_bundle(self.run_dir.best).about
        except DamagedFolderError:
            return
        record: Any = {key: about[key] for key in EvaluationRecord.__annotations__ if key in about}
        # Those of an earlier version have no metrics.
        is_whole = len({**record, "metrics": {}}) == len(EvaluationRecord.__annotations__)
        if is_whole and self._is_best(record["mean_return"]):
            self.best = record
            log.info("best/ of step %s stays the best", f"{record['step']:,}")

    def _is_best(self, mean_return: float) -> bool:
        """Compare; what is not a number is never better, and never stays the best."""
        before = math.nan if self.best is None else self.best["mean_return"]
        return self.best is None or mean_return > before or not math.isfinite(before)

    def _write_metrics(self, record: EvaluationRecord) -> None:
        """Pass the numbers to every output at once, apart from the training metrics pending."""
        values = {f"eval/{name}": value for name, value in recorded_numbers(record).items()}
        for output in self.model.logger.output_formats:
            output.write(values, dict.fromkeys(values, ()), record["step"])


def _checked_record(record: Any) -> EvaluationRecord | None:
    """Check what a checkpoint says of an evaluation: it is compared, printed and written."""
    if record is None:
        return None
    needed = [record["step"], record["mean_return"], record["std_return"]]
    success, metrics = record["success_rate"], record.get("metrics", {})
    needed += [0 if success is None else success, *metrics.values()]
    if not all(isinstance(v, (int, float)) for v in needed):
        raise ValueError("an evaluation has no mean return")
    return record  # type: ignore[no-any-return]


def export_sb3(agent: Any, run_dir: RunDir, which: str) -> None:
    """Write the agent in the format of Stable-Baselines3 beside a bundle, for exchange."""
    target = run_dir.path / f"{which}_sb3"
    venv = agent.get_vec_normalize_env()
    try:
        target.mkdir(exist_ok=True)
        agent.save(target / "model.zip")
        if venv is not None:
            venv.save(str(target / "vecnormalize.pkl"))
    except OSError as error:
        log.warning("%s cannot be written: %s; training goes on", target, error)
