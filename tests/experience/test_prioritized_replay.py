"""Prioritized replay: what is drawn, how the loss is weighted, and what a checkpoint holds."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib.common.utils import quantile_huber_loss
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from torch.nn import functional

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience.prioritized_replay import LapReplayBuffer, PrioritizedReplayBuffer
from rlzoo_plus.experience.prioritized_updates import _Losses
from rlzoo_plus.experience.sum_tree import SumTree
from rlzoo_plus.runs.load import load
from rlzoo_plus.training.resume.replay_rows import buffer_state, restore_buffer_state, row_groups

BOX = spaces.Box(-1, 1, (2,), np.float32)
# The 99.9% quantile of chi-square with 15 degrees of freedom.
CHI_SQUARE_15 = 37.7


def filled(kind, n_added, n_envs=2, rows=8, **kwargs):
    """Return a buffer with rows whose reward tells row and environment; episodes of five steps."""
    buffer = kind(rows * n_envs, BOX, BOX, device="cpu", n_envs=n_envs, **kwargs)
    for step in range(n_added):
        reward = np.arange(n_envs) + 10.0 * step
        done = np.full(n_envs, step % 5 == 4)
        cut = [{"TimeLimit.truncated": step % 10 == 9} for _ in range(n_envs)]
        seen = np.full((n_envs, 2), step, np.float32)
        buffer.add(seen, seen + 1, np.zeros((n_envs, 2)), reward, done, cut)
    return buffer


def with_errors(buffer, errors):
    """Give all transitions of a full buffer their errors, by one batch of each."""
    count = len(errors)
    buffer.sample(count)
    buffer._drawn = np.arange(count)
    buffer.note_errors(torch.as_tensor(errors).reshape(-1, 1))
    assert buffer.update_priorities()


@pytest.mark.parametrize("count", [1, 2, 5, 16, 1000])
def test_the_tree_finds_what_a_plain_loop_finds(count):
    generator = np.random.default_rng(count)
    weights = generator.random(count) * (generator.random(count) < 0.7)
    weights[-1] = 0.5
    tree = SumTree(weights)
    for _ in range(3):
        points = generator.random(200) * tree.total
        expected = [next(k for k in range(count) if weights[: k + 1].sum() > p) for p in points]
        assert tree.find(points).tolist() == expected
        assert tree.total == pytest.approx(weights.sum())
        changed = generator.integers(0, count, 7)
        weights[changed] = generator.random(7)[: len(changed)]
        tree.touch(changed)


def test_a_tree_that_was_changed_has_the_bits_of_a_new_one():
    generator = np.random.default_rng(0)
    weights = generator.random(37)
    tree = SumTree(weights)
    for _ in range(50):
        changed = generator.integers(0, 37, 4)
        weights[changed] = generator.random(4)
        tree.touch(changed)
        tree.find(np.zeros(1))
    again = SumTree(weights.copy())
    assert tree.total == again.total
    assert np.array_equal(tree._nodes, again._nodes)


def test_a_point_at_the_very_end_finds_no_empty_place():
    weights = np.array([0.1, 0.2, 0.3, 0.0, 0.0])
    tree = SumTree(weights)
    assert tree.find(np.array([tree.total, tree.total * 2])).tolist() == [2, 2]


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, LapReplayBuffer])
def test_transitions_are_drawn_in_proportion_to_their_priorities(kind):
    np.random.seed(1)
    buffer = filled(kind, 8)
    errors = np.linspace(0.1, 6.0, 16)
    with_errors(buffer, errors)
    power = (errors + 1e-6) ** 0.6 if kind is PrioritizedReplayBuffer else errors.clip(1) ** 0.4
    counts = np.zeros(16)
    for _ in range(400):
        # Single draws are independent: there is one part.
        buffer.sample(1)
        counts[buffer._drawn] += 1
    expected = 400 * power / power.sum()
    assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE_15
    # The same test refuses draws that are uniform.
    uniform = np.full(16, 400 / 16)
    assert ((counts - uniform) ** 2 / uniform).sum() > CHI_SQUARE_15


def test_new_transitions_have_the_largest_priority_and_empty_places_none():
    buffer = filled(PrioritizedReplayBuffer, 4)
    assert (buffer.priorities[:4] == 1).all()
    assert (buffer.priorities[4:] == 0).all()
    buffer.sample(8)
    buffer.note_errors(torch.full((8, 1), 32.0))
    buffer.update_priorities()
    extra = np.zeros((2, 2), np.float32)
    buffer.add(extra, extra, extra, np.zeros(2), np.zeros(2), [{}, {}])
    assert buffer.priorities[4] == pytest.approx(32.0**0.6)


def test_of_several_critics_the_largest_error_counts():
    buffer = filled(LapReplayBuffer, 8)
    buffer.sample(3)
    drawn = buffer._drawn
    for errors in ([1.0, -9.0, 2.0], [-4.0, 3.0, 2.0]):
        buffer.note_errors(torch.tensor(errors).reshape(-1, 1))
    buffer.update_priorities()
    found = buffer.priorities.reshape(-1)[drawn]
    assert found == pytest.approx(np.array([4.0, 9.0, 2.0]) ** 0.4)


@pytest.mark.parametrize(("progress", "beta"), [(0.0, 0.4), (0.5, 0.7), (1.0, 1.0)])
def test_importance_weights_follow_the_schedule_of_beta(progress, beta):
    buffer = filled(PrioritizedReplayBuffer, 8)
    with_errors(buffer, np.linspace(0.5, 8.0, 16))
    buffer.progress = progress
    buffer.sample(6)
    shares = buffer.priorities.reshape(-1)[buffer._drawn] / buffer.priorities.sum()
    expected = shares**-beta
    assert buffer.weights.numpy()[:, 0] == pytest.approx(expected / expected.max(), rel=1e-5)


@pytest.mark.parametrize("n_added", [3, 8, 13])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_returns_are_those_of_stable_baselines3(n_added, n_steps):
    ours = filled(PrioritizedReplayBuffer, n_added, 1, n_steps=n_steps, gamma=0.9)
    of_sb3 = {"n_steps": n_steps, "gamma": 0.9} if n_steps > 1 else {}
    kind = NStepReplayBuffer if n_steps > 1 else ReplayBuffer
    theirs = filled(kind, n_added, 1, **of_sb3)
    rows = np.arange(ours.size())
    found, expected = ours.transitions(rows, 0 * rows), theirs._get_samples(rows)
    for name, part in found._asdict().items():
        other = getattr(expected, name)
        assert (part is None) == (other is None), name
        if part is not None:
            assert part.shape == other.shape, name
            assert torch.allclose(part, other), name


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, LapReplayBuffer])
def test_a_restored_buffer_draws_the_same(kind):
    buffer = filled(kind, 11)
    with_errors(buffer, np.linspace(0.1, 5.0, 16))
    again = filled(kind, 0)
    for name, group in row_groups(buffer).items():
        for column, values in row_groups(again)[name].columns.items():
            values[:] = group.columns[column]
    restore_buffer_state(again, buffer_state(buffer))
    drawn = []
    for one in (buffer, again):
        np.random.seed(3)
        for _ in range(4):
            one.sample(5)
            one.note_errors(torch.arange(5.0).reshape(-1, 1))
        drawn.append((one._drawn.tolist(), one.max_priority, one.sample(3).rewards.tolist()))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, 0.0])
def test_forged_priorities_are_refused(value):
    buffer, again = filled(PrioritizedReplayBuffer, 5), filled(PrioritizedReplayBuffer, 5)
    again.priorities[2, 1] = value
    with pytest.raises(ValueError, match="priorities"):
        restore_buffer_state(again, buffer_state(buffer))
    again.priorities[2, 1] = 1.0
    restore_buffer_state(again, buffer_state(buffer))
    again.priorities[7] = 1.0
    with pytest.raises(ValueError, match="priorities"):
        restore_buffer_state(again, buffer_state(buffer))


def test_a_resume_may_change_alpha_and_beta():
    state = buffer_state(filled(PrioritizedReplayBuffer, 5))
    again = filled(PrioritizedReplayBuffer, 5, alpha=0.2, beta=0.9)
    restore_buffer_state(again, state)
    assert (again.settings.alpha, again.settings.beta) == (0.2, 0.9)


def test_priorities_are_stored_apart_from_rows_that_stay():
    groups = row_groups(filled(PrioritizedReplayBuffer, 4))
    places = {column: name for name, group in groups.items() for column in group.columns}
    assert not groups[places["priorities"]].append_only
    assert groups[places["rewards"]].append_only


def test_the_loss_is_weighted_and_lap_has_a_huber_loss():
    current = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    target = torch.zeros(4, 1)
    buffer = filled(PrioritizedReplayBuffer, 8)
    buffer.sample(4)
    buffer.weights = torch.tensor([[1.0], [0.5], [0.25], [0.0]])
    losses = _Losses(buffer)
    assert losses.mse_loss(current, target).item() == pytest.approx((0.5 + 1.0) / 4)
    lap = _Losses(filled(LapReplayBuffer, 8))
    huber = functional.smooth_l1_loss(current, target)
    assert lap.mse_loss(current, target) == huber
    assert losses.relu is functional.relu


@pytest.mark.parametrize("shapes", [((4, 5), (4, 5)), ((4, 2, 5), (4, 1, 7))])
def test_without_weights_the_quantile_loss_is_that_of_the_library(shapes):
    torch.manual_seed(0)
    current, target = (3 * torch.randn(shape) for shape in shapes)
    ours = _Losses(filled(LapReplayBuffer, 8))
    for sums in (True, False):
        found = ours.quantile_huber_loss(current, target, sum_over_quantiles=sums)
        expected = quantile_huber_loss(current, target, sum_over_quantiles=sums)
        assert torch.allclose(found, expected)


CASES = [
    ("dqn", "prioritized", "env.kwargs.discrete=true"),
    ("qrdqn", "prioritized", "env.kwargs.discrete=true"),
    *((name, "lap", "n_envs=2") for name in ("sac", "td3", "tqc", "crossq")),
]


@pytest.mark.parametrize(("algo", "buffer", "more"), CASES)
def test_every_algorithm_updates_priorities(algo, buffer, more, tmp_path):
    config = load(
        [
            *(f"algo={algo}", "env=cartpole_bullet", "tuned=none", more, "num_threads=1"),
            *(f"algo.replay_buffer={buffer}", "algo.hyperparams.n_steps=3"),
            *("algo.hyperparams.buffer_size=200", "algo.hyperparams.learning_starts=20"),
            *("network.net_arch=[16]", "algo.hyperparams.batch_size=8"),
        ]
    )
    venv = make_train_env(config, 0, None)
    agent = make_agent(config, venv, 0)
    agent.learn(60)
    venv.close()
    known = agent.replay_buffer.priorities[: agent.replay_buffer.pos]
    assert agent.replay_buffer.settings.n_steps == 3
    assert (known > 0).all()
    # LAP leaves small errors at 1.
    assert len(np.unique(known)) > 1 or buffer == "lap"
    assert agent.replay_buffer.weights is None


def updated_weights(buffer):
    """Return the weights of a small agent after an update with its first 32 transitions."""
    config = load(
        [
            *("algo=dqn", "env=cartpole_bullet", "tuned=none", "env.kwargs.discrete=true"),
            *(f"algo.replay_buffer={buffer}", "network.net_arch=[8]", "record_updates=false"),
            *("algo.hyperparams.learning_starts=1000", "num_threads=1"),
        ]
    )
    venv = make_train_env(config, 0, None)
    agent = make_agent(config, venv, 0)
    agent.learn(40)
    venv.close()
    replay, rows = agent.replay_buffer, np.arange(32)
    if buffer == "prioritized":
        replay._tree.find = lambda points: rows
    else:
        replay.sample = lambda *_, env: replay._get_samples(rows, env)
    agent.train(1, 32)
    return agent.policy.state_dict()


def test_with_equal_priorities_an_update_is_that_of_the_library():
    ours, of_sb3 = updated_weights("prioritized"), updated_weights("default")
    for name, value in ours.items():
        assert torch.allclose(value, of_sb3[name], atol=1e-6), name


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["algo=ppo", "algo.replay_buffer=lap"], "ppo keeps no replay buffer"),
        (["algo=sac", "algo.replay_buffer=priority"], "prioritized"),
        (
            ["algo=sac", "algo.replay_buffer=lap", "algo.hyperparams.optimize_memory_usage=true"],
            "the buffer of algo.replay_buffer=lap cannot do that",
        ),
        (["algo=sac", "algo.replay_buffer=lap", "data=some"], "demonstrations have no priorities"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(overrides, said):
    with pytest.raises(ConfigError, match=said):
        load(["env=cartpole_bullet", *overrides])


@pytest.mark.parametrize(
    ("kind", "kwargs", "said"),
    [
        (PrioritizedReplayBuffer, {"alpha": 1.5}, "alpha=1.5: needs a number from 0 to 1"),
        (PrioritizedReplayBuffer, {"beta": "big"}, "beta=big"),
        (LapReplayBuffer, {"beta": 0.5}, "has no importance weights"),
    ],
)
def test_a_wrong_argument_of_a_buffer_is_named(kind, kwargs, said):
    with pytest.raises(ConfigError, match=said):
        filled(kind, 0, **kwargs)


def test_dict_observations_are_refused():
    space = spaces.Dict({"a": BOX})
    with pytest.raises(ConfigError, match="Dict observations"):
        PrioritizedReplayBuffer(10, space, BOX)
