"""Driver of an SO-101 arm through LeRobot 0.6, for LeRobot's own Python: a sketch.

It was tried without an arm. Copy rlzoo_plus/drivers/robot_end.py beside it, calibrate the arm as
LeRobot says, try the signs below with small motions and a hand at the plug, and on its machine:

    python lerobot_arm.py --port 5555
"""

import math
import os
import time

from lerobot.robots.so_follower import SO101Follower, SO101FollowerConfig
from robot_end import main

# Of each motor: the joint of the model that the policy was trained with, its sign and its zero
# [rad] there, and limits [rad] narrower than those of the model.
MOTORS = {
    "shoulder_pan": ("shoulder_pan", 1.0, 0.0, -1.8, 1.8),
    "shoulder_lift": ("shoulder_lift", 1.0, 0.0, -1.6, 1.6),
    "elbow_flex": ("elbow_flex", 1.0, 0.0, -1.6, 1.5),
    "wrist_flex": ("wrist_flex", 1.0, 0.0, -1.6, 1.6),
    "wrist_roll": ("wrist_roll", 1.0, 0.0, -2.6, 2.6),
}
JOINTS, SIGNS, ZEROS, LOWER, UPPER = (list(column) for column in zip(*MOTORS.values()))  # noqa: B905
SERVOS = {"names": JOINTS, "unit": "rad", "lower": LOWER, "upper": UPPER}


class Arm:
    """The arm; its gripper stays as it is."""

    def __init__(self) -> None:
        port = os.environ.get("SO101_PORT", "/dev/ttyACM0")
        # LeRobot itself lets no command be more than so many degrees away.
        config = SO101FollowerConfig(port=port, id="arm", use_degrees=True, max_relative_target=8.0)
        self.arm = SO101Follower(config)

    def connect(self) -> None:
        """Reach the arm, once: LeRobot switches the motors off for a moment, so hold it."""
        if not self.arm.is_connected:
            self.arm.connect(calibrate=False)

    def describe(self) -> dict:
        """Return its joints; it stays where it is when the loop falls silent."""
        return {
            "robot": "so101",
            "rate_hz": 30,
            "sensors": {"joint_position": {"names": JOINTS, "unit": "rad"}},
            "commands": {"joint_position": SERVOS},
            "safe_actions": ["hold", "stop"],
        }

    def read(self) -> dict:
        """Return the positions of the joints."""
        seen, now_s = self.arm.get_observation(), time.monotonic()
        degrees = [seen[f"{motor}.pos"] for motor in MOTORS]
        rows = zip(degrees, SIGNS, ZEROS)  # noqa: B905
        position = [sign * math.radians(at) + zero for at, sign, zero in rows]
        return {"time_s": now_s, "values": {"joint_position": position}}

    def write(self, commands: dict) -> None:
        """Send positions, which are within the limits."""
        rows = zip(MOTORS, commands["joint_position"].tolist(), SIGNS, ZEROS)  # noqa: B905
        self.arm.send_action(
            {f"{motor}.pos": math.degrees(sign * (to - zero)) for motor, to, sign, zero in rows}
        )

    def stop(self, action: str) -> None:
        """Hold the present position, or let the arm fall."""
        if action == "stop":
            self.arm.bus.disable_torque()
        else:
            seen = self.arm.get_observation()
            self.arm.send_action({f"{motor}.pos": seen[f"{motor}.pos"] for motor in MOTORS})

    def disconnect(self) -> None:
        """Do nothing: closing the port would switch the motors off, and the arm would fall."""


if __name__ == "__main__":
    main(Arm())
