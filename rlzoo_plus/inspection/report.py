"""All that is found out about an environment, and the same as plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.inspection.play import RandomPlay, Spread, play_randomly

if TYPE_CHECKING:
    import gymnasium as gym

    from rlzoo_plus.inspection.robot import RobotFacts


@dataclass(frozen=True)
class Inspection:
    """An environment, looked at.

    Attributes:
        env_id: Its Gymnasium id.
        observation_space: In words.
        action_space: In words.
        robot: What it is made of; None where it is not built on `robots`.
        play: What random actions gave.
    """

    env_id: str
    observation_space: str
    action_space: str
    robot: RobotFacts | None
    play: RandomPlay

    def notes(self) -> list[str]:
        """Return what is doubtful."""
        notes = list(self.robot.notes) if self.robot else []
        play = self.play
        if play.outside:
            notes.append(
                f"{play.outside} of {play.steps} observations lie outside of the observation space"
            )
        weights = self.robot.weights if self.robot else {}
        for name, term in play.terms.items():
            if term.count > 1 and term.lowest == term.highest and weights.get(name, 1.0) != 0:
                notes.append(
                    f"the reward term {name} was {term.mean:.4g} at every step of random play: "
                    "nothing is learnt from it where it does not change"
                )
        return notes


def inspect_env(spec: EnvConfig, seconds: float) -> Inspection:
    """Look at an environment as training would make it.

    Args:
        spec: What to make.
        seconds: Time for random play.

    Raises:
        ConfigError: It cannot be made.
    """
    env = make_env(spec)
    try:
        return Inspection(
            env_id=spec.id,
            observation_space=str(env.observation_space),
            action_space=str(env.action_space),
            robot=_robot(env),
            play=play_randomly(env, seconds),
        )
    finally:
        env.close()


def as_data(inspection: Inspection) -> dict[str, Any]:
    """Return all of it as data that JSON knows."""
    play = inspection.play
    robot = None if inspection.robot is None else asdict(inspection.robot)
    if robot is not None:
        del robot["notes"]
    return {
        "env": inspection.env_id,
        "observation_space": inspection.observation_space,
        "action_space": inspection.action_space,
        "robot": robot,
        "random_play": {
            "steps": play.steps,
            "steps_per_s": round(play.steps_per_s, 1),
            "reward": _spread(play.reward),
            "reward_terms": {name: _spread(term) for name, term in play.terms.items()},
            "returns": _spread(play.returns),
            "lengths": _spread(play.lengths),
            "ends": dict(play.ends),
        },
        "notes": inspection.notes(),
    }


def _robot(env: gym.Env) -> RobotFacts | None:
    with native_output_hidden():
        # PyBullet prints its build time when it is imported.
        from rlzoo_plus.inspection.robot import robot_facts
        from robots.env import BaseRobotEnv
    base = env.unwrapped
    return robot_facts(base) if isinstance(base, BaseRobotEnv) else None


def _spread(spread: Spread) -> dict[str, float] | None:
    if not spread.count or not math.isfinite(spread.total):
        return None
    return {"lowest": spread.lowest, "mean": spread.mean, "highest": spread.highest}
