"""Domain randomization: its specification, and drawing it at each reset."""

from collections import deque
from collections.abc import Callable, Mapping
from math import pi
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.ballast import LINK_KG
from robots.distributions import Distribution, known_name, read_distribution, read_number
from robots.elementary import clip
from robots.robot import InitialState
from robots.world import World


class Quantity(NamedTuple):
    """What can be randomized."""

    nominal: float
    """What it is without randomization: 1 for factors, 0 for what is added."""
    at_least: float = -np.inf
    """The lowest value that makes sense."""
    each: bool = False
    """Whether links, joints or objects may be drawn separately."""


QUANTITIES = {
    "mass": Quantity(1.0, 0.01, each=True),
    "inertia": Quantity(1.0, 0.01, each=True),
    "payload": Quantity(0.0, 0.0),
    "com_offset": Quantity(0.0),
    "friction": Quantity(1.0, 0.0, each=True),
    "joint_damping": Quantity(0.0, 0.0, each=True),
    "joint_friction": Quantity(0.0, 0.0, each=True),
    "armature": Quantity(0.0, 0.0, each=True),
    "ground_friction": Quantity(1.0, 0.0),
    "object_mass": Quantity(1.0, 0.01, each=True),
    "object_friction": Quantity(1.0, 0.0, each=True),
    "gravity": Quantity(1.0, 0.0),
    "motor_strength": Quantity(1.0, 0.0),
    "latency": Quantity(0.0, 0.0),
    "observation_delay": Quantity(0.0, 0.0),
    "initial_position": Quantity(0.0),
    "initial_velocity": Quantity(0.0),
    "observation_bias": Quantity(0.0),
    "observation_noise": Quantity(0.0),
}
"""In the order in which they are drawn."""

_SETTINGS = ("push", "curriculum")
_WHOLE = ("latency", "observation_delay")
_LEAST_BALLAST_M = 0.01


def _read(name: str, value: object) -> Distribution:
    where, quantity = f"randomization.{name}", QUANTITIES[name]
    distribution = read_distribution(where, value, quantity.nominal)
    if distribution.low < quantity.at_least:
        raise ValueError(
            f"{where}={value!r} can be as low as {distribution.low:.4g}, and must be at least "
            f"{quantity.at_least:g}. Narrow it; a normal distribution reaches three deviations."
        )
    if name in _WHOLE and not distribution.whole:
        raise ValueError(
            f"{where}={value!r} must be whole control steps. Write for example "
            "{choice: [0, 1, 2]}."
        )
    if distribution.each and not quantity.each:
        able = ", ".join(name for name, other in QUANTITIES.items() if other.each)
        raise ValueError(f"{where}: each has no meaning there. Leave it out; it is for {able}.")
    return distribution


def _read_settings(name: str, value: object, keys: tuple[str, ...]) -> dict[str, float]:
    """Return settings that are numbers; none if they are not set."""
    where = f"randomization.{name}"
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not set(keys) <= set(value):
        raise ValueError(f"{where}={value!r} must be a mapping with {' and '.join(keys)}.")
    for key in value:
        known_name(where, key, keys)
    return {key: read_number(f"{where}.{key}", value[key], 0.0) for key in keys}


def _read_joints(name: str, value: Mapping[str, Any], joints: list[str]) -> Distribution:
    """Return the distribution of values that are given for each joint by its name."""
    where, given = f"randomization.{name}.joints", value["joints"]
    if len(value) > 1 or not isinstance(given, Mapping):
        raise ValueError(
            f"randomization.{name}={value!r} must have joints alone, a mapping of their names to "
            f"distributions. Choose among: {', '.join(joints)}."
        )
    for joint in given:
        known_name(where, joint, joints)
    parts = [_read(name, given.get(joint, QUANTITIES[name].nominal)) for joint in joints]
    if any(part.each for part in parts):
        raise ValueError(f"{where}: each has no meaning for one joint. Leave it out.")

    def draw(rng: np.random.Generator, size: int | None) -> Any:
        del size
        return np.array([part.draw(rng, None) for part in parts])

    low, high = min(part.low for part in parts), max(part.high for part in parts)
    return Distribution(draw, low, high, each=True)


