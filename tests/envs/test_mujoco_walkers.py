"""MuJoCo environments of Gymnasium in one pass show and record what they do one by one."""

import importlib.util

import numpy as np
import pytest
from support.training import assert_same_tree, make_config
from test_robot_vec_env import play, state_of

from rlzoo_plus import accelerators
from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs.batching import batch_problem
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.envs.robot_vec_env import BatchedRobots
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.training.resume.env_state import capture_envs, restore_envs

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mujoco") is None, reason="mujoco is not installed"
)
IDS = [f"{name}-v5" for name in ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")]


@pytest.fixture(autouse=True)
def worlds():
    """Return the module of the room, without which all are stepped one by one."""
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    found = accelerators.native_worlds(HopperEnv)
    if found is None:
        pytest.skip("rlzoo_plus.fast is left out")
    return found


def make(kind, env_id, *overrides, n_envs=2, limit=25):
    """Return training environments; some episodes end by time, and some by a fall."""
    chosen = (f"env.id={env_id}", f"n_envs={n_envs}", f"env.time_limit={limit}")
    config = make_config("algo=ppo", *chosen, f"vec_env={kind}", *overrides)
    return make_train_env(config, 5)


def compare(env_id, n_steps, *overrides, **options):
    """Play both ways, and return how many episodes ended."""
    one_by_one, together = (make(k, env_id, *overrides, **options) for k in ("dummy", "batched"))
    assert isinstance(together.unwrapped, BatchedRobots)
    assert_same_tree(together.reset(), one_by_one.reset())
    seen = play(together, n_steps)
    assert_same_tree(seen, play(one_by_one, n_steps))
    assert_same_tree(state_of(together), state_of(one_by_one))
    return sum(int(dones.sum()) for _, _, dones, *_ in seen)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("env_id", IDS)
def test_they_show_the_same_and_have_the_same_state(env_id, n_envs):
    assert compare(env_id, 60, n_envs=n_envs) >= 2 * n_envs


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("env_id", IDS)
def test_they_do_so_for_long(monkeypatch, env_id, threads):
    monkeypatch.setenv("ROBOTS_THREADS", threads)
    assert compare(env_id, 2000, n_envs=17, limit=1000) >= 17


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("HalfCheetah-v5", "{ctrl_cost_weight: 1, frame_skip: 2}"),
        ("Hopper-v5", "{healthy_state_range: [-1.0, 1.0], forward_reward_weight: 2.5}"),
        ("Walker2d-v5", "{terminate_when_unhealthy: false, healthy_z_range: [1.2, 1.3]}"),
        ("Ant-v5", "{include_cfrc_ext_in_observation: false, contact_force_range: [-0.1, 0.2]}"),
        ("Ant-v5", "{main_body: aux_1, exclude_current_positions_from_observation: false}"),
        ("Humanoid-v5", "{include_cinert_in_observation: false, contact_cost_weight: 0.01}"),
    ],
)
def test_arguments_count(env_id, arguments):
    compare(env_id, 30, f"env.kwargs={arguments}")


def test_several_threads_show_the_same(monkeypatch):
    monkeypatch.setenv("ROBOTS_THREADS", "2")
    assert compare("Hopper-v5", 60, n_envs=3) >= 6


@pytest.mark.parametrize(("before", "after"), [("batched", "dummy"), ("dummy", "batched")])
def test_a_checkpoint_is_continued_either_way(before, after):
    first, second = (make(kind, "Hopper-v5") for kind in (before, after))
    first.reset()
    play(first, 31)
    restore_envs(second, unpack(pack(capture_envs(first))))
    assert_same_tree(play(second, 30, 7), play(first, 30, 7))


def test_what_is_asked_between_steps_is_up_to_date():
    one_by_one, together = (make(kind, "Walker2d-v5") for kind in ("dummy", "batched"))
    for venv in (one_by_one, together):
        venv.reset()
        play(venv, 5)
    for alone, batched in zip(one_by_one.get_attr("data"), together.get_attr("data"), strict=True):
        assert np.array_equal(batched.qpos, alone.qpos)
        # Computed when asked for.
        assert np.array_equal(batched.cacc, alone.cacc)
        assert batched.cacc.any()


def test_what_user_code_changes_takes_effect():
    one_by_one, together = (make(kind, "Ant-v5") for kind in ("dummy", "batched"))
    for venv in (one_by_one, together):
        venv.reset()
        play(venv, 3)
        env = venv.get_attr("unwrapped")[1]
        env._ctrl_cost_weight, env.frame_skip = 2.0, 3
        env.model.body_mass[1] *= 2
        env.data.qvel[:] = 0.5
    assert_same_tree(play(together, 30, 3), play(one_by_one, 30, 3))


def test_auto_takes_it_for_two_and_evaluation_too():
    for n_envs in (1, 2):
        venv = make("auto", "HalfCheetah-v5", n_envs=n_envs)
        assert isinstance(venv.unwrapped, BatchedRobots) == (n_envs == 2)
    config = make_config("algo=ppo", "env.id=HalfCheetah-v5")
    assert isinstance(make_eval_env(config.env, 2).unwrapped, BatchedRobots)


@pytest.mark.parametrize(
    ("env_id", "overrides", "problem"),
    [
        ("Swimmer-v5", [], "none of those"),
        ("Hopper-v5", ["env.wrappers=[{mask_observation: {hidden: [0]}}]"], "MaskObservation"),
    ],
)
def test_others_are_stepped_one_by_one(env_id, overrides, problem):
    config = make_config("algo=ppo", f"env.id={env_id}", *overrides)
    assert problem in batch_problem(make_env(config.env))


def test_weights_that_round_in_another_way_leave_them_one_by_one():
    one = make_env(make_config("algo=ppo", "env.id=Hopper-v5").env)
    one.unwrapped._ctrl_cost_weight = np.float64(0.1)
    assert "weights" in batch_problem(one)


def test_other_numbers_leave_them_one_by_one(monkeypatch, worlds, caplog):
    monkeypatch.setattr(worlds, "_same", {})
    monkeypatch.setattr(worlds.Hoppers, "_velocities", lambda self: self._all("qvel") + 1e-15)
    one = make_env(make_config("algo=ppo", "env.id=Hopper-v5").env)
    assert "other numbers" in batch_problem(one)
    assert "HopperEnv comes to other numbers" in caplog.text
