"""What trained policies ask of their motors, against the data sheets of the robots.

    python -m benchmarks.realism RUN [RUN ...] [--episodes 20]

RUN is a run directory whose best policy plays held-out episodes. Torques and velocities are of
every physics step; of robots that torques drive, velocities are those of every control step, since
the engine takes the steps between at once. Slip is the speed at which the lowest point of a wheel
moves over the ground. See benchmarks/results/realism.md.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np

from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.runs.run import Run
from robots.drives import PdDrive, TorqueDrive, WrappedDrive
from robots.driving import SERVO_SPEED_RAD_S, SERVO_TORQUE_N_M
from robots.engines.bullet.simulation import BulletSimulation
from robots.env import BaseRobotEnv
from robots.kuka_reach import SPEEDS_RAD_S, TORQUES_N_M

# Of what was measured, and of limits.
_DIGITS = (3, 3, 4, 4) * 2


class Sheet(NamedTuple):
    """What is published of the driven joints of a robot; None where nothing is."""

    torque: tuple[float | None, ...]
    """[N m or N]"""
    velocity: tuple[float | None, ...]
    """[rad/s or m/s]"""
    wheels: str = ""
    """How the names of the links of wheels end."""
    radius_m: float = 0.0


PANDA = Sheet((87.0,) * 4 + (12.0,) * 3, (2.175,) * 4 + (2.61,) * 3)
SHEETS = {
    "Kuka": Sheet(TORQUES_N_M, SPEEDS_RAD_S),
    "Franka": PANDA,
    "Husky": Sheet((None,) * 4, (1.0 / 0.17775,) * 4, "wheel_link", 0.17775),
    "Racecar": Sheet(
        (None, None, 0.5 * SERVO_TORQUE_N_M, 0.5 * SERVO_TORQUE_N_M),
        (None, None, SERVO_SPEED_RAD_S, SERVO_SPEED_RAD_S),
        "wheel",
        0.05,
    ),
    "A1": Sheet((33.5,) * 12, (21.0,) * 12),
}
"""By the beginning of the environment's class."""


class Recorder:
    """Reads an environment's motors and wheels after every physics step."""

    def __init__(self, env: BaseRobotEnv, sheet: Sheet) -> None:
        simulation, robot = cast(BulletSimulation, env.simulation), env.robot
        self.torques: list[list[float]] = []
        self.velocities: list[list[float]] = []
        self.slips: list[float] = []
        self._radius_m = sheet.radius_m
        links = simulation.links(robot.body).items()
        wheels = [link for name, link in links if sheet.wheels and name.endswith(sheet.wheels)]
        indices = robot.drive.motors.indices
        self._read = simulation.joint_reader(robot.body, indices, efforts=True)
        self._wheels = simulation.link_reader(robot.body, wheels, as_left=True) if wheels else None
        self._commanded: list[float] | None = None
        drive = robot.drive
        while isinstance(drive, WrappedDrive):
            drive = drive.wrapped
        # Bullet does not report torques that are commanded.
        for kind, name in ((PdDrive, "_push"), (TorqueDrive, "_drive")):
            if isinstance(drive, kind):
                setattr(drive, name, self._noting(getattr(drive, name)))
        one, calls = simulation.substep, simulation.calls

        def substep() -> None:
            one()
            self._note()

        def step() -> None:
            for _ in range(calls):
                substep()

        simulation.substep, simulation.step = substep, step

    def _noting(self, push: Any) -> Any:
        def noting(forces: list[float]) -> None:
            self._commanded = list(forces)
            push(forces)

        return noting

    def _note(self) -> None:
        joints = self._read()
        count = len(joints) // 3
        self.velocities.append([abs(velocity) for velocity in joints[count : 2 * count]])
        torques = joints[2 * count :] if self._commanded is None else self._commanded
        self.torques.append([abs(torque) for torque in torques])
        _, _, velocities, turns = self._wheels() if self._wheels else ([], [], [], [])
        for start in range(0, len(velocities), 3):
            (x, y), (turn_x, turn_y) = velocities[start : start + 2], turns[start : start + 2]
            slip = (x - turn_y * self._radius_m, y + turn_x * self._radius_m)
            self.slips.append(float(np.hypot(*slip)))


def record(run: Run, episodes: int) -> tuple[BaseRobotEnv, Sheet, Recorder]:
    """Play the best policy of a run."""
    policy, spec = run.policy("best"), run.config.env
    env: Any = gymnasium.make(spec.id, **spec.kwargs).unwrapped
    driven = len(env.robot.actuated)
    unknown = Sheet((None,) * driven, (None,) * driven)
    found = [sheet for name, sheet in SHEETS.items() if type(env).__name__.startswith(name)]
    sheet = found[0] if found else unknown
    recorder = Recorder(env, sheet)
    for seed in held_out_seeds(episodes, 0):
        observation, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            actions, _ = policy.predict(_row(observation))
            observation, _, terminated, truncated, _ = env.step(actions[0])
            ended = terminated or truncated
    return env, sheet, recorder


def _row(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: value[None] for key, value in observation.items()}
    return observation[None]


def report(env: BaseRobotEnv, sheet: Sheet, recorder: Recorder) -> str:
    """Return the table of a robot's joints, with its rates and the slip of its wheels."""
    motors, simulation = env.robot.drive.motors, env.simulation
    lines = [
        "| joint | torque: 99% | greatest | motor | data sheet | velocity: 99% | greatest | motor "
        "| data sheet |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    numbers = [
        number
        for seen, allowed, published in (
            (recorder.torques, motors.max_force, sheet.torque),
            (recorder.velocities, motors.fastest, sheet.velocity),
        )
        for number in (np.percentile(seen, 99, axis=0), np.max(seen, axis=0), allowed, published)
    ]
    for joint, *row in zip(motors.joints, *numbers, strict=True):
        cells = [
            "-" if x is None or np.isinf(x) else f"{x:.{digits}g}"
            for x, digits in zip(row, _DIGITS, strict=True)
        ]
        lines.append(f"| {joint.name} | {' | '.join(cells)} |")
    rates = 1 / simulation.step_s, simulation.substeps / simulation.step_s
    lines.append("\nControl {:.4g} Hz, physics {:.4g} Hz".format(*rates))
    if recorder.slips:
        middle, most = np.percentile(recorder.slips, [50, 99])
        lines[-1] += f"; slip of the wheels {middle:.2f} m/s in the middle, {most:.2f} m/s at 99%"
    return "\n".join([*lines[:-1], f"{lines[-1]}."])


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    for name in options.runs:
        run = Run.open(name)
        print(f"\n{run.config.env.id}, seed {run.config.seed}, {options.episodes} episodes\n")
        played = record(run, options.episodes)
        print(report(*played), flush=True)
        played[0].close()


if __name__ == "__main__":
    main()