_OF_JOINTS = ("joint_damping", "joint_friction", "armature")
_OFFSETS = ("initial_position", "initial_velocity")
_OF_LINKS = ("mass", "inertia", "friction")
_OF_TRUNK = ("payload", "com_offset")


def ballast_m(config: object) -> float | None:
    """Return how far from a trunk's centre of mass its ballast must be: four times its offset.

    So at most a quarter of its mass is moved along each axis. None without ``com_offset``.

    Raises:
        ValueError: The ``com_offset`` of a randomization is not valid.
    """
    if not isinstance(config, Mapping) or "com_offset" not in config:
        return None
    offset = _read("com_offset", config["com_offset"])
    return max(4.0 * max(abs(offset.low), abs(offset.high)), _LEAST_BALLAST_M)


class Randomizer:
    """Draws and applies the randomization of one world.

    Each reset sets everything from nominal values again: restoring a state does not restore
    masses.

    Attributes:
        draws: What the quantities are drawn from, in the order in which they are drawn.
        forced_level: Level that was set by hand; None follows the curriculum.
        level: Level of the present episode, from 0 (nominal) to 1 (the full spread).
        drawn: What was drawn for it, as plain numbers and lists.
        sizes: How many numbers a reset draws of each quantity; None: one for all.
        noise: What is added to the next observation, shape (n_observations,); None: never any.
        pushes: Whether the robot is pushed.
        pushed: The last push: velocity of a free base, x and y [m/s], or of each joint [rad/s or
            m/s]; zeros after a step without.
        delays: Whether observations arrive late.
    """

    def __init__(self, config: object, world: World, observation_space: spaces.Space[Any]) -> None:
        """Read the configuration and the nominal values.

        Args:
            config: What varies; ``docs/robots/randomization.md`` lists the entries.
            world: Complete, and as it should be without randomization.
            observation_space: Space of what the noise is added to.

        Raises:
            ValueError: If an entry is unknown or does not fit, or the world has nothing that a
                quantity belongs to.
        """
        if not isinstance(config, Mapping):
            raise ValueError(
                f"randomization={config!r} must be a mapping, as {{mass: {{uniform: [0.8, 1.2]}}}}."
            )
        for name in config:
            known_name("randomization", name, (*QUANTITIES, *_SETTINGS))
        robot = world.robot
        movable = world.simulation.movable_joints(robot.body)
        self._hinges = dict.fromkeys(_OF_JOINTS, movable) | {"joint_friction": robot.without_motor}
        self.draws = {}
        for name in QUANTITIES:
            value = config.get(name)
            if name in _OF_JOINTS and isinstance(value, Mapping) and "joints" in value:
                names = [joint.name for joint in self._hinges[name]]
                self.draws[name] = _read_joints(name, value, names)
            elif name in config:
                self.draws[name] = _read(name, value)
        push = _read_settings("push", config.get("push"), ("every_s", "velocity"))
        curriculum = _read_settings("curriculum", config.get("curriculum"), ("episodes",))
        self._curriculum_episodes = episodes = curriculum.get("episodes", 0.0)
        self._push_every_s, self._push_velocity = push.values() if push else (0.0, 0.0)
        self.pushes = bool(push)
        self._unpushed = np.zeros(2 if robot.free_base else len(robot.joints))
        self.pushed = self._unpushed
        if episodes != int(episodes) or 0.0 in (*push.values(), *curriculum.values()):
            raise ValueError(
                f"randomization.push={push} and randomization.curriculum={curriculum} must be "
                "above 0, and episodes whole. Set for example every_s=2.0, velocity=0.5 and "
                "episodes=200."
            )
        self.forced_level: float | None = None
        self.level = 1.0
        self.drawn: dict[str, Any] = {}
        self._world = world
        self._strength = robot.drive.strength
        self._set_frictions = self._joint_frictions(world)
        if "armature" in self.draws and not world.simulation.has_armature:
            raise ValueError(
                f"randomization.armature: engine={world.simulation.engine} has none. Leave it out."
            )
        read = world.simulation.link_dynamics
        links, ground, objects = (
            [(body, *link) for body in bodies for link in read(body).items()]
            for bodies in (
                [world.robot.body],
                [] if world.ground is None else [world.ground],
                world.objects,
            )
        )
        self._groups = (
            (links, *_OF_LINKS),
            (ground, "", "", "ground_friction"),
            (objects, "object_mass", "", "object_friction"),
        )
        for name, there, what in (
            ("ground_friction", ground, "a ground"),
            ("object_mass", objects, "objects that can move"),
            ("object_friction", objects, "objects that can move"),
        ):
            if name in self.draws and not there:
                raise ValueError(f"randomization.{name}: this world has not {what}. Leave it out.")
        self._trunk = (world.robot.body, world.simulation.trunk(world.robot.body))
        self._ballast = world.simulation.ballast(world.robot.body)
        self._reach_m = ballast_m(config)
        self._loads = not self.draws.keys().isdisjoint(_OF_TRUNK)
        for name in _OF_TRUNK:
            if name in self.draws and not world.robot.free_base:
                raise ValueError(
                    f"randomization.{name}: the base of this robot cannot move, so it would change "
                    "nothing. Leave it out, or vary the mass of its links."
                )
        self._box: spaces.Box | None = None
        self.noise: NDArray[np.float64] | None = None
        if not self.draws.keys().isdisjoint(("observation_bias", "observation_noise")):
            self._box = _noisy_box(observation_space)
            self.noise = np.zeros(self._box.shape)
        always = {**dict.fromkeys(_OFFSETS, len(world.robot.joints)), "com_offset": 3}
        if self.noise is not None:
            always["observation_bias"] = len(self.noise)
        counts = {
            **{name: len(joints) for name, joints in self._hinges.items()},
            **dict.fromkeys(("object_mass", "object_friction"), len(objects)),
            **dict.fromkeys(_OF_LINKS, len(links)),
        }
        self.sizes = {
            name: always.get(name, counts.get(name) if draw.each else None)
            for name, draw in self.draws.items()
            if name != "observation_noise"
        }
        self.delays = "observation_delay" in self.draws
        self._under_way: deque[NDArray[Any]] = deque()
        self._episodes = 0
        self._start: tuple[int, float | None] = (0, None)
        self._steps_to_push = 0

    @property
    def is_growing(self) -> bool:
        """Whether there is a curriculum, so that an episode depends on how many came before."""
        return self._curriculum_episodes > 0

    def begin(self, rng: np.random.Generator) -> None:
        """Draw for the next episode, and set the physics and the motors accordingly."""
        self._start = (self._episodes, self.forced_level)
        growing = self._curriculum_episodes
        level = min(1.0, self._episodes / growing) if growing else 1.0
        self.level = level if self.forced_level is None else self.forced_level
        self._episodes += 1
        self._under_way.clear()
        self.pushed = self._unpushed
        self.drawn = {"level": self.level}
        for name, size in self.sizes.items():
            value = np.asarray(self._draw(name, rng, size)).tolist()
            self.drawn[name] = round(value) if name in _WHOLE else value
        self._set_physics()
        if self._push_every_s:
            self._plan_push(rng)
        self.draw_noise(rng)

    def apply(self, drawn: Mapping[str, Any]) -> None:
        """Set physics and motors as if this had been drawn, until the next episode begins."""
        self.drawn = {**self.drawn, **drawn}
        self._set_physics()

    def with_offsets(self, initial: InitialState) -> InitialState:
        """Return an initial state with the drawn offsets of its joints, within their limits."""
        position, velocity = (self.drawn.get(name) for name in _OFFSETS)
        if position is not None:
            start = np.array(initial.joint_position, np.float64)
            joints = self._world.robot.joints
            # A start outside of the limits is meant, and such limits do not bind.
            limits = [
                (joint.lower, joint.upper) if joint.lower <= x <= joint.upper else (-np.inf, np.inf)
                for joint, x in zip(joints, start.tolist(), strict=True)
            ]
            lower, upper = np.array(limits).T
            initial = initial._replace(joint_position=clip(start + position, lower, upper))
        if velocity is not None:
            start = np.array(initial.joint_velocity, np.float64)
            initial = initial._replace(joint_velocity=start + velocity)
        return initial

    def push(self, rng: np.random.Generator) -> None:
        """Push the robot if it is time to; to be called before every step."""
        self._steps_to_push -= 1
        self.pushed = self._unpushed
        if not self._push_every_s or self._steps_to_push > 0:
            return
        self._plan_push(rng)
        robot, simulation = self._world.robot, self._world.simulation
        greatest = self.level * self._push_velocity
        if robot.free_base:
            speed, direction = greatest * rng.uniform(), rng.uniform(-pi, pi)
            (x, y, z), turning = simulation.velocity_reader(robot.body)()
            pushed = (x + speed * np.cos(direction), y + speed * np.sin(direction), z)
            simulation.set_base_velocity(robot.body, pushed, turning)
            self.pushed = np.array([pushed[0] - x, pushed[1] - y])
        else:
            place = int(rng.integers(len(robot.joints)))
            change = rng.uniform(-greatest, greatest)
            simulation.add_joint_velocity(robot.body, robot.joints[place].index, change)
            self.pushed = self._unpushed.copy()
            self.pushed[place] = change

    @property
    def push_in_s(self) -> float:
        """Time until the next push [s]."""
        return self._steps_to_push * self._world.simulation.step_s

    def draw_noise(self, rng: np.random.Generator) -> None:
        """Draw what is added to the next observation; to be called after every step."""
        if self.noise is None:
            return
        self.noise = np.full(self.noise.shape, 0.0) + self.drawn.get("observation_bias", 0.0)
        if "observation_noise" in self.draws:
            self.noise += self._draw("observation_noise", rng, len(self.noise))

    def with_noise(self, observation: Any, noise: NDArray[np.float64] | None = None) -> Any:
        """Return observations with noise added, within their space.

        Args:
            observation: Of one world or of many; of a goal task, its goals stay as they are.
            noise: That of many worlds, shape (..., n_observations); ``noise`` if None.
        """
        noise = self.noise if noise is None else noise
        if noise is None or self._box is None:
            return observation
        if isinstance(observation, dict):
            part = self.with_noise(observation["observation"], noise)
            return {**observation, "observation": part}
        return clip(observation + noise, self._box.low, self._box.high).astype(np.float32)

    def with_delay(self, observation: Any) -> Any:
        """Return what has arrived of observations, to be called with each of an episode in turn.

        Until the first is as old as the drawn delay, it is what is seen.

        Args:
            observation: Of one world; of a goal task, its goals arrive at once.
        """
        if not self.delays:
            return observation
        if isinstance(observation, dict):
            return {**observation, "observation": self.with_delay(observation["observation"])}
        self._under_way.append(np.array(observation))
        if len(self._under_way) > self.drawn["observation_delay"] + 1:
            self._under_way.popleft()
        return self._under_way[0].copy()

    def running(self) -> dict[str, NDArray[np.float64]]:
        """Return what a step of the episode changes: the next push, and what is seen late."""
        seen = np.array(list(self._under_way), np.float64)
        return {"steps_to_push": np.array(float(self._steps_to_push)), "seen": seen}

    def resume(self, running: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from ``running`` of an episode that began alike; else raise a ValueError."""
        self._steps_to_push = int(running["steps_to_push"].reshape(()))
        if self.delays:
            first = self._under_way[0]
            rows = running["seen"].reshape(-1, *first.shape).astype(first.dtype)
            if not 1 <= len(rows) <= self.drawn["observation_delay"] + 1:
                raise ValueError(f"{len(rows)} observations are under way.")
            self._under_way = deque(rows)

    def progress(self) -> dict[str, Any]:
        """Return the part of the environment's state that persists between episodes."""
        episodes, level = self._start
        return {"episodes": episodes, "level": level, "next_level": self.forced_level}

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Return to the start of an episode; set ``forced_level`` when it is replayed."""
        self._episodes, self.forced_level = progress["episodes"], progress["level"]
        self._start = (self._episodes, self.forced_level)

    def _set_physics(self) -> None:
        """Set what was drawn, as factors on nominal values."""
        simulation, drawn = self._world.simulation, self.drawn
        for links, *names in self._groups:
            mass, inertia, friction = (self._values(name, len(links)) for name in names)
            for i, (body, link, nominal) in enumerate(links):
                # What cannot move has no mass.
                is_loaded = self._loads and (body, link) == self._trunk
                if nominal.mass_kg > 0 and (mass or inertia or is_loaded):
                    heavier = mass[i] if mass else 1.0
                    larger = heavier * inertia[i] if inertia else heavier
                    kg = nominal.mass_kg * heavier
                    kg = self._loaded(kg) if is_loaded else kg
                    simulation.set_mass(body, link, kg, [larger * m for m in nominal.inertia])
                if friction:
                    simulation.set_friction(body, link, nominal.friction * friction[i])
        body = self._world.robot.body
        for name, set_one in (
            ("joint_damping", simulation.set_joint_damping),
            ("armature", simulation.set_armature),
        ):
            values = self._values(name, len(self._hinges[name]))
            for joint, value in zip(self._hinges[name], values, strict=False):
                set_one(body, joint.index, value)
        if "joint_friction" in drawn:
            frictions = self._values("joint_friction", len(self._hinges["joint_friction"]))
            self._set_frictions([0.0] * len(frictions), frictions)
        if "gravity" in drawn:
            simulation.set_gravity(simulation.gravity_m_s2 * drawn["gravity"])
        if "motor_strength" in drawn:
            self._world.robot.drive.set_strength(self._strength * drawn["motor_strength"])

    def _joint_frictions(self, world: World) -> Callable[[list[float], list[float]], None]:
        """Return motors that brake joints with a limited force, which is what dry friction does."""
        if "joint_friction" not in self.draws:
            return lambda speeds, forces: None
        joints = [joint.index for joint in self._hinges["joint_friction"]]
        if not joints:
            raise ValueError(
                "randomization.joint_friction: motors hold every joint of this robot, and friction "
                "would be part of them. Leave it out, or vary motor_strength."
            )
        return world.simulation.velocity_motors(world.robot.body, joints)

    def _loaded(self, mass_kg: float) -> float:
        """Return what a trunk of this mass weighs with its payload and without its ballast.

        Ballast at a distance from the centre of mass has the share of it all that moves the centre.
        """
        total: float = mass_kg + self.drawn.get("payload", 0.0)
        set_mass, body = self._world.simulation.set_mass, self._world.robot.body
        if self._reach_m is None:
            return total
        rest = total
        sides = [side for x in self.drawn["com_offset"] for side in (x, -x)]
        for link, offset in zip(self._ballast, sides, strict=True):
            kg = max(offset, 0.0) / self._reach_m * total
            moments = (1e-3 * LINK_KG,) * 3
            set_mass(body, link, max(kg, LINK_KG), moments)
            rest -= kg
        return rest

    def _draw(self, name: str, rng: np.random.Generator, size: int | None) -> Any:
        """Draw a quantity; at a level below 1 it stays nearer to its nominal value."""
        value = self.draws[name].draw(rng, size)
        if self.level == 1.0:
            return value
        nominal = QUANTITIES[name].nominal
        return nominal + self.level * (value - nominal)

    def _values(self, name: str, count: int) -> list[float]:
        """Return what was drawn of a quantity for so many links or joints; empty if nothing was."""
        value = self.drawn.get(name, [])
        return value if isinstance(value, list) else [value] * count

    def _plan_push(self, rng: np.random.Generator) -> None:
        """Draw when to push next: between a half and one and a half of the mean time."""
        wait_s = self._push_every_s * rng.uniform(0.5, 1.5)
        self._steps_to_push = max(1, round(wait_s / self._world.simulation.step_s))


def _noisy_box(space: spaces.Space[Any]) -> spaces.Box:
    """Return the space of the numbers that noise is added to; raise a ValueError without any."""
    part = space["observation"] if isinstance(space, spaces.Dict) else space
    if not isinstance(part, spaces.Box) or part.dtype != np.float32 or len(part.shape) != 1:
        raise ValueError(
            f"randomization.observation_noise and observation_bias need a row of numbers, and the "
            f"observation is {part}. Leave them out."
        )
    return part
