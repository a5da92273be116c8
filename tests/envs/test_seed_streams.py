"""Seeds: disjoint streams for training, evaluation and the final figures."""

import random

import numpy as np
import torch

from rlzoo_plus.envs.seeding import SeedStreams, evaluation_seeds, held_out_seeds, seed_all
from rlzoo_plus.runs.load import load


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
    for seed in (*range(300), 2**63):
        streams = SeedStreams.from_seed(seed)
        assert streams.train >= 0
        assert streams.train + 99_999 < streams.report()["train_range"][1]


def test_neighbouring_seeds_give_unlike_streams():
    trains = {SeedStreams.from_seed(seed).train for seed in range(200)}
    agents = {SeedStreams.from_seed(seed).agent for seed in range(200)}
    assert len(trains) == len(agents) == 200


def test_a_plain_seed_is_that_of_agent_and_environments():
    plain = ["algo=ppo", "env=cartpole_bullet", "algo.hyperparams.seed=plain"]
    assert SeedStreams.of(load([*plain, "seed=3"])) == SeedStreams(agent=3, train=3)
    assert SeedStreams.of(load([*plain[:2], "seed=3"])) == SeedStreams.from_seed(3)
    streams = SeedStreams.of(load([*plain, f"seed={2**31}"]))
    assert streams.train + 99_999 < streams.report()["train_range"][1]


def test_seeds_of_episodes_differ_and_fewer_are_the_first_of_more():
    assert len(set(evaluation_seeds(100))) == 100
    assert evaluation_seeds(100)[:7] == evaluation_seeds(7)
    assert not set(held_out_seeds(100, 0)) & set(held_out_seeds(100, 1))


def test_seed_all_reports_and_repeats():
    streams = SeedStreams.from_seed(3)
    report = seed_all(3)
    first = random.random(), np.random.rand(), torch.rand(1).item()
    seed_all(3)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
    assert report == dict.fromkeys(("python", "numpy", "torch"), streams.agent)
