"""Robots in one pass show, record and remember what they do one after the other, bit for bit."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor
from support.training import assert_same_tree, make_config, tiny_config

from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs.batching import ENOUGH
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.envs.fit import inspect_env
from rlzoo_plus.envs.robot_vec_env import BatchedRobots
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.resume.env_state import capture_envs, restore_envs
from robots import ROBOT_IDS

CARTPOLE = "robots/CartPoleBalance-v0"
GOALS = ["robots/KukaReach-v1", "robots/FrankaPush-v0"]
KINDS = ("dummy", "batched")


def config_of(env_id, *overrides, n_envs=3):
    # Short episodes, so that some end by time and some, where a robot falls, before.
    usual = ("env.packages=[]", f"n_envs={n_envs}", "env.kwargs={episode_s: 0.7}")
    return tiny_config("ppo", env_id, *usual, *overrides)


def make(kind, env_id=CARTPOLE, *overrides, monitor=None, **options):
    """Return training environments."""
    return make_train_env(config_of(env_id, f"vec_env={kind}", *overrides, **options), 5, monitor)


def without_time(infos):
    return [
        {**info, "episode": {**info["episode"], "t": 0.0}} if "episode" in info else info
        for info in infos
    ]


def play(venv, n_steps, seed=0):
    """Act at random; return all that is seen."""
    venv.action_space.seed(seed)
    seen = []
    for _ in range(n_steps):
        actions = np.stack([venv.action_space.sample() for _ in range(venv.num_envs)])
        observations, rewards, dones, infos = venv.step(actions)
        seen.append((observations, rewards, dones, without_time(infos), list(venv.reset_infos)))
    return seen


def state_of(venv):
    """Return the state, as it comes back from a file, without what depends on the clock."""
    return {**unpack(pack(capture_envs(venv))), "clock": [0.0] * venv.num_envs}


@pytest.mark.parametrize("env_id", ROBOT_IDS)
def test_every_robot_shows_the_same_and_has_the_same_state(env_id):
    one_by_one, together = (make(kind, env_id) for kind in KINDS)
    assert isinstance(together.unwrapped, BatchedRobots)
    assert_same_tree(together.reset(), one_by_one.reset())
    for n_steps, seed in ((70, 1), (40, 2)):
        seen = play(together, n_steps, seed)
        assert_same_tree(seen, play(one_by_one, n_steps, seed))
        assert any(dones.any() for _, _, dones, *_ in seen)
        assert_same_tree(state_of(together), state_of(one_by_one))


@pytest.mark.parametrize("env_id", [CARTPOLE, *GOALS, "robots/A1Walk-v1"])
@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1]], ids=" then ".join)
def test_a_state_of_one_kind_goes_on_in_the_other(env_id, kinds):
    venv, other = (make(kind, env_id) for kind in kinds)
    venv.reset()
    other.reset()
    play(venv, 47)
    play(other, 5)
    assert restore_envs(other, unpack(pack(capture_envs(venv)))) == []
    assert_same_tree(state_of(other), state_of(venv))
    assert_same_tree(play(other, 40), play(venv, 40))


@pytest.mark.parametrize(
    "overrides",
    [
        ("env.kwargs={discrete: true}",),
        ("normalize=true",),
        ("env.frame_stack=3",),
        ("env.kwargs={reward: {alive: 2.0}, episode_s: 0.3}",),
    ],
    ids=str,
)
def test_settings_change_nothing_of_it(overrides):
    one_by_one, together = (make(kind, CARTPOLE, *overrides) for kind in KINDS)
    assert_same_tree(together.reset(), one_by_one.reset())
    assert_same_tree(play(together, 60), play(one_by_one, 60))


def test_monitor_files_are_the_same_and_go_on(tmp_path):
    for kind, _ in itertools.product(KINDS, range(2)):
        venv = make(kind, monitor=tmp_path / kind)
        venv.reset()
        play(venv, 60)
    for rank in range(3):
        left, right = (
            [line.rsplit(",", 1)[0] for line in file.read_text().splitlines()[1:]]
            for file in (tmp_path / kind / f"{rank}.monitor.csv" for kind in KINDS)
        )
        assert left == right
        assert len(left) > 4


def test_the_time_of_an_episode_counts_from_its_monitor_s_start():
    venv = make("batched")
    venv.reset()
    venv.set_attr("t_start", venv.get_attr("t_start")[0] - 1000.0)
    infos = [info for _ in range(40) for info in venv.step(np.ones((3, 1), np.float32))[3]]
    ends = [info["episode"]["t"] for info in infos if "episode" in info]
    assert ends
    assert all(1000.0 <= t < 1100.0 for t in ends)


def test_evaluation_episodes_have_the_seeds_that_were_set():
    seen = []
    for kind in KINDS:
        venv = make_eval_env(config_of(CARTPOLE).env, 2, kind)
        for rank, seeds in enumerate(([2**30, *range(9)], range(8, 18))):
            venv.env_method("set_episode_seeds", seeds, indices=rank)
        first = venv.reset()
        assert venv.get_attr("episode_seed") == [2**30, 8]
        seen.append((first, play(venv, 80), venv.get_attr("episode_seed")))
    assert_same_tree(*seen)


def test_pictures_show_the_present_moment():
    seen = []
    for kind in KINDS:
        spec = make_config("env=cartpole_bullet", "env.kwargs.render_width=60").env
        venv = make_eval_env(spec, 2, kind, render_mode="rgb_array")
        venv.env_method("set_episode_seeds", [3] * 9)
        venv.reset()
        play(venv, 12)
        seen.append((list(venv.get_images()), venv.render()))
        play(venv, 12)
        seen[-1] += (list(venv.get_images()),)
    assert_same_tree(*seen)
    assert not np.array_equal(seen[1][0][0], seen[1][2][0])


@pytest.mark.parametrize("env_id", GOALS)
def test_goals_can_be_exchanged_through_it(env_id):
    venv = make("batched", env_id)
    venv.reset()
    for observations, rewards, dones, *_ in play(venv, 10):
        goals = observations["achieved_goal"], observations["desired_goal"]
        (found,) = venv.env_method("compute_reward", *goals, [{}] * 3, indices=[0])
        assert not dones.any()
        np.testing.assert_array_equal(found.astype(np.float32), rewards)


def test_what_a_method_did_to_an_environment_is_gone_on_from():
    one_by_one, together = (make(kind) for kind in KINDS)
    for venv in (one_by_one, together):
        venv.reset()
        play(venv, 10)
        venv.env_method("step", np.array([1.0], np.float32), indices=1)
        venv.env_method("reset", seed=3, indices=[2])
    assert_same_tree(play(together, 30), play(one_by_one, 30))


def test_what_was_handed_out_does_not_change_and_a_caller_may_write_into_it():
    venv, other = make("batched"), make("batched")
    for each in (venv, other):
        each.reset()
        seen = play(each, 30)
    before = pack({"seen": [step[:3] for step in seen]})
    for each in (venv, other):
        play(each, 5)
    assert pack({"seen": [step[:3] for step in seen]}) == before
    observations, *_ = venv.step(np.zeros((3, 1), np.float32))
    observations[:] = 77.0
    other.step(np.zeros((3, 1), np.float32))
    assert_same_tree(play(venv, 30), play(other, 30))


def test_a_step_before_the_first_episode_is_refused():
    for kind in KINDS:
        with pytest.raises(RuntimeError, match="needs reset"):
            make(kind).step(np.zeros((3, 1), np.float32))


def test_the_library_finds_the_monitor_of_each_environment():
    assert make("batched").env_is_wrapped(Monitor) == [True] * 3


# Which kind is taken

BATCHED, ONE_BY_ONE = "BatchedRobots", "DummyVecEnv"
SWITCHED = "env.wrappers=[{mask_observation: {hidden: [1]}}]"


@pytest.mark.parametrize(
    ("kind", "overrides", "n_envs", "taken"),
    [
        ("auto", (), ENOUGH, BATCHED),
        ("auto", (), ENOUGH - 1, ONE_BY_ONE),
        ("batched", (), 1, BATCHED),
        ("dummy", (), ENOUGH, ONE_BY_ONE),
        ("auto", (SWITCHED,), ENOUGH, ONE_BY_ONE),
        ("auto", ("env.time_limit=20",), ENOUGH, ONE_BY_ONE),
        ("auto", ("env.warmup_resets=1",), ENOUGH, ONE_BY_ONE),
    ],
)
def test_robots_are_stepped_together_where_it_is_possible_and_worth_it(
    kind, overrides, n_envs, taken
):
    venv = make(kind, CARTPOLE, *overrides, n_envs=n_envs)
    assert type(venv.unwrapped).__name__ == taken


def test_other_environments_are_stepped_one_by_one():
    venv = make_train_env(tiny_config("ppo", "tests/TinyReach-v0", f"n_envs={ENOUGH}"), 0)
    assert type(venv.unwrapped).__name__ == ONE_BY_ONE


@pytest.mark.parametrize(
    ("env_id", "overrides", "reason"),
    [
        (CARTPOLE, (SWITCHED,), "it is wrapped in MaskObservation"),
        (CARTPOLE, ("env.time_limit=20",), "it is wrapped in TimeLimit"),
        (CARTPOLE, ("env.warmup_resets=1",), "it is wrapped in WarmupResets"),
        ("tests/OwnStep-v0", (), "OwnStep overrides step"),
        ("CartPole-v1", ("env.kwargs={}",), "CartPoleEnv is none of the robots"),
    ],
)
@pytest.mark.parametrize("check", [inspect_env, lambda config: make_train_env(config, 0)])
def test_where_it_is_impossible_it_is_refused_with_the_reason(
    monkeypatch, env_id, overrides, reason, check
):
    from robots.cartpole import SimpleRobotEnv

    class OwnStep(SimpleRobotEnv):
        def step(self, action):
            return super().step(action)

    spec = gym.envs.registration.EnvSpec("tests/OwnStep-v0", OwnStep)
    monkeypatch.setitem(gym.registry, "tests/OwnStep-v0", spec)
    with pytest.raises(ConfigError, match=f"vec_env=batched.*{reason}.*Set vec_env=auto"):
        check(config_of(env_id, "vec_env=batched", *overrides))
