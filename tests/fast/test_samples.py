"""Batches that are drawn with fewer copies are those of the replay buffer."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from support.training import assert_same_tree

from rlzoo_plus.fast.recorded import samples
from rlzoo_plus.fast.recorded.samples import Samples

SHAPE = (3,)


def filled(kind=ReplayBuffer, *, n_envs=1, steps=60, dtype=np.float32, **options):
    """Return a buffer of 50 transitions for each environment, with what `steps` steps gave."""
    seen = gym.spaces.Box(-9, 9, SHAPE, dtype)
    acts = gym.spaces.Box(-1, 1, (2,), np.float32)
    buffer = kind(50 * n_envs, seen, acts, device="cpu", n_envs=n_envs, **options)
    draw = np.random.default_rng(0)
    for _ in range(steps):
        observations, following = (draw.normal(size=(n_envs, *SHAPE)) for _ in range(2))
        ends, cut = draw.random(n_envs) < 0.3, draw.random(n_envs) < 0.5
        infos = [{"TimeLimit.truncated": bool(value)} for value in cut]
        actions = draw.normal(size=(n_envs, 2))
        buffer.add(observations, following, actions, draw.normal(size=n_envs), ends, infos)
    return buffer


def drawn(buffer, normalizer=None, *, lean):
    """Return forty batches, most of them not compared with the buffer's own, and the generator."""
    np.random.seed(3)
    source, batches = Samples(), []
    for _ in range(40):
        if lean:
            batches.append(source.draw(buffer, 7, normalizer))
        else:
            data = buffer.sample(7, env=normalizer)._asdict()
            batches.append({name: t for name, t in data.items() if t is not None})
    arrays = [{name: tensor.numpy() for name, tensor in batch.items()} for batch in batches]
    return arrays, np.random.get_state()[1]


@pytest.mark.parametrize(
    "buffer",
    [
        {},
        {"n_envs": 3},
        {"steps": 20},
        {"dtype": np.float64, "n_envs": 2},
        {"optimize_memory_usage": True, "handle_timeout_termination": False},
        {"kind": NStepReplayBuffer, "n_steps": 3, "gamma": 0.9},
    ],
    ids=str,
)
def test_batches_are_those_of_the_buffer(buffer):
    memory = filled(**buffer)
    assert_same_tree(drawn(memory, lean=True), drawn(memory, lean=False))


def test_observations_and_rewards_are_normalized():
    venv = VecNormalize(make_vec_env("Pendulum-v1", 2))
    venv.obs_rms.mean, venv.obs_rms.var = np.array([0.1, 0.2, 0.3]), np.array([4.0, 5.0, 6.0])
    venv.ret_rms.var = np.float64(7.0)
    memory = filled(n_envs=2)
    assert_same_tree(drawn(memory, venv, lean=True), drawn(memory, venv, lean=False))
    assert not np.array_equal(
        drawn(memory, venv, lean=True)[0][0]["observations"],
        drawn(memory, lean=True)[0][0]["observations"],
    )
    venv.close()


def test_a_wrong_batch_is_noticed_and_not_used(monkeypatch, caplog):
    lean = samples._lean_batch

    def wrong(*given):
        batch = lean(*given)
        return batch | {"rewards": batch["rewards"] * 2}

    monkeypatch.setattr(samples, "_lean_batch", wrong)
    memory = filled()
    assert_same_tree(drawn(memory, lean=True), drawn(memory, lean=False))
    assert caplog.text.count("one differs from SB3") == 1
