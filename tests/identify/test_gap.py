"""What `sim2real` says of logs of robots that differ from the simulation in a known way."""

import json
from dataclasses import replace

import pytest

from benchmarks.identification import Twin, record
from rlzoo_plus.identify.gap import measure_gap
from rlzoo_plus.runs.load import load

SWINGUP = ("env=cartpole_swingup", "env.kwargs.engine=mujoco")
SAME = Twin(0, "cartpole_swingup", "mujoco", {}, 0, [])
WEAK = replace(SAME, hidden={"motor_strength": 0.6}, latency=2)
NAME = "trained/cartpole_swingup_mujoco"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for name, twin in (("same", SAME), ("weak", WEAK)):
        record(twin, 8.0, folder / f"{name}.csv")
    return folder


def gap_of(log, *words):
    return measure_gap(log, load([*SWINGUP, *words]).env, run_of=None)[0]


def test_a_robot_like_the_simulation_has_no_gap_that_a_parameter_closes(logs):
    gap = gap_of(logs / "same.csv")
    assert gap.latency == 0
    assert gap.covers == ()
    assert (gap.velocity_error < 0.1 * gap.velocity_step).all()


def test_a_late_and_weak_one_is_told_with_what_would_cover_it(logs):
    gap = gap_of(logs / "weak.csv")
    assert gap.latency == 2
    assert gap.velocity_error[0] > 0.3 * gap.velocity_step[0]
    strength = {str(one.parameter): one for one in gap.covers}["motor_strength"]
    assert strength.value == pytest.approx(0.6, rel=0.1)
    assert strength.gain > 0.8
    assert not strength.is_covered
    assert "{motor_strength: {uniform: [0.576, 1.05]}}" in gap.table()
    assert "2 control steps later than the simulation, which it was not trained with" in gap.table()


def test_a_training_with_such_motors_covers_it(logs):
    drawn = "{motor_strength: {uniform: [0.5, 1.0]}, latency: {choice: [0, 1, 2]}}"
    gap = gap_of(logs / "weak.csv", f"env.kwargs.randomization={drawn}")
    strength = {str(one.parameter): one for one in gap.covers}["motor_strength"]
    assert strength.is_covered
    assert "trained with 0.5 to 1" in gap.table()
    assert "which it was not trained with" not in gap.table()


def test_a_latency_of_the_run_itself_is_no_gap(logs):
    assert gap_of(logs / "weak.csv", "env.kwargs.latency=2").latency == 0


def test_the_command_takes_a_policy_and_a_log(logs, answer):
    code, text = answer("sim2real", NAME, str(logs / "weak.csv"), "--json")
    found = json.loads(text)
    assert code == 0
    assert found["latency"] == 2
    assert set(found["joints"]) == {"slider_to_cart", "cart_to_pole"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file"),
        ("time\n0\n", "lacks the column 'position/slider_to_cart'"),
    ],
)
def test_a_log_that_is_none_is_told_in_a_line(content, told, answer, tmp_path):
    log = tmp_path / "log.csv"
    if content is not None:
        log.write_text(content)
    code, text = answer("sim2real", NAME, str(log))
    assert code == 2
    assert told in text
    assert "Traceback" not in text


def test_a_log_that_is_too_short_says_how_many_rows_are_needed(logs, answer, tmp_path):
    lines = (logs / "weak.csv").read_text().splitlines()
    log = tmp_path / "short.csv"
    log.write_text("\n".join(lines[:20]))
    code, text = answer("sim2real", NAME, str(log))
    assert code == 2
    assert "50 are needed" in text
