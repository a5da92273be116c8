"""A budget dealt out to runs: never more than there is, and what others left is not lost."""

import random

import pytest

from rlzoo_plus.cloud.launch_plan import deal
from rlzoo_plus.errors import ConfigError


def _draw(seed: int) -> tuple[float, dict[str, float], list[str]]:
    draw = random.Random(seed)
    keys = [f"run{number}" for number in range(draw.randint(1, 300))]
    total = 10 ** draw.uniform(-2, 3)
    spent = {key: draw.random() * total / len(keys) for key in keys if draw.random() < 0.7}
    unfinished = draw.sample(keys, draw.randint(1, len(keys)))
    return total, spent, unfinished


@pytest.mark.parametrize("seed", range(60))
def test_all_runs_together_never_cost_more_than_the_budget(seed):
    total, spent, unfinished = _draw(seed)
    dealt = deal(total, spent, unfinished)
    assert list(dealt) == unfinished
    ended = sum(usd for key, usd in spent.items() if key not in dealt)
    assert ended + sum(dealt.values()) <= total * (1 + 1e-12)
    # What a run has spent already is in its share.
    assert all(usd > spent.get(key, 0.0) for key, usd in dealt.items())
    # Nothing is left over but what was rounded.
    assert ended + sum(dealt.values()) > total - 1e-6 * (2 * len(spent) + len(dealt) + 2)


def test_what_finished_runs_left_goes_to_the_others():
    first = deal(1.0, {}, ["a", "b", "c", "d"])
    assert set(first.values()) == {0.25}
    then = deal(1.0, {"a": 0.05, "b": 0.05, "c": 0.25, "d": 0.1}, ["c", "d"])
    assert then == pytest.approx({"c": 0.25 + 0.275, "d": 0.1 + 0.275})


def test_nothing_is_dealt_to_no_runs():
    assert deal(1.0, {"a": 5.0}, []) == {}


@pytest.mark.parametrize("nonsense", [-3.0, float("nan"), float("-inf"), float("inf")])
def test_nonsense_in_a_record_is_not_believed(nonsense):
    assert deal(1.0, {"a": nonsense, "b": 0.5}, ["a"]) == {"a": 0.5}


def test_a_spent_budget_is_refused_with_what_was_spent():
    with pytest.raises(ConfigError, match=r"infra\.max_usd=1 is spent.*\$1\.20.*above \$1\.20"):
        deal(1.0, {"a": 0.7, "b": 0.5}, ["b"])


def test_a_share_too_small_to_train_is_refused_with_a_budget_that_is_enough():
    keys = [f"run{number}" for number in range(20)]
    with pytest.raises(ConfigError, match=r"too small.*at least \$0\.1[0-9]+"):
        deal(0.02, {}, keys, least_usd=0.005)
    assert min(deal(0.101, {}, keys, least_usd=0.005).values()) >= 0.005
