"""`ExpManager` trains and evaluates one configuration in one run directory."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlzoo_plus import accelerators
from rlzoo_plus.agents.devices import thread_policy
from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.agents.policy import save_policy
from rlzoo_plus.artifacts.result import EvaluationRecord, TrainResult
from rlzoo_plus.artifacts.run_dir import FAILED, FINISHED, INTERRUPTED, RUNNING, RunDir
from rlzoo_plus.config.catalog import ASYNCHRONOUS, RANKS
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.stages import config_of_stage
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.seeding import SeedStreams, seed_all
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.errors import RunError
from rlzoo_plus.tracking import Tracker, make_tracker
from rlzoo_plus.training.callbacks import (
    ProgressCallback,
    RunCallbacks,
    StopRequest,
    make_callbacks,
)
from rlzoo_plus.training.callbacks.background_evaluator import (
    BackgroundEvaluator,
    background_eval_blocker,
    make_evaluation_env,
)
from rlzoo_plus.training.callbacks.curriculum_callback import StageOver
from rlzoo_plus.training.callbacks.evaluation_callback import export_sb3
from rlzoo_plus.training.callbacks.outputs import make_logger, write_outcome
from rlzoo_plus.training.evaluation import EvaluationStopped
from rlzoo_plus.training.profiler import profiled
from rlzoo_plus.training.resume.resumer import Resumer
from rlzoo_plus.training.warm_start import begin_from_source

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv

log = logging.getLogger(__name__)
ALL_STEPS = "all steps taken"


@dataclass
class ExpManager:
    """Trains one run; it parses no configuration and chooses no path.

    In a run directory with checkpoints, training resumes from the newest that is whole.
    """

    config: RunConfig  # checked
    run_dir: RunDir  # where everything is written; `run_dir.start` has been called
    stop: StopRequest | None = None  # how the run is asked to stop from outside
    progress: ProgressCallback | None = None  # what the terminal shows
    # Makes the plot and the video of a finished run; returns the files, for trackers.
    report: Callable[[], list[Path]] | None = None
    # Called with each evaluation's record, and whether it is the best so far.
    on_evaluation: Callable[[EvaluationRecord, bool], None] | None = None
    files: list[Path] = field(default_factory=list, init=False)  # what `report` has returned

    def __post_init__(self) -> None:
        """Complete the configuration, and derive the seeds."""
        self.config = scheduled(self.config)
        self._stop = self.stop or StopRequest()
        self.seeds = SeedStreams.of(self.config)
        self._share = self.config  # what this process builds
        self._ranks: Any = None  # the other processes of a training of several

    def train(self) -> TrainResult:
        """Train, evaluate and save the policy.

        Raises:
            ConfigError: The algorithm refuses its configuration.
            RunError: The run failed; what it saved before stays.
        """
        config = self.config
        tracker = None if config.tracker is None else make_tracker(config.tracker)
        with self._failure_recorded(tracker), contextlib.ExitStack() as stack:
            self._write("status.json", lambda: self._set_status(RUNNING))
            if tracker is not None:
                tracker.start(config.model_dump(mode="json"), self.run_dir.path)
            threads = self._set_up_process()
            player = _Player(self, stack, threads)
            resumer = Resumer(config, self.run_dir)
            result: TrainResult | None = None
            while result is None:
                with contextlib.ExitStack() as of_stage:
                    begun = self._begin_stage(of_stage, player, resumer, tracker)
                    if isinstance(begun, TrainResult):
                        result = begun
                    else:
                        result = self._learn(*begun, resumer)
                if result is None:
                    resumer = Resumer(config, self.run_dir, goes_on=True)
        self._finish(result, tracker)
        return result

    def _begin_stage(
        self,
        stack: contextlib.ExitStack,
        player: _Player,
        resumer: Resumer,
        tracker: Tracker | None,
    ) -> tuple[BaseAlgorithm, RunCallbacks] | TrainResult:
        """Make environments of a stage of the curriculum, and an agent; a result if stopped."""
        config = self.config
        try:
            with self._stop.at_once():
                player.begin()
                if config.distributed > 1 and self._ranks is None:
                    # A curriculum is refused: there is one stage.
                    ranks = import_module(RANKS).start(config, self.run_dir)
                    self._ranks = stack.enter_context(ranks)
                    self._share = self._ranks.share
                train_env = self._make_train_env(resumer.stage)
                stack.callback(train_env.close)
                player.complete()
        except StopTraining as stop:
            reason = f"{stop.reason} while the environments were started"
            hashed = config_hash(config)
            return TrainResult(INTERRUPTED, reason, resumer.step, 0.0, None, None, None, hashed)
        agent: BaseAlgorithm = make_agent(self._share, train_env, self.seeds.agent)
        callbacks = self._attach(stack, agent, player.made, resumer, tracker)
        stack.enter_context(profiled(config, self.run_dir.path / "profile", agent))
        return agent, callbacks

    @contextlib.contextmanager
    def _failure_recorded(self, tracker: Tracker | None) -> Iterator[None]:
        """Write to status.json, and tell the tracker, why a block has failed."""
        try:
            try:
                yield
            except SystemExit as error:
                # The command must not end as if the run had finished.
                raise RunError(f"code in the run called sys.exit({error.code!r}).") from error
        except BaseException as error:
            is_known = isinstance(error, RunError)
            message = str(error) if is_known else f"{type(error).__name__}: {error}"
            try:
                self._set_status(FAILED, message=message)
            except OSError as unwritten:
                log.warning("status.json cannot be written: %s", unwritten)
            if tracker is not None:
                tracker.fail(message)
            raise

    def _set_up_process(self) -> int:
        """Decide how this process computes, and seed it; return torch's threads."""
        accelerators.require(self.config)
        threads, why = thread_policy(self.config)
        torch.set_num_threads(threads)
        log.info("threads: %d (%s)", threads, why)
        seeded = seed_all(self.config.seed)
        log.debug("seeds: %s, environments from %d", seeded, self.seeds.train)
        return threads

    def _attach(
        self,
        stack: contextlib.ExitStack,
        agent: Any,
        player: VecEnv | BackgroundEvaluator | None,
        resumer: Resumer,
        tracker: Tracker | None,
    ) -> RunCallbacks:
        """Let evaluation, checkpoints, stopping and resuming act between the agent's iterations."""
        if self.progress is not None:
            stack.callback(self.progress.close)
        log.info("device: %s", agent.device)
        if agent.device.type != "cpu":
            log.info("exact resume is certified on the CPU only; rlzoo-plus verify-resume tests it")
        agent.env.seed(self.seeds.train)
        if self._ranks is not None:
            self._ranks.attach(agent)
        agent.set_logger(make_logger(self.config.log, self.run_dir, tracker))
        callbacks = make_callbacks(
            self.config, self.run_dir, player, self._stop, self.progress, resumer.stage
        )
        if self.on_evaluation is not None and callbacks.evaluation is not None:
            callbacks.evaluation.listeners.append(self.on_evaluation)
        stack.callback(callbacks.checkpoint.close)
        if self.config.init_from is not None and resumer.is_new:
            begin_from_source(agent, self.config, self.run_dir)
            callbacks.checkpoint.saves_first = True
        if resumer.is_new and (teacher := getattr(agent, "teacher", None)) is not None:
            self.run_dir.add_provenance("teacher", teacher.about)
        resumer.attach(agent, callbacks.checkpoint)
        acting = [callback.on_iteration for callback in callbacks.acting]
        agent.before_iteration = [resumer.on_iteration, *acting]
        return callbacks

    def _make_train_env(self, stage: int) -> VecEnv:
        config = config_of_stage(self._share, stage)
        return make_train_env(config, self.seeds.train, self.run_dir.monitor)

    def _learn(
        self, agent: BaseAlgorithm, callbacks: RunCallbacks, resumer: Resumer
    ) -> TrainResult | None:
        """Train to the end, or to that of a stage of the curriculum: then there is no result."""
        ended, checkpoint = resumer.ended, callbacks.checkpoint
        state, reason = FINISHED, ended or ALL_STEPS
        all_callbacks = callbacks.as_list()
        try:
            try:
                total = self.config.n_timesteps if ended is None else 0
                agent.learn(total, all_callbacks, log_interval=self.config.log.interval)
                resumer.restore_once()  # where there was no iteration left
                if ended is None and agent.num_timesteps < self.config.n_timesteps:
                    reason = "a callback ended it"
            except StageOver:
                all_callbacks.on_training_end()
                agent.logger.close()
                return None
            except StopTraining as stop:
                state = INTERRUPTED if stop.interrupted else FINISHED
                reason = stop.reason
                all_callbacks.on_training_end()
            except KeyboardInterrupt:
                if callbacks.evaluation is not None:
                    callbacks.evaluation.pending = None
                raise
            finally:
                checkpoint.settle(may_end=True)
        except StopTraining as stop:
            # The run was asked to stop, and the evaluation beside it takes too long.
            state, reason = INTERRUPTED, stop.reason
        finally:
            checkpoint.wait()
        if state == FINISHED:
            try:
                self._evaluate_and_save(agent, callbacks, reason)
            except EvaluationStopped:
                # The run resumes with its last evaluation.
                if reason == ALL_STEPS:
                    checkpoint.save(waits=True)
                else:
                    # Steps are left: the checkpoint must say why they are not taken.
                    checkpoint.save_last(reason)
                state, reason = INTERRUPTED, self._stop.signal_reason
        agent.logger.close()
        return self._result(agent, callbacks, state, reason)

    def _evaluate_and_save(
        self, agent: BaseAlgorithm, callbacks: RunCallbacks, reason: str
    ) -> None:
        """Evaluate the last policy, and save it and a checkpoint.

        Raises:
            EvaluationStopped: The run was asked to stop during the evaluation.
        """
        about: dict[str, Any] = {}
        if callbacks.evaluation is not None:
            about |= callbacks.evaluation.evaluate_now()
        callbacks.checkpoint.save_last(reason)
        about["step"] = agent.num_timesteps
        save_policy(self.run_dir.final, agent, self.config, about)
        if self.config.export.sb3_zip:
            export_sb3(agent, self.run_dir, "final")

    def _result(
        self, agent: BaseAlgorithm, callbacks: RunCallbacks, state: str, reason: str
    ) -> TrainResult:
        evaluation, snapshot = callbacks.evaluation, callbacks.checkpoint.snapshot
        best = None if evaluation is None else evaluation.best
        threshold = self.config.env.solved_return
        solved = None
        if threshold is not None and best is not None:
            solved = bool(best["mean_return"] >= threshold)
        return TrainResult(
            state=state,
            reason=reason,
            num_timesteps=agent.num_timesteps,
            training_time_s=round(snapshot.training_time_s, 3),
            best=best,
            final=None if evaluation is None else evaluation.last,
            solved=solved,
            config_hash=config_hash(self.config),
            resumed_at=snapshot.exactness.resumed_at,
            exact=snapshot.verdict(agent),
            inexact_since=snapshot.exactness.inexact_since,
            inexact_because=snapshot.exactness.because,
        )

    def _finish(self, result: TrainResult, tracker: Tracker | None) -> None:
        data, is_finished = asdict(result), result.state == FINISHED
        if is_finished:
            self._write("result.json", lambda: self.run_dir.write_result(data))
        details = {"num_timesteps": result.num_timesteps, "message": result.reason}
        self._write("status.json", lambda: self._set_status(result.state, **details))
        if is_finished and self.report is not None:
            self.files = self.report()
        if is_finished and self.config.log.tensorboard:
            write_outcome(self.run_dir, self.config, result, self.run_dir.videos / "best.mp4")
        if tracker is not None and is_finished:
            tracker.finish(data, [self.run_dir.config_file, *self.files])
        elif tracker is not None:
            tracker.fail(result.reason)

    def _write(self, name: str, write: Callable[[], None]) -> None:
        """Write a file that states what became of the run; without it the run has failed."""
        try:
            write()
        except OSError as error:
            raise RunError(f"{self.run_dir.path / name} cannot be written: {error}.") from error

    def _set_status(self, state: str, **details: Any) -> None:
        self.run_dir.write_status(state, n_timesteps=self.config.n_timesteps, **details)


