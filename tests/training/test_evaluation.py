"""Playing whole episodes: the figures depend on policy and seeds alone."""

import random

import numpy as np
import pytest
import torch
from support import tiny_envs
from support.training import tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.envs.seeding import evaluation_seeds
from rlzoo_plus.training.evaluation import Evaluation, evaluate

SEEDS = evaluation_seeds(7)


def policy_of(config):
    return Policy.of_agent(make_agent(config, make_train_env(config, 1), 1))


def play(algo="ppo", env="tests/TinyReach-v0", overrides=(), n_envs=1, **options):
    config = tiny_config(algo, env, *overrides)
    venv = make_eval_env(config.env, n_envs)
    return evaluate(policy_of(config), venv, options.pop("seeds", SEEDS), **options)


@pytest.mark.parametrize("n_envs", [2, 5, 7, 9])
def test_figures_do_not_depend_on_the_number_of_environments(n_envs):
    alone, together = play(n_envs=1), play(n_envs=n_envs)
    # Networks may round differently for batches of other sizes.
    np.testing.assert_allclose(together.returns, alone.returns, rtol=1e-4)
    assert together.episode_lengths == alone.episode_lengths
    assert together.successes == alone.successes


def test_the_same_environments_give_the_same_figures_again():
    config = tiny_config()
    policy, venv = policy_of(config), make_eval_env(config.env, 3)
    assert evaluate(policy, venv, SEEDS) == evaluate(policy, venv, SEEDS)


def test_episodes_are_in_the_order_of_their_seeds():
    whole = play(n_envs=3)
    for k, seed in enumerate(SEEDS):
        assert play(seeds=[seed]).returns[0] == pytest.approx(whole.returns[k], rel=1e-4)


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_global_generators_stay_as_they_were(deterministic):
    config = tiny_config()
    policy, venv = policy_of(config), make_eval_env(config.env, 2)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    evaluate(policy, venv, SEEDS, deterministic=deterministic)
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1][1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_stochastic_play_differs_from_deterministic_play():
    assert play(deterministic=False).returns != play().returns


def test_success_is_reported_when_the_environment_reports_it():
    result = play()
    assert None not in result.successes
    assert result.record(0)["success_rate"] == pytest.approx(np.mean(result.successes))


def test_no_success_rate_when_the_environment_reports_none():
    result = play("sac", "Pendulum-v1", seeds=SEEDS[:1])
    assert result.record(0)["success_rate"] is None
    assert result.episode_lengths == [200]


def test_masks_are_obeyed():
    # The environment raises if a masked action is taken.
    for deterministic in (True, False):
        result = play("maskable_ppo", "tests/TinyMasked-v0", n_envs=3, deterministic=deterministic)
        assert result.episode_lengths == [tiny_envs.LENGTH] * 7


def test_a_recurrent_policy_begins_each_episode_afresh():
    whole = play("recurrent_ppo", "tests/TinyMemory-v0")
    for k, seed in enumerate(SEEDS):
        alone = play("recurrent_ppo", "tests/TinyMemory-v0", seeds=[seed])
        assert alone.returns[0] == pytest.approx(whole.returns[k], rel=1e-5)


def test_returns_are_raw_sums_of_rewards_also_when_training_normalises():
    raw = play("ppo", overrides=("env.kwargs.scale=1",), seeds=SEEDS[:2])
    scaled = play("ppo", overrides=("env.kwargs.scale=100", "normalize=true"), seeds=SEEDS[:2])
    assert abs(scaled.returns[0]) > 20 * abs(raw.returns[0])


def test_the_record_holds_what_is_promised():
    record = Evaluation([1.0, 2.0, 3.0, 6.0], [5, 5, 6, 6], [True, False, None, True]).record(10)
    assert record["step"] == 10
    assert record["mean_return"] == 3.0
    assert record["iqm_return"] == 2.5
    assert record["success_rate"] == pytest.approx(2 / 3)
    assert set(record) >= {"returns", "std_return", "episode_lengths"}
