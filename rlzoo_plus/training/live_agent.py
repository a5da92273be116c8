"""`LiveAgent`: a run's algorithm outside of its training, to act, to be updated, to be kept."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from rlzoo_plus.agents.devices import thread_policy
from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.policy import Policy, save_policy
from rlzoo_plus.artifacts.checkpoint import Checkpoint
from rlzoo_plus.artifacts.encryption import cipher_of
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.compare import changed_values, outcome_values
from rlzoo_plus.config.shares import share_of
from rlzoo_plus.config.stages import config_of_stage, stage_in
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.finite import require_finite
from rlzoo_plus.envs.seeding import (
    SeedStreams,
    generator_states,
    generators_kept,
    seed_all,
    set_generator_states,
)
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.training.resume import replay_rows
from rlzoo_plus.training.resume.snapshot import Exactness, RunSnapshot, restore_all, state_of
from rlzoo_plus.training.warm_start import begin_from_source

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig

GIVEN = "it began with the state of an agent that was set or updated from Python"


@dataclass(frozen=True)
class _Held(Checkpoint):
    """A state in memory in place of a folder."""

    def read_rows(self, name: str, columns: Mapping[str, np.ndarray]) -> None:
        rows = self.state["rows"][name]
        for key, column in columns.items():
            column[: len(rows[key])] = rows[key]


class LiveAgent:
    """An algorithm with open environments, as a run has it at the top of an iteration.

    It draws from random generators of its own; those of the process stay as they are.

    Attributes:
        algorithm: That of Stable-Baselines3.
    """

    def __init__(self, config: RunConfig, checkpoint: Checkpoint | None = None) -> None:
        """Build it new, or as a checkpoint has it.

        Raises:
            ConfigError: It cannot be built, or the checkpoint does not fit.
        """
        # Of a run of several processes it is the first one's.
        self.config = config = share_of(scheduled(config))
        self._stage = stage_in({} if checkpoint is None else checkpoint.about, config)
        self._generators: tuple[Any, ...] | None = None
        with self._as_in_training(), contextlib.ExitStack() as stack:
            seeds = SeedStreams.of(config)
            seed_all(config.seed)
            venv = make_train_env(config_of_stage(config, self._stage), seeds.train)
            stack.callback(venv.close)
            agent: Any = make_agent(config, venv, seeds.agent)
            self.algorithm = agent
            agent.env.seed(seeds.train)
            agent.set_logger(Logger(None, []))
            if config.init_from is not None and checkpoint is None:
                begin_from_source(agent, config)
            _, self._callback = agent._setup_learn(config.n_timesteps, None)
            if checkpoint is not None:
                self._restore(checkpoint)
            stack.pop_all()

    def close(self) -> None:
        """Close its environments."""
        self.algorithm.env.close()

    def policy(self) -> Policy:
        """Return its policy of this moment."""
        return Policy.of_agent(self.algorithm)

    def save_policy(self, path: Path) -> None:
        """Write its policy as a bundle."""
        save_policy(path, self.algorithm, self.config, {"step": self.algorithm.num_timesteps})

    def state(self) -> dict[str, Any]:
        """Return all that decides how it goes on, as plain data with arrays."""
        agent = self.algorithm
        with self._as_in_training():
            buffer = getattr(agent, "replay_buffer", None)
            groups = {} if buffer is None else replay_rows.row_groups(buffer)
            rows = {
                name: {key: column[: group.used].copy() for key, column in group.columns.items()}
                for name, group in groups.items()
            }
            step, values = int(agent.num_timesteps), outcome_values(self.config)
            return {**state_of(agent), "rows": rows, "step": step, "config": values}

    def restore(self, state: Mapping[str, Any] | Checkpoint) -> None:
        """Set what `state` has returned, or a checkpoint.

        Raises:
            ConfigError: It does not fit this agent, which is then of no more use.
        """
        if not isinstance(state, Checkpoint):
            step = state.get("step") if isinstance(state, Mapping) else None
            if not isinstance(step, int):
                raise ConfigError(
                    "this is no state of an agent: give what its get_state() returns."
                )
            # Optimizers go on in the arrays that they are given; rows are copied anyway.
            rows, about = state.get("rows", {}), {"config": state.get("config")}
            rest = {key: value for key, value in state.items() if key != "rows"}
            state = _Held(Path(), step, {**copy.deepcopy(rest), "rows": rows}, about)
        with self._as_in_training():
            self._restore(state)

    def update(self, gradient_steps: int = 1, batch_size: int | None = None) -> None:
        """Update the networks; an on-policy algorithm collects its rollout first.

        Raises:
            ConfigError: There is nothing to learn from.
        """
        agent = self.algorithm
        name, buffer = self.config.algo.name, getattr(agent, "replay_buffer", None)
        with self._as_in_training():
            if buffer is not None:
                if not buffer.size():
                    raise ConfigError("the replay buffer is empty: call learn(total_timesteps).")
                agent.train(gradient_steps, batch_size or agent.batch_size)
            elif hasattr(agent, "rollout_buffer"):
                if gradient_steps != 1 or batch_size is not None:
                    raise ConfigError(
                        f"{name} updates from whole rollouts: call update(), and set n_epochs and "
                        "batch_size as hyperparameters."
                    )
                agent.collect_rollouts(
                    agent.env, self._callback, agent.rollout_buffer, agent.n_steps
                )
                total = agent._total_timesteps
                agent._update_current_progress_remaining(agent.num_timesteps, total)
                agent.train()
            else:
                raise ConfigError(f"{name} updates while it plays: call learn(total_timesteps).")
            require_finite(agent)

    def begin_run(self, run_dir: RunDir, config: RunConfig) -> None:
        """Write its state as the first checkpoint of a run, which goes on from there."""
        store = run_dir.checkpoints(config.checkpoint.keep, cipher_of(config.encryption))
        snapshot = RunSnapshot(scheduled(config), run_dir, store)
        snapshot.stage = self._stage if config.curriculum else None
        snapshot.exactness = Exactness([], int(self.algorithm.num_timesteps), [GIVEN])
        with self._as_in_training():
            taken = snapshot.take(self.algorithm)
        try:
            snapshot.store.save(taken.step, taken.state, taken.about, chunks=taken.chunks)
        except OSError as error:
            raise RunError(f"{run_dir.path} cannot be written: {error}.") from error

    def _restore(self, checkpoint: Checkpoint) -> None:
        agent = self.algorithm
        try:
            changes = changed_values(checkpoint.about, self.config)
            restore_all(agent, checkpoint, changes, self.config)
        except RunError:
            # The process of an environment ended, which says nothing about the state.
            raise
        # Any part of it may be another's, or forged.
        except Exception as error:
            raise ConfigError(f"the state does not fit this agent: {one_line(error)}.") from error

    @contextlib.contextmanager
    def _as_in_training(self) -> Iterator[None]:
        """Use its own random numbers, and as many threads as its run."""
        threads = torch.get_num_threads()
        with generators_kept():
            if self._generators is not None:
                set_generator_states(self._generators)
            torch.set_num_threads(thread_policy(self.config)[0])
            try:
                yield
            finally:
                torch.set_num_threads(threads)
                self._generators = generator_states()
