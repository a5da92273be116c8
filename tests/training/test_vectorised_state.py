"""Vectorised environments, with every wrapper around them, go on from a state in fresh ones."""

import numpy as np
import pytest
from support.training import assert_same_tree, tiny_config

from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.training.resume.env_state import capture_envs, restore_envs

CASES = {
    "plain": ("tests/TinyReach-v0", "normalize=null"),
    "normalised": ("tests/TinyReach-v0", "normalize=true"),
    "rewards only": ("tests/TinyReach-v0", "normalize={observation: false}"),
    "observations only": ("tests/TinyReach-v0", "normalize={reward: false}"),
    "dictionary": ("tests/TinyDict-v0", "normalize=true"),
    "frames": ("tests/TinyReach-v0", "normalize=true", "env.frame_stack=3"),
    "pictures": ("tests/TinyImage-v0", "normalize=null"),
    "frames of pictures": ("tests/TinyImage-v0", "normalize=true", "env.frame_stack=3"),
    "frames of a dictionary": ("tests/TinyRgbd-v0", "normalize=null", "env.frame_stack=3"),
    "endless": ("tests/TinyEndless-v0", "normalize=true"),
}


def make(*overrides, n_envs=3):
    config = tiny_config("ppo", overrides[0], f"n_envs={n_envs}", *overrides[1:])
    return make_train_env(config, 5)


def play(venv, n_steps, seed):
    generator = np.random.default_rng(seed)
    seen = []
    for _ in range(n_steps):
        actions = generator.uniform(-1, 1, (venv.num_envs, 1)).astype(np.float32)
        observations, rewards, dones, infos = venv.step(actions)
        episodes = [{k: v for k, v in i.get("episode", {}).items() if k != "t"} for i in infos]
        seen.append((observations, rewards, dones, episodes))
    return seen


def underway(*overrides, n_steps=13, **options):
    venv = make(*overrides, **options)
    venv.reset()
    play(venv, n_steps, seed=1)
    return venv


def in_a_fresh_one(state, *overrides, **options):
    """Reset before, as `learn()` does."""
    venv = make(*overrides, **options)
    venv.reset()
    assert restore_envs(venv, unpack(pack(state))) == []
    return venv


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", list(CASES))
def test_fresh_environments_go_on_from_the_same_moment(case):
    venv = underway(*CASES[case])
    fresh = in_a_fresh_one(capture_envs(venv), *CASES[case])
    assert fresh.get_attr("total_steps") == [13, 13, 13]
    assert_same_tree(play(fresh, 20, seed=2), play(venv, 20, seed=2))


def test_environments_that_were_never_reset_go_on_too():
    venv = underway("tests/TinyReach-v0", "normalize=true")
    fresh = make("tests/TinyReach-v0", "normalize=true")
    assert restore_envs(fresh, capture_envs(venv)) == []
    assert_same_tree(play(fresh, 20, seed=2), play(venv, 20, seed=2))


def test_environments_in_processes_of_their_own_go_on_as_well():
    case = ("tests/TinyReach-v0", "normalize=true", "vec_env=subproc")
    venv = underway(*case, n_envs=2)
    fresh = in_a_fresh_one(capture_envs(venv), *case, n_envs=2)
    assert_same_tree(play(fresh, 20, seed=2), play(venv, 20, seed=2))
    venv.close()
    fresh.close()


def test_a_state_does_not_change_while_the_environments_go_on():
    venv = underway("tests/TinyDict-v0", "normalize=true")
    state = capture_envs(venv)
    before = pack(state)
    play(venv, 9, seed=2)
    assert pack(state) == before


def test_a_state_taken_again_is_the_same():
    case = ("tests/TinyReach-v0", "normalize=true", "env.frame_stack=3")
    state = capture_envs(underway(*case))
    assert_same_tree(capture_envs(in_a_fresh_one(state, *case)), state)


def test_the_return_of_an_episode_is_of_all_its_steps():
    venv = underway("tests/TinyReach-v0", "normalize=null", n_steps=5, n_envs=1)
    fresh = in_a_fresh_one(capture_envs(venv), "tests/TinyReach-v0", "normalize=null", n_envs=1)
    *_, (_, _, dones, episodes) = play(fresh, 3, seed=2)
    *_, (_, _, _, expected) = play(venv, 3, seed=2)
    assert dones.tolist() == [True]
    assert episodes[0]["l"] == 8
    assert episodes == expected


def test_the_time_of_an_episode_counts_from_the_start_of_the_first_process():
    venv = underway("tests/TinyReach-v0", "normalize=null", n_envs=1)
    state = capture_envs(venv)
    state["clock"] = [state["clock"][0] - 1000.0]
    fresh = in_a_fresh_one(state, "tests/TinyReach-v0", "normalize=null", n_envs=1)
    for _ in range(8):
        _, _, dones, infos = fresh.step(np.zeros((1, 1), np.float32))
        if dones[0]:
            break
    assert 1000.0 <= infos[0]["episode"]["t"] < 1100.0


@pytest.mark.parametrize(
    ("env_id", "told"),
    [
        ("tests/TinyClock-v0", "the observation after 5 steps"),
        ("tests/TinyGlobal-v0", "the reward of step 1 "),
        ("tests/TinyHidden-v0", "the observation after 5 steps"),
    ],
)
def test_each_environment_that_is_not_the_same_is_told_with_its_number(env_id, told):
    venv = underway(env_id, n_envs=2, n_steps=21)
    fresh = make(env_id, n_envs=2)
    fresh.reset()
    problems = restore_envs(fresh, capture_envs(venv))
    assert [p.split(":")[0] for p in problems] == ["environment 0", "environment 1"]
    assert all(told in problem for problem in problems)
