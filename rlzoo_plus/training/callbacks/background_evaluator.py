"""Evaluation beside training: another process plays the episodes while this one trains on.

It has environments and a network of its own, and gets weights, normalisation statistics and the
states of the random generators as they are when an evaluation is due. So it plays the episodes that
this process would play.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from stable_baselines3.common.utils import get_device

from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.agents.policy import Policy, load_weights, weights_of
from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.own_code import own_code, packages_of
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.stages import decides_by_evaluation
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.envs.seeding import (
    evaluation_seeds,
    generator_states,
    generators_kept,
    set_generator_states,
)
from rlzoo_plus.training.evaluation import Evaluation, EvaluationStopped, evaluate
from rlzoo_plus.training.metrics import load_metrics
from robots.cores import usable_cores

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv

log = logging.getLogger(__name__)
# An evaluation, and the accounts of its environments afterwards.
Outcome = tuple[Evaluation, list[dict[str, Any]]]
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
# Between two looks at whether the run is to end [s].
_LOOK_S = 0.2


def background_eval_blocker(config: RunConfig, threads: int, *, decides: bool) -> str:
    """Return why a run is evaluated by its own process, empty if another one may do it.

    Args:
        config: The run's configuration.
        threads: Torch threads of the training.
        decides: Whether somebody outside decides by each evaluation how the run goes on.
    """
    stop, spec = config.stop, get_algorithm(config.algo.name)
    decides = decides or (stop.reward_threshold, stop.no_improvement_evals) != (None, None)
    decides = decides or decides_by_evaluation(config)
    reasons = {
        "eval.beside=never": config.eval.beside == "never",
        "it needs Linux": sys.platform != "linux",
        "no core is free": usable_cores() <= threads,
        "each evaluation decides how the run goes on": decides,
        "code of yours may look at them": bool(config.callbacks or own_code(config)),
        "its algorithm has a replay buffer": spec.family is Family.OFF_POLICY,
        "its algorithm computes with JAX": spec.backend == "jax",
        "its environments have processes of their own": config.vec_env == "subproc",
        "export.sb3_zip=true": config.export.sb3_zip,
        "its opponents are here": config.env.opponents is not None,
        "its device is not the CPU": get_device(config.device).type != "cpu",
        # What they hold at this moment would stay held in a forked process.
        "other threads run in this process": threading.active_count() > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


@dataclass(frozen=True)
class Request:
    """What an evaluation needs of an agent; it shares no memory with it."""

    weights: dict[str, Any]  # the policy's parameters by name, arrays
    normalizer: ObservationNormalizer | None  # of its observations
    generators: tuple[Any, ...]  # states of the global random generators

    @classmethod
    def of_agent(cls, agent: BaseAlgorithm) -> Request:
        """Copy what is needed."""
        return cls(*weights_of(agent), generator_states())


def make_evaluation_env(config: RunConfig) -> VecEnv:
    """Build the environments of a run's evaluations."""
    n_envs = min(int(config.eval.n_envs), int(config.eval.episodes))
    options: Any = {"packages": packages_of(config), "most_steps": config.eval.max_episode_steps}
    return make_eval_env(config.env, n_envs, config.vec_env, **options)


