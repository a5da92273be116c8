"""Robust means, bootstrap intervals, smoothing."""

import numpy as np
import pytest

from rlzoo_plus.analysis.statistics import (
    holm,
    iqm,
    iqm_interval,
    performance_profile,
    probability_of_improvement,
    smooth,
    stratified_bootstrap_ci,
)


def mean_of_rows(samples):
    return samples.mean(axis=0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([8, 1, 2, 3, 4, 5, 6, 7], (3 + 4 + 5 + 6) / 4),
        # A quarter of 5 is 1 value, of 3 none.
        ([0, 1, 2, 3, 100], 2.0),
        ([0, 1, 8], 3.0),
        # Of runs and tasks.
        ([[1.0, 2.0], [3.0, 100.0]], 2.5),
    ],
)
def test_iqm_drops_the_lowest_and_the_highest_quarter_rounded_down(values, expected):
    assert iqm(values) == pytest.approx(expected)


def test_iqm_of_no_values_is_an_error_and_of_nan_is_nan():
    with pytest.raises(ValueError, match="at least one"):
        iqm([])
    assert np.isnan(iqm([1.0, float("nan"), 2.0, 3.0]))


def test_the_bootstrap_interval_covers_the_mean_of_a_normal_sample_at_its_known_width():
    values = np.random.default_rng(1).normal(10.0, 2.0, size=400)
    low, high = stratified_bootstrap_ci([values], np.mean)
    standard_error = values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - 1.96 * standard_error, abs=0.03)
    assert high == pytest.approx(values.mean() + 1.96 * standard_error, abs=0.03)


def test_the_bootstrap_never_draws_across_groups():
    # Each group is constant: resampling within groups cannot change anything.
    low, high = stratified_bootstrap_ci([[1.0] * 3, [5.0]], np.mean, 50)
    assert low == high == pytest.approx(2.0)


def test_the_bootstrap_of_curves_gives_an_interval_at_each_point():
    curves = np.array([[0.0, 1.0, 4.0], [0.0, 3.0, 8.0]])
    low, high = stratified_bootstrap_ci([curves], mean_of_rows, 200)
    assert low.shape == high.shape == (3,)
    assert low.tolist() == [0.0, 1.0, 4.0]
    assert high.tolist() == [0.0, 3.0, 8.0]


def test_the_interval_is_always_the_same_and_the_global_generator_stays_untouched():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    values = np.arange(20.0)
    first = stratified_bootstrap_ci([values], iqm, 100)
    assert first == stratified_bootstrap_ci([values], iqm, 100)
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize("samples", [[], [[1.0], []]])
def test_the_bootstrap_of_nothing_is_an_error(samples):
    with pytest.raises(ValueError, match="at least one group, and a sample in each"):
        stratified_bootstrap_ci(samples, np.mean)


def test_smoothing_averages_over_the_window_and_over_less_at_the_ends():
    assert smooth([1, 2, 6, 4], 3) == pytest.approx([1.5, 3.0, 4.0, 5.0])
    assert smooth([1, 2, 6, 4], 2) == pytest.approx([1.0, 1.5, 4.0, 5.0])


@pytest.mark.parametrize(
    ("window", "expected"),
    [(1, [1.0, 2.0, 6.0]), (6, [3.0] * 3), (7, [3.0] * 3), (1000, [3.0] * 3)],
)
def test_smoothing_changes_nothing_with_one_and_gives_the_mean_beyond_both_ends(window, expected):
    assert smooth([1.0, 2.0, 6.0], window) == pytest.approx(expected)


def test_smoothing_agrees_with_a_plain_loop():
    values = np.random.default_rng(0).normal(size=50)
    loop = [values[max(0, i - 5) : i + 6].mean() for i in range(50)]
    assert smooth(values, 11) == pytest.approx(loop)


def test_smoothing_keeps_a_gap_local_and_nothing_stays_nothing():
    smoothed = smooth([1.0, float("nan"), 1.0, 1.0, 1.0], 3)
    assert np.isnan(smoothed).tolist() == [True, True, True, False, False]
    assert smooth([], 5).shape == (0,)


def test_smoothing_refuses_an_empty_window_and_a_table():
    with pytest.raises(ValueError, match="window=0"):
        smooth([1.0], 0)
    with pytest.raises(ValueError, match="one dimension"):
        smooth([[1.0]], 1)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 100, 1500])
def test_the_fast_interval_is_that_of_the_bootstrap(size):
    values = np.random.default_rng(size).normal(100.0, 30.0, size)
    expected = stratified_bootstrap_ci([values], iqm, 300)
    assert iqm_interval(values, 300) == pytest.approx(expected, rel=1e-12)


def test_the_fast_interval_of_values_with_nan_is_nan_where_the_bootstrap_is():
    values = [1.0, 2.0, float("nan"), 3.0, 4.0]
    assert (
        np.isnan(iqm_interval(values, 100)).tolist()
        == np.isnan(stratified_bootstrap_ci([values], iqm, 100)).tolist()
    )


def test_the_performance_profile_is_the_share_of_runs_above_each_threshold():
    shares = performance_profile([0.0, 1.0, 1.0, 2.0], [-1.0, 0.0, 1.0, 2.0])
    assert shares.tolist() == [1.0, 0.75, 0.25, 0.0]


def test_the_probability_of_improvement_counts_equal_pairs_half_and_each_task_alike():
    assert probability_of_improvement([[2.0, 1.0]], [[1.0]]) == pytest.approx(0.75)
    assert probability_of_improvement([[2.0], [0.0]], [[1.0] * 9, [1.0]]) == pytest.approx(0.5)


def test_holms_correction_multiplies_the_smallest_by_all_and_never_falls():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([]).size == 0


@pytest.mark.parametrize("shape", [(5, 1), (10, 3), (7, 4), (3, 2)])
def test_the_statistics_are_those_of_rliable_on_the_same_resamples(shape):
    # rliable 1.2 needs pandas below 3, so a virtual environment of its own:
    # pip install rliable 'pandas<3' pytest; pytest --noconftest -c /dev/null -k rliable FILE
    metrics = pytest.importorskip("rliable.metrics", reason="needs rliable, which is heavy")
    generator = np.random.default_rng(shape[0])
    first, second = generator.normal(size=shape), generator.normal(0.3, 2.0, size=shape)
    assert iqm(first) == pytest.approx(metrics.aggregate_iqm(first), abs=1e-9)
    assert probability_of_improvement(list(first.T), list(second.T)) == pytest.approx(
        metrics.probability_of_improvement(first, second), abs=1e-9
    )
    # The resamples that the interval is from, as rliable takes them.
    generator, resampled = np.random.default_rng(0), []
    for _ in range(500):
        drawn = [task[generator.integers(len(task), size=len(task))] for task in first.T]
        resampled.append(metrics.aggregate_iqm(np.stack(drawn, axis=1)))
    expected = np.percentile(resampled, [2.5, 97.5])
    assert stratified_bootstrap_ci(list(first.T), iqm, 500) == pytest.approx(expected, abs=1e-9)
    taus = np.linspace(-1, 1, 9)
    library = pytest.importorskip("rliable.library", reason="needs rliable")
    profile = [library.run_score_deviation(first, tau) for tau in taus]
    assert performance_profile(first, taus) == pytest.approx(profile, abs=1e-9)
