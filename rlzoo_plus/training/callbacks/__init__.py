"""The callbacks of a run, in the order in which they act between two iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.catalog import ACTION_LOG, CALLBACKS, NOVELTY, SELF_PLAY
from rlzoo_plus.config.exploration import BONUS
from rlzoo_plus.config.hyperparams import trains_by_episode
from rlzoo_plus.config.references import reveal
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.single import longest_episode
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.registry import where_raised
from rlzoo_plus.training.callbacks.background_evaluator import BackgroundEvaluator
from rlzoo_plus.training.callbacks.base import RunCallback
from rlzoo_plus.training.callbacks.base import StopRequest as StopRequest
from rlzoo_plus.training.callbacks.checkpoint_callback import CheckpointCallback
from rlzoo_plus.training.callbacks.curriculum_callback import CurriculumCallback
from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback
from rlzoo_plus.training.callbacks.progress_display import BarProgress, LineProgress
from rlzoo_plus.training.callbacks.stopping import (
    EpisodeInterruptCallback,
    InterruptCallback,
    StopCallback,
)
from rlzoo_plus.training.metrics import load_metrics

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

ProgressCallback = BarProgress | LineProgress


@dataclass
class RunCallbacks:
    """The callbacks of a run, by what they do."""

    evaluation: EvaluationCallback | None  # None when the run is not evaluated
    checkpoint: CheckpointCallback  # also saves at the end of a run
    acting: list[RunCallback]  # all that act between iterations, in order
    user: list[BaseCallback]  # the user's own, and the action log

    def as_list(self) -> CallbackList:
        """Return what `learn()` takes."""
        return CallbackList([*self.acting, *self.user])


def make_callbacks(
    config: RunConfig,
    run_dir: RunDir,
    player: VecEnv | BackgroundEvaluator | None,
    stop: StopRequest,
    progress: ProgressCallback | None,
    stage: int = 0,
) -> RunCallbacks:
    """Build the callbacks; `player` plays evaluations beside the training, or here; or nobody does.

    A checkpoint comes after the evaluation of the same step, so that it holds its outcome, and
    after a change of the curriculum's `stage`; then come the reasons to stop.
    """
    evaluation = None if player is None else EvaluationCallback(config, run_dir, player, stop)
    checkpoint = CheckpointCallback(config, run_dir, evaluation)
    may_not_end = trains_by_episode(config.algo) and longest_episode(config) is None
    interrupt = EpisodeInterruptCallback if may_not_end else InterruptCallback
    stopping = (StopCallback(config.stop, evaluation), interrupt(stop, checkpoint))
    acting: list[RunCallback] = [checkpoint, *stopping]
    if config.curriculum:
        acting.insert(0, CurriculumCallback(config, stage, checkpoint, evaluation))
    if config.env.opponents is not None:
        acting.insert(0, import_module(SELF_PLAY).SelfPlayCallback(config, evaluation))
    if evaluation is not None:
        acting.insert(0, evaluation)
        if progress is not None:
            evaluation.listeners.append(progress.on_evaluation)
    callbacks = RunCallbacks(evaluation, checkpoint, acting, _user_callbacks(config))
    if config.log.actions:
        actions = import_module(ACTION_LOG).ActionLog
        callbacks.user.append(actions(run_dir.actions_file, checkpoint.store.cipher))
    if config.exploration.kind == BONUS:
        callbacks.user.append(import_module(NOVELTY).NoveltyCallback(config.exploration))
    checkpoint.snapshot.callbacks = [*acting, *callbacks.user]
    if progress is not None:
        acting.append(progress)
    return callbacks


def check_user_callbacks(config: RunConfig) -> None:
    """Check that the user's callbacks and metrics can be made, before anything else is.

    Raises:
        ConfigError: One cannot.
    """
    _user_callbacks(config)
    load_metrics(config.eval.metrics)


def _unknown_argument(made_by: Callable[..., Any], arguments: Iterable[str]) -> str | None:
    """Return what is wrong with the names of arguments; None if nothing, or if any are taken."""
    try:
        known = signature(made_by).parameters
    except (TypeError, ValueError):
        return None
    takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
    wrong = next((name for name in arguments if name not in known), None)
    return None if wrong is None or takes_any else unknown_name("argument", wrong, known)


def _user_callbacks(config: RunConfig) -> list[BaseCallback]:
    callbacks = []
    for entry in config.callbacks:
        for path, kwargs in [(entry, None)] if isinstance(entry, str) else entry.items():
            callback = CALLBACKS.load(path)
            arguments = reveal(kwargs or {}, "callbacks")
            is_function = isinstance(callback, FunctionType)
            if not is_function and (mistake := _unknown_argument(callback, arguments)):
                raise ConfigError(f"callbacks: {path}: {mistake}")
            try:
                made = ConvertCallback(callback) if is_function else callback(**arguments)
                callbacks.append(made)
            # User code can raise anything.
            except Exception as error:
                where = f"callbacks: {path} with {kwargs or {}}"
                raise ConfigError(f"{where}: {where_raised(error)}.") from error
    return callbacks
