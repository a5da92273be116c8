"""Many worlds stepped by one call of the plugin: their programs, and a check against Python."""

import ctypes
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
import pybullet

from robots.drives import (
    CombinedDrive,
    Drive,
    EndEffectorDrive,
    JoinedDrive,
    Motors,
    PdDrive,
    PositionDrive,
    TorqueDrive,
    VelocityDrive,
    commanding_drive,
    moves_as,
)
from robots.engines.bullet.plugin import Plugin, get_plugin
from robots.engines.bullet.simulation import BulletSimulation, solved_columns
from robots.engines.compiling import SWITCH, PluginError, say
from robots.quiet import native_output_hidden
from robots.sensors import Floats, Sensors
from robots.simulation import POSITION_GAIN, VELOCITY_GAIN
from robots.threads import Threads
from robots.world import Rows, World, step_worlds

log = logging.getLogger(__name__)

Program = list[float]
# The parts of a program, as in worlds.c.
MOTORS, REGULATE, REACH, STEP, READ, LINKS, CONTACTS, BODIES, SKIP, WALKER, RANGES = range(11)
# In place of the body that is touched.
ANY = -1


class Programs:
    """Programs of worlds in the plugin; freed with this object."""

    def __init__(
        self, plugin: Plugin, clients: Sequence[int], programs: Sequence[Program], n_numbers: int
    ) -> None:
        """Give the plugin a program for the world of each client; each reads ``n_numbers``.

        Raises:
            PluginError: If a client does not take the plugin.
        """
        self._n_numbers = n_numbers
        addresses: list[int] = []
        # Programs outlive neither this object nor a failure to make the next one.
        weakref.finalize(self, _remove, plugin, addresses)
        for client, numbers in zip(clients, programs, strict=True):
            addresses.append(plugin.add(client, (ctypes.c_double * len(numbers))(*numbers)))
        worlds = (ctypes.c_void_p * len(addresses))(*addresses)
        self._step = partial(plugin.functions.worlds_step, worlds, len(addresses))

    def run(self, inputs: Rows, threads: int) -> Rows:
        """Carry out all programs.

        Args:
            inputs: A row for each, shape (n, n_inputs).
            threads: Threads that share the work.

        Returns:
            What they read, shape (n, n_numbers).

        Raises:
            pybullet.error: If a world is closed, or Bullet cannot step it.
        """
        inputs = np.ascontiguousarray(inputs, np.float64)
        rows = np.empty((len(inputs), self._n_numbers))
        self.bound(inputs, rows)(threads)
        return rows

    def bound(self, inputs: Rows, rows: Rows) -> Callable[[int], None]:
        """Return a function that carries out all programs on a number of threads; see ``run``.

        Args:
            inputs: Contiguous; what it holds at each call is what the programs are given.
            rows: Where they write, shape (n, n_numbers), contiguous.
        """
        step = partial(
            self._step, inputs.ctypes.data, inputs.shape[1], rows.ctypes.data, self._n_numbers
        )

        def run(threads: int, kept: object = (self, inputs, rows)) -> None:
            if failed := step(threads):
                raise pybullet.error(f"world {failed - 1} is closed, or Bullet cannot step it.")

        return run


class NativeWorlds:
    """Steps worlds by one call of the plugin, without Python's lock.

    Attributes:
        threads: How many share a step; it changes no number.
    """

    def __init__(self, plugin: Plugin, worlds: Sequence[World]) -> None:
        """Give the plugin a program for each world.

        Args:
            plugin: The plugin.
            worlds: Worlds for which ``program_of`` returns programs, made alike.

        Raises:
            ValueError: ``ROBOTS_THREADS`` is no number of threads.
        """
        self._worlds = list(worlds)
        drives = [_drives_of(world) for world in self._worlds]
        self._motors = [drive.motors for of_world in drives for drive in of_world]
        self._strengths: list[float] = []
        programs = [program_of(world) for world in self._worlds]
        self._are_commanded = any(commands is None for commands, _ in programs)
        self._programs = Programs(
            plugin,
            [_bullet(world).client for world in self._worlds],
            [[*(commands or []), *rest] for commands, rest in programs],
            self._worlds[0].sensors.n_numbers,
        )
        self.threads = Threads(len(self._worlds), hash(tuple(programs[0][1])))
        self._n_targets = self._worlds[0].robot.drive.n_targets
        self._inputs = np.ones((len(self._worlds), self._n_targets + len(drives[0])))
        self._rows = np.zeros((len(self._worlds), self._worlds[0].sensors.n_numbers))
        self._run = self._programs.bound(self._inputs, self._rows)

    def step(self, targets: Floats) -> Rows:
        """Step all worlds; the arguments and the result of ``robots.world.step_worlds``.

        Raises:
            pybullet.error: If a world is closed, or Bullet cannot step it.
        """
        inputs = self._inputs
        inputs[:, : self._n_targets] = targets
        strengths = [motors.strength for motors in self._motors]
        if strengths != self._strengths:
            self._strengths = strengths
            inputs[:, self._n_targets :] = np.reshape(strengths, (len(inputs), -1))
        if self._are_commanded:
            for world, row in zip(self._worlds, targets.tolist(), strict=True):
                world.robot.drive.command(row)
        self.threads.timed(self._run)
        return self._rows.copy()


