"""The tasks of a new robot: what each says of itself, and which templates it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class TaskText:
    """A task, as its file and its configuration describe it."""

    name: str  # Name of its class
    aim: str  # What the robot should do, as it follows the robot's name
    template: str
    weights: Mapping[str, float]  # of the terms of its reward
    # Numbers that it takes beside the weights: default, and what is said of them
    settings: Mapping[str, tuple[str, str]]
    most: float = 1.0  # Greatest reward of a step
    episode_s: float = 5.0
    # Texts by placeholder, such as the `$name` of a template. One without a text is a template of
    # that name itself.
    parts: Mapping[str, str]


_ARM = {"tolerance_m": ("$tolerance", "distance from the goal that counts as success [m]")}
_REACHING = {"distance": 1.0, "near": 1.0, "effort": 0.02}
_GOAL = """\
    goal: tuple[float, float]
    \"\"\"Range from which its goal is drawn [rad or m].\"\"\"
"""
_STANDING = {"upright": 1.0, "effort": 0.02}
_PUSH = "greatest velocity at the start [m/s, rad/s]"
_RETURNS = """\
            Height [m]; direction of gravity (3); velocity [m/s] and angular velocity [rad/s]
            in the frame of the base (3 each).
"""

NOTHING = ("goal_field", "more_fields", "remember", "phase", "scenery")
"""Placeholders for which most tasks have no text."""
TASKS: Mapping[str, TaskText] = {
    "posture": TaskText(
        name="HoldPosture",
        aim="bring all joints into a posture that is drawn for each episode, and hold it",
        template="posture",
        weights={"posture": 1.0, "effort": 0.02},
        settings={
            "tolerance_share": ("0.05", "how near counts as success, as a share of a joint's range")
        },
        parts={"goal_field": _GOAL},
    ),
    "reach": TaskText(
        name="Reach",
        aim="bring the end of the arm to a point that is drawn for each episode",
        template="arm",
        weights=_REACHING,
        settings=_ARM,
        parts={
            "task_does": "Bring TIP to a point, and keep it there.",
            "targets": "$goal_points",
            "n_target": "6",
            "first_target": "one of GOALS",
            "phase_doc": "; shape (..., 2 n + 6)",
            "draw": '        memory = {"goal": GOALS[rng.integers(len(GOALS))]}',
            "scenery": "$ball",
        },
    ),
    "track": TaskText(
        name="Track",
        aim="follow a target that goes round a circle with the end of the arm",
        template="arm",
        weights=_REACHING,
        settings=_ARM,
        episode_s=10.0,
        parts={
            "task_does": "Keep TIP on a target that goes round a circle.",
            "targets": "$circle",
            "n_target": "8",
            "first_target": "the target anywhere on its circle",
            "draw": (
                "        phase = rng.uniform(0.0, 2.0 * np.pi)\n"
                "        memory = target_at([np.cos(phase), np.sin(phase)])"
            ),
            "remember": "$move_target",
            "phase": '\n        target += columns(state.memory["phase"])',
            "phase_doc": ", the phase; shape (..., 2 n + 8)",
            "scenery": "$ball",
        },
    ),
    "walk": TaskText(
        name="MoveForward",
        aim="stay upright and move forward",
        template="walk",
        weights={"forward": 1.0, "upright": 0.1, "effort": 0.02},
        settings={
            "speed_m_s": ("0.5", "wanted speed [m/s]; more is not paid for"),
            "success_distance_m": ("2.0", "way that counts as success [m]"),
        },
        most=1.1,
        episode_s=10.0,
        parts={"more_fields": "$turns", "trunk": "state.base_orientation"},
    ),
    "balance": TaskText(
        name="Balance",
        aim="stay upright after a push",
        template="balance",
        weights=_STANDING,
        settings={"push": ("1.0", _PUSH)},
        episode_s=10.0,
        parts={
            "more_fields": "$turns",
            "what": "the robot",
            "before": "$before_base",
            "begin": "$begin_base",
            "pose": "$pose_base",
            "returns": _RETURNS,
            "n_pose": "10 + ",
            "ends": "$ends_on_the_ground",
            "trunk": "state.base_orientation",
            "margin": "0.5",
            "astray": "columns(state.base_position)[:2]",
        },
    ),
}
"""The tasks by the names that `--task` takes."""

_balance = TASKS["balance"]
OF_POLE = replace(
    _balance,
    aim="keep the pole upright",
    settings={"push": ("0.3", _PUSH)},
    parts={
        **_balance.parts,
        "more_fields": "$driven",
        "what": "POLE",
        "before": "$before_pole",
        "begin": "$begin_pole",
        "pose": "        features: list[Any] = []",
        "n_pose": "",
        "returns": "",
        "ends": "$ends_with_the_pole",
        "trunk": "state.link_orientation[..., 0, :]",
        "astray": "columns((state.joint_position - REST) * DRIVEN)",
        "margin": "1.0",
    },
)
"""`balance` of a robot whose base is fixed."""
