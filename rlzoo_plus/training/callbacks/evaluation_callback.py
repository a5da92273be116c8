"""Evaluates while training, records each evaluation, and saves the best policy."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.agents.policy import Policy, save_weights
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.result import EvaluationRecord, recorded_numbers
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.finite import require_finite
from rlzoo_plus.envs.seeding import evaluation_seeds
from rlzoo_plus.envs.single import longest_episode
from rlzoo_plus.training.callbacks.background_evaluator import (
    BackgroundEvaluator,
    Outcome,
    Request,
    load_accounts,
)
from rlzoo_plus.training.callbacks.base import RunCallback, StopRequest
from rlzoo_plus.training.callbacks.outputs import RunLogger
from rlzoo_plus.training.evaluation import EvaluationStopped, evaluate
from rlzoo_plus.training.metrics import load_metrics

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

log = logging.getLogger(__name__)
# How long a run that is to end waits for an evaluation beside it, also where an episode can be of
# any length, and how often it looks [s].
_PATIENCE_S, _PATIENCE_WITHOUT_LIMIT_S, _LOOK_S = 20.0, 0.5, 0.2


@dataclass
class Pending:
    """An evaluation that is being made beside the training."""

    step: int  # environment steps of its policy
    policy: Request  # what the policy is made of
    # Called with True when the outcome is known, with False when nobody waits for it any more.
    on_known: Callable[[bool], None] = lambda _: None


class EvaluationCallback(RunCallback):
    """Callback that evaluates the policy every `eval.every_steps` environment steps.

    Attributes:
        last: The record of the newest evaluation, None before the first.
        best: The record with the highest mean return so far.
        since_best: Evaluations since then.
    """

    def __init__(
        self,
        config: RunConfig,
        run_dir: RunDir,
        player: VecEnv | BackgroundEvaluator,
        stop: StopRequest | None = None,
    ) -> None:
        """Create the callback; `player` is what plays beside, or environments to play in here."""
        super().__init__()
        self.config, self.run_dir, self.player = config, run_dir, player
        self.stop = stop or StopRequest()
        self.metrics = load_metrics(config.eval.metrics)
        self.seeds = evaluation_seeds(int(config.eval.episodes))
        self.last: EvaluationRecord | None = None
        self.best: EvaluationRecord | None = None
        self.since_best = 0
        self.pending: Pending | None = None
        # State of the environments after the last whole evaluation.
        self._accounts: list[dict[str, Any]] = []
        self._has_told_of_cuts = False
        self.listeners: list[Callable[[EvaluationRecord, bool], None]] = []
        # Plays other episodes with a policy, and returns the numbers of each.
        self.plays_more: Callable[[Policy], list[dict[str, float]]] | None = None
        self._next = 0 if config.eval.at_start else self._following(0)

    def on_iteration(self) -> None:
        """Evaluate if it is time, or begin to.

        Raises:
            StopTraining: The run is to end, and an evaluation beside it takes too long.
        """
        if self.pending is not None and self._is_awaited(self.pending):
            self.settle(may_end=True)
        if self.pending is not None or self._next is None or self.model.num_timesteps < self._next:
            return
        if isinstance(self.player, BackgroundEvaluator):
            if not self._is_signalled():  # else still due, as below
                self._begin(self.player)
            return
        try:
            self.evaluate_now()
        except EvaluationStopped:
            return  # still due: the run stops at this step, and evaluates when it is resumed
        self._next = self._following(self.model.num_timesteps)

    def evaluate_now(self) -> EvaluationRecord:
        """Evaluate the policy as it is, unless that was done at this very step.

        Raises:
            EvaluationStopped: The run is to end.
        """
        self.settle()
        step = self.model.num_timesteps
        if self.last is not None and self.last["step"] == step:
            return self.last
        require_finite(self.model)
        policy = Request.of_agent(self.model)
        if isinstance(self.player, BackgroundEvaluator):
            self.player.begin(policy)
            outcome = self.player.result(self._is_signalled)
        else:
            result = evaluate(
                Policy.of_agent(self.model),
                self.player,
                self.seeds,
                deterministic=self.config.eval.deterministic,
                metrics=self.metrics,
                is_asked_to_stop=self._is_signalled,
            )
            if self.plays_more is not None:
                result.measured.extend(self.plays_more(Policy.of_agent(self.model)))
            outcome = result, self.player.env_method("accounts")
        return self._conclude(step, policy, outcome)

    def settle(self, *, may_end: bool = False) -> None:
        """Wait for the evaluation beside the training, and do what its outcome calls for.

        Args:
            may_end: If the run is to end, wait only a while; it ends where the evaluation began.

        Raises:
            StopTraining: The run ends there.
        """
        pending, player = self.pending, self.player
        if pending is None:
            return
        assert isinstance(player, BackgroundEvaluator)
        has_limit = longest_episode(self.config) is not None
        patience_s = _PATIENCE_S if has_limit else _PATIENCE_WITHOUT_LIMIT_S
        until = time.monotonic() + patience_s
        while may_end and not player.is_done(_LOOK_S):
            if not self._is_signalled():
                until = time.monotonic() + patience_s
            elif time.monotonic() > until:
                self._give_up(pending)
        try:
            # Where the process has died, this one plays.
            outcome = player.result(self._is_signalled) if may_end else player.result()
        except EvaluationStopped:
            self._give_up(pending)
        self.pending = None
        try:
            self._conclude(pending.step, pending.policy, outcome)
            self._next = self._following(pending.step)
            pending.on_known(True)
        finally:
            self._rows.release()

    def _give_up(self, pending: Pending) -> NoReturn:
        log.warning("the evaluation of step %s takes too long: the run ends there", pending.step)
        self.pending = None
        self._rows.release(write=False)
        pending.on_known(False)
        raise StopTraining(self.stop.signal_reason, interrupted=True)

    def _begin(self, player: BackgroundEvaluator) -> None:
        """Begin an evaluation; what is logged meanwhile waits for its record."""
        require_finite(self.model)
        self.pending = Pending(self.model.num_timesteps, Request.of_agent(self.model))
        self._rows.hold()
        player.begin(self.pending.policy)

    def _is_awaited(self, pending: Pending) -> bool:
        """Return whether an evaluation is done, or must be before the run goes on."""
        assert isinstance(self.player, BackgroundEvaluator)
        following = self._following(pending.step)
        is_next_due = following is not None and self.model.num_timesteps >= following
        return is_next_due or self._is_signalled() or self.player.is_done()

    def _is_signalled(self) -> bool:
        return self.stop.signal_number is not None

    @property
    def _rows(self) -> RunLogger:
        assert isinstance(self.model.logger, RunLogger)
        return self.model.logger

    def _following(self, step: int) -> int | None:
        """Return when the next evaluation after one at `step` is due."""
        every = self.config.eval.every_steps
        return (step // every + 1) * every if isinstance(every, int) else None

    def _conclude(self, step: int, policy: Request, outcome: Outcome) -> EvaluationRecord:
        """Record an evaluation, and keep the policy if it is the best."""
        result, self._accounts = outcome
        if result.about_cuts and not self._has_told_of_cuts:
            self._has_told_of_cuts = True
            log.warning(result.about_cuts)
        record = self.last = result.record(step)
        self._write(record)
        is_best = self._is_best(record["mean_return"])
        self.since_best = 0 if is_best else self.since_best + 1
        if is_best:
            self.best = record
            best, about = self.run_dir.best, dict(record)
            weights, normalizer = policy.weights, policy.normalizer
            save_weights(best, self.model, self.config, about, weights, normalizer)
            if self.config.export.sb3_zip:
                export_sb3(self.model, self.run_dir, "best")
        for listener in self.listeners:
            listener(record, is_best)
        return record

    def _write(self, record: EvaluationRecord) -> None:
        """Append a record to the run's file, and write its metrics to every output."""
        file = self.run_dir.evaluations_file
        try:
            append_records(file, [record])
        except OSError as error:
            log.warning("%s lacks step %s: %s; training goes on", file, record["step"], error)
        values = {f"eval/{name}": value for name, value in recorded_numbers(record).items()}
        # Not through the logger, which holds training metrics for another step.
        for output in self.model.logger.output_formats:
            output.write(values, dict.fromkeys(values, ()), record["step"])

    def state_dict(self) -> dict[str, Any]:
        """Return the outcome so far, and when the next evaluation is."""
        outcome = {"last": self.last, "best": self.best, "since_best": self.since_best}
        return {**outcome, "next": self._next, "accounts": self._accounts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore an outcome."""
        self.last, self.best = (_checked_record(state[name]) for name in ("last", "best"))
        self.since_best, self._next = state["since_best"], state["next"]
        if not all(type(number) is int for number in (self.since_best, self._next or 0)):
            raise ValueError("the step of the next evaluation is not a whole number")
        self._accounts = state.get("accounts", [])
        if isinstance(self.player, BackgroundEvaluator):
            self.player.load_accounts(self._accounts)
        else:
            load_accounts(self.player, self._accounts)

    def missing_best(self) -> list[str]:
        """Return a text if best/ is lost, else nothing."""
        if self.best is not None:
            try:
                load_bundle(self.run_dir.best)
            except DamagedFolderError:
                return [f"best/ of step {self.best['step']} is missing or damaged"]
        return []

    def keep_saved_best(self) -> None:
        """Keep the policy in best/ if it is better than the best that was restored.

        A run that is resumed inexactly from an earlier step may not find that policy again.
        """
        try:
            about = load_bundle(self.run_dir.best).about
        except DamagedFolderError:
            return
        record: Any = {key: about[key] for key in EvaluationRecord.__annotations__ if key in about}
        # Records of an earlier version have no metrics.
        is_whole = len({**record, "metrics": {}}) == len(EvaluationRecord.__annotations__)
        if is_whole and self._is_best(record["mean_return"]):
            self.best = record
            log.info("best/ of step %s stays the best", f"{record['step']:,}")

    def _is_best(self, mean_return: float) -> bool:
        """Return whether a mean return is the best; NaN never is, and never stays it."""
        before = math.nan if self.best is None else self.best["mean_return"]
        return mean_return > before or not math.isfinite(before)


def _checked_record(record: Any) -> EvaluationRecord | None:
    """Check a record from a checkpoint: it is compared, printed and written."""
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
