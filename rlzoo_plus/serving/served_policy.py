"""A policy that is ready to decide: the folder that `deploy` writes, with its version."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.deploy.robot_runtime import BundleError, Policy
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.request_checks import Input, Refused
from rlzoo_plus.serving.served_shield import STATE, ServedShield

MASKS = "action_masks"
# How far an action may be from the one that was written beside the graph.
_TOLERANCE = 1e-4
_CHOICES = re.compile(r"(?P<kind>Multi(Discrete|Binary)|Discrete)\(\[?(?P<counts>[\d\s]+)\]?\)")
Arrays = dict[str, np.ndarray]


class _Runtime(Policy):
    """Checks what is run: the graph, and not the runtime that lies beside it."""

    def _checked(self, name: str, entry: Any) -> bytes:
        is_graph = name == self.about["policy"]["file"]
        return super()._checked(name, entry) if is_graph else b""


class ServedPolicy:
    """One version: its graph, what it takes and gives. Sessions share it, and have its state.

    Attributes:
        name: What clients call it.
        version: Which one it is.
        about: Its deploy.json.
        inputs: What a decision needs, masks and the state of shielded joints included.
        has_state: Whether it remembers an episode: frames, LSTM or wrappers.
        shield: What changes the commands of the joints, None for nothing.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        version: str,
        sha256: str | None = None,
        *,
        is_shielded: bool = True,
    ) -> None:
        """Load a folder and repeat its examples.

        Args:
            folder: What `rlzoo-plus deploy` has written.
            name: What clients call it.
            version: Which one it is.
            sha256: The hash that its deploy.json must have, None for any.
            is_shielded: Whether the shield of its environment is used; without one, nothing is.

        Raises:
            ConfigError: It is damaged, or does not act as it did when it was written.
        """
        self.name, self.version, self.is_shielded = name, version, is_shielded
        try:
            self._runtime = _Runtime(folder, sha256)
            self.about = self._runtime.about
            parts = self.about["policy"]
            turned = set(parts["feedback"].values())
            self.inputs = [Input.read(p) for p in parts["inputs"] if p["name"] not in turned]
            action = next(port for port in parts["outputs"] if port["name"] == "action")
            self.action = Input.read({**action, **_action_bounds(self.about["action"])})
            self.has_state = bool(turned)
            self.shield = _shield_of(self.about) if is_shielded else None
            self._repeat_examples()
        # Whatever a file from elsewhere says, or a graph does.
        except Exception as error:
            raise ConfigError(f"{name} {version} cannot be served: {error!s:.300}.") from error
        self.observations = [port for port in self.inputs if port.name != MASKS]
        self.masks = next((port for port in self.inputs if port.name == MASKS), None)
        if self.shield is not None:
            self.inputs.append(self.shield.tensor)

    @property
    def needs_session(self) -> bool:
        """Whether it must know whose decision it is: of what came before, something is kept."""
        return self.has_state or self.shield is not None

    def _repeat_examples(self) -> None:
        runtime = self.episode()
        for example in self.about["examples"]:
            seen = example["observation"]
            if isinstance(seen, dict):
                seen = {key: np.array(value) for key, value in seen.items()}
            made, expected = runtime.act(seen, example.get(MASKS)), np.array(example["action"])
            if not np.allclose(made, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                raise BundleError("it decides otherwise than when it was written")

    def episode(self) -> Policy:
        """Return a runtime of its own state for a session; it shares the graph."""
        runtime = copy.copy(self._runtime)
        runtime.reset()
        return runtime

    def takes_the_same(self, other: ServedPolicy) -> bool:
        """Tell whether clients of one can go on with the other."""
        mine, others = [*self.inputs, self.action], [*other.inputs, other.action]
        if self.shield is not None and not self.shield.same_as(other.shield):
            return False
        return len(mine) == len(others) and all(map(Input.same_as, mine, others))

    def of_json(self, observation: Any, masks: Any, state: Any = None) -> Arrays:
        """Return the arrays of one decision, from the JSON of a client."""
        found: Arrays = {}
        if self.shield is not None:
            found[STATE] = self.shield.of_json(state)
        elif state is not None:
            raise Refused(
                "state", "this policy has no shield, which alone takes it", "Leave it out"
            )
        for port in self.observations:
            value, field = observation, "observation"
            if port.key is not None:
                field = f"observation.{port.key}"
                if not isinstance(observation, dict) or port.key not in observation:
                    keys = ", ".join(str(p.key) for p in self.observations)
                    raise Refused(field, "missing", f"Send an object with {keys}")
                value = observation[port.key]
            found[port.name] = port.of_json(value, field)
        if self.masks is not None:
            if masks is None:
                raise Refused(MASKS, "missing", "Say which actions are allowed now")
            found[MASKS] = self.masks.of_json(masks, MASKS)
        elif masks is not None:
            raise Refused(MASKS, "this policy takes no masks", "Leave it out")
        return found

    def act(self, runtime: Policy, given: Arrays) -> Any:
        """Decide with the state of a session."""
        ports = self.observations
        if ports[0].key is None:
            return runtime.act(given[ports[0].name], given.get(MASKS))
        return runtime.act({port.key: given[port.name] for port in ports}, given.get(MASKS))

    def neutral(self) -> np.ndarray | None:
        """Return the action that asks for nothing: zeros in bounds; None among choices."""
        if self.action.dtype.kind != "f":
            return None
        zero = np.zeros(self.action.shape, self.action.dtype)
        low, high = self.action.low, self.action.high
        return np.clip(zero, low, high).astype(zero.dtype)


def _shield_of(about: dict[str, Any]) -> ServedShield | None:
    """Return the shield that deploy.json describes, or raise what says why it does not."""
    if about.get("shield") is not None:
        if any(port["name"] == STATE for port in about["policy"]["inputs"]):
            raise ValueError(f"the graph has an input {STATE}, which is the name of the shield's")
        return ServedShield(about["shield"])
    why = about.get("no_shield_because")
    limits = about.get("trained_with", {}).get("safety")
    if why is None and isinstance(limits, dict) and limits.get("on_violation") == "shield":
        why = "it was written before shields were; deploy it again"
    if why is not None:
        raise ValueError(
            f"its environment has a shield, or may have one, that cannot act here ({why}). Say "
            "--no-shield to serve it without, where something else keeps the limits"
        )
    return None


def _action_bounds(action: Any) -> dict[str, Any]:
    """Return the bounds of actions as those of inputs: null is none."""
    if action["kind"] != "box":
        # As gymnasium prints it: Discrete(3), MultiDiscrete([3 2]), MultiBinary(4).
        found = _CHOICES.fullmatch(str(action["space"]))
        if found is None:
            return {}
        counts = [int(text) for text in found["counts"].split()]
        counts = [2] * counts[0] if found["kind"] == "MultiBinary" else counts
        return {"low": [0] * len(counts), "high": [count - 1 for count in counts]}
    bounds = {}
    for name in ("low", "high"):
        flat = np.ravel(np.array(action[name], dtype=float))
        bounds[name] = [float(x) if np.isfinite(x) else None for x in flat]
    return bounds
