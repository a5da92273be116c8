"""The mirrors of the shipped robots, by the class of their task.

They are beside the tasks, not in them: what a mirror says changes nothing that a robot does, and
the code of a task is part of the version of its environment.
"""

from typing import Any

from robots.mirror import Mirror, Reflection, flips, joined, of_legs

_POLE = (-1.0, 1.0, -1.0)
"""Sine, cosine and angular velocity."""
_DRIVING = Mirror(flips(1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0, -1.0), flips(1.0, -1.0))
_CARTPOLE = Mirror(flips(-1.0, -1.0, *_POLE), flips(-1.0))
_OF_TASKS = {
    "CartPoleBalance": _CARTPOLE,
    "CartPoleSwingUp": _CARTPOLE,
    "DoublePendulumBalance": Mirror(flips(-1.0, -1.0, *_POLE, *_POLE), flips(-1.0)),
    "DriveToGoal": _DRIVING,
}


def shipped_mirror(env: Any) -> Mirror | None:
    """Return the mirror of a shipped robot; None of others, which may observe something else."""
    task = type(env.task)
    if task.__module__.partition(".")[0] != "robots":
        return None
    if task.__name__ == "DriveBetweenPosts":
        # The first ray points back, the others follow to the left.
        count = env.task.observation_space.shape[0] - len(_DRIVING.observation.signs)
        rays = Reflection(tuple(-ray % count for ray in range(count)), (1.0,) * count)
        return Mirror(joined(_DRIVING.observation, rays), _DRIVING.action)
    if task.__name__ in ("FollowVelocity", "StepAndFollow") and hasattr(env, "trot"):
        return _of_quadruped(env)
    return _OF_TASKS.get(task.__name__)


def _of_quadruped(env: Any) -> Mirror:
    """Return the mirror of a quadruped, whose actions begin with its strides if it has a gait."""
    legs = of_legs(env.trot.front, env.trot.right)
    has_gait = env.robot.drive.n_actions > len(legs.signs)
    action = joined(flips(1.0, -1.0, -1.0), legs) if has_gait else legs
    vector, turns, command = flips(1.0, -1.0, 1.0), flips(-1.0, 1.0, -1.0), flips(1.0, -1.0, -1.0)
    # The legs of the other side step first: half a period later.
    clock = flips(-1.0, -1.0)
    base = (vector, turns, vector, command, command, clock)
    return Mirror(joined(*base, legs, legs, action), action)
