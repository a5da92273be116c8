"""The Gymnasium environment: a simulation, a robot and a task."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.robot import ActionMode, Robot, RobotSpec
from robots.simulation import Simulation
from robots.state import (
    ENV_KEYS,
    InexactStateError,
    overridden_alone,
    read_bit_generator_state,
    read_entries,
    read_number,
    read_same,
    read_whole,
)
from robots.task import Task

Observation = NDArray[np.float32]
Action = NDArray[np.float32] | np.int64

_LOWEST_ACTION = np.array(-1.0)
_HIGHEST_ACTION = np.array(1.0)


class BaseRobotEnv(gymnasium.Env[Observation, Action]):
    """A robot doing a task in its own simulation.

    ``step`` puts the weighted terms of the reward into ``info["reward_terms"]``. The last step of
    an episode adds ``is_success``, ``episode_terms`` (each term summed over the episode) and
    ``end_reason``, a termination of the task or ``time_limit``.

    Attributes:
        simulation: The PyBullet world.
        robot: The robot in it.
        task: What it should do.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 50}  # noqa: RUF012
    camera: ClassVar[Camera] = Camera()
    """The view that ``render`` shows; its size is the default size."""

    def __init__(
        self,
        robot: RobotSpec,
        task: Task,
        *,
        episode_s: float,
        time_step_s: float = 1 / 200,
        substeps: int = 4,
        discrete_actions: NDArray[np.float64] | None = None,
        render_mode: str | None = None,
        render_size: tuple[int, int] | None = None,
    ) -> None:
        """Build the world.

        Args:
            robot: The robot to load.
            task: What it should do.
            episode_s: Length of an episode [s], after which it is truncated.
            time_step_s: Length of a physics step [s].
            substeps: Physics steps per action.
            discrete_actions: Makes the action space discrete: the actions to choose among, in
                [-1, 1], shape (n_choices, n_actuated).
            render_mode: None, "human" (a window) or "rgb_array".
            render_size: Width and height of a frame [pixels]; the camera's if None.

        Raises:
            ValueError: If ``render_mode`` is unknown or a length is not positive.
            DisplayError: If a window is asked for where there is no display.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode={render_mode!r} is unknown. Use None, 'human' or 'rgb_array'."
            )
        self.render_mode = render_mode
        self.task = task
        self.simulation = Simulation(
            time_step_s=time_step_s,
            substeps=substeps,
            hold_torques=robot.action_mode == ActionMode.TORQUE,
            gui=render_mode == "human",
        )
        step_s = self.simulation.step_s
        self._max_steps = round(episode_s / step_s)
        if self._max_steps < 1:
            self.close()
            raise ValueError(f"episode_s={episode_s} is below one step. Set at least {step_s:.3g}.")
        self.metadata = {**self.metadata, "render_fps": round(1 / step_s)}
        self.robot = Robot(self.simulation, robot)
        self._render_size = render_size or (self.camera.width, self.camera.height)
        if render_mode is not None:
            self.build_scenery()
        if render_mode == "human":
            self.simulation.aim_window(self.current_camera())
        self.simulation.save()
        self._discrete_actions = discrete_actions
        self.action_space = self._make_action_space()
        self.observation_space = cast(spaces.Space[Observation], task.observation_space)
        self._num_steps = 0
        self._episode_terms = dict.fromkeys(task.weights, 0.0)
        self._next_frame_s = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the generator of the initial states; None draws on.
            options: Unused.

        Returns:
            The first observation, and an empty dictionary.
        """
        super().reset(seed=seed)
        self.simulation.restore()
        self.robot.reset(self.task.sample_initial_state(self.np_random))
        self._num_steps = 0
        self._episode_terms = dict.fromkeys(self.task.weights, 0.0)
        if self.render_mode == "human":
            self.render()
        return self.task.observation(self.robot.read()), {}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Act for one control step.

        Args:
            action: Shape (n_actuated,), clipped to [-1, 1]; or the number of a discrete action.

        Returns:
            Observation, reward, whether the task ended the episode, whether the time limit did,
            and the information described at the class.

        Raises:
            FloatingPointError: If the action or the physics is not a number.
        """
        if self._discrete_actions is not None:
            command = self._discrete_actions[action]
        else:
            command = np.minimum(np.maximum(action, _LOWEST_ACTION), _HIGHEST_ACTION)
        task = self.task
        self.robot.apply(command)
        self.simulation.step()
        state = self.robot.read()
        self._num_steps += 1

        reward = 0.0
        terms: dict[str, float] = {}
        totals = self._episode_terms
        weights = task.weights
        for name, term in task.reward_terms(state, command).items():
            value = weights[name] * float(term)
            terms[name] = value
            totals[name] += value
            reward += value
        if reward != reward:  # Only a NaN differs from itself.
            raise FloatingPointError(
                f"action={action} led to a state that is not a number: {state}."
            )
        info: dict[str, Any] = {"reward_terms": terms}

        reason = None
        for name, flag in task.terminations(state).items():
            if flag:
                reason = name
                break
        terminated = reason is not None
        truncated = not terminated and self._num_steps >= self._max_steps
        if terminated or truncated:
            info["is_success"] = bool(task.success(state, np.array(truncated)))
            info["episode_terms"] = dict(totals)
            info["end_reason"] = reason or "time_limit"
        if self.render_mode == "human":
            self.render()
        return task.observation(state), reward, terminated, truncated, info

    @property
    def max_episode_steps(self) -> int:
        """Number of steps after which an episode is truncated."""
        return self._max_steps

    @property
    def exact_state(self) -> bool:
        """Whether ``state_dict`` gives the state; if not, replay the actions of the episode.

        True where the joints are the whole state of the physics: the base of the robot is fixed
        and there is nothing to touch. False also for a subclass that overrides ``step`` or
        ``reset`` without ``state_dict``, since it may remember more.
        """
        return self._hidden_state() is None

    def state_dict(self) -> dict[str, Any]:
        """Return the exact state between two steps, as plain data that shares nothing with it.

        An environment made with the same arguments, in another process too, continues from it bit
        for bit, into the next episodes. Not part of it: the arguments, the generators of the two
        spaces, and whatever a wrapper keeps.

        Returns:
            Nested dictionaries of strings, numbers, lists and float64 arrays.

        Raises:
            InexactStateError: If ``exact_state`` is False.
        """
        self._require_exact_state()
        return {
            "step_s": self.simulation.step_s,
            "robot": self.robot.state_dict(),
            "task": {"name": type(self.task).__name__, "state": self.task.state_dict()},
            "num_steps": self._num_steps,
            "episode_terms": dict(self._episode_terms),
            "np_random": self.np_random.bit_generator.state,
            "np_random_seed": self.np_random_seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned, in place of a ``reset``.

        Args:
            state: From an environment made with the same arguments.

        Raises:
            InexactStateError: If ``exact_state`` is False.
            ValueError: If the state is of another environment, or not in order; the environment
                is then as it was.
        """
        self._require_exact_state()
        parts = read_entries("state", state, ENV_KEYS)
        read_same("step_s", parts["step_s"], self.simulation.step_s)
        joints = self.robot.read_state_dict(parts["robot"])
        task = read_entries("task", parts["task"], ("name", "state"))
        read_same("task.name", task["name"], type(self.task).__name__)
        num_steps = read_whole("num_steps", parts["num_steps"], at_least=0)
        terms = read_entries("episode_terms", parts["episode_terms"], self.task.weights)
        totals = {
            name: read_number(f"episode_terms.{name}", terms[name]) for name in self.task.weights
        }
        generator = read_bit_generator_state("np_random", parts["np_random"], self.np_random)
        seed = read_whole("np_random_seed", parts["np_random_seed"], at_least=-1)
        # Last of what may refuse, first of what changes.
        self.task.load_state_dict(task["state"])
        self.simulation.restore()
        self.robot.reset_movable(joints)
        self._num_steps = num_steps
        self._episode_terms = totals
        self.np_random.bit_generator.state = generator
        self._np_random_seed = seed

    def render(self) -> NDArray[np.uint8] | None:
        """Return a frame, shape (height, width, 3); in "human" mode keep the window in real time.

        Returns:
            The frame in "rgb_array" mode, otherwise None.
        """
        if self.render_mode == "rgb_array":
            return self.simulation.camera_image(self.current_camera())
        if self.render_mode == "human":
            time.sleep(max(0.0, self._next_frame_s - time.monotonic()))
            self._next_frame_s = time.monotonic() + self.simulation.step_s
        return None

    def current_camera(self) -> Camera:
        """Return the camera of the present frame; override to follow the robot."""
        width, height = self._render_size
        return replace(self.camera, width=width, height=height)

    def build_scenery(self) -> None:
        """Add what only the eye needs; called when rendering, and must not touch the physics."""

    def close(self) -> None:
        """Disconnect from PyBullet; calling it again does nothing."""
        self.simulation.close()

    def _hidden_state(self) -> str | None:
        """Return what ``state_dict`` may leave out, or None if it is complete."""
        overridden = overridden_alone(type(self), ("reset", "step"), "state_dict")
        if overridden is not None:
            return f"{overridden} is overridden without state_dict"
        return self.simulation.state_beyond_joints(self.robot.body)

    def _require_exact_state(self) -> None:
        hidden = self._hidden_state()
        if hidden is not None:
            raise InexactStateError(
                f"The state of {type(self).__name__} cannot be given exactly: {hidden}. "
                "Ask exact_state first, and replay the actions of the episode instead."
            )

    def _make_action_space(self) -> spaces.Space[Any]:
        if self._discrete_actions is not None:
            return spaces.Discrete(len(self._discrete_actions))
        return spaces.Box(-1.0, 1.0, (len(self.robot.actuated),), np.float32)