def stepper(worlds: Sequence[World]) -> Callable[[Floats], Rows]:
    """Return a function that steps worlds made alike, as ``robots.world.step_worlds`` does.

    It is that of ``NativeWorlds`` if the plugin can be used and steps a copy of the first world as
    Python does, bit for bit; if not, a warning says why. ``ROBOTS_THREADS`` sets how many threads
    share a step, see ``Threads``, and ``ROBOTS_NATIVE=0`` stays with Python.
    """
    in_python = partial(step_worlds, worlds)
    if os.environ.get(SWITCH, "1") == "0" or not all(map(is_known, worlds)):
        return in_python
    try:
        plugin = get_plugin()
        _require_same_numbers(plugin, worlds[0])
        return NativeWorlds(plugin, worlds).step
    except PluginError as error:
        say(str(error))
        return in_python


def is_known(world: World) -> bool:
    """Return whether a world can be stepped natively.

    It and its sensors must be of no class of one's own, it must have no window, and its drive must
    command the motors before the world is stepped, as all but ``PdDrive`` do.
    """
    drive = commanding_drive(world.robot.drive)
    is_before = type(drive).advance is Drive.advance
    return (
        type(world) is World
        and isinstance(world.simulation, BulletSimulation)
        and all(type(sensors) is Sensors for sensors in _sensors_of(world.sensors))
        and not world.simulation.gui
        and (is_before or moves_as(drive, PdDrive))
    )


def program_of(world: World) -> tuple[Program | None, Program]:
    """Return the two halves of a world's program: what commands its motors; steps and reads it.

    The first is None if the drive must command the motors in Python.
    """
    drive = world.robot.drive
    commands = _commands(drive, world)
    rest: Program = []
    if not isinstance(commanding_drive(drive), PdDrive):  # It steps the world within its command.
        rest += part(STEP, _bullet(world).calls)
    return commands, rest + _reads(world.sensors, world)


def part(kind: int, *numbers: float) -> Program:
    """Return a part of a program."""
    return [kind, len(numbers), *numbers]


def _bullet(world: World) -> BulletSimulation:
    return cast(BulletSimulation, world.simulation)


def _drives_of(world: World) -> list[Drive]:
    return [drive for drive, _ in _parts_of(world.robot.drive)]


def _parts_of(drive: Drive, first: int = 0) -> list[tuple[Drive, int]]:
    """Return the drives that a drive joins, or itself, each with the column of its first target."""
    drive = commanding_drive(drive)
    if not (isinstance(drive, JoinedDrive) and moves_as(drive, JoinedDrive)):
        return [(drive, first)]
    spans = zip(drive.drives, drive.target_spans, strict=True)
    return [part for one, span in spans for part in _parts_of(one, first + span.start)]


def _sensors_of(sensors: Sensors) -> list[Sensors]:
    return [sensors, *(own for one, _ in sensors.partners for own in _sensors_of(one))]


def _commands(drive: Drive, world: World) -> Program | None:
    """Return the parts that command a drive's motors; None for a drive that is not known."""
    commands: Program = []
    for number, (one, first) in enumerate(_parts_of(drive)):
        own = _commands_of_part(one, world, drive.n_targets + number, first)
        if own is None:
            return None
        commands += own
    return commands


def _commands_of_part(drive: Drive, world: World, strength: int, first: int) -> Program | None:
    """Return the same of a drive that joins no others.

    Args:
        drive: The drive.
        world: Its world.
        strength: Column of the factor on its strength.
        first: Column of its first target.
    """
    motors = drive.motors
    columns = range(len(motors.joints))
    rows = partial(_motor_rows, world, motors)
    head = motors.body, strength
    if moves_as(drive, TorqueDrive):
        return _motors(*head, pybullet.TORQUE_CONTROL, rows(columns, first))
    if moves_as(drive, VelocityDrive):
        return _motors(*head, pybullet.VELOCITY_CONTROL, rows(columns, first))
    if moves_as(drive, PositionDrive):
        return _motors(*head, pybullet.POSITION_CONTROL, rows(columns, first, with_gains=True))
    if moves_as(drive, PdDrive):
        motor_rows = rows(columns, first, with_gains=True)
        numbers = (motors.body, world.simulation.substeps, strength, len(motor_rows))
        return part(REGULATE, *numbers, *chain(*motor_rows))
    if isinstance(drive, CombinedDrive) and moves_as(drive, CombinedDrive):
        held = rows(drive.positioned, first, with_gains=True)
        return [
            *_motors(*head, pybullet.VELOCITY_CONTROL, rows(drive.turning, first)),
            *_motors(*head, pybullet.POSITION_CONTROL, held),
        ]
    if isinstance(drive, EndEffectorDrive) and _can_reach(drive):
        motor_rows = rows(columns, 0, with_gains=True)
        solved = solved_columns(_bullet(world), motors.body, motors.indices)
        limits = zip(solved, motors.lower, motors.upper, strict=True)
        for row, (column, lower, upper) in zip(motor_rows, limits, strict=True):
            row[0], row[-2:] = column, [lower, upper]
        low, high = drive.workspace or ((-np.inf,) * 3, (np.inf,) * 3)
        orientation = drive.orientation
        goal = (drive.link, orientation is not None, *(orientation or (0, 0, 0, 1)), *low, *high)
        numbers = (motors.body, first, strength, len(motor_rows))
        return part(REACH, *numbers, *goal, *chain(*motor_rows))
    return None


