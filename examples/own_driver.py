"""Driver of an own robot, a leg of two servos, for the robot's own Python.

Copy rlzoo_plus/drivers/robot_end.py beside it, and on the robot:

    python own_driver.py --port 5555

`sent` and `position` stand for your servos' library; these here move 5 rad/s and weigh nothing.
"""

import time

import numpy as np
from robot_end import main

SERVOS = {"names": ["hip", "knee"], "unit": "rad", "lower": [-1.0, -2.0], "upper": [1.0, 0.0]}
LEG = {
    "robot": "leg",
    "rate_hz": 50,
    "sensors": {"joint_position": SERVOS},
    "commands": {"joint_position": SERVOS},
    "safe_actions": ["hold"],  # The first is what it does when the loop falls silent
}


class Leg:
    """A leg whose servos go to positions."""

    def connect(self) -> None:
        """Reach the servos; they stay where they are."""
        self.at_s, self.position = time.monotonic(), np.array([0.0, -1.0])
        self.sent = self.position

    def describe(self) -> dict:
        """Return what it senses and takes."""
        return LEG

    def read(self) -> dict:
        """Return where the servos are."""
        now_s = time.monotonic()
        farthest, self.at_s = 5.0 * (now_s - self.at_s), now_s
        self.position = self.position + np.clip(self.sent - self.position, -farthest, farthest)
        return {"time_s": now_s, "values": {"joint_position": self.position}}

    def write(self, commands: dict) -> None:
        """Send positions, which are within the limits."""
        self.read()
        self.sent = commands["joint_position"]

    def stop(self, action: str) -> None:
        """Hold the present position."""
        self.sent = self.read()["values"]["joint_position"]

    def disconnect(self) -> None:
        """Let go of the servos."""


if __name__ == "__main__":
    main(Leg())
