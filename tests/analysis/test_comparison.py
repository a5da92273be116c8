"""Whether comparisons decide as often as they state."""

import numpy as np
import pytest

from rlzoo_plus.analysis.comparison import SimulatedPairs, compare, p_value, seeds_needed


def normal(generator, n, mean=0.0, deviation=1.0):
    return generator.normal(mean, deviation, n)


def test_of_equal_sets_at_most_the_stated_level_is_decided_wrongly():
    generator = np.random.default_rng(101)
    pairs = ((normal(generator, 5), normal(generator, 5)) for _ in range(2000))
    wrong = np.array([p_value([first], [second]) <= 0.05 for first, second in pairs])
    assert wrong.mean() <= 0.05
    # Of 200, more than 18 are decided by chance with a probability of 1 %.
    assert max(wrong.reshape(10, 200).sum(axis=1)) <= 18


def test_the_interval_says_the_same_as_the_test():
    generator = np.random.default_rng(6)
    for _ in range(30):
        found = compare([normal(generator, 5, 1.5)], [normal(generator, 5)])
        assert (found.p_value <= 0.05) == (not found.low <= 0 <= found.high)


@pytest.mark.parametrize("draw", ["exponential", "failures", "two_tasks"])
def test_equal_sets_of_other_distributions_are_decided_no_more_often(draw):
    generator = np.random.default_rng(1)

    def one():
        if draw == "exponential":
            return [generator.exponential(size=5)]
        if draw == "failures":
            return [np.where(generator.random(5) < 0.2, -10.0, generator.normal(size=5))]
        return [generator.normal(size=4), 5 + generator.normal(size=4)]

    wrong = sum(p_value(one(), one()) <= 0.05 for _ in range(200))
    # Of 200, more than 18 are decided by chance with a probability of 1 %.
    assert wrong <= 18


def test_intervals_hold_the_true_difference_as_often_as_they_state():
    generator = np.random.default_rng(2)
    found = [compare([normal(generator, 5, 3.0)], [normal(generator, 5)]) for _ in range(60)]
    # Of 60, fewer than 51 hold it by chance with a probability of 0.1 %.
    assert sum(each.low <= 3.0 <= each.high for each in found) >= 51


def apart(n, effect):
    """Return two sets of `n` runs, exactly that many deviations apart."""
    values = np.linspace(-1.0, 1.0, n)
    values /= values.std(ddof=1)
    return [values + effect], [values]


def estimated_power(first, second, n):
    sets = [(np.asarray(a), np.asarray(b)) for a, b in zip(first, second, strict=True)]
    return SimulatedPairs(sets, 0.05).power(n)


def simulated_power(n, effect, n_pairs):
    generator = np.random.default_rng([n, round(100 * effect)])
    pairs = ((normal(generator, n, effect), normal(generator, n)) for _ in range(n_pairs))
    return np.mean([p_value([first], [second]) <= 0.05 for first, second in pairs])


@pytest.mark.parametrize(("n", "effect"), [(3, 3.0), (5, 1.5), (10, 1.0)])
def test_sets_are_decided_as_often_as_the_power_estimate_says(n, effect):
    # Three standard errors of 200 pairs.
    assert simulated_power(n, effect, 200) == pytest.approx(
        estimated_power(*apart(3, effect), n), abs=0.11
    )


def test_power_never_falls_with_more_seeds():
    for effect in (0.4, 1.0, 2.0):
        first, second = apart(3, effect)
        found = [estimated_power(first, second, n) for n in range(2, 16)]
        assert found == sorted(found)
    # These divide 3 and 3 in 20 ways: no result is significant.
    assert estimated_power([[9.0, 9.1, 9.2]], [[1.0, 1.1, 1.2]], 3) == 0.0


def test_as_many_seeds_are_needed_as_welchs_test_asks_for_and_a_few_more():
    # By Welch's test 4, 6 and 17 a set.
    expected = {3.0: 4, 2.0: 6, 1.0: 20}
    assert {effect: seeds_needed(*apart(3, effect)) for effect in expected} == expected
    assert seeds_needed(*apart(3, 0.0)) is None
    assert seeds_needed([[1.0, 2.0]], [[5.0, 6.0]]) is None
    # Fully apart, and unevenly spread.
    assert seeds_needed([[480.0, 499.0, 500.0]], [[300.0, 301.0, 450.0]]) <= 8
    # Many pairs are corrected for.
    assert seeds_needed(*apart(3, 2.0), level=0.05 / 10) > 8


def test_too_few_runs_have_no_interval():
    found = compare([[1.0, 2.0]], [[5.0, 6.0]])
    assert (found.low, found.high, found.difference) == (None, None, -4.0)
    assert compare([[1.0]], [[2.0]]).p_value is None


def test_runs_without_spread_are_told_apart_and_equal_ones_are_not():
    apart = compare([[1.0] * 5], [[2.0] * 5])
    assert apart.p_value < 0.05
    assert (apart.low, apart.high) == pytest.approx((-1.0, -1.0), abs=1e-6)
    assert compare([[1.0] * 5], [[1.0] * 5]).p_value == 1.0


def test_a_set_against_itself_with_a_shift_gives_that_difference():
    values = np.random.default_rng(5).normal(size=8)
    found = compare([values + 2.0], [values])
    assert found.difference == pytest.approx(2.0)
    assert found.low < 2.0 < found.high


def test_sets_in_the_other_order_give_the_mirrored_result():
    rng = np.random.default_rng(4)
    # More divisions than are tried: random ones.
    first, second = (rng.normal(size=(2, 8)) for _ in range(2))
    there, back = compare(first, second), compare(second, first)
    assert back.p_value == there.p_value
    assert (back.low, back.high) == (-there.high, -there.low)


def test_a_task_without_runs_is_an_error():
    with pytest.raises(ValueError, match="at least one run"):
        compare([[]], [[1.0]])