def _can_reach(drive: EndEffectorDrive) -> bool:
    return moves_as(drive, EndEffectorDrive) and not drive.turns and drive.guard is None


def _motors(body: int, strength: int, mode: int, rows: list[list[float]]) -> Program:
    return part(MOTORS, body, mode, strength, len(rows), *chain(*rows)) if rows else []


def _motor_rows(
    world: World, motors: Motors, columns: Sequence[int], first: int, with_gains: bool = False
) -> list[list[float]]:
    """Return a row of numbers for each motor: struct Motor in worlds.c."""
    count = len(motors.joints)
    kp = (with_gains and motors.position_gain) or [POSITION_GAIN] * count
    kd = (with_gains and motors.velocity_gain) or [VELOCITY_GAIN] * count
    info = partial(_bullet(world).bind(pybullet.getJointInfo), motors.body)
    return [
        [
            first + i,
            *info(motors.indices[i])[3:5],
            *(kp[i], kd[i], motors.max_force[i], motors.fastest[i]),
            *(-np.inf, np.inf),
        ]
        for i in columns
    ]


def _reads(sensors: Sensors, world: World) -> Program:
    """Return the parts that read what ``Sensors.read`` does, in its order."""
    info = _bullet(world).bind(pybullet.getJointInfo)
    body, spec, joints = sensors.body, sensors.spec, sensors.joint_indices
    q, u = zip(*(info(body, joint)[3:5] for joint in joints), strict=True)
    n_links = len(sensors.link_indices)
    velocities = n_links > 0
    flags = velocities, velocities and not spec.links_as_left, spec.efforts, spec.base
    program = part(READ, body, *flags, len(joints), *q, *u, *joints)
    if sensors.links:
        first = spec.links_as_left, sensors.base_is_link, n_links
        program += part(LINKS, *first, *sensors.link_indices)
    if sensors.contact_links:
        touched = sensors.contact_indices
        program += part(CONTACTS, body, ANY, len(touched), *touched)
    if (rays := spec.ranges) is not None:
        points = chain.from_iterable((*start, *end) for start, end in rays.ends)
        program += part(RANGES, body, rays.n_rays, rays.min_m, rays.max_m - rays.min_m, *points)
    if sensors.objects:
        program += part(BODIES, len(sensors.objects), *sensors.objects)
    for partner, _ in sensors.partners:
        program += _reads(partner, world)
    return program


_SAME: dict[tuple[float, ...], bool] = {}


def _require_same_numbers(plugin: Plugin, world: World) -> None:
    """Step two copies of a world, one of them natively; once in a process for worlds made alike.

    Raises:
        PluginError: If they read another number, or cannot be stepped.
    """
    commands, rest = program_of(world)
    key = (*(commands or []), -1.0, *rest)
    if key not in _SAME:
        _SAME[key] = _are_stepped_alike(plugin, world)
    if not _SAME[key]:
        raise PluginError(
            "it steps a copy of this world to other numbers than Python does. Report it with the "
            "robot and the version of pybullet."
        )


def _are_stepped_alike(plugin: Plugin, world: World) -> bool:
    copies: list[World] = []
    try:
        with native_output_hidden():  # Loading, Bullet may tell once more what a file lacks.
            for _ in range(2):
                copies.append(world.copy())
        rng = np.random.default_rng(0)
        for copy in copies:
            copy.save()
            row: Any = copy.start(copy.robot.at_rest)
            copy.robot.drive.set_strength(0.9)
        by_python, native = copies[0], NativeWorlds(plugin, copies[1:])
        for _ in range(2):
            action = rng.uniform(-1.0, 1.0, by_python.robot.drive.n_actions)
            targets = by_python.robot.drive.targets(action, by_python.sensors.state(row))
            row = by_python.step(targets.tolist())
            if native.step(targets[None]).tobytes() != np.array(row, np.float64).tobytes():
                return False
        return True
    except (pybullet.error, OSError) as error:
        raise PluginError(f"a copy of this world cannot be stepped ({error}).") from error
    finally:
        for copy in copies:
            copy.simulation.close()


def _remove(plugin: Plugin, addresses: list[int]) -> None:
    for address in addresses:
        plugin.remove(address)
