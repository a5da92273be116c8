"""What a person moves: a pair of keys and an axis of a gamepad for each entry of an action."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError

# Codes of keys, which do not depend on the layout of the keyboard: more, less.
_KEYS = (
    *(("KeyW", "KeyS"), ("KeyA", "KeyD"), ("KeyR", "KeyF"), ("KeyQ", "KeyE"), ("KeyT", "KeyG")),
    *(("KeyY", "KeyH"), ("KeyU", "KeyJ"), ("KeyI", "KeyK"), ("KeyO", "KeyL")),
)
_ARROWS = (("ArrowUp", "ArrowDown"), ("ArrowLeft", "ArrowRight"))
# Of the standard gamepad: sticks up and to the left are more, as ahead and to the left of a robot.
_AXES = (1, 0, 3, 2)
_BUTTONS = ((7, 6), (5, 4))
_DIGITS = tuple(f"Digit{digit}" for digit in (*range(1, 10), 0))


@dataclass(frozen=True)
class Control:
    """One entry of a continuous action.

    Attributes:
        name: As the page shows it.
        more: Codes of the keys that move it up.
        less: Codes of the keys that move it down.
        axis: Of a gamepad; None without one.
        sign: What the axis is multiplied by.
        buttons: Of a gamepad, up and down; empty without.
    """

    name: str
    more: tuple[str, ...]
    less: tuple[str, ...]
    axis: int | None = None
    sign: float = -1.0
    buttons: tuple[int, ...] = ()


class Controls:
    """The controls of an action space, and the actions that they make.

    Attributes:
        of_entries: One for each entry of a continuous action; empty for discrete ones.
        choices: Codes of the keys of discrete actions, in their order.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        """Choose keys and axes for an action space.

        Raises:
            ConfigError: It cannot be played by hand.
        """
        self._space = space
        self.of_entries: list[Control] = []
        self.choices: tuple[str, ...] = ()
        if isinstance(space, spaces.Discrete):
            if space.n > len(_DIGITS):
                raise _refusal(space, f"at most {len(_DIGITS)} choices")
            self.choices = _DIGITS[: space.n]
        elif isinstance(space, spaces.Box):
            size = math.prod(space.shape)
            if not 0 < size <= len(_KEYS):
                raise _refusal(space, f"1 to {len(_KEYS)} entries")
            if not space.is_bounded():
                raise _refusal(space, "bounds on both sides")
            self.of_entries = [_control(entry, size) for entry in range(size)]
        else:
            raise _refusal(space, "a Box or a Discrete space")

    @property
    def at_rest(self) -> list[float]:
        """What nobody moves: the middle of each range; of choices the first."""
        return [0.0] * max(1, len(self.of_entries))

    def as_data(self) -> dict[str, Any]:
        """Return the controls as plain data, for the page."""
        return {"entries": [asdict(one) for one in self.of_entries], "choices": self.choices}

    def checked(self, values: Any) -> list[float]:
        """Return values of the controls as the page sends them.

        Raises:
            ValueError: They are none of these controls.
        """
        if not isinstance(values, list) or len(values) != len(self.at_rest):
            raise ValueError(f"{len(self.at_rest)} values are needed")
        if not all(type(one) in (int, float) and math.isfinite(one) for one in values):
            raise ValueError("a value is no finite number")
        if self.choices and values[0] not in range(len(self.choices)):
            raise ValueError("there is no such choice")
        return [float(one) for one in values]

    def action(self, values: list[float]) -> np.ndarray:
        """Return the action of values that were `checked`: -1 to 1 are from bound to bound."""
        space = self._space
        if isinstance(space, spaces.Discrete):
            return np.asarray(space.start + int(values[0]), space.dtype)
        assert isinstance(space, spaces.Box)
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        share = (np.clip(values, -1.0, 1.0).reshape(space.shape) + 1.0) / 2.0
        action = low + share * (high - low)
        if np.issubdtype(space.dtype, np.integer):
            action = np.rint(action)
        return np.clip(action, low, high).astype(space.dtype)


def _control(entry: int, size: int) -> Control:
    """Return the control of an entry. A single one also goes to the right, as the picture does."""
    if size == 1:
        return Control("action", ("KeyD", "ArrowRight"), ("KeyA", "ArrowLeft"), axis=0, sign=1.0)
    arrows = _ARROWS[entry : entry + 1]
    more, less = zip(_KEYS[entry], *arrows, strict=True)
    if entry < len(_AXES):
        return Control(f"action {entry}", more, less, axis=_AXES[entry])
    at = entry - len(_AXES)
    buttons = _BUTTONS[at] if at < len(_BUTTONS) else ()
    return Control(f"action {entry}", more, less, buttons=buttons)


def _refusal(space: spaces.Space[Any], needed: str) -> ConfigError:
    return ConfigError(
        f"--teleop: actions of {printable(space)} cannot be played by hand, which needs {needed}. "
        "Use a task whose actions are commands, such as env=husky_drive."
    )
