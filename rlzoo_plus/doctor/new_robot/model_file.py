"""The file of a robot as its text tells it, and the world in which it is measured."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from robots.engines import EngineError, make_simulation
from robots.quiet import native_output_hidden
from robots.simulation import Mimic, RobotFile, Simulation

GROUND = 0
"""The body of the ground in `ModelFile.world`."""
# Prefix of PyBullet's messages: the function, file and line in its own source.
_HEAD = re.compile(r"b3\w+\[[^\]]*\]:")


@dataclass(frozen=True)
class ModelFile:
    """What the text of a URDF or an MJCF says."""

    option: str  # The option that named it, such as `--urdf`
    path: Path
    title: str = ""  # The name that it gives the robot
    name: str | None = None  # Its path inside `pybullet_data`, None for a file of the user
    engine: str | None = None  # The only engine that reads it; None: any
    endless: frozenset[str] = frozenset()  # Names of the joints without limits
    floating: tuple[str, ...] = ()  # Names of the floating joints, which engines weld
    # The joints that follow another one, each with the joint that leads it
    mimic: Mapping[str, Mimic] = field(default_factory=dict)
    is_free: bool | None = None  # Whether its base is free, where the file says so
    rest: Mapping[str, float] = field(default_factory=dict)  # Rest positions that it states
    undriven: tuple[str, ...] = ()  # Names of the joints that it gives no motor
    # Names of what is otherwise than the file says, and how
    remarks: tuple[tuple[tuple[str, ...], str], ...] = ()
    said: tuple[str, ...] = ()  # What else the user should know

    @property
    def is_mjcf(self) -> bool:
        """Whether it is an MJCF."""
        return self.option == "--mjcf"

    @contextmanager
    def world(self) -> Iterator[Simulation]:
        """Make a world with a ground, body 0, that can load it, and close it.

        Raises:
            ConfigError: No engine is installed that can, or there is no ground.
        """
        with native_output_hidden():
            try:
                simulation = make_simulation(self.engine)
                ground = simulation.load_ground("plane.urdf")
                assert ground == GROUND
            except (EngineError, FileNotFoundError) as error:
                raise ConfigError(str(error)) from error
            try:
                yield simulation
            finally:
                simulation.close()

    def load(self, simulation: Simulation, height_m: float = 0.0, *, is_free: bool = False) -> int:
        """Load the robot at a height; return its body. An MJCF says itself whether it is free.

        Raises:
            ConfigError: The engine cannot load it.
        """
        place = RobotFile(str(self.path), (0.0, 0.0, height_m), fixed_base=not is_free)
        with tempfile.TemporaryFile() as output:
            try:
                with native_output_hidden(output.fileno()):
                    body = simulation.load_robot(place)
                    simulation.link_places(body)  # MuJoCo compiles it where it is asked.
                    return body
            except (FileNotFoundError, ValueError) as error:
                output.seek(0)
                said = _HEAD.sub("\n", output.read().decode(errors="replace"))
                reason = _cause(said.splitlines()) or " ".join(str(error).split())
        fix = "Fix the file; missing meshes are looked for beside it"
        raise ConfigError(
            f"{self.option} {self.path}: {simulation.engine} cannot load it: "
            f"{printable(reason.rstrip('.'))[:600]}. {fix}."
        )


def _cause(lines: list[str]) -> str:
    """Return what PyBullet says of a file that it cannot load."""
    said = [line.strip() for line in dict.fromkeys(lines) if line.strip()]
    # What follows a missing mesh, and what precedes it, is not the cause.
    return "; ".join([x for x in said if "cannot find" in x or "invalid mesh" in x] or said)
