"""ExpManager: one configuration and one directory in, a trained and evaluated policy out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlzoo_plus.agents.factory import make_agent, thread_policy
from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.agents.policy import save_policy
from rlzoo_plus.artifacts.result import TrainResult
from rlzoo_plus.artifacts.run_dir import FAILED, FINISHED, INTERRUPTED, RUNNING, RunDir
from rlzoo_plus.callbacks import ProgressCallback, RunCallbacks, StopRequest, make_callbacks
from rlzoo_plus.callbacks.evaluation import export_sb3
from rlzoo_plus.callbacks.metrics import make_logger
from rlzoo_plus.callbacks.outputs import write_outcome
from rlzoo_plus.config.own_code import packages_of
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.envs.seeding import SeedStreams, seed_all
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.errors import RunError
from rlzoo_plus.evaluation import EvaluationStopped
from rlzoo_plus.resume.resumer import Resumer
from rlzoo_plus.runs.warm_start import begin_from_source
from rlzoo_plus.tracking import Tracker, make_tracker

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv

log = logging.getLogger(__name__)
ALL_STEPS = "all steps taken"


class ExpManager:
    """Runs one training; it parses no configuration and decides no path.

    A run directory that holds checkpoints goes on from the newest that is whole.
    """

    def __init__(
        self,
        config: RunConfig,
        run_dir: RunDir,
        stop: StopRequest | None = None,
        progress: ProgressCallback | None = None,
        report: Callable[[], list[Path]] | None = None,
        on_evaluation: Callable[[dict[str, Any], bool], None] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            config: The run, checked.
            run_dir: Where all of it goes; `run_dir.start` has been called.
            stop: How it is asked to end from outside.
            progress: What the terminal shows, None for nothing.
            report: Draws and films a finished run; returns the files, for trackers.
            on_evaluation: Called with each evaluation's record, and whether it is the best so far.
        """
        self.config = scheduled(config)
        self.run_dir = run_dir
        self.stop = stop or StopRequest()
        self.progress = progress
        self.report = report
        self.on_evaluation = on_evaluation
        self.files: list[Path] = []
        self.seeds = SeedStreams.from_seed(config.seed)

    def train(self) -> TrainResult:
        """Train, evaluate and keep the policy.

        Raises:
            ConfigError: The algorithm refuses its configuration.
            RunError: The run cannot go on; what it saved before stays.
        """
        tracker = None if self.config.tracker is None else make_tracker(self.config.tracker)
        try:
            self._write("status.json", lambda: self._set_status(RUNNING))
            if tracker is not None:
                tracker.start(self.config.model_dump(mode="json"), self.run_dir.path)
            result = self._train_or_tell(tracker)
        except BaseException as error:
            is_told = isinstance(error, RunError)
            message = str(error) if is_told else f"{type(error).__name__}: {error}"
            try:
                self._set_status(FAILED, message=message)
            except OSError as unwritten:
                log.warning("status.json cannot be written: %s", unwritten)
            if tracker is not None:
                tracker.fail(message)
            raise
        self._finish(result, tracker)
        return result

    def _train_or_tell(self, tracker: Tracker | None) -> TrainResult:
        """Train; code that calls `sys.exit` must not end the command as if all were done."""
        try:
            return self._train(tracker)
        except SystemExit as error:
            raise RunError(f"code in the run called sys.exit({error.code!r}).") from error

    def _train(self, tracker: Tracker | None) -> TrainResult:
        threads, why = thread_policy(self.config)
        torch.set_num_threads(threads)
        log.info("threads: %d (%s)", threads, why)
        seeded = seed_all(self.config.seed)
        log.debug("seeds: %s, environments from %d", seeded, self.seeds.train)
        resumer = Resumer(self.config, self.run_dir)
        try:
            with self.stop.at_once():
                train_env, eval_env = self._make_envs()
        except StopTraining as stop:
            return self._stopped_before(resumer.step, stop.reason)
        try:
            agent = make_agent(self.config, train_env, self.seeds.agent)
            log.info("device: %s", agent.device)
            if agent.device.type != "cpu":
                log.info(
                    "exact resume is certified on the CPU only; rlzoo-plus verify-resume tries it"
                )
            train_env.seed(self.seeds.train)
            agent.set_logger(make_logger(self.config.log, self.run_dir, tracker))
            callbacks = make_callbacks(
                self.config, self.run_dir, eval_env, self.stop, self.progress
            )
            if self.on_evaluation is not None and callbacks.evaluation is not None:
                callbacks.evaluation.listeners.append(self.on_evaluation)
            checkpoint = callbacks.checkpoint
            if self.config.init_from is not None and resumer.is_new:
                begin_from_source(agent, self.config, self.run_dir)
                checkpoint.saves_first = True
            resumer.attach(agent, checkpoint.snapshot, checkpoint.start_at, callbacks.on_iteration)
            return self._learn(agent, callbacks, resumer)
        finally:
            if self.progress is not None:
                self.progress.close()
            _close(train_env, eval_env)

    def _stopped_before(self, step: int, reason: str) -> TrainResult:
        """Return the result of a process that was stopped before it took a step."""
        return TrainResult(
            state=INTERRUPTED,
            reason=f"{reason} while the environments were started",
            num_timesteps=step,
            training_time_s=0.0,
            best=None,
            final=None,
            solved=None,
            config_hash=config_hash(self.config),
        )

    def _make_envs(self) -> tuple[VecEnv, VecEnv | None]:
        train_env = make_train_env(self.config, self.seeds.train, self.run_dir.monitor)
        evaluation = self.config.eval
        if evaluation.every_steps is None:
            return train_env, None
        n_envs = min(int(evaluation.n_envs), int(evaluation.episodes))
        try:
            return train_env, make_eval_env(
                self.config.env, n_envs, self.config.vec_env, packages=packages_of(self.config)
            )
        except BaseException:
            _close(train_env)
            raise

    def _learn(
        self, agent: BaseAlgorithm, callbacks: RunCallbacks, resumer: Resumer
    ) -> TrainResult:
        ended = resumer.ended
        state, reason = FINISHED, ended or ALL_STEPS
        listening = callbacks.as_list()
        try:
            total = self.config.n_timesteps if ended is None else 0
            agent.learn(total, listening, log_interval=self.config.log.interval)
            resumer.restore_once()  # where there was no iteration left
            if ended is None and agent.num_timesteps < self.config.n_timesteps:
                reason = "a callback ended it"
        except StopTraining as stop:
            state = INTERRUPTED if stop.interrupted else FINISHED
            reason = stop.reason
            listening.on_training_end()
        finally:
            callbacks.checkpoint.close()
        if state == FINISHED:
            try:
                self._save_last(agent, callbacks, reason)
            except EvaluationStopped:
                self._save_unevaluated(callbacks, reason)
                state, reason = INTERRUPTED, self.stop.signal_reason
        agent.logger.close()
        return self._result(agent, callbacks, state, reason)

    def _save_last(self, agent: BaseAlgorithm, callbacks: RunCallbacks, reason: str) -> None:
        """Evaluate the last policy, and save all there is.

        Raises:
            EvaluationStopped: The run was asked to stop meanwhile.
        """
        evaluation = callbacks.evaluation
        if evaluation is not None:
            evaluation.evaluate_now()
        callbacks.checkpoint.save_last(reason)
        self._save_final(agent, {} if evaluation is None else evaluation.last or {})

    def _save_unevaluated(self, callbacks: RunCallbacks, reason: str) -> None:
        """Save a run such that it goes on with its last evaluation."""
        if reason == ALL_STEPS:
            callbacks.checkpoint.save_and_wait()
        else:
            # Its steps are not taken: the checkpoint must say why there are no more to come.
            callbacks.checkpoint.save_last(reason)

    def _result(
        self, agent: BaseAlgorithm, callbacks: RunCallbacks, state: str, reason: str
    ) -> TrainResult:
        evaluation, snapshot = callbacks.evaluation, callbacks.checkpoint.snapshot
        best = None if evaluation is None else evaluation.best
        return TrainResult(
            state=state,
            reason=reason,
            num_timesteps=agent.num_timesteps,
            training_time_s=round(snapshot.training_time_s, 3),
            best=best,
            final=None if evaluation is None else evaluation.last,
            solved=self._is_solved(best),
            config_hash=config_hash(self.config),
            resumed_at=snapshot.exactness.resumed_at,
            exact=snapshot.verdict(agent),
            inexact_since=snapshot.exactness.inexact_since,
            inexact_because=snapshot.exactness.because,
        )

    def _save_final(self, agent: BaseAlgorithm, record: dict[str, Any]) -> None:
        save_policy(self.run_dir.final, agent, self.config, {**record, "step": agent.num_timesteps})
        if self.config.export.sb3_zip:
            export_sb3(agent, self.run_dir, "final")

    def _is_solved(self, best: dict[str, Any] | None) -> bool | None:
        threshold = self.config.env.solved_return
        if threshold is None or best is None:
            return None
        return bool(best["mean_return"] >= threshold)

    def _finish(self, result: TrainResult, tracker: Tracker | None) -> None:
        data = asdict(result)
        if result.state == FINISHED:
            self._write("result.json", lambda: self.run_dir.write_result(data))
        details = {"num_timesteps": result.num_timesteps, "message": result.reason}
        self._write("status.json", lambda: self._set_status(result.state, **details))
        if result.state == FINISHED and self.report is not None:
            self.files = self.report()
        if result.state == FINISHED and self.config.log.tensorboard:
            write_outcome(self.run_dir, self.config, result, self.run_dir.videos / "best.mp4")
        if tracker is None:
            return
        if result.state == FINISHED:
            tracker.finish(data, [self.run_dir.config_file, *self.files])
        else:
            tracker.fail(result.reason)

    def _write(self, name: str, write: Callable[[], None]) -> None:
        """Write what a run's state is told by; without it, it would be told wrong."""
        try:
            write()
        except OSError as error:
            raise RunError(f"{self.run_dir.path / name} cannot be written: {error}.") from error

    def _set_status(self, state: str, **details: Any) -> None:
        self.run_dir.write_status(state, n_timesteps=self.config.n_timesteps, **details)


def _close(*envs: VecEnv | None) -> None:
    """Close environments, each whatever becomes of the others."""
    with contextlib.ExitStack() as stack:
        for env in envs:
            if env is not None:
                stack.callback(env.close)
