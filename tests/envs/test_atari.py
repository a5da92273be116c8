"""Atari: whole games with their own scores are recorded and evaluated, lives only train."""

import csv

import numpy as np
import pytest
from support.training import make_config, train_run

pytest.importorskip("ale_py", reason="Atari games need rlzoo-plus[atari]")
pytest.importorskip("cv2", reason="Atari games need rlzoo-plus[atari]")

from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.fit import inspect_env
from rlzoo_plus.envs.single import longest_episode
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.callbacks.background_evaluator import make_evaluation_env

ONE = ("n_envs=1", "algo.hyperparams.batch_size=128")


def breakout(*overrides):
    return make_config("algo=ppo", "env=atari", "env.id=ALE/Breakout-v5", *overrides)


def play(venv, n_ends, most=6000):
    """Step with random actions; return the reward and the info of each end, with lives left."""
    venv.seed(0)
    venv.reset()
    venv.action_space.seed(0)
    ends, rewards = [], []
    for _ in range(most):
        _, reward, done, (info,) = venv.step(np.array([venv.action_space.sample()]))
        rewards.append(float(reward[0]))
        if done[0]:
            ends.append((rewards, info))
            rewards = []
            if len(ends) == n_ends:
                break
    return ends


def test_evaluation_plays_whole_games_with_their_own_scores():
    venv = make_evaluation_env(breakout("eval.n_envs=1", "eval.episodes=2"))
    assert venv.observation_space.shape == (4, 84, 84)
    ends = play(venv, 3)
    assert len(ends) == 3
    for rewards, info in ends:
        assert info["lives"] == 0
        assert info["episode"]["r"] == sum(rewards)
        assert info["episode"]["l"] == len(rewards)


def test_training_ends_at_each_life_and_records_the_game(tmp_path):
    config = breakout(*ONE)
    venv = make_train_env(config, 0, tmp_path)
    ends = play(venv, 10)
    venv.close()
    assert [info["lives"] for _, info in ends] == [4, 3, 2, 1, 0] * 2
    assert ["episode" in info for _, info in ends] == [False] * 4 + [True] + [False] * 4 + [True]
    assert {reward for rewards, _ in ends for reward in rewards} <= {0.0, 1.0}
    games = list(csv.DictReader((tmp_path / "0.monitor.csv").read_text().splitlines()[1:]))
    assert [int(game["l"]) for game in games] == [
        sum(len(rewards) for rewards, _ in ends[k : k + 5]) for k in (0, 5)
    ]


def test_rewards_are_clipped_in_training_only():
    """Space Invaders gives 5 to 30 a hit."""
    config = make_config("algo=ppo", "env=atari", "env.id=ALE/SpaceInvaders-v5", *ONE)
    for make, wanted in ((make_evaluation_env, False), (lambda c: make_train_env(c, 0), True)):
        evaluation = breakout("eval.n_envs=1", "eval.episodes=5").eval
        venv = make(config.model_copy(update={"eval": evaluation}))
        played = play(venv, 1, 1500)
        assert played
        largest = max(max(rewards) for rewards, _ in played)
        assert (largest == 1.0) if wanted else (largest >= 5.0)


def test_a_game_repeated_twice_is_refused():
    with pytest.raises(
        ConfigError, match=r"4 times already.*16 times. Set env\.kwargs\.frameskip=1"
    ):
        inspect_env(breakout("env.kwargs.frameskip=4"))


@pytest.mark.slow
def test_a_breakout_run_resumes_exactly_in_the_middle_of_a_game(tmp_path):
    from support.resuming import train_in_pieces

    from rlzoo_plus.doctor.digests import run_digests

    config = breakout(
        "n_envs=1", "n_timesteps=192", "algo.hyperparams.n_steps=32", "eval.every_steps=null",
        "algo.hyperparams.batch_size=32", "algo.hyperparams.n_epochs=1", "log.tensorboard=false",
        "device=cpu", "num_threads=1", "checkpoint.every_steps=32",
    )  # fmt: skip
    whole, _ = train_run(tmp_path / "whole", config)
    pieces, result, stops = train_in_pieces(tmp_path / "pieces", config, 3)
    assert stops >= 1
    assert result.exact, result.inexact_because
    assert run_digests(pieces) == run_digests(whole)


def test_the_limit_of_the_emulator_is_known():
    config = breakout()
    assert longest_episode(config) == 27_000
    assert config.env.name == "ale-breakout-v5"
