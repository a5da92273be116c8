"""Replay buffers of sequences: each against a walk through the stored steps, one by one."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlzoo_plus.algorithms.sequences import (
    DictSequenceReplayBuffer,
    SequenceReplayBuffer,
    over_steps,
)

BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
ARM = gym.spaces.Box(-1, 1, (1,), np.float32)


def filled(steps, size=40, kind=SequenceReplayBuffer, space=BOX, **kwargs):
    """Return a buffer of two environments, and every transition by environment, oldest first.

    Observations are (number of the step, environment); episodes end at random.
    """
    random = np.random.default_rng(5)
    buffer = kind(2 * size, space, ARM, device="cpu", n_envs=2, **kwargs)
    stored = ([], [])
    for step in range(steps):
        ends, limits = random.random(2) < 0.15, random.random(2) < 0.5
        seen = np.array([[step, 0], [step, 1]], np.float32)
        action, reward = random.uniform(-1, 1, (2, 1)), random.normal(size=2)
        before, after = seen, seen + 0.5
        if isinstance(space, gym.spaces.Dict):
            before, after = {"a": before, "b": 2 * before}, {"a": after, "b": 2 * after}
        infos = [{"TimeLimit.truncated": bool(limit)} for limit in limits]
        buffer.add(before, after, action, reward, ends, infos)
        for env in range(2):
            is_end = float(ends[env] and not limits[env])
            stored[env].append((seen[env], action[env], reward[env], ends[env], is_end))
    return buffer, [transitions[-size:] for transitions in stored]


def expected(transitions, first, length, burn_in):
    """Return the places of the steps of a sequence, and how many of them fill the memory."""
    start = first
    while start > 0 and first - start < burn_in and not transitions[start - 1][3]:
        start -= 1
    end = first
    while end + 1 < len(transitions) and end + 1 - first < length and not transitions[end][3]:
        end += 1
    return list(range(start, end + 1)), first - start


@pytest.mark.parametrize(("length", "burn_in"), [(1, 0), (5, 0), (1, 4), (4, 3), (60, 60)])
@pytest.mark.parametrize("steps", [1, 25, 40, 97])
def test_sequences_are_those_of_a_walk_through_the_steps(steps, length, burn_in):
    buffer, stored = filled(steps, sequence_length=length, burn_in=burn_in)
    size = min(steps, 40)
    firsts, envs = np.repeat(np.arange(size), 2), np.tile([0, 1], size)
    batch = buffer.sequences(firsts, envs)
    for column, (first, env) in enumerate(zip(firsts, envs, strict=True)):
        places, n_before = expected(stored[env], first, length, burn_in)
        n = len(places)
        learned = [n_before <= time < n for time in range(len(batch.learned))]
        assert batch.learned[:, column].tolist() == learned
        for time, place in enumerate(places):
            seen, action, reward, _, is_end = stored[env][place]
            assert batch.observations[time, column].tolist() == seen.tolist()
            assert batch.actions[time, column].numpy() == np.float32(action)
            assert batch.rewards[time, column].item() == np.float32(reward)
            assert batch.dones[time, column].item() == is_end
        # What was seen after the last step, and nothing of the next episode.
        after = stored[env][places[-1]][0] + 0.5
        assert (batch.observations[n:, column].numpy() == after).all()
    assert len(batch.observations) == len(batch.learned) + 1
    assert batch.learned.any(dim=0).all()


def test_dictionaries_have_the_same_sequences():
    space = gym.spaces.Dict({"a": BOX, "b": BOX})
    sizes = {"sequence_length": 4, "burn_in": 2}
    one, _ = filled(97, **sizes)
    parts, _ = filled(97, kind=DictSequenceReplayBuffer, space=space, **sizes)
    places = np.arange(40), np.arange(40) % 2
    plain, batch = one.sequences(*places), parts.sequences(*places)
    assert torch.equal(batch.observations["a"], plain.observations)
    assert torch.equal(batch.observations["b"], 2 * plain.observations)
    assert torch.equal(batch.rewards, plain.rewards)
    assert torch.equal(batch.learned, plain.learned)


def test_observations_and_rewards_are_normalised():
    buffer, _ = filled(25, sequence_length=3, burn_in=1)
    normalize = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")] * 2))
    normalize.observation_space = BOX
    normalize.obs_rms.mean, normalize.obs_rms.var = np.array([10.0, 0.0]), np.array([4.0, 1.0])
    normalize.ret_rms.var = np.array(25.0)
    places = np.arange(20), np.zeros(20, int)
    plain, batch = buffer.sequences(*places), buffer.sequences(*places, normalize)
    mean, std = torch.tensor([10.0, 0.0]), torch.tensor([2.0, 1.0])
    wanted = ((plain.observations - mean) / std).clamp(-10, 10)
    assert torch.allclose(batch.observations, wanted, atol=1e-5)
    assert torch.allclose(batch.rewards, plain.rewards / 5, atol=1e-5)


def test_every_stored_step_is_drawn_and_no_other():
    buffer, _ = filled(97, sequence_length=1, burn_in=0)
    np.random.seed(0)
    seen = buffer.sample(4000).observations[0]
    assert {tuple(row) for row in seen.tolist()} == {(s, e) for s in range(57, 97) for e in (0, 1)}


def test_a_function_of_a_batch_is_called_with_all_steps_at_once():
    values = torch.arange(24.0).reshape(3, 4, 2)
    calls = []

    def function(part):
        calls.append(part)
        return part["x"].sum(dim=1, keepdim=True)

    assert torch.equal(over_steps(function, {"x": values}), values.sum(dim=2, keepdim=True))
    assert [part["x"].shape for part in calls] == [(12, 2)]
