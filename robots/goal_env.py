"""Environments whose goals can be exchanged afterwards, as hindsight replay does."""

from typing import Any

from robots.env import BaseRobotEnv
from robots.task import GoalTask


class GoalRobotEnv(BaseRobotEnv):
    """An environment whose goals can be exchanged, in the form of ``GoalEnv``."""

    task: GoalTask

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return rewards of shape (...), for goals of shape (..., n_goals).

        Args:
            achieved_goal: What was reached.
            desired_goal: What should have been reached.
            info: Unused.
        """
        del info
        return self.task.compute_reward(achieved_goal, desired_goal)
