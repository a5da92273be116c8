"""Controllers made by hand of two arms that grasp a cube: what demonstrations are played with."""

from __future__ import annotations

import numpy as np

# What the hands move at an action of 1 [m].
_STEP_M = 0.05


def lift_by_hand(observation: np.ndarray) -> np.ndarray:
    """Return the action for `franka_lift`: above the cube, down, close, to the goal."""
    to_cube, touch, to_goal = observation[6:9], observation[14:16], observation[18:21]
    fingers = 1.0
    if touch.all() and np.linalg.norm(to_cube) < 0.03:
        way, fingers = to_goal, -1.0
    elif np.hypot(*to_cube[:2]) > 0.012 and to_cube[2] < -0.03:
        way = np.array([*to_cube[:2], 0.06 + to_cube[2]])
    elif np.linalg.norm(to_cube) > 0.015:
        way = to_cube
    else:
        way, fingers = np.zeros(3), -1.0
    return np.array([*way / _STEP_M, fingers])


def pick_by_hand(observation: np.ndarray) -> np.ndarray:
    """Return the action for panda-gym's pick and place, flattened: likewise."""
    goal, seen = observation[3:6], observation[6:]
    to_cube, opening = seen[7:10] - seen[:3], seen[6]
    fingers = 1.0
    if np.linalg.norm(to_cube) < 0.02 and opening < 0.045:
        way, fingers = goal - seen[7:10], -1.0
    elif np.linalg.norm(to_cube) < 0.012:
        way, fingers = np.zeros(3), -1.0
    elif np.hypot(*to_cube[:2]) > 0.01 and (to_cube[2] < -0.05 or np.hypot(*to_cube[:2]) > 0.02):
        way = np.array([*to_cube[:2], 0.06 + to_cube[2]])
    else:
        way = to_cube
    return np.array([*way / _STEP_M, fingers])
