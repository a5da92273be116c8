"""A replay buffer as rows: which arrays are saved, and which rows changed since a moment."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from support.tiny_envs import TinyGoal
from support.training import assert_same_tree

from rlzoo_plus.artifacts.chunks import ChunkStore
from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.training.resume.replay_rows import (
    EPISODES,
    ROWS,
    buffer_state,
    changed_rows,
    restore_buffer_state,
    row_groups,
    unsaved_parts,
)

FLAT = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (1, 4, 4), np.uint8)
MIXED = spaces.Dict(zeta=FLAT, kind=spaces.Discrete(3), picture=IMAGE)
ARM = spaces.Box(-1, 1, (2,), np.float32)
CHOICE = spaces.Discrete(4)
THRIFTY = {"optimize_memory_usage": True, "handle_timeout_termination": False}
CASES = {
    "flat": (ReplayBuffer, FLAT, ARM, {}),
    "discrete": (ReplayBuffer, FLAT, CHOICE, {}),
    "pictures": (ReplayBuffer, IMAGE, CHOICE, {}),
    "choices seen": (ReplayBuffer, CHOICE, CHOICE, {}),
    "thrifty": (ReplayBuffer, FLAT, ARM, THRIFTY),
    "dictionary": (DictReplayBuffer, MIXED, ARM, {}),
    "n steps": (NStepReplayBuffer, FLAT, ARM, {"n_steps": 3}),
    "hindsight": (HerReplayBuffer, TinyGoal().observation_space, ARM, {"env": None}),
}
EVERY = pytest.mark.parametrize("case", list(CASES))


def make(case, size=16, n_envs=2):
    kind, observations, actions, options = CASES[case]
    return kind(size * n_envs, observations, actions, device="cpu", n_envs=n_envs, **options)


def add(buffer, rng, n_steps):
    """Store random steps, some of which end an episode."""
    spaces_ = (buffer.observation_space, buffer.action_space)
    for space in spaces_:
        space.seed(int(rng.integers(2**31)))
    for _ in range(n_steps):
        now, later = (_batch(spaces_[0], buffer.n_envs) for _ in range(2))
        actions = _batch(spaces_[1], buffer.n_envs)
        dones = rng.random(buffer.n_envs) < 0.2
        infos = [{"TimeLimit.truncated": bool(rng.random() < 0.5)} for _ in dones]
        buffer.add(now, later, actions, rng.normal(size=buffer.n_envs), dones, infos)


def _batch(space, n_envs):
    samples = [space.sample() for _ in range(n_envs)]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([sample[key] for sample in samples]) for key in space.spaces}
    return np.stack(samples)


def columns_of(buffer):
    return {n: array for group in row_groups(buffer).values() for n, array in group.columns.items()}


# Which arrays are saved


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("flat", "observations next_observations actions rewards dones timeouts"),
        ("thrifty", "observations actions rewards dones timeouts"),
        ("n steps", "observations next_observations actions rewards dones timeouts"),
        (
            "dictionary",
            "observations/zeta observations/kind observations/picture next_observations/zeta "
            "next_observations/kind next_observations/picture actions rewards dones timeouts",
        ),
    ],
)
def test_every_array_of_steps_is_a_column(case, expected):
    groups = row_groups(make(case))
    assert set(groups) == {ROWS}
    assert set(groups[ROWS].columns) == set(expected.split())
    assert groups[ROWS].append_only


def test_what_hindsight_replay_rewrites_is_a_group_of_its_own():
    groups = row_groups(make("hindsight"))
    assert set(groups[EPISODES].columns) == {"ep_start", "ep_length"}
    assert not groups[EPISODES].append_only
    assert not set(groups[ROWS].columns) & {"ep_start", "ep_length", "infos"}


@EVERY
@pytest.mark.parametrize("n_steps", [0, 1, 7, 15, 16, 17, 40])
def test_rows_beyond_those_in_use_hold_nothing(case, n_steps):
    buffer = make(case)
    add(buffer, np.random.default_rng(0), n_steps)
    for group in row_groups(buffer).values():
        assert all(not array[group.used :].any() for array in group.columns.values())
        assert group.used <= min(n_steps + 1, 16)


@EVERY
@pytest.mark.parametrize("n_steps", [0, 5, 16, 37])
def test_a_fresh_buffer_is_the_same_after_rows_and_state_came_back(case, n_steps, tmp_path):
    buffer, fresh = make(case), make(case)
    add(buffer, np.random.default_rng(0), n_steps)
    store = ChunkStore(tmp_path, rows_per_chunk=4)
    for name, group in row_groups(buffer).items():
        index = store.write(store.snapshot(group.columns, group.used, None, None))
        store.read(index, row_groups(fresh)[name].columns)
    restore_buffer_state(fresh, unpack(pack(buffer_state(buffer))))
    _assert_same_buffer(fresh, buffer)
    add(buffer, np.random.default_rng(1), 20)
    add(fresh, np.random.default_rng(1), 20)
    _assert_same_buffer(fresh, buffer)


def _assert_same_buffer(left, right):
    assert_same_tree(columns_of(left), columns_of(right))
    plain = {"pos", "full", "_current_ep_start"} & set(vars(right))
    assert_same_tree({k: getattr(left, k) for k in plain}, {k: getattr(right, k) for k in plain})


def test_the_state_holds_no_rows():
    state = buffer_state(make("hindsight"))
    assert state["pos"] == 0
    assert state["full"] is False
    assert state["_current_ep_start"].shape == (2,)
    assert not {"ep_start", "rewards", "observations", "infos"} & set(state)


def test_kept_info_dictionaries_are_told_as_missing():
    buffer = make("hindsight")
    assert unsaved_parts(buffer) == []
    buffer.copy_info_dict = True
    assert "copy_info_dict" in unsaved_parts(buffer)[0]


# Which rows changed


@EVERY
@pytest.mark.parametrize("seed", range(6))
def test_every_row_that_changed_is_among_the_changed_ones(case, seed):
    rng = np.random.default_rng(seed)
    buffer = make(case)
    for _ in range(30):
        position, before = buffer.pos, _copies(buffer)
        n_added = int(rng.integers(0, 20))
        add(buffer, rng, n_added)
        assert _rows_that_differ(buffer, before) <= _told(buffer, position, n_added)


def _copies(buffer):
    return {name: array.copy() for name, array in row_groups(buffer)[ROWS].columns.items()}


def _rows_that_differ(buffer, before):
    differing = set()
    for name, array in row_groups(buffer)[ROWS].columns.items():
        rows = (array != before[name]).reshape(len(array), -1).any(axis=1)
        differing.update(np.flatnonzero(rows).tolist())
    return differing


def _told(buffer, position, n_added):
    ranges = changed_rows(buffer, position, n_added)
    size = buffer.buffer_size
    if ranges is None:
        return set(range(size))
    told = {row for part in ranges for row in part}
    assert told <= set(range(size))
    return told


@pytest.mark.parametrize("n_steps", [3, 8, 15, 16, 17, 32, 33])
def test_an_episode_that_is_given_up_changes_only_rows_that_are_told(n_steps):
    buffer = make("hindsight", n_envs=1)
    rng = np.random.default_rng(0)
    add(buffer, rng, n_steps - 1)
    batch = [_batch(buffer.observation_space, 1) for _ in range(2)]
    buffer.add(*batch, np.zeros((1, 2)), np.zeros(1), np.array([False]), [{}])
    position, before = buffer.pos, _copies(buffer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer.truncate_last_trajectory()
    changed = _rows_that_differ(buffer, before)
    assert changed == {(n_steps - 1) % 16}
    assert changed <= _told(buffer, position, 0)


@pytest.mark.parametrize(
    ("size", "before", "n_added", "told"),
    [
        (1000, 500, 10, {*range(499, 511)}),
        (16, 14, 5, {13, 14, 15, 0, 1, 2, 3}),  # around the end
        *((16, 0, n_added, None) for n_added in (16, 17, 40)),  # a whole round
    ],
)
def test_rows_that_may_have_changed_are_told(size, before, n_added, told):
    buffer = make("flat", size=size)
    add(buffer, np.random.default_rng(0), before + n_added)
    ranges = changed_rows(buffer, before, n_added)
    assert told == (None if ranges is None else {row for part in ranges for row in part})
    # A count that does not fit the position tells nothing.
    assert changed_rows(buffer, before, n_added - 1) is None


@EVERY
def test_saves_that_follow_each_other_hold_the_buffer_of_their_moment(case, tmp_path):
    rng = np.random.default_rng(3)
    buffer, fresh = make(case, size=64), make(case, size=64)
    store = ChunkStore(tmp_path, rows_per_chunk=4)
    indices, position = {}, 0
    for n_added in (0, 3, 10, 1, 0, 40, 20, 63, 64, 5, 70, 2):
        add(buffer, rng, n_added)
        changed = changed_rows(buffer, position, n_added)
        for name, group in row_groups(buffer).items():
            hint = changed if group.append_only else None
            pending = store.snapshot(group.columns, group.used, hint, indices.get(name))
            indices[name] = store.write(pending)
            store.read(indices[name], row_groups(fresh)[name].columns)
        position = buffer.pos
        assert_same_tree(columns_of(fresh), columns_of(buffer))
