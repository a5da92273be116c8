"""Learning a reward from answers, with the errors that people make."""

import dataclasses

import numpy as np
import pytest
import torch
from support.clips import INPUTS, answered, made_clips

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences import reward_fitting as fitting
from rlzoo_plus.preferences.preference_folder import Preferences
from rlzoo_plus.preferences.raters import SyntheticRater
from rlzoo_plus.preferences.reward_fitting import Answer, accuracy, fit


def accuracy_of(model, clips):
    """Return how many pairs of clips a model orders as their returns do."""
    pairs = [Answer(*clips.pair(n), "equal") for n in range(len(clips.pairs))]
    return accuracy(model, pairs)["accuracy_returns"]


@pytest.mark.parametrize(
    "rater",
    [
        SyntheticRater(mistake=0.1),
        SyntheticRater(beta=2.0),
        SyntheticRater(gamma=0.8),
        SyntheticRater(skip=0.2),
        SyntheticRater(equal=0.3),
    ],
    ids=["mistaken", "stochastic", "myopic", "skipping", "undecided"],
)
def test_200_answers_of_an_irrational_rater_teach_85_percent_of_new_pairs(tmp_path, rater):
    model = fit(answered(tmp_path / "p", made_clips(200), rater), members=2, seed=0)
    assert accuracy_of(model, made_clips(300, seed=1)) >= 0.85
    assert model.about["taught"] <= 160


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["to go on is good", "to go on is bad"])
def test_the_sign_of_a_reward_says_whether_clips_that_end_early_are_worse(tmp_path, sign):
    clips = made_clips(60, lengths=(2, 10))
    shifted = [dataclasses.replace(c, own_rewards=c.own_rewards + 2 * sign) for c in clips.clips]
    clips = dataclasses.replace(clips, clips=shifted)
    model = fit(answered(tmp_path / "p", clips, SyntheticRater()), members=2, seed=0)
    rewards = model.members(np.concatenate([c.rows for c in clips.clips]))
    assert np.mean(np.sign(rewards) == sign) > 0.75
    assert np.abs(rewards.mean(axis=0)).mean() == pytest.approx(1.0, abs=1e-3)


def test_the_networks_learn_to_predict_what_follows_from_clips_without_answers(tmp_path):
    clips = made_clips(30).clips
    rows = torch.from_numpy(np.concatenate([c.rows[:-1] for c in clips]))
    after = torch.from_numpy(np.concatenate([c.rows[1:, :3] for c in clips]))
    pair = torch.stack([torch.from_numpy(clips[k].rows) for k in (0, 1)])[None]
    data = fitting.Data(pair, torch.ones(1, 2, 10), torch.tensor([0.5]), rows, after)
    generator = torch.Generator().manual_seed(0)
    networks = fitting.Networks(INPUTS, 2, generator)
    error_before = float(networks.predictions(rows, after).detach())
    networks.learn(data, generator)
    assert float(networks.predictions(rows, after).detach()) < -0.95 < error_before


def test_the_same_answers_give_the_same_model_and_another_seed_another(tmp_path):
    preferences = answered(tmp_path / "p", made_clips(20), SyntheticRater())
    one, again, other = (fit(preferences, 2, seed) for seed in (0, 0, 1))
    rows = made_clips(1).clips[0].rows
    assert np.array_equal(one.members(rows), again.members(rows))
    assert not np.array_equal(one.members(rows), other.members(rows))


def test_too_few_answers_are_refused(tmp_path):
    preferences = answered(tmp_path / "p", made_clips(12), SyntheticRater())
    for pair in range(5):
        preferences.answer(preferences.rounds[0], pair, "skip", "person")
    with pytest.raises(ConfigError, match=r"7 pairs answered, .* at least 10"):
        fit(Preferences(tmp_path / "p"), 2, 0)
