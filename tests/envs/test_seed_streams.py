"""Seeds: disjoint streams for training, evaluation and the final figures."""

import random

import numpy as np
import torch

from rlzoo_plus.envs.seeding import SeedStreams, evaluation_seeds, held_out_seeds, seed_all


def test_training_evaluation_and_test_seeds_come_from_ranges_that_do_not_meet():
    report = SeedStreams.from_seed(0).report()
    train, evaluation, test = (
        range(*report[f"{name}_range"]) for name in ("train", "evaluation", "test")
    )
    assert train.stop <= evaluation.start
    assert evaluation.stop <= test.start
    assert all(seed in evaluation for seed in evaluation_seeds(500))
    assert all(seed in test for k in range(5) for seed in held_out_seeds(100, k))


def test_every_training_environment_stays_in_the_training_range():
    for seed in range(300):
        streams = SeedStreams.from_seed(seed)
        assert streams.train >= 0
        assert streams.train + 99_999 < streams.report()["train_range"][1]


def test_the_same_seed_gives_the_same_streams():
    assert SeedStreams.from_seed(7) == SeedStreams.from_seed(7)
    assert SeedStreams.from_seed(0).train == SeedStreams.from_seed(0).train


def test_neighbouring_seeds_give_unlike_streams():
    trains = {SeedStreams.from_seed(seed).train for seed in range(200)}
    agents = {SeedStreams.from_seed(seed).agent for seed in range(200)}
    assert len(trains) == len(agents) == 200


def test_a_very_large_seed_is_accepted():
    assert SeedStreams.from_seed(2**63).agent < 2**31


def test_evaluation_seeds_are_the_same_for_every_run_and_all_different():
    assert evaluation_seeds(100) == evaluation_seeds(100)
    assert len(set(evaluation_seeds(100))) == 100


def test_fewer_episodes_are_the_first_of_more():
    assert evaluation_seeds(100)[:7] == evaluation_seeds(7)


def test_held_out_seeds_differ_by_their_number():
    assert not set(held_out_seeds(100, 0)) & set(held_out_seeds(100, 1))


def test_seed_all_reports_and_repeats():
    streams = SeedStreams.from_seed(3)
    report = seed_all(3)
    first = random.random(), np.random.rand(), torch.rand(1).item()
    seed_all(3)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
    assert report == dict.fromkeys(("python", "numpy", "torch"), streams.agent)
