"""Many MuJoCo worlds stepped and read by one call."""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from robots.drives import commands_first
from robots.engines.compiling import SWITCH, PluginError, say
from robots.engines.mujoco.native import NativeWorld, get_library
from robots.engines.mujoco.records import BOTH, TOUCHED
from robots.sensors import Floats, Sensors
from robots.threads import Threads
from robots.world import Rows, World, step_worlds

# Parts of a program, as in mujoco_worlds.c.
_JOINTS, _POSES, _CONTACTS, _RANGES = range(4)


class NativeWorlds:
    """Steps and reads worlds by one call, without Python's lock.

    Attributes:
        threads: How many share a step; it changes no number.
    """

    def __init__(self, worlds: Sequence[World]) -> None:
        """Describe worlds that were made alike; raise a PluginError where there is no library.

        Raises:
            ValueError: ``ROBOTS_THREADS`` is no number of threads.
        """
        self._worlds = list(worlds)
        self._simulations: list[Any] = [world.simulation for world in worlds]
        self._parts: list[NativeWorld] = []
        self._describe()
        self.threads = Threads(len(self._worlds), hash(self._program))

    def step(self, targets: Floats) -> Rows:
        """Step all worlds; the arguments and the result of ``robots.world.step_worlds``."""
        for world, row in zip(self._worlds, targets.tolist(), strict=True):
            world.robot.drive.command(row)
        for simulation in self._simulations:
            simulation.bring_up_to_date()
        present = [simulation.native for simulation in self._simulations]
        if any(one is not own for one, own in zip(present, self._known, strict=True)):
            self._describe()  # A model was compiled anew.
        self.threads.timed(self._run)
        return np.stack([one.row for one in self._parts])

    def _describe(self) -> None:
        self._known = [simulation.native for simulation in self._simulations]
        n_numbers = self._worlds[0].sensors.n_numbers
        self._program = tuple(_reads(self._worlds[0].sensors, self._simulations[0]))
        self._parts = [
            NativeWorld(one.model, one.data, one.motors, one.substeps, self._program, n_numbers)
            for one in self._simulations
        ]
        addresses = (ctypes.c_void_p * len(self._parts))(*(one.address for one in self._parts))
        self._run = partial(get_library().worlds_step, addresses, len(self._parts))


def stepper(worlds: Sequence[World]) -> Callable[[Floats], Rows]:
    """Return a function that steps worlds made alike, as ``robots.world.step_worlds`` does.

    It is that of ``NativeWorlds`` where that can be; a warning says why not.
    """
    in_python = partial(step_worlds, worlds)
    is_known = all(
        type(world) is World
        and all(type(sensors) is Sensors for sensors in _sensors_of(world.sensors))
        and commands_first(world.robot.drive)
        for world in worlds
    )
    if os.environ.get(SWITCH, "1") == "0" or not is_known:
        return in_python
    try:
        return NativeWorlds(worlds).step
    except PluginError as error:
        say(str(error))
        return in_python


def _sensors_of(sensors: Sensors) -> list[Sensors]:
    return [sensors, *(own for one, _ in sensors.partners for own in _sensors_of(one))]


def _reads(sensors: Sensors, simulation: Any) -> list[float]:
    """Return the parts that read what ``Sensors.read`` does, in its order."""
    body, spec = sensors.body, sensors.spec
    of_link = partial(simulation.element_of, body)
    positions, dofs, columns = simulation.places_of_joints(body, sensors.joint_indices)
    joints = len(sensors.joint_indices), spec.efforts, *positions, *dofs, *columns
    program = _part(_JOINTS, *joints)
    if spec.base:
        program += _part(_POSES, 1, of_link(-1), 1)
    if sensors.links:
        links = [(of_link(-1), 1)] if sensors.base_is_link else []
        links += [(of_link(link), 0) for link in sensors.link_indices]
        program += _part(_POSES, len(links), *chain.from_iterable(links))
    if sensors.contact_links:
        owners, own = simulation.geom_owners(body, sensors.contact_indices)
        program += _part(_CONTACTS, len(sensors.contact_links), *owners, *own)
    if (rays := spec.ranges) is not None:
        points = chain.from_iterable((*start, *end) for start, end in rays.ends)
        groups = 1 << TOUCHED | 1 << BOTH
        head = of_link(-1), rays.n_rays, groups, rays.min_m, rays.max_m - rays.min_m
        program += _part(_RANGES, *head, *points)
    if sensors.objects:
        places = [(simulation.element_of(one, -1), 1) for one in sensors.objects]
        program += _part(_POSES, len(places), *chain.from_iterable(places))
    for partner, _ in sensors.partners:
        program += _reads(partner, simulation)
    return program


def _part(kind: int, *numbers: float) -> list[float]:
    return [kind, len(numbers), *numbers]
