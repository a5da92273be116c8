"""Agents of a Unity behavior as rows of a table, by their decision and terminal steps.

Needs Python 3.8 and NumPy alone. An agent has an id for each of its episodes: one that begins takes
the first free row, and one that ends frees its row. A row without an agent sees zeros.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np

MOST_AGENTS = 10_000
_IMAGE = 3
# Name of an observation that is the only one.
_ALONE = "observation"
_FLOAT = np.dtype(np.float32).str


def row_type(observation_space: dict[str, Any], action_space: dict[str, Any]) -> Any:
    """Return the structured type of a row, by spaces as `env_server.described` describes them.

    `seen` has a field for each part of an observation. `allowed` says of each value of each
    discrete action whether it may be chosen; with continuous actions it is empty.
    """
    boxes = observation_space.get("parts", [observation_space])
    keys = observation_space.get("keys", [_ALONE])
    parts = [(key, box["dtype"], box["low"].shape) for key, box in zip(keys, boxes)]  # noqa: B905
    n_choices = int(np.sum(action_space.get("nvec", action_space.get("n", 0))))
    flags = [(name, "|b1") for name in ("ended", "cut", "there")]
    rest = [("allowed", "|b1", (n_choices,)), ("seen", parts)]
    return np.dtype([("reward", _FLOAT), *flags, *rest])


class Rows:
    """What the agents of one behavior saw and earned since the last action.

    Attributes:
        table: A row of `row_type` for each agent, shape (count,).
        rows: Row of each agent that asks for a decision now, in the order of the agents.
    """

    def __init__(self, name: str, spec: Any, count: int) -> None:
        """Make rows for `count` agents with a `BehaviorSpec`.

        Raises:
            ValueError: It has actions or observations that cannot be arrays, or too many agents.
        """
        if count > MOST_AGENTS:
            raise ValueError(f"behavior {name} has {count} agents, and {MOST_AGENTS} are the most")
        self._name, self.action_space = name, _action_space(name, spec.action_spec)
        self._parts = _parts(spec.observation_specs)
        if not self._parts:
            raise ValueError(f"behavior {name} has no observations")
        self.table = np.zeros(count, row_type(self.observation_space, self.action_space))
        self.table["allowed"] = True
        self._last = self.table["seen"].copy()
        self._row_of: dict[int, int] = {}
        self._known, self.rows = b"", np.zeros(0, np.int64)
        self._history = hashlib.sha256()

    @property
    def observation_space(self) -> dict[str, Any]:
        """The space of a row, as `env_server.described` describes one."""
        boxes = {}
        for key, (shape, is_image, _) in self._parts.items():
            low, high, code = (0, 255, "|u1") if is_image else (-np.inf, np.inf, _FLOAT)
            ends = {"low": np.full(shape, low, code), "high": np.full(shape, high, code)}
            boxes[key] = {"kind": "Box", **ends, "dtype": code}
        if len(boxes) == 1:
            return next(iter(boxes.values()))
        return {"kind": "Dict", "keys": list(boxes), "parts": list(boxes.values())}

    def clear(self) -> None:
        """Begin a step: nothing was earned, and nobody's episode has ended."""
        for key in ("reward", "ended", "cut"):
            self.table[key] = 0

    def take(self, decisions: Any, terminals: Any) -> bool:
        """Take `DecisionSteps` and `TerminalSteps`; those of several exchanges are one step.

        Returns:
            Whether an agent asks for a decision.

        Raises:
            ValueError: There are more agents than rows, or an image is none.
        """
        if len(terminals):
            self._end(terminals)
        if not len(decisions):
            return False
        is_new = self._find(decisions.agent_id)
        # What a new agent has earned before its first action is nobody's.
        earned = np.where(is_new, 0, decisions.reward + decisions.group_reward)
        self.table["reward"][self.rows] += earned.astype(np.float32)
        self._see(self.table["seen"], self.rows, decisions.obs, slice(None))
        if decisions.action_mask is not None:
            self.table["allowed"][self.rows] = ~np.concatenate(decisions.action_mask, axis=1)
        return True

    def _find(self, agents: np.ndarray) -> np.ndarray:
        """Set the rows of agents; return which of them are new, and were given one."""
        is_new = np.zeros(len(agents), bool)
        if agents.tobytes() == self._known:
            return is_new
        for at, agent in enumerate(agents.tolist()):
            is_new[at] = agent not in self._row_of
            if is_new[at]:
                self._row_of[agent] = self._free_row()
        self._known = agents.tobytes()
        self.rows = np.array([self._row_of[agent] for agent in agents.tolist()])
        return is_new

    def _free_row(self) -> int:
        free = np.flatnonzero(~self.table["there"])
        if not len(free):
            count = len(self.table)
            raise ValueError(
                f"behavior {self._name} has more than {count} agents at once. Set "
                f"env.kwargs.agents to the most that there are, e.g. {count + 1}"
            )
        self.table["there"][free[0]] = True
        return int(free[0])

    def _end(self, terminals: Any) -> None:
        agents = terminals.agent_id.tolist()
        # One that ends before it has asked for an action has no row.
        known = [at for at, agent in enumerate(agents) if agent in self._row_of]
        rows = np.array([self._row_of.pop(agents[at]) for at in known], np.int64)
        self._known = b""
        self.table["reward"][rows] += (terminals.reward + terminals.group_reward)[known]
        self.table["ended"][rows], self.table["cut"][rows] = True, terminals.interrupted[known]
        self.table["there"][rows], self.table["allowed"][rows] = False, True
        self._see(self._last, rows, terminals.obs, known)
        self.table["seen"][rows] = np.zeros(1, self.table.dtype["seen"])

    def _see(self, seen: np.ndarray, rows: np.ndarray, given: Any, chosen: Any) -> None:
        """Write what chosen agents see to rows."""
        for key, (shape, is_image, places) in self._parts.items():
            values = np.concatenate([given[place] for place in places], axis=-1)[chosen]
            if is_image:
                if values.size and not (values.min() >= 0 and values.max() <= 1):
                    text = "has values outside of 0 to 1: no image"
                    raise ValueError(f"{key} of behavior {self._name} {text}")
                values = np.rint(values * 255).astype(np.uint8)
            seen[key][rows] = values.reshape(-1, *shape)

    def actions(self, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return continuous and discrete actions of the agents that ask for one."""
        count = len(self.rows)
        chosen = given[self.rows].reshape(count, -1)
        if self.action_space["kind"] == "Box":
            return chosen.astype(np.float32), np.zeros((count, 0), np.int32)
        return np.zeros((count, 0), np.float32), chosen.astype(np.int32)

    def note(self) -> None:
        """Add the step to what `digest` tells of."""
        self._history.update(self.table.tobytes())

    def step(self) -> list[np.ndarray]:
        """Return the bytes of the table, and of what those that ended saw last, in its order."""
        return [self.table.view(np.uint8), self._last[self.table["ended"]].view(np.uint8)]

    def digest(self) -> str:
        """Return a hash of all steps so far."""
        return self._history.hexdigest()


def _action_space(name: str, spec: Any) -> dict[str, Any]:
    size, branches = int(spec.continuous_size), [int(n) for n in spec.discrete_branches]
    if size and branches:
        raise ValueError(
            f"behavior {name} has hybrid actions, {size} continuous and {len(branches)} discrete, "
            "and the algorithms here choose one kind. Give it one kind in Unity"
        )
    if size:
        ends = {"low": np.full(size, -1.0, _FLOAT), "high": np.full(size, 1.0, _FLOAT)}
        return {"kind": "Box", **ends, "dtype": _FLOAT}
    if not branches:
        raise ValueError(f"behavior {name} has no actions")
    if len(branches) == 1:
        return {"kind": "Discrete", "n": branches[0], "start": 0}
    return {"kind": "MultiDiscrete", "nvec": np.array(branches, np.int64)}


def _parts(specs: Any) -> dict[str, tuple[tuple[int, ...], bool, list[int]]]:
    """Return shape, whether it is an image, and places of each part; all vectors are one."""
    vectors = [at for at, spec in enumerate(specs) if len(spec.shape) == 1]
    parts: dict[str, tuple[tuple[int, ...], bool, list[int]]] = {}
    if vectors:
        parts["vector"] = (sum(specs[at].shape[0] for at in vectors),), False, vectors
    for at, spec in enumerate(specs):
        if at not in vectors:
            key = re.sub(r"\W", "_", spec.name) or "observation"
            while key in parts:
                key = f"{key}_{at}"
            parts[key] = tuple(spec.shape), len(spec.shape) == _IMAGE, [at]
    return parts if len(parts) != 1 else {_ALONE: next(iter(parts.values()))}
