"""Simulated robots and their tasks as Gymnasium environments.

Importing this package registers every environment named in ``ROBOT_IDS``; Gymnasium 1.0 and later
does not find them by itself. PyBullet is imported when an environment is made, not before.
"""

from gymnasium.envs.registration import register, registry

_ENTRY_POINTS: dict[str, str] = {
    "robots/CartPoleBalance-v0": "robots.cartpole:SimpleRobotEnv",
    "robots/A1Walk-v1": "robots.quadruped:A1WalkEnv",
    "robots/Vision60Walk-v1": "robots.quadruped:Vision60WalkEnv",
    "robots/FrankaPush-v0": "robots.franka_push:FrankaPushEnv",
    "robots/FrankaPushAround-v0": "robots.franka_push_around:FrankaPushAroundEnv",
    "robots/FrankaLift-v0": "robots.franka_lift:FrankaLiftEnv",
    "robots/KukaReach-v1": "robots.kuka_reach:KukaReachEnv",
    "robots/CartPoleSwingUp-v0": "robots.cartpole:CartPoleSwingUpEnv",
    "robots/CartPoleCamera-v0": "robots.cartpole:CartPoleCameraEnv",
    "robots/DoublePendulum-v0": "robots.double_pendulum:DoublePendulumEnv",
    "robots/HalfCheetah-v0": "robots.half_cheetah:HalfCheetahEnv",
    "robots/HuskyDrive-v1": "robots.driving:HuskyDriveEnv",
    "robots/RacecarDrive-v1": "robots.driving:RacecarDriveEnv",
}

ROBOT_IDS = tuple(_ENTRY_POINTS)

__all__ = ["ROBOT_IDS", "register_robots"]


def register_robots() -> None:
    """Register every robot environment with Gymnasium; calling it again changes nothing.

    An episode ends by the environment's own ``episode_s``, so the registration sets no
    ``max_episode_steps``.
    """
    for env_id, entry_point in _ENTRY_POINTS.items():
        if env_id not in registry:
            register(id=env_id, entry_point=entry_point)


register_robots()