def manager_of(config: RunConfig) -> type[ExpManager]:
    """Return what trains a run: in this process, or with one that collects meanwhile."""
    if not config.asynchronous:
        return ExpManager
    found: type[ExpManager] = import_module(ASYNCHRONOUS).AsynchronousManager
    return found


class _Player:
    """What plays the evaluations of a run, in all stages of its curriculum; the stack closes it."""

    def __init__(self, manager: ExpManager, stack: contextlib.ExitStack, threads: int) -> None:
        self._config, self._stack = manager.config, stack
        collects = bool(manager.config.asynchronous)
        self._threads = threads * manager.config.distributed + collects
        self._decides = manager.on_evaluation is not None
        self._has_begun = False
        self.made: VecEnv | BackgroundEvaluator | None = None

    def begin(self) -> None:
        """Start the process that plays beside the training, if that is possible.

        This comes before anything is made that a forked process must not have.
        """
        config = self._config
        if self._has_begun or config.eval.every_steps is None:
            return
        self._has_begun = True
        reason = background_eval_blocker(config, self._threads, decides=self._decides)
        log.debug("evaluation beside training: %s", reason or "yes")
        if not reason:
            self.made = beside = BackgroundEvaluator(config)
            self._stack.callback(beside.close)

    def complete(self) -> None:
        """Make environments to play in here, where no other process plays."""
        if self.made is None and self._config.eval.every_steps is not None:
            self.made = env = make_evaluation_env(self._config)
            self._stack.callback(env.close)
