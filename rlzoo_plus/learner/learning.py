"""Learning while acting: what the process that acts needs, the way into this room.

`Learning` starts the process that learns, explores with the weights that it hands over, and writes
down each transition before anything else is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.artifacts.result import ANOTHER_ACTED
from rlzoo_plus.artifacts.run_dir import RunDir, RunLock
from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import wrapped_for_training
from rlzoo_plus.envs.seeding import SeedStreams
from rlzoo_plus.errors import USER_ERROR, ConfigError, RunError
from rlzoo_plus.learner.child_process import Child
from rlzoo_plus.learner.learning_process import LOCK
from rlzoo_plus.learner.transition_log import FILE, Layout, LogWriter, Transition, kept_info
from rlzoo_plus.learner.weights_board import Board, pack_weights, unpack_weights
from rlzoo_plus.runs.plan import Plan, Start
from rlzoo_plus.runs.run import Run
from rlzoo_plus.runs.train_job import check_before_building, claim_run_dir

# Transitions that may wait: where each step waits for room, and where no step can wait.
QUEUE_STEPPED, QUEUE = 8, 1000
QUEUE_FULL, ALL_STEPS = "queue_full", "all_steps"
_POLL_S, _START_S = 0.0005, 300.0
# Off-policy, but without an actor, or asking the environment for other rewards.
_WITHOUT = ("dqn", "qrdqn", "her")


def check(config: RunConfig) -> None:
    """Check that a run can be learned while another process acts.

    Raises:
        ConfigError: It cannot.
    """
    spec, name = get_algorithm(config.algo.name), config.algo.name
    can_be = spec.family is Family.OFF_POLICY and spec.has_plain_batches
    if not can_be or name in _WITHOUT:
        raise ConfigError(
            f"algo={name} cannot learn from what older weights did in another process. With "
            "--learn use sac, td3, crossq, tqc or ddpg."
        )
    for key, value, only in (
        ("algo.replay_buffer", "her" if config.algo.replay_buffer == "her" else None, None),
        ("algo.symmetry", config.algo.symmetry, None),
        ("exploration.kind", config.exploration.kind, None),
        ("log.actions", config.log.actions, False),
        ("n_envs", config.n_envs, 1),
        ("env.frame_stack", config.env.frame_stack, 1),
        ("asynchronous", config.asynchronous, False),
        ("cost", config.cost, None),
        ("reward_model.path", config.reward_model.path, None),
        ("store", config.store, None),
        ("curriculum", "..." if config.curriculum else [], []),
    ):
        if value != only:
            shown: Any = "null" if only is None else only
            raise ConfigError(f"{key}={value} does not work with --learn. Set {key}={shown}.")


class Learning:
    """One session of a run that learns while it acts.

    Attributes:
        maskable: False: there are no masks of actions.
    """

    maskable = False

    def __init__(self, plan: Plan, command: str, queue: int | None) -> None:
        """Plan a session; nothing is written.

        Args:
            plan: From `plan_run`.
            command: For the run's records.
            queue: How many transitions may wait at most; None for what suits the clock.

        Raises:
            ConfigError: It cannot be learned so.
        """
        check(plan.config)
        if plan.start is Start.RESUME and plan.run_dir is not None and not has_log(plan.run_dir):
            path = plan.run_dir.path
            raise ConfigError(
                f"{path} has not learned on a robot. Begin a new run from it: run-robot --learn "
                f"algo=... env=... init_from={path}"
            )
        self._plan, self._command, self._config = plan, command, plan.config
        self._n_steps = _n_steps_of(plan.config)
        self._asked, self._queue, self._is_stepped = queue, 1, False
        self._attend: Callable[[], None] = lambda: None
        self._run_dir: RunDir | None = None
        self._process: Child | None = None
        self._lock: RunLock | None = None
        self._log: LogWriter | None = None
        self._version, self._weights_step, self._since_noise = 0, 0, 0

    def join(self, venv: VecEnv, *, is_stepped: bool) -> None:
        """Take part in an environment that somebody else steps.

        Args:
            venv: From `make_eval_env`.
            is_stepped: Whether waiting costs the robot no time: then each step waits for room.

        Raises:
            ConfigError: Its spaces are not those that can be learned so.
        """
        if not isinstance(venv, DummyVecEnv) or not isinstance(venv.action_space, spaces.Box):
            raise ConfigError(
                f"--learn needs one environment with continuous actions, not {venv.action_space}."
            )
        self._is_stepped = is_stepped
        self._queue = self._asked or (QUEUE_STEPPED if is_stepped else QUEUE)
        config = self._config.model_copy(
            update={"device": "cpu", "record_updates": False, "fast": False}
        )
        seed = SeedStreams.of(config).agent
        self._agent: Any = make_agent(config, wrapped_for_training(venv, config), seed)
        self._layout = Layout(venv.observation_space, venv.action_space)
        monitored = venv.envs[0]
        assert isinstance(monitored, gym.Wrapper)
        # Within the monitor, which then sees the ends that it adds.
        monitored.env = _Recorder(monitored.env, self)

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Space of the actions."""
        space: spaces.Space[Any] = self._agent.action_space
        return space

    @property
    def step(self) -> int:
        """Transitions so far."""
        return self._written.count

    def begin(self, attend: Callable[[], None]) -> Run:
        """Claim the run's directory and start the process that learns; return when it is ready.

        Args:
            attend: Called from then on while something is waited for; what it raises ends that.

        Raises:
            ConfigError: It refuses the configuration.
            RunError: It ended.
        """
        plan, is_new = self._plan, self._plan.start is not Start.RESUME
        problem = check_before_building(plan)
        run_dir, self._lock = claim_run_dir(plan, self._command, problem or ANOTHER_ACTED)
        self._run_dir = run_dir
        try:
            self._log = LogWriter(run_dir.path / FILE, self._layout)
            self._board = Board(len(pack_weights(self._agent)))
            self._board.written = self._log.count
            self._process = self._start()
            self._wait_for(lambda: self._board.version > 0 or self._is_done(), _START_S)
        except BaseException as error:
            self._stop()
            if is_new and isinstance(error, ConfigError):
                for name in (FILE, LOCK):
                    (run_dir.path / name).unlink(missing_ok=True)
                run_dir.discard()
            raise
        # Before, how it ended would be called a fault of the robot's session.
        self._attend = attend
        # Exploring must not repeat what an earlier session drew.
        self._agent.set_random_seed(self.seeds(1)[0])
        return Run.open(run_dir.path, trust=True)

    @property
    def is_over(self) -> bool:
        """Whether the run has all its transitions, or has been ended by what it learned."""
        return self._written.count >= self._n_steps or self._is_done()

    def seeds(self, count: int) -> list[int]:
        """Return seeds of episodes of training, which no session before has had."""
        streams = SeedStreams.of(self._config)
        return [streams.train_after(self._written.count + number) for number in range(count)]

    def look(self) -> None:
        """Look whether learning goes on.

        Raises:
            RunError: Its process has ended before it was told to.
        """
        process = self._process
        if process is not None and process.poll() is not None and not self._is_done():
            raise RunError(f"the process that learns has ended: {process.last_words()}")

    def wait_for_room(self, part: float = 1.0) -> None:
        """Wait until at most a part of the queue is used.

        Raises:
            RunError: The process that learns has ended.
        """
        self._wait_for(lambda: self._n_waiting < part * self._queue or self._is_done())

    def wait_between_episodes(self) -> None:
        """Wait until half of the queue is free; the robot must be safe meanwhile."""
        self.wait_for_room(0.5)

    def predict(
        self, observation: Any, state: Any, starts: Any, *_: Any
    ) -> tuple[np.ndarray, None]:
        """Explore with the newest weights, as the algorithm itself does while it collects."""
        del state
        if self._is_stepped:
            self.wait_for_room()
        self._take_weights()
        agent = self._agent
        normalize = agent.get_vec_normalize_env()
        agent._last_obs = observation if normalize is None else normalize.normalize_obs(observation)
        agent.num_timesteps = self._written.count
        begins, noise = bool(starts[0]), agent.action_noise
        if begins and noise is not None:
            noise.reset()
        if agent.use_sde:
            self._since_noise = 0 if begins else self._since_noise + 1
            every = agent.sde_sample_freq
            if begins or (every > 0 and self._since_noise % every == 0):
                agent.actor.reset_noise(1)
        return agent._sample_action(agent.learning_starts, noise, 1)[0], None

    def record(self, taken: dict[str, Any]) -> str | None:
        """Write a transition down; return why its episode must end after it, None if it need not.

        Raises:
            OSError: The disk refuses.
        """
        written = self._written
        reason = None
        if written.count + 1 >= self._n_steps:
            reason = ALL_STEPS
        elif self._n_waiting + 1 >= self._queue and not self._is_stepped:
            reason = QUEUE_FULL
        if reason is not None and not taken["terminated"]:
            taken["truncated"] = True
        written.add(Transition(written.count, self._weights_step, **taken))
        self._board.written = written.count
        return reason

    def finish(self) -> str:
        """Let it learn from what is left and end; return why the run has ended or goes on.

        Raises:
            RunError: It failed.
        """
        process = self._process
        assert process is not None
        try:
            process.tell("end")
            words = process.last_words()
            if process.returncode:
                raise RunError(f"the process that learns has failed: {words}")
            return words
        finally:
            self._stop()

    @property
    def _written(self) -> LogWriter:
        assert self._log is not None
        return self._log

    @property
    def _n_waiting(self) -> int:
        return self._written.count - self._board.taken

    def _take_weights(self) -> None:
        found = self._board.take(self._version)
        if found is not None:
            self._version, self._weights_step, weights = found
            unpack_weights(self._agent, weights)

    def _start(self) -> Child:
        assert self._run_dir is not None
        board = self._board.descriptor
        ticket = {
            "config": self._config.model_dump(mode="json"),
            "run_dir": str(self._run_dir.path.absolute()),
            "board": board,
            "in_real_time": not self._is_stepped,
        }
        return Child("learning_process", ticket, board)

    def _wait_for(self, is_so: Callable[[], bool], most_s: float = np.inf) -> None:
        end_s = time.monotonic() + most_s
        while not is_so():
            self._attend()
            process = self._process
            assert process is not None
            if process.poll() is not None and not self._is_done():
                words, code = process.last_words(), process.returncode
                if code == USER_ERROR:
                    raise ConfigError(words)
                raise RunError(f"the process that learns has ended: {words}")
            if time.monotonic() > end_s:
                raise RunError(f"the process that learns has not begun in {most_s:.0f} s.")
            time.sleep(_POLL_S)

    def _is_done(self) -> bool:
        """Return whether the process has ended because the run has all its steps."""
        process = self._process
        return process is not None and process.poll() == 0

    def _stop(self) -> None:
        """Let go of everything; nothing is lost if the process must be killed."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._lock is not None:
            self._lock.release()


class _Recorder(gym.Wrapper):
    """Writes down each transition of an environment, and ends episodes when it must."""

    def __init__(self, env: gym.Env, learning: Learning) -> None:
        super().__init__(env)
        self._learning = learning
        self._seen: Any = None
        self._is_first = True

    def reset(self, **kwargs: Any) -> Any:
        """Start an episode."""
        self._seen, info = self.env.reset(**kwargs)
        self._is_first = True
        return self._seen, info

    def step(self, action: Any) -> Any:
        """Act, and write down what came of it."""
        following, reward, terminated, truncated, info = self.env.step(action)
        reason = self._learning.record(
            {
                "is_first": self._is_first,
                "terminated": bool(terminated),
                "truncated": bool(truncated),
                "reward": float(reward),
                "observation": self._seen,
                "next_observation": following,
                "action": action,
                "info": kept_info(info),
            }
        )
        self._seen, self._is_first = following, False
        if reason is not None and not (terminated or truncated):
            truncated, info = True, {**info, "end_reason": reason}
        return following, reward, terminated, truncated, info


def _n_steps_of(config: RunConfig) -> int:
    """Return how many steps a run takes: whole iterations of `train_freq` steps."""
    given = config.algo.hyperparams.get("train_freq", 1)
    every, unit = given if isinstance(given, (list, tuple)) else (given, "step")
    if unit == "step":
        return -(-config.n_timesteps // int(every)) * int(every)
    if every != 1:
        raise ConfigError(
            f"algo.hyperparams.train_freq={list(given)} does not work with --learn. Set one "
            "episode, or a number of steps."
        )
    return config.n_timesteps


def has_log(run_dir: RunDir) -> bool:
    """Return whether a run has learned on a robot."""
    return (run_dir.path / FILE).is_file()
