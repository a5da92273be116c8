"""An episode that goes on and on: each checkpoint writes what is new of it, and nothing twice."""

import pytest
from support.resuming import StopAfter, assert_same_in_pieces
from support.training import start_run, tiny_config, train_run

from rlzoo_plus.artifacts.tree import TENSOR_FILE
from rlzoo_plus.training.exp_manager import ExpManager
from rlzoo_plus.training.resume import env_state

pytestmark = pytest.mark.training


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(env_state, "BLOCK", 16)


def _config(*overrides, algo="ppo"):
    usual = ("n_timesteps=256", "eval.every_steps=null", "checkpoint.every_steps=32")
    return tiny_config(algo, "tests/TinyEndless-v0", *usual, *overrides)


def _chunks(run_dir):
    return {path.name for path in (run_dir.checkpoints().root / "chunks").iterdir()}


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("n_envs=2", "normalize=true", "n_timesteps=512", "checkpoint.every_steps=64"),
        ("env.kwargs.discrete=true",),
        ("env.id=robots/CartPoleSwingUp-v0", "env.packages=[]"),
    ],
    ids=["one", "two", "discrete", "by its state"],
)
def test_a_run_within_a_long_episode_is_the_same_run(tmp_path, overrides):
    run_dir = assert_same_in_pieces(tmp_path, _config(*overrides))
    assert "episode/0" in run_dir.checkpoints().load_newest().chunks


def test_an_off_policy_run_keeps_episodes_and_replay_buffer_apart(tmp_path):
    run_dir = assert_same_in_pieces(tmp_path, _config("n_timesteps=128", algo="sac"), 9)
    assert {"episode/0", "replay"} <= run_dir.checkpoints().load_newest().chunks.keys()


def test_a_checkpoint_does_not_grow_with_the_episode(tmp_path):
    run_dir, _ = train_run(tmp_path / "run", _config("checkpoint.keep=9"))
    store = run_dir.checkpoints()
    sizes = {(store.root / f"{s:012d}" / TENSOR_FILE).stat().st_size for s in store.steps()[1:]}
    assert len(store.steps()) == 8
    assert max(sizes) - min(sizes) <= 16 * 16  # but for the steps after the last full block


def test_what_is_written_once_is_not_written_again(tmp_path):
    config = _config("checkpoint.keep=9")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAfter(4)).train()
    before = {path: path.stat().st_mtime_ns for path in _files(run_dir)}
    assert len(before) == 6  # 96 steps in blocks of 16
    ExpManager(config, run_dir, StopAfter(3)).train()
    after = {path: path.stat().st_mtime_ns for path in _files(run_dir)}
    assert {path: after[path] for path in before} == before
    assert len(after) > len(before)


def test_the_blocks_of_an_episode_that_is_over_are_cleared_away(tmp_path):
    config = _config("checkpoint.keep=1", "env.time_limit=40")
    run_dir, _ = train_run(tmp_path / "run", config)
    used = {
        name
        for index in run_dir.checkpoints().load_newest().chunks.values()
        for name in index.names
    }
    assert _chunks(run_dir) == used


def _files(run_dir):
    return sorted((run_dir.checkpoints().root / "chunks").iterdir())
