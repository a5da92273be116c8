"""Weights go from the process that learns to the one that acts, whole or not at all."""

import os
import threading

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import CrossQ
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlzoo_plus.learner.weights_board import Board, pack_weights, unpack_weights


def test_the_newest_weights_are_taken_once():
    board = Board(8)
    other = Board(8, board.descriptor)
    assert other.take(0) is None
    for number in range(5):
        board.publish(bytes([number] * 8), 10 * number)
        assert other.take(number) == (number + 1, 10 * number, bytes([number] * 8))
        assert other.take(number + 1) is None
    board.note(7, 9)
    other.written = 12
    assert (other.taken, other.updates, board.written) == (7, 9, 12)
    with pytest.raises(ValueError, match="not of the same size"):
        Board(9, board.descriptor)


def test_weights_that_are_overwritten_meanwhile_are_not_taken():
    board = Board(8)
    board.publish(bytes(8), 1)
    version = board.version
    board._halves[version % 2][3] = 1
    assert board.take(0) is None


def test_no_torn_weights_are_taken_while_they_are_written():
    board, size = Board(200_000), 200_000
    other, is_over, found = Board(size, os.dup(board.descriptor)), threading.Event(), []

    def write():
        for number in range(300):
            board.publish(bytes([number % 251]) * size, number)
        is_over.set()

    thread = threading.Thread(target=write)
    thread.start()
    known = 0
    while not is_over.is_set():
        taken = other.take(known)
        if taken is not None:
            known, step, weights = taken
            found.append(step)
            assert set(weights) == {step % 251}
    thread.join()
    assert found == sorted(found)


@pytest.mark.parametrize("kind", [SAC, TD3, CrossQ])
def test_an_agent_acts_as_the_one_whose_weights_it_got(kind):
    def made(seed):
        venv = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
        return kind(
            "MlpPolicy", venv, seed=seed, learning_starts=10, policy_kwargs={"net_arch": [8]}
        )

    learns, acts = made(0), made(1)
    learns.learn(30)
    seen = np.ones((1, 3), np.float32)

    def acting(agent):
        normalised = agent.get_vec_normalize_env().normalize_obs(seen)
        return agent.predict(normalised, deterministic=True)[0]

    assert (acting(acts) != acting(learns)).any()
    unpack_weights(acts, pack_weights(learns))
    np.testing.assert_array_equal(acting(acts), acting(learns))
