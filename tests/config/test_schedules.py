"""Schedules written as names."""

import math
from itertools import pairwise

import pytest

from rlzoo_plus.config.schedules import KINDS, parse_schedule
from rlzoo_plus.errors import ConfigError

KEY = "algo.hyperparams.learning_rate"


@pytest.mark.parametrize(
    ("text", "start", "middle", "end"),
    [
        ("lin_3e-4", 3e-4, 1.5e-4, 0.0),
        ("lin_3e-4_1e-5", 3e-4, 1.55e-4, 1e-5),
        ("lin_0_1", 0.0, 0.5, 1.0),
        ("cos_1e-3", 1e-3, 5e-4, 0.0),
        ("cos_1e-3_1e-5", 1e-3, 5.05e-4, 1e-5),
        ("exp_1e-3", 1e-3, 1e-4, 1e-5),
        ("exp_1e-2_1e-4", 1e-2, 1e-3, 1e-4),
        ("const_0.2", 0.2, 0.2, 0.2),
        (0.2, 0.2, 0.2, 0.2),
        (1, 1.0, 1.0, 1.0),
    ],
)
def test_a_schedule_has_its_value_at_start_middle_and_end(text, start, middle, end):
    schedule = parse_schedule(text, KEY)
    values = [schedule(progress) for progress in (1.0, 0.5, 0.0)]
    assert values == pytest.approx([start, middle, end], rel=1e-9, abs=1e-18)
    assert values[0] == start


def test_a_cosine_schedule_is_a_cosine_and_not_a_line():
    schedule = parse_schedule("cos_1e-3", KEY)
    for progress in (0.9, 0.75, 0.25, 0.1):
        expected = 0.5e-3 * (1.0 + math.cos(math.pi * (1.0 - progress)))
        assert schedule(progress) == pytest.approx(expected)
        assert abs(schedule(progress) - 1e-3 * progress) > 2e-5


@pytest.mark.parametrize("kind", ["lin", "cos", "exp"])
def test_a_falling_schedule_falls_at_every_step_and_stays_between_its_ends(kind):
    schedule = parse_schedule(f"{kind}_1e-3_1e-5", KEY)
    values = [schedule(1.0 - i / 100) for i in range(101)]
    assert all(later < earlier for earlier, later in pairwise(values))
    assert max(values) <= 1e-3
    assert min(values) >= 1e-5 * (1 - 1e-9)


@pytest.mark.parametrize(("long", "short"), sorted(KINDS.items()))
def test_a_long_name_means_the_same_as_the_short_one(long, short):
    assert parse_schedule(f"{long}_3e-4", KEY) == parse_schedule(f"{short}_3e-4", KEY)


@pytest.mark.parametrize("text", ["LIN_3e-4", "Lin_3E-4", "lin_0.0003", "lin_.0003", "lin_+3e-4"])
def test_numbers_and_kinds_may_be_written_in_every_usual_way(text):
    assert parse_schedule(text, KEY) == parse_schedule("lin_3e-4", KEY)


@pytest.mark.parametrize(
    "value",
    [
        *("lim_3e-4", "lin", "lin_", "lin_abc", "lin_3e-4_", "lin_3e-4_1e-5_1e-6", "lin_3e-4 "),
        *("lin_3e-4\n", "lin_nan", "linear(3e-4)", "__import__('os')", "abc", ""),
        *(True, None, [3e-4], {"lin": 3e-4}),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_key_and_value(value):
    with pytest.raises(ConfigError) as caught:
        parse_schedule(value, KEY)
    assert f"{KEY}={value}" in str(caught.value)
    assert "lin_3e-4" in str(caught.value)


def test_a_misspelled_kind_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"Did you mean 'cos_1e-3'"):
        parse_schedule("cso_1e-3", KEY)


def test_a_kind_without_a_number_is_not_answered_with_itself():
    with pytest.raises(ConfigError) as caught:
        parse_schedule("lin", KEY)
    assert "Did you mean 'lin'?" not in str(caught.value)


@pytest.mark.parametrize("text", ["exp_0", "exp_-1", "exp_1e-3_0", "exp_1e-3_-1"])
def test_an_exponential_schedule_cannot_touch_zero(text):
    with pytest.raises(ConfigError, match="above 0") as caught:
        parse_schedule(text, KEY)
    assert f"{KEY}={text}" in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "lin_1e400"])
def test_a_value_that_is_not_finite_is_refused(value):
    with pytest.raises(ConfigError):
        parse_schedule(value, KEY)


@pytest.mark.parametrize("text", ["lin_1e-3", "lin_1e-3_1e-4", "cos_1e-3", "exp_1e-3"])
def test_a_rollout_beyond_the_last_step_has_the_value_at_the_end(text):
    """Rounded up to whole rollouts, a run's last update would have a negative learning rate."""
    schedule = parse_schedule(text, KEY)
    assert schedule(-0.033) == schedule(0.0) >= 0.0
