"""What a Spot machine's notice is too short for."""

import pytest
from support.training import tiny_config

from rlzoo_plus.doctor.spot_advice import iteration_steps, notice_advice

EPISODE = 200


def job(*overrides, algo="ppo"):
    return tiny_config(algo, "tests/TinyReach-v0", *overrides)


def texts(config, rate=100.0):
    return "\n".join(notice_advice(config, rate, EPISODE))


LONG = ("algo.hyperparams.n_steps=2048", "n_envs=8", "n_timesteps=100000")


def test_an_iteration_longer_than_the_notice_is_told_with_its_length():
    told = texts(job(*LONG))
    assert "takes about 2m44s (n_steps 2048 x n_envs 8, at 100 steps/s)" in told
    assert "infra.spot=false" in told


def test_an_iteration_that_ends_within_the_notice_is_fine():
    assert texts(job(*LONG), rate=200.0) == ""
    assert texts(job()) == ""


def test_nothing_is_said_of_iterations_whose_rate_is_not_known():
    assert texts(job(*LONG), rate=None) == ""


@pytest.mark.parametrize(
    ("algo", "overrides", "steps"),
    [
        ("ppo", ("algo.hyperparams.n_steps=32", "n_envs=4"), 128),
        ("sac", ("algo.hyperparams.train_freq=4", "n_envs=2"), 8),
        ("sac", ("algo.hyperparams.train_freq=[3,episode]",), 3 * EPISODE),
        ("ars", ("algo.hyperparams.n_delta=16",), 2 * 16 * EPISODE),
    ],
)
def test_a_run_can_stop_between_iterations_only(algo, overrides, steps):
    assert iteration_steps(job(*overrides, algo=algo), EPISODE)[0] == steps


def test_episodes_without_a_known_end_have_no_known_length():
    config = job("algo.hyperparams.train_freq=[1,episode]", algo="sac")
    assert iteration_steps(config, None)[0] is None
    assert list(notice_advice(config, 1.0, None)) == []


def test_runs_without_checkpoints_lose_everything():
    told = texts(job("checkpoint.every_minutes=null"))
    assert "takes the whole run with it. Set checkpoint.every_minutes=5." in told


@pytest.mark.parametrize(
    ("overrides", "warns"),
    [
        (("checkpoint.every_minutes=60",), True),
        (("checkpoint.every_minutes=null", "checkpoint.every_steps=900000"), True),
        (("checkpoint.every_minutes=null", "checkpoint.every_steps=9000"), False),
        (("checkpoint.every_minutes=60", "checkpoint.every_steps=9000"), False),
    ],
)
def test_checkpoints_that_are_far_apart_are_told(overrides, warns):
    assert ("apart" in texts(job("n_timesteps=1000000", *overrides))) is warns
