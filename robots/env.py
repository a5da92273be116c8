"""The Gymnasium environment: a world and a task."""

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, Literal, Protocol, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.conditions import ConditionOptions, Conditions, info_of
from robots.distributions import read_number
from robots.mirror import Mirror, of_choices
from robots.randomization import ballast_m
from robots.rendering import View
from robots.robot import InitialState, Robot, RobotSpec
from robots.safety import REASON, Broken, needs_efforts
from robots.shipped_mirrors import shipped_mirror
from robots.simulation import Simulation
from robots.state import Episode, ExactState
from robots.task import Task
from robots.terrain import TerrainSpec
from robots.world import World, WorldSpec


class EnvOptions(ConditionOptions, total=False):
    """Options of every environment; see ``BaseRobotEnv``."""

    episode_s: float
    terrain: Mapping[str, Any] | None
    render_mode: str | None
    render_width: int
    render_height: int
    renderer: Literal["tiny", "egl"]
    engine: str | None


Action = NDArray[np.floating[Any]] | np.integer[Any]


class Body(Protocol):
    """What an environment senses and moves in place of its own world, such as a physical robot.

    Rows of numbers are those of ``Sensors``.
    """

    def start(self, initial: InitialState) -> list[float]:
        """Go where an episode starts, and return what the sensors read there."""

    def advance(self, targets: list[float]) -> None:
        """Command one row of ``Drive.targets``."""

    def read(self) -> list[float]:
        """Return what the sensors read at the end of the control step."""


