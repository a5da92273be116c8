"""Why a run does not learn: planted faults are named first, sound environments raise no alarm."""

import numpy as np
import pytest

from benchmarks.faults import config_of
from benchmarks.planted_faults import FAULTS, HEALTHY, Fault
from rlzoo_plus.doctor.not_learning import why_not

# What is said of them is so: random play never meets the goal, and standing still earns most.
HARD_TO_EXPLORE = {"env=mountain_car algo=dqn", "env=mountain_car_continuous algo=sac"}
QUICK = ("env=cartpole algo", "env=pendulum", "env=acrobot", "env=cartpole_bullet", "env=mountain")


def named(fault):
    kind = f"{fault.cause} {fault.wrapper[1]['kind'] if fault.wrapper else ''} {fault.command}"
    marks = [pytest.mark.slow] if "HalfCheetah" in fault.command else []
    return pytest.param(fault, id=kind, marks=marks)


def marked(command):
    is_quick = command.startswith(QUICK) and "time_feature" not in command
    return pytest.param(command, id=command, marks=[] if is_quick else [pytest.mark.slow])


def test_there_are_forty_of_each():
    assert (len(FAULTS), len(set(HEALTHY))) == (40, 40)


@pytest.mark.parametrize("fault", [named(fault) for fault in FAULTS])
def test_a_planted_fault_is_the_first_cause(fault):
    causes = why_not(config_of(fault))
    assert causes, "no cause found"
    assert (causes[0].name, causes[0].is_hint) == (fault.cause, False), causes


@pytest.mark.parametrize("command", [marked(command) for command in HEALTHY])
def test_a_sound_environment_raises_no_alarm(command):
    causes = why_not(config_of(Fault("", command)))
    found = [cause.name for cause in causes if not cause.is_hint]
    assert bool(found) == (command in HARD_TO_EXPLORE), found


def test_random_numbers_of_the_process_are_left_as_they_were():
    np.random.seed(4)
    expected = np.random.random(3).tolist()
    np.random.seed(4)
    why_not(config_of(Fault("", "env=cartpole algo=ppo")))
    assert np.random.random(3).tolist() == expected


def test_normalization_of_observations_mends_their_scale():
    fault = next(fault for fault in FAULTS if fault.cause == "observation_scale")
    mended = Fault("", f"{fault.command} normalize=true", fault.wrapper)
    assert why_not(config_of(mended)) == []
