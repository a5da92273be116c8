"""A gamepad as a switch: pressing any of its buttons takes the robot over.

Reads the joystick interface of Linux (`/dev/input/js0`): records of eight bytes, a time in ms, a
value, a type and the number of the button or axis.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError

DEVICE = Path("/dev/input/js0")
_EVENT = struct.Struct("<IhBB")
# A press; how things stand when it is opened has a bit more.
_BUTTON = 0x01


def presses(device: Path) -> Iterator[str]:
    """Open a gamepad; yield the name of each button that is pressed, and at last that it is gone.

    Raises:
        ConfigError: There is none, or it may not be read.
    """
    try:
        descriptor = os.open(device, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(
            f"--gamepad {printable(device)}: {error.strerror}. Plug it in, or name its device, "
            f"such as {DEVICE}."
        ) from error
    return _pressed(cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0)))


def _pressed(opened: BinaryIO) -> Iterator[str]:
    with opened as file:
        while True:
            try:
                data = file.read(_EVENT.size)
            except OSError:
                # Unplugged.
                data = b""
            if len(data) != _EVENT.size:
                yield "the gamepad is gone"
                return
            _, value, kind, number = _EVENT.unpack(data)
            if value and kind == _BUTTON:
                yield f"button {number}"
