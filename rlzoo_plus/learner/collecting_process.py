"""The process that collects: the run's algorithm steps the run's environments, and never learns.

It explores with the newest weights that it was handed, and writes each transition down before
anything else is done.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from rlzoo_plus import accelerators
from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import DataConfig, RunConfig
from rlzoo_plus.envs.factory import make_train_env, wrapped_for_training
from rlzoo_plus.envs.seeding import SeedStreams
from rlzoo_plus.errors import RunError
from rlzoo_plus.learner.child_process import answering
from rlzoo_plus.learner.log_segments import SegmentWriter
from rlzoo_plus.learner.transition_log import Layout, Transition, kept_info
from rlzoo_plus.learner.weights_board import Board, pack_weights, unpack_weights
from rlzoo_plus.runs.printing import plain_console, set_up_logging

READY, GO = "ready\n", "go"
_POLL_S = 0.0005
# More than any run has: it is told when to end.
_ENDLESS = sys.maxsize
# Rows of the replay buffer that the algorithm has here, of which nothing is ever read.
_ROWS = 1000


class RecordedVecEnv(VecEnvWrapper):
    """Environments whose steps are written down, as they are before they are normalised."""

    def __init__(self, venv: VecEnv, write: Callable[..., None]) -> None:
        """Wrap environments; `write` gets the transitions of a step, without what it knows."""
        super().__init__(venv)
        self._write = write

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        self._seen, self._is_first = self.venv.reset(), True
        return self._seen

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step."""
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """End a step, and write down what came of it."""
        following, rewards, dones, infos = self.venv.step_wait()
        results = zip(rewards.tolist(), dones.tolist(), infos, strict=True)
        self._write(
            [self._row(rank, _of_one(following, rank), *one) for rank, one in enumerate(results)]
        )
        self._seen, self._is_first = following, False
        return following, rewards, dones, infos

    def _row(
        self, rank: int, following: Any, reward: float, done: bool, info: dict[str, Any]
    ) -> dict[str, Any]:
        truncated = done and bool(info.get("TimeLimit.truncated", False))
        return {
            "is_first": self._is_first,
            "terminated": done and not truncated,
            "truncated": truncated,
            "reward": reward,
            "observation": _of_one(self._seen, rank),
            "next_observation": info.get("terminal_observation", following) if done else following,
            "action": self._actions[rank],
            "info": kept_info(info),
            "following": following if done else None,
        }


def _of_one(observations: Any, rank: int) -> Any:
    if isinstance(observations, dict):
        return {key: part[rank] for key, part in observations.items()}
    return observations[rank]


class Collector:
    """The run's algorithm in this process, which acts and does not learn."""

    def __init__(self, config: RunConfig) -> None:
        """Build environments and algorithm.

        Raises:
            ConfigError: They cannot be made.
        """
        self._config, self.streams = config, SeedStreams.of(config)
        bare = config.model_copy(update={"normalize": None})
        self._env = RecordedVecEnv(make_train_env(bare, self.streams.train), self._write)
        venv = wrapped_for_training(self._env, config)
        self._agent: Any = make_agent(_acting_only(config, venv.num_envs), venv, self.streams.agent)
        self._normalize = self._agent.get_vec_normalize_env()
        if self._normalize is not None:
            # The statistics are those of the weights.
            self._normalize.training = False
        self.layout = Layout(self._env.observation_space, self._env.action_space)
        self._version, self._weights_step = 0, 0

    def collect(self, folder: Path, board: int, queue: int) -> None:
        """Collect until the input ends.

        Args:
            folder: Of the log.
            board: Descriptor of the board with the weights.
            queue: Transitions that may wait to be learned from.

        Raises:
            RunError: An environment failed.
            OSError: The disk refuses.
        """
        agent = self._agent
        self._board, self._queue = Board(len(pack_weights(agent)), board), queue
        self._log = SegmentWriter(folder, self.layout)
        self._board.written = self._log.count
        # Episodes and exploration must not repeat what an earlier session drew.
        agent.env.seed(self.streams.train_after(self._log.count))
        agent.set_random_seed((self.streams.agent + self._log.count) % 2**31)
        agent.set_logger(Logger(None, []))
        agent.resume_from = self._log.count
        self._only_act()
        try:
            agent.learn(_ENDLESS, log_interval=_ENDLESS)
        except StopTraining:
            pass
        finally:
            self._log.close()

    def _only_act(self) -> None:
        """Let the agent act with the newest weights, when there is room, and never update."""
        agent, length = self._agent, self._config.n_timesteps
        progress, sample = agent._update_current_progress_remaining, agent._sample_action

        def when_there_is_room(*given: Any) -> tuple[np.ndarray, np.ndarray]:
            self._wait_for_room()
            self._take_weights()
            action: tuple[np.ndarray, np.ndarray] = sample(*given)
            return action

        agent._sample_action = when_there_is_room
        agent._update_current_progress_remaining = lambda step, _: progress(
            min(step, length), length
        )
        agent.train = lambda *_, **__: None

    def close(self) -> None:
        """Close the environments."""
        self._agent.env.close()

    def _wait_for_room(self) -> None:
        # A world of many agents may give more at once.
        board, most = self._board, max(self._queue - self._env.num_envs, 0)
        while board.version == 0 or self._log.count - board.taken > most:
            if _is_over():
                break
            time.sleep(_POLL_S)
        if _is_over():
            raise StopTraining("it was told to end", interrupted=True)

    def _take_weights(self) -> None:
        found = self._board.take(self._version)
        if found is None:
            return
        agent, normalize = self._agent, self._normalize
        self._version, self._weights_step, weights = found
        unpack_weights(agent, weights)
        if normalize is not None:
            agent._last_obs = normalize.normalize_obs(normalize.get_original_obs())

    def _write(self, rows: list[dict[str, Any]]) -> None:
        first = self._log.count
        self._log.add(
            *(Transition(first + n, self._weights_step, **row) for n, row in enumerate(rows))
        )
        self._board.written = self._log.count


def _acting_only(config: RunConfig, n_envs: int) -> RunConfig:
    """Return the configuration of an agent that acts on the CPU, and has nothing to learn from."""
    values = {**config.algo.hyperparams, "buffer_size": _ROWS * n_envs}
    algo = config.algo.model_copy(update={"hyperparams": values})
    update = {"algo": algo, "device": "cpu", "record_updates": False, "fast": False}
    return config.model_copy(update={**update, "data": DataConfig()})


def serve(ticket: dict[str, Any]) -> int:
    """Collect as the ticket says, once a line of the input says so; return the exit code."""
    return answering(lambda say: _collect(ticket, say))


def _collect(ticket: dict[str, Any], say: Callable[[str], None]) -> str:
    config: RunConfig = validate_config(ticket["config"])
    import_packages(config)
    accelerators.before_torch(config)
    set_up_logging("warning", plain_console())
    torch.set_num_threads(1)
    collector = Collector(config)
    try:
        say(READY.strip())
        # Nothing comes if the process that learns has died meanwhile.
        if os.read(0, 64).startswith(GO.encode()):
            collector.collect(Path(ticket["folder"]), ticket["board"], ticket["queue"])
    except OSError as error:
        raise RunError(f"the transitions cannot be written: {error.strerror or error}") from error
    finally:
        collector.close()
    return "it was told to end"


def _is_over() -> bool:
    """Return whether the process that learns has closed the input, or died."""
    return bool(select.select([0], [], [], 0)[0])
