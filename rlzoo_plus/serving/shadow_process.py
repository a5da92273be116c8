"""The process of a shadow: reads what was decided, decides itself, and writes the difference."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.deploy.robot_runtime import Policy
from rlzoo_plus.serving.served_policy import ServedPolicy

_MOST_SESSIONS, _ROUNDING = 4096, 1e-6


def main(arguments: list[str]) -> int:
    """Read lines until the end of the input."""
    folder, name, version, output = arguments
    # It commands nothing.
    policy = ServedPolicy(Path(folder), name, version, is_shielded=False)
    sessions: OrderedDict[str, tuple[Policy, int]] = OrderedDict()
    with Path(output).open("a", encoding="utf-8", buffering=1) as file:
        for line in sys.stdin:
            told = json.loads(line)
            made = _answer(policy, sessions, told)
            if made is not None:
                file.write(json.dumps(made, separators=(",", ":")) + "\n")
    return 0


def _answer(
    policy: ServedPolicy, sessions: OrderedDict[str, tuple[Policy, int]], told: dict[str, Any]
) -> dict[str, Any] | None:
    session, step = told["session"], told["step"]
    runtime, expected = sessions.pop(session, (None, 0))
    if step == 0 or (runtime is None and not policy.has_state):
        runtime, expected = policy.episode(), step
    if runtime is None or (policy.has_state and step != expected):
        # A decision was left out: what it remembers is wrong until the next episode.
        return None
    sessions[session] = (runtime, step + 1)
    if len(sessions) > _MOST_SESSIONS:
        sessions.popitem(last=False)
    ports = {port.name: port for port in policy.inputs}
    given = {name: np.array(told["given"][name], port.dtype) for name, port in ports.items()}
    line: dict[str, Any] = {key: told[key] for key in ("time", "session", "step", "version")}
    line |= {"candidate": policy.version, "action": told["action"]}
    try:
        action = np.asarray(policy.act(runtime, given))
        if not np.isfinite(action).all():
            raise ValueError("its action is not finite")
    # Of a graph that fails: the report counts it.
    except Exception as error:
        return {**line, "shadow": None, "error": one_line(error)}
    line |= {"shadow": action.tolist(), "beyond": _beyond(policy, runtime)}
    line["difference"] = _shares(policy, np.array(told["action"]), action)
    return {**line, "value": told.get("value"), "shadow_value": runtime.value}


def _shares(policy: ServedPolicy, action: np.ndarray, own: np.ndarray) -> list[float]:
    """Return by entry how far two actions are from each other, of the range or of 2."""
    low, high = policy.action.low, policy.action.high
    if low is None or high is None:
        return [float(x) for x in np.ravel(action != own)]
    width = high - low
    width = np.where(np.isfinite(width) & (width > 0), width, 2.0)
    return [round(float(x), 6) for x in np.ravel(np.abs(action - own) / width)]


def _beyond(policy: ServedPolicy, runtime: Policy) -> list[str]:
    """Return the commands that would be beyond what deploy.json says of the robot."""
    found = []
    for kind, values in runtime.commands.items():
        about = policy.about["commands"][kind]
        for at, value in enumerate(np.ravel(values)):
            low, high = ((about.get(side) or [None] * (at + 1))[at] for side in ("lower", "upper"))
            if (low is not None and value < low - _ROUNDING) or (
                high is not None and value > high + _ROUNDING
            ):
                found.append(f"{kind} {about['names'][at]}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
