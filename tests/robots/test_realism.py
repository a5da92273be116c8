"""What trained policies ask of their motors is recorded at every physics step."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.realism import SHEETS, Recorder, Sheet, report
from robots.cartpole import SimpleRobotEnv
from robots.driving import HuskyDriveEnv, RacecarDriveEnv
from robots.franka_lift import FrankaLiftEnv
from robots.kuka_reach import SPEEDS_RAD_S, TORQUES_N_M, KukaReachEnv

ROOT = Path(__file__).resolve().parents[2]


def played(env, sheet, action, steps):
    """Return what is recorded while an action is repeated."""
    recorder = Recorder(env, sheet)
    env.reset(seed=0)
    for _ in range(steps):
        env.step(np.array(action))
    return recorder


def test_motors_are_recorded_at_every_physics_step_and_compared_with_the_data_sheet():
    env = KukaReachEnv()
    recorder = played(env, SHEETS["Kuka"], [1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0], 5)
    assert np.shape(recorder.torques) == np.shape(recorder.velocities) == (5 * 6, 7)
    assert np.max(recorder.velocities, axis=0)[3] == pytest.approx(SPEEDS_RAD_S[3], rel=0.01)
    assert (np.max(recorder.torques, axis=0) <= TORQUES_N_M).all()
    text = report(env, SHEETS["Kuka"], recorder)
    row = next(line for line in text.splitlines() if "lbr_iiwa_joint_4" in line)
    assert row.split(" | ")[3:5] == ["176", "176"]
    assert text.endswith("Control 20 Hz, physics 120 Hz.")


def test_wheels_that_roll_do_not_slip_and_those_of_a_turn_on_the_spot_do():
    slips = []
    for action in ([0.0, 0.0], [0.3, 0.0], [0.0, 1.0]):
        env = HuskyDriveEnv()
        recorder = played(env, SHEETS["Husky"], action, 30)
        assert len(recorder.slips) == 30 * 6 * 4
        slips.append(np.median(recorder.slips[-480:]))
    standing, rolling, turning = slips
    assert standing < 0.01
    assert rolling < 0.03
    assert turning > 0.3


def test_torques_that_are_commanded_are_those_recorded():
    env = SimpleRobotEnv()
    recorder = played(env, Sheet((None,), (None,)), [-0.5], 3)
    assert recorder.torques == [[5.0]] * 3
    assert "| 5 | 5 |" in report(env, Sheet((None,), (None,)), recorder)


def _tables():
    """Return the rows of each section of the measurements that has a table of joints."""
    page = (ROOT / "benchmarks" / "results" / "realism.md").read_text(encoding="utf-8")
    sections = {}
    for section in page.split("\n## ")[1:]:
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if "|" in line]
        if rows and rows[0][0] == "joint":
            sections[section.splitlines()[0].split(",")[0]] = rows[2:]
    return sections


@pytest.mark.parametrize(
    ("section", "env"),
    [
        ("Kuka reach", KukaReachEnv),
        ("Husky drive", HuskyDriveEnv),
        ("Racecar drive", RacecarDriveEnv),
        ("Franka lift", FrankaLiftEnv),
    ],
)
def test_limits_in_the_documents_are_those_of_the_motors_and_of_the_data_sheets(section, env):
    made = env()
    motors = made.robot.drive.motors
    (sheet,) = (sheet for name, sheet in SHEETS.items() if env.__name__.startswith(name))
    columns = (motors.max_force, sheet.torque, motors.fastest, sheet.velocity)
    rows = _tables()[section]
    assert [row[0] for row in rows] == [joint.name for joint in motors.joints]
    for row, limits in zip(rows, zip(*columns, strict=True), strict=True):
        shown = ["-" if x is None or np.isinf(x) else f"{x:.4g}" for x in limits]
        assert [row[3], row[4], row[7], row[8]] == shown, row[0]
