"""What trained policies ask of their motors is recorded at every physics step."""

from typing import Any

import numpy as np
import pytest

from benchmarks.realism import SHEETS, Recorder, Sheet, report
from robots.cartpole import SimpleRobotEnv
from robots.driving import HuskyDriveEnv
from robots.kuka_reach import SPEEDS_RAD_S, TORQUES_N_M, KukaReachEnv


def played(env: Any, sheet: Sheet, action: list[float], steps: int) -> Recorder:
    """Return what is recorded while an action is repeated."""
    recorder = Recorder(env, sheet)
    env.reset(seed=0)
    for _ in range(steps):
        env.step(np.array(action))
    return recorder


def test_motors_are_recorded_at_every_physics_step_and_compared_with_the_data_sheet() -> None:
    env = KukaReachEnv()
    recorder = played(env, SHEETS["Kuka"], [1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0], 5)
    assert np.shape(recorder.torques) == np.shape(recorder.velocities) == (5 * 6, 7)
    assert np.max(recorder.velocities, axis=0)[3] == pytest.approx(SPEEDS_RAD_S[3], rel=0.01)
    assert (np.max(recorder.torques, axis=0) <= TORQUES_N_M).all()
    text = report(env, SHEETS["Kuka"], recorder)
    env.close()
    row = next(line for line in text.splitlines() if "lbr_iiwa_joint_4" in line)
    assert row.split(" | ")[3:5] == ["176", "176"]
    assert text.endswith("Control 20 Hz, physics 120 Hz.")


def test_wheels_that_roll_do_not_slip_and_those_of_a_turn_on_the_spot_do() -> None:
    slips = []
    for action in ([0.0, 0.0], [0.3, 0.0], [0.0, 1.0]):
        env = HuskyDriveEnv()
        recorder = played(env, SHEETS["Husky"], action, 30)
        assert len(recorder.slips) == 30 * 6 * 4
        slips.append(np.median(recorder.slips[-480:]))
        env.close()
    standing, rolling, turning = slips
    assert standing < 0.01
    assert rolling < 0.03
    assert turning > 0.3


def test_torques_that_are_commanded_are_those_recorded() -> None:
    env = SimpleRobotEnv()
    recorder = played(env, Sheet((None,), (None,)), [-0.5], 3)
    assert recorder.torques == [[5.0]] * 3
    assert "| 5 | 5 |" in report(env, Sheet((None,), (None,)), recorder)
    env.close()
