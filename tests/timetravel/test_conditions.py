"""A condition is a comparison of a metric with a number, and nothing else."""

import math

import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.timetravel.condition import parse_condition


@pytest.mark.parametrize(
    ("text", "metric", "sign", "number"),
    [
        ("train/approx_kl > 0.5", "train/approx_kl", ">", 0.5),
        ("rollout/ep_rew_mean<-50", "rollout/ep_rew_mean", "<", -50),
        ("  train/value_loss >= 1e6 ", "train/value_loss", ">=", 1e6),
        ("eval/mean_return <= .5", "eval/mean_return", "<=", 0.5),
    ],
)
def test_a_comparison_is_read(text, metric, sign, number):
    found = parse_condition(text)
    assert (found.metric, found.sign, found.number) == (metric, sign, number)


@pytest.mark.parametrize(
    "text",
    [
        *("", ">", "train/loss", "train/loss >", "> 3", "train/loss == 3", "a > b", "a > 3 or 1"),
        *("__import__('os').system('id') > 3", "a > 1e999", "a > inf", "a > nan", "a >\x00 3"),
        *("a" * 300 + " > 3", "a > 3; b", "x\n> 3\nprint(1)", "nan > 3 > 2", "time/fps < 10"),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match="--when"):
        parse_condition(text)


def test_a_comparison_holds_for_finite_values_of_its_metric():
    condition = parse_condition("train/loss > 1")
    assert condition.holds({"train/loss": 2.0})
    assert not condition.holds({"train/loss": 1.0})
    assert not condition.holds({"other": 2.0})
    assert not condition.holds({"train/loss": math.nan})
    assert not condition.holds({"train/loss": None})
    assert not condition.holds({"train/loss": True})


def test_nan_is_a_lost_loss_and_no_other_metric():
    condition = parse_condition("NaN")
    assert condition.holds({"train/value_loss": math.inf})
    assert condition.holds({"train/value_loss": None})
    assert not condition.holds({"train/explained_variance": math.nan, "train/value_loss": 1.0})