class Player:
    """Plays evaluations with environments and a network of its own."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._venv = make_evaluation_env(config)
        spaces = self._venv.observation_space, self._venv.action_space
        self._network = make_policy(config, *spaces)
        self._maskable = get_algorithm(config.algo.name).maskable
        self._seeds = evaluation_seeds(int(config.eval.episodes))
        self._metrics = load_metrics(config.eval.metrics)

    def play(self, request: Request, is_asked_to_stop: Callable[[], bool]) -> Outcome:
        """Play one evaluation; the global random generators are afterwards as before."""
        load_weights(self._network, request.weights)
        policy = Policy(self._network, request.normalizer, maskable=self._maskable)
        with generators_kept():
            set_generator_states(request.generators)
            result = evaluate(
                policy,
                self._venv,
                self._seeds,
                deterministic=self._config.eval.deterministic,
                metrics=self._metrics,
                is_asked_to_stop=is_asked_to_stop,
            )
        return result, self._venv.env_method("accounts")

    def load_accounts(self, accounts: list[dict[str, Any]]) -> None:
        """Restore the accounts of the environments; see `load_accounts`."""
        load_accounts(self._venv, accounts)


def load_accounts(venv: VecEnv, accounts: list[dict[str, Any]]) -> None:
    """Restore what environments of evaluations remember.

    Raises:
        ValueError: The accounts are not theirs.
    """
    for rank, remembered in enumerate(accounts):
        (problem,) = venv.env_method("load_accounts", remembered, indices=rank)
        if problem is not None:
            raise ValueError(f"evaluation environment {rank}: {problem}")


class BackgroundEvaluator:
    """A process, forked from this one, that plays one evaluation at a time.

    If it dies, this process plays the same episodes instead.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._accounts: list[dict[str, Any]] = []
        self._request: Request | None = None
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(theirs, config, os.getpid()), name="evaluation", daemon=True
        )
        with warnings.catch_warnings():
            # NumPy's own threads are stopped for a fork by NumPy's library.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()

    @functools.cached_property
    def _player(self) -> Player:
        """What plays in this process, where the other one has died."""
        with generators_kept():
            player = Player(self._config)
        player.load_accounts(self._accounts)
        return player

    def begin(self, request: Request) -> None:
        """Begin an evaluation."""
        self._request = request
        with contextlib.suppress(OSError):
            self._pipe.send(("play", request))

    def is_done(self, timeout_s: float = 0.0) -> bool:
        """Wait so long for the evaluation at most; return whether it is done, or cannot be."""
        try:
            return self._pipe.poll(timeout_s)
        except OSError:
            return True

    def result(self, is_asked_to_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Wait for the evaluation that was begun, and return it.

        Raises:
            EvaluationStopped: It was asked to stop, and will play no more.
        """
        while not self.is_done(_LOOK_S):
            if is_asked_to_stop():
                self.close()
                raise EvaluationStopped
        outcome: Outcome | None = self._answer()
        if outcome is None:
            assert self._request is not None
            outcome = self._player.play(self._request, is_asked_to_stop)
        self._accounts = outcome[1]
        return outcome

    def load_accounts(self, accounts: list[dict[str, Any]]) -> None:
        """Restore what the environments remember.

        Raises:
            ValueError: The accounts are not theirs.
        """
        with contextlib.suppress(OSError):
            self._pipe.send(("load_accounts", accounts))
        self._answer()
        self._accounts = accounts

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _answer(self) -> Any:
        """Wait for the answer to the last message; return None where the process has died."""
        try:
            value, error = self._pipe.recv()
        except (EOFError, OSError):
            if "_player" not in vars(self):
                self._process.join(1.0)
                log.warning(
                    "the process that evaluates has ended (exit code %s): this one evaluates now",
                    self._process.exitcode,
                )
            return None
        if error is not None:
            raise error
        return value


def _serve(pipe: Any, config: RunConfig, parent: int) -> None:
    """Play evaluations until the training has ended; the inside of the process."""
    try:
        for name in _SIGNALS:
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        # Nothing of the training may be held: its lock, its pipes, its connections.
        os.closerange(3, pipe.fileno())
        os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        # The threads of a native library were not forked.
        os.environ["ROBOTS_THREADS"] = "1"
        torch.set_num_threads(1)
        player = Player(config)

        def is_orphan() -> bool:
            return os.getppid() != parent

        while True:
            name, argument = pipe.recv()
            try:
                more = (is_orphan,) if name == "play" else ()
                pipe.send((getattr(player, name)(argument, *more), None))
            except Exception as error:
                pipe.send((None, error))
    except (EOFError, OSError, EvaluationStopped):
        pass
    finally:
        # Without what the training wants to be done at its own end.
        os._exit(0)
