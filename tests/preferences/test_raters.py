"""Synthetic raters: the irrational ones of B-Pref, each with one error of people."""

import numpy as np
import pytest
from support.clips import INPUTS, made_clips

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences.clips import Clip, Clips
from rlzoo_plus.preferences.raters import SyntheticRater, make_rater


def clips_of(*rewards):
    """Return clips with these rewards, each compared with the next."""
    made = []
    for number, values in enumerate(rewards):
        own = np.array(values, np.float64)
        rows = np.zeros((len(own), INPUTS.size), np.float32)
        made.append(Clip(number, np.zeros((len(own), 1)), own, rows))
    pairs = np.array([(k, k + 1) for k in range(len(made) - 1)])
    return Clips(INPUTS, made, pairs, {})


def test_a_rational_rater_prefers_the_higher_return_and_calls_the_same_equal():
    assert SyntheticRater().answers(clips_of([1, 1], [1, 2], [2, 1], [0])) == [
        *("right", "equal", "left"),
    ]


def test_an_undecided_rater_calls_close_returns_equal():
    clips = clips_of([0.0], [1.0], [1.1], [9.0])
    assert SyntheticRater(equal=0.1).answers(clips) == ["right", "equal", "right"]


def test_a_skipping_rater_says_nothing_about_two_bad_clips():
    clips = clips_of([0.0], [1.0], [9.0], [10.0])
    assert SyntheticRater(skip=0.5).answers(clips) == ["skip", "right", "right"]


def test_a_myopic_rater_looks_at_the_end():
    clips = clips_of([5, 5, 0], [0, 0, 1])
    assert SyntheticRater().answers(clips) == ["left"]
    assert SyntheticRater(gamma=0.1).answers(clips) == ["right"]


def test_a_mistaken_rater_swaps_a_share_of_the_answers():
    clips = made_clips(1000)
    right, wrong = (SyntheticRater(mistake=m).answers(clips) for m in (0.0, 0.1))
    share = np.mean([one != other for one, other in zip(right, wrong, strict=True)])
    assert 0.07 < share < 0.13
    assert SyntheticRater(mistake=1.0).answers(clips_of([0], [1])) == ["left"]


def test_a_stochastic_rater_errs_more_where_clips_are_alike():
    clips = made_clips(1000)
    answers = SyntheticRater(beta=1.0).answers(clips)
    returns = np.array([clip.rewards.sum() for clip in clips.clips])[clips.pairs]
    is_right = np.array([a == "right" for a in answers]) == (returns[:, 1] > returns[:, 0])
    distance = np.abs(returns[:, 1] - returns[:, 0])
    near, far = (is_right[mask].mean() for mask in (distance < 0.5, distance > 4))
    assert near < 0.75
    assert far > 0.95
    assert SyntheticRater(beta=1e9).answers(clips) == SyntheticRater().answers(clips)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("synthetik", "did you mean 'synthetic'"),
        ("synthetic:mistakes=0.1", "did you mean 'mistake'"),
        ("synthetic:mistake=2", "from 0 to 1"),
        ("synthetic:gamma=nan", "from 0 to 1"),
        ("synthetic:seed=1.5", "must be a number"),
    ],
)
def test_a_wrong_rater_is_refused_with_the_right_one(text, wrong):
    with pytest.raises(ConfigError, match="(?i)" + wrong):
        make_rater(text)