class BaseRobotEnv(ExactState, View):
    """A robot doing a task in its own world.

    ``step`` puts the weighted terms of the reward into ``info["reward_terms"]``. The last step of
    an episode adds ``is_success``, ``episode_terms`` (each term summed over the episode) and
    ``end_reason``, a termination of the task, ``unsafe`` or ``time_limit``. With ``safety``, a step
    that breaks limits has ``violations`` and the last one ``episode_violations``, one that the
    shield changes ``shield`` and the last one ``episode_shield``; with
    ``randomization``, ``reset`` and the last step have what was drawn as ``randomization``.

    Attributes:
        world: The robot and its surroundings.
        task: The task.
        state: What the sensors read last.
        readings: The same as one row of plain numbers.
        episode: Record of the episode since its reset.
        discrete_actions: The actions to choose among, shape (n_choices, n_actions), or None.
        conditions: Actuation, randomization and limits; None if there are none.
        max_episode_steps: Number of steps after which an episode is truncated.
        term_names: Names of the terms that the reward is the sum of.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self,
        robot: RobotSpec,
        task: Task,
        world: WorldSpec | None = None,
        *,
        episode_s: float = 10.0,
        terrain: Mapping[str, Any] | None = None,
        discrete_actions: NDArray[np.float64] | None = None,
        render_mode: str | None = None,
        render_width: int | None = None,
        render_height: int | None = None,
        renderer: Literal["tiny", "egl"] = "tiny",
        engine: str | None = None,
        **conditions: Unpack[ConditionOptions],
    ) -> None:
        """Build the world.

        Args:
            robot: The robot to load.
            task: The task.
            world: Its surroundings; nothing, at 200 Hz and four physics steps an action, if None.
            episode_s: Length of an episode [s], after which it is truncated.
            terrain: Uneven ground in place of a flat one: ``roughness_m``, ``cell_m``, ``size_m``
                and ``seed`` of ``TerrainSpec``.
            discrete_actions: Makes the action space discrete: the actions to choose among, in
                [-1, 1], shape (n_choices, n_actions).
            render_mode: None, "human" (a window) or "rgb_array".
            render_width: Width of a frame [pixels]; the camera's if None.
            render_height: Height of a frame [pixels]; the camera's if None.
            renderer: Renderer of images: PyBullet's software renderer, or EGL.
            engine: Physics engine, "bullet" or "mujoco"; the first that is installed if None.
            conditions: ``latency``, ``max_action_rate``, ``motor_strength``, ``randomization``,
                ``safety`` and ``privileged``; see ``Conditions``.

        Raises:
            TypeError: If an argument is unknown.
            ValueError: If ``render_mode`` is unknown, a length is not positive, or a
                condition is not valid.
            DisplayError: If a window is requested without a display.
            RendererError: If EGL is requested where there is none.
            EngineError: If the engine is not installed.
        """
        for name in conditions.keys() - ConditionOptions.__annotations__.keys():
            known = ", ".join(EnvOptions.__annotations__)
            raise TypeError(
                f"{type(self).__name__} has no argument {name!r}. Use one of its own, or: {known}."
            )
        self.set_view(render_mode, render_width, render_height)
        self.task = task
        if needs_efforts(conditions.get("safety"), robot.action_mode):
            robot = replace(robot, sensors=replace(robot.sensors, efforts=True))
        if reach_m := ballast_m(conditions.get("randomization")):
            robot = replace(robot, ballast_m=reach_m)
        gui = render_mode == "human"
        world = world or WorldSpec()
        if terrain is not None:
            if world.ground_friction is None:
                raise ValueError(
                    f"terrain={terrain!r} needs a ground, and {type(self).__name__} has none. "
                    "Leave it out."
                )
            world = replace(world, terrain=TerrainSpec.read(terrain))
        draws = render_mode is not None or robot.sensors.camera is not None
        self.world = World(world, robot, engine=engine, gui=gui, renderer=renderer, draws=draws)
        step_s = self.simulation.step_s
        self.max_episode_steps = round(episode_s / step_s)
        if self.max_episode_steps < 1:
            self.close()
            raise ValueError(f"episode_s={episode_s} is below one step. Set at least {step_s:.3g}.")
        self.metadata = {**self.metadata, "render_fps": round(1 / step_s)}
        self.discrete_actions = discrete_actions
        n_actions = self.robot.drive.n_actions
        self.action_space = spaces.Box(-1.0, 1.0, (n_actions,), np.float32)
        if discrete_actions is not None:
            self.action_space = spaces.Discrete(len(discrete_actions))
        self.observation_space = task.observation_space
        try:
            found = Conditions(self.world, task, robot.action_mode, **conditions)
        except ValueError:
            self.close()
            raise
        self.conditions = found if found.are_any else None
        if found.privileged is not None:
            self.observation_space = found.privileged.space
        self.term_names = (*task.weights, *found.terms)
        # Looked up once, since each costs a hundredth of the shortest step.
        self._read, self._state_of = self.world.sensors.read, self.world.sensors.state
        self._advance, self._start = self.robot.drive.advance, self.world.start
        self._sees = robot.sensors.camera is not None
        self._remembers = type(task).remember is not Task.remember
        self._zeros = np.zeros(n_actions)
        if render_mode is not None or self._sees:
            self.build_scenery()
        self.world.save()
        self.episode = Episode(None, dict.fromkeys(self.term_names, 0.0))
        self.readings = self.world.sensors.read()
        self.state = self.world.sensors.state(self.readings, image=self.world.image())
        if render_mode == "human":
            self.simulation.aim_window(self.current_camera())

    # Named here too: a subclass that overrides how it steps must give its own state with it.
    state_dict = ExactState.state_dict

    @staticmethod
    def default_options() -> dict[str, Any]:
        """Return the default of each of ``EnvOptions``."""
        places = (signature(place).parameters for place in (BaseRobotEnv, Conditions))
        found = {name: known.default for place in places for name, known in place.items()}
        return {name: found[name] for name in EnvOptions.__annotations__}

    @property
    def simulation(self) -> Simulation:
        """The world of the physics engine."""
        return self.world.simulation

    @property
    def robot(self) -> Robot:
        """The robot in it."""
        return self.world.robot

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Names of the entries of the observation; nothing if the task gives none."""
        return self.task.observation_names([joint.name for joint in self.robot.joints])

    @property
    def mirror(self) -> Mirror | None:
        """How observations and actions are mirrored; None if the task does not say."""
        found, choices = self.task.mirror or shipped_mirror(self), self.discrete_actions
        if found is None or choices is None:
            return found
        return found._replace(action=of_choices(found.action, choices))

    def embody(self, body: Body) -> None:
        """Sense and move something else than the own world, from the next reset on.

        Observation, reward and terminations stay those of the task; what randomization changes in
        the own world is without effect.
        """
        self._start, self._advance, self._read = body.start, body.advance, body.read

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the generator of the initial states; None continues the sequence.
            options: Unused.

        Returns:
            The first observation, and information: nothing, or what randomization drew.
        """
        super().reset(seed=seed)
        self.begin()
        if self.render_mode == "human":
            self.render()
        observation = self.task.observation(self.state)
        conditions = self.conditions
        if conditions is None:
            return observation, {}
        seen = conditions.randomizer.with_noise(observation)
        if conditions.privileged is not None:
            seen = conditions.privileged.add(seen, observation, self.state, [conditions])
        return seen, conditions.first_info()

    def begin(self) -> None:
        """Put the world at the start of an episode that the environment's generator draws."""
        rng = self.np_random
        was_reset = self.episode.start is not None and not self.episode.actions
        start = {"np_random": rng.bit_generator.state, "np_random_seed": self.np_random_seed}
        self.episode = Episode(start, dict.fromkeys(self.term_names, 0.0))
        conditions = self.conditions
        if conditions is not None:
            conditions.begin(rng)
        initial = self.task.sample_initial_state(rng)
        if conditions is not None:
            initial = conditions.randomizer.with_offsets(initial)
        if self.world.terrain is not None:
            initial = initial._replace(ground=self.world.terrain.draw(rng))
        if was_reset and (self.world.objects or self.world.obstacles):
            # Bullet keeps some of where objects were placed and never moved; a step drops it.
            self.world.start(initial)
            self.simulation.step()
        self.readings = self._start(initial)
        state = self.world.sensors.state(self.readings, initial.memory, self.world.image())
        self.state = state._replace(memory=self.task.remember(state, self._zeros))
        if conditions is not None and conditions.randomizer.delays:
            conditions.randomizer.with_delay(
                conditions.randomizer.with_noise(self.task.observation(self.state))
            )

    def step(self, action: Action) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act for one control step.

        Args:
            action: Shape (n_actions,), clipped to [-1, 1]; or the number of a discrete action.

        Returns:
            Observation, reward, whether the task ended the episode, whether the time limit did,
            and the information described at the class.

        Raises:
            FloatingPointError: If the action or the physics is not a number.
        """
        episode = self.episode
        given = action.tolist() if type(action) is np.ndarray else np.asarray(action).tolist()
        episode.actions.append(given)
        command: NDArray[np.float64]
        if self.discrete_actions is not None:
            command = self.discrete_actions[given]
        else:
            # NumPy would take six times as long on so few. A NaN fails both tests, and stays.
            for x in given:
                if not -1.0 <= x <= 1.0:
                    clipped = [-1.0 if x < -1.0 else 1.0 if x > 1.0 else x for x in given]
                    command = np.array(clipped, np.float64)
                    break
            else:
                command = np.array(given, np.float64)
        task, state, conditions = self.task, self.state, self.conditions
        drive = self.world.robot.drive
        if conditions is None:
            targets = drive.row_of_targets(command, state)
        else:
            applied = conditions.apply(command, self.np_random)
            targets = conditions.targets(drive.row_of_targets(applied, state), state)
        self._advance(targets)
        self.readings = readings = self._read()
        image = self.world.image() if self._sees else None
        state = self._state_of(readings, state.memory, image)
        episode.num_steps += 1

        reward = 0.0
        terms: dict[str, float] = {}
        totals, weights = episode.terms, task.weights
        for name, term in task.reward_terms(state, command).items():
            value = term if type(term) is float else float(term)
            terms[name] = value = weights[name] * value
            totals[name] += value
            reward += value
        broken: Broken = {}
        if conditions is not None:
            broken = conditions.check_limits(state, command, targets)
            for name, value in conditions.cost(broken).items():
                terms[name] = value = float(value)
                totals[name] += value
                reward += value
        if reward != reward:  # Only a NaN differs from itself.
            raise FloatingPointError(
                f"action={action} led to a state that is not a number: {state}."
            )
        reason = None
        for name, flag in task.terminations(state).items():
            if flag:
                reason = name
                break
        if conditions is not None and reason is None and conditions.end(broken):
            reason = REASON
        if self._remembers:
            state = state._replace(memory=task.remember(state, command))
        self.state = state
        info: dict[str, Any] = {"reward_terms": terms}
        if broken and conditions is not None:
            info.update(info_of(broken, conditions.changes))
        terminated = reason is not None
        truncated = not terminated and episode.num_steps >= self.max_episode_steps
        if terminated or truncated:
            success = bool(task.success(state, np.array(truncated)))
            info["is_success"] = success and reason != REASON
            info["episode_terms"] = dict(totals)
            info["end_reason"] = reason or "time_limit"
            if conditions is not None:
                info.update(conditions.last_info())
        if self.render_mode == "human":
            self.render()
        observation = task.observation(state)
        if conditions is not None:
            conditions.randomizer.draw_noise(self.np_random)
            seen = conditions.randomizer.with_noise(observation)
            seen = conditions.randomizer.with_delay(seen)
            if conditions.privileged is not None:
                seen = conditions.privileged.add(seen, observation, state, [conditions])
            observation = seen
        return observation, reward, terminated, truncated, info

    def set_randomization_level(self, level: float | None) -> None:
        """Set how far randomization spreads, from the next reset on.

        Args:
            level: From 0 (nominal) to 1 (the full spread); None: as the curriculum says.

        Raises:
            ValueError: If it is neither, or there is no randomization.
        """
        if self.randomizer is None:
            raise ValueError(
                f"level={level} has no effect without randomization. Make the environment with "
                "randomization={...}."
            )
        forced = None if level is None else read_number("level", level, 0.0, 1.0)
        self.randomizer.forced_level = forced

    def close(self) -> None:
        """Disconnect from PyBullet; calling it again does nothing."""
        self.simulation.close()
