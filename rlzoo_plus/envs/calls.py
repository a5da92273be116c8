"""Records what user callbacks do to training environments, so that a resume can repeat it.

A curriculum calls `training_env.env_method("set_stage", 3)`. A resumed process makes environments
anew, so each environment records the calls to it, in their order between resets.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.envs.plain_state import is_plain, to_plain

# For one environment: different calls in a row, and all calls.
MOST_ENTRIES, MOST_CALLS = 10_000, 1_000_000
_MOST_REASONS = 10
# Calls that only read, and those that are ours or restored elsewhere.
_ASKING = ("get_", "is_", "has_", "compute_")
_NOT_RECORDED = {
    *("reset", "step", "render", "close", "action_masks"),
    *("episode_state", "restore_episode", "forgotten", "note_call", "set_episode_seeds"),
    *("loaded_code", "restore_counts"),
}
_OF_MONITOR = {"rewards", "total_steps", "t_start", "needs_reset"}

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass
class CallRecord:
    """The calls that one environment received."""

    # Those before the running episode's reset, each with how often it came in a row
    before: list[tuple[Call, int]] = field(default_factory=list)
    # Those since, each with the steps taken in the episode before it
    during: list[tuple[Call, int]] = field(default_factory=list)
    dropped: int = 0  # How many are missing, because they were too many
    _count: int = 0

    def note(self, call: Call, step: int) -> None:
        """Record a call after so many steps of the running episode."""
        n_entries = len(self.before) + len(self.during)
        if self.dropped or n_entries >= MOST_ENTRIES or self._count >= MOST_CALLS:
            self.dropped += 1
            return
        self._count += 1
        self.during.append((call, step))

    def begin_episode(self) -> None:
        """Count the calls so far as those before the episode that begins."""
        for call, _ in self.during:
            if self.before and _same(self.before[-1][0], call):
                self.before[-1] = (call, self.before[-1][1] + 1)
            else:
                self.before.append((call, 1))
        self.during = []

    def to_come(self, made: CallRecord) -> Iterator[Call]:
        """Return those before the running episode, without what a new process has made itself.

        Callbacks may call the same at the start of every process.
        """
        calls, again = self.calls_before(), self.calls_before()
        first = [*made.calls_before(), *(call for call, _ in made.during)]
        is_repeated = first and all(_same(call, next(calls, None)) for call in first)
        return calls if is_repeated else again

    def calls_before(self) -> Iterator[Call]:
        """Return every call before the running episode in its order."""
        return (call for call, times in self.before for _ in range(times))

    def by_step(self) -> dict[int, list[Call]]:
        """Return the calls of the running episode by the steps taken before them."""
        calls: dict[int, list[Call]] = {}
        for call, step in self.during:
            calls.setdefault(step, []).append(call)
        return calls

    def state(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {
            "before": [[*call, times] for call, times in self.before],
            "during": [[*call, step] for call, step in self.during],
            "dropped": self.dropped,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CallRecord:
        """Read what `state` returned; the source may be untrusted.

        Raises:
            ValueError: It is something else.
        """
        before, during = ([_checked(entry) for entry in state[k]] for k in ("before", "during"))
        count = sum(times for _, times in before) + len(during)
        if count > MOST_CALLS or type(state["dropped"]) is not int:
            raise ValueError("it records more calls than are kept")
        return cls(before, during, state["dropped"], count)


class RecordsCalls:
    """Mixin for vectorised environments: what user code calls and sets is recorded.

    Attributes:
        attributes_set: What `set_attr` set, by name, for each environment.
        unrecorded: What could not be recorded, a text for each.
    """

    num_envs: int
    _get_indices: Callable[[Any], Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.attributes_set: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.unrecorded: list[str] = []

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Call a method of each environment, which records it."""
        call = super().env_method  # type: ignore[misc]
        if method_name not in _NOT_RECORDED and not method_name.startswith(_ASKING):
            if _is_repeatable(method_name, [list(args), kwargs]):
                call("note_call", method_name, args, kwargs, indices=indices)
            else:
                self._miss(f"env_method {method_name!r} was called with more than plain data")
        return call(method_name, *args, indices=indices, **kwargs)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of each environment, and remember it."""
        if attr_name not in _OF_MONITOR:
            if _is_repeatable(attr_name, value):
                for rank in self._get_indices(indices):
                    self.attributes_set[rank][attr_name] = copy.deepcopy(value)
            else:
                self._miss(f"set_attr {attr_name!r} was given more than plain data")
        super().set_attr(attr_name, value, indices)  # type: ignore[misc]

    def _miss(self, reason: str) -> None:
        reason = f"{reason}, which a checkpoint does not hold"
        if reason not in self.unrecorded and len(self.unrecorded) < _MOST_REASONS:
            self.unrecorded.append(reason)


def with_recorded_calls(kind: type) -> type:
    """Return a subclass of a vectorised environment that records calls, with the same name."""
    return type(kind.__name__, (RecordsCalls, kind), {"__doc__": kind.__doc__})


def check_attributes(attributes: Any) -> None:
    """Check the attributes that a checkpoint sets in an environment.

    Raises:
        ValueError: One could not have been recorded.
    """
    for name, value in attributes.items():
        if name in _OF_MONITOR or not _is_repeatable(name, value):
            raise ValueError(f"the environments have no {name!r} to be set")


def _checked(entry: Any) -> tuple[Call, int]:
    name, args, kwargs, number = entry
    is_call = isinstance(args, (list, tuple)) and isinstance(kwargs, dict)
    if not is_call or type(number) is not int or number < 0:
        raise ValueError("a call of an environment's method is none")
    if name in _NOT_RECORDED or not _is_repeatable(name, [list(args), kwargs]):
        raise ValueError(f"the environments have no method {name!r} to be called")
    return (name, tuple(args), kwargs), number


def _is_repeatable(name: Any, values: Any) -> bool:
    is_public = isinstance(name, str) and name.isidentifier() and not name.startswith("_")
    return is_public and is_plain(values)


def _same(left: Any, right: Any) -> bool:
    return pack(to_plain(left)) == pack(to_plain(right))
