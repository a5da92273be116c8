"""What callbacks remember is saved and put back, and what is missed is told."""

from collections import deque

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.vec_env import DummyVecEnv
from support.tiny_envs import TinyReach
from support.training import assert_same_tree, start_run, tiny_config

from rlzoo_plus.artifacts.checkpoint import Checkpoint
from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.training.callbacks import StopRequest, make_callbacks
from rlzoo_plus.training.resume.callback_state import capture_callbacks, restore_callbacks, unsaved


class Plain(BaseCallback):
    """A user's callback with plain attributes."""

    def __init__(self):
        super().__init__()
        self.best = -np.inf
        self.history = []
        self.recent = deque(maxlen=2)
        self.sums = {"reward": np.zeros(2)}

    def _on_step(self):
        return True


class Keeper(Plain):
    """A user's callback that gives its own account."""

    def __init__(self):
        super().__init__()
        self.secret = object()
        self.kept = {"numbers": []}

    def state_dict(self):
        return self.kept

    def load_state_dict(self, state):
        self.kept = state


def through_a_file(callbacks):
    return unpack(pack(capture_callbacks(callbacks)))


# A user's own


def test_plain_attributes_come_back_in_their_own_types():
    callback, fresh = Plain(), Plain()
    callback.best, callback.n_calls, callback.history = 3.5, 7, [1, "two"]
    callback.recent.extend([1, 2, 3])
    callback.sums["reward"] += 1
    restore_callbacks([fresh], through_a_file([callback]))
    assert (fresh.best, fresh.n_calls, fresh.history) == (3.5, 7, [1, "two"])
    assert fresh.recent == deque([2, 3], maxlen=2)
    assert fresh.recent.maxlen == 2
    assert fresh.sums["reward"].tolist() == [1, 1]


def test_what_is_of_the_process_stays_as_it_is():
    callback, fresh = Plain(), Plain()
    callback.locals, callback.verbose = {"x": 1}, 2
    restore_callbacks([fresh], through_a_file([callback]))
    assert fresh.locals == {}
    assert fresh.verbose == 0


def test_a_state_does_not_change_while_the_callback_goes_on():
    plain, keeper = Plain(), Keeper()
    state = capture_callbacks([plain, keeper])
    before = pack(state)
    plain.history.append(1)
    plain.sums["reward"] += 1
    keeper.kept["numbers"].append(1)
    assert pack(state) == before


def test_a_callback_that_gives_its_own_account_is_asked_for_it():
    callback, fresh = Keeper(), Keeper()
    callback.kept = {"numbers": [1, 2], "best": 0.5}
    callback.history = ["not asked for"]
    restore_callbacks([fresh], through_a_file([callback]))
    assert (fresh.kept, fresh.history) == ({"numbers": [1, 2], "best": 0.5}, [])


@pytest.mark.parametrize("value", [object(), {1}, torch.zeros(1), np.array([{}])])
def test_an_account_that_cannot_be_written_names_the_callback(value):
    callback = Keeper()
    callback.kept = {"thing": [value]}
    with pytest.raises(TypeError, match=r"callback Keeper: state_dict\(\)\.thing\[0\]"):
        capture_callbacks([callback])


def test_half_an_account_is_none():
    class Half(Plain):
        def state_dict(self):
            return {"history": "not this"}

    callback, fresh = Half(), Half()
    callback.history = [1]
    restore_callbacks([fresh], through_a_file([callback]))
    assert fresh.history == [1]


def test_two_callbacks_of_a_class_are_told_apart():
    callbacks, fresh = [Plain(), Plain()], [Plain(), Plain()]
    callbacks[0].best, callbacks[1].best = 1.0, 2.0
    restore_callbacks(fresh, through_a_file(callbacks))
    assert [callback.best for callback in fresh] == [1.0, 2.0]


def test_an_added_callback_and_another_class_at_the_same_place_begin_anew():
    callback, fresh, added, other = Plain(), Plain(), Keeper(), Keeper()
    callback.best = 1.0
    restore_callbacks([fresh, added], capture_callbacks([callback]))
    restore_callbacks([other], capture_callbacks([callback]))
    assert fresh.best == 1.0
    assert added.kept == other.kept == {"numbers": []}


# Callbacks inside others


def nested():
    inner = [StopTrainingOnMaxEpisodes(5), CallbackList([Plain()])]
    return [CallbackList([EveryNTimesteps(10, inner[0]), *inner[1:]])]


def test_callbacks_inside_others_come_back():
    callbacks, fresh = nested(), nested()
    every, group = callbacks[0].callbacks
    every.last_time_trigger, every.callback.n_episodes, group.callbacks[0].best = 20, 3, 1.0
    restore_callbacks(fresh, through_a_file(callbacks))
    every, group = fresh[0].callbacks
    assert every.last_time_trigger == 20
    assert every.callback.n_episodes == 3
    assert group.callbacks[0].best == 1.0


def evaluating():
    venv = DummyVecEnv([TinyReach])
    return EvalCallback(
        venv,
        callback_on_new_best=StopTrainingOnRewardThreshold(1.0),
        callback_after_eval=StopTrainingOnNoModelImprovement(3),
    )


def test_both_callbacks_inside_an_evaluation_come_back():
    callback, fresh = evaluating(), evaluating()
    callback.best_mean_reward, callback.callback.no_improvement_evals = 2.0, 2
    callback.callback_on_new_best.n_calls = 4
    restore_callbacks([fresh], through_a_file([callback]))
    assert fresh.best_mean_reward == 2.0
    assert fresh.callback.no_improvement_evals == 2
    assert fresh.callback_on_new_best.n_calls == 4


@pytest.mark.parametrize("value", [None, "text", {"a": 1}, [len, 3], (Plain(),)])
def test_an_attribute_that_happens_to_be_called_callbacks_does_no_harm(value):
    callback = Plain()
    callback.callbacks = value
    callback.callback = value
    restore_callbacks([callback], capture_callbacks([callback]))


# What is missed


def test_an_attribute_that_is_not_plain_is_told_with_its_callback():
    callbacks = nested()
    callbacks[0].callbacks[1].callbacks[0].pool = {1, 2}
    assert unsaved(callbacks) == ["callback Plain keeps pool, a set, and has no state_dict"]


@pytest.mark.parametrize("make", [lambda: DummyVecEnv([TinyReach]), TinyReach])
def test_an_environment_of_its_own_is_told(make):
    callback = Plain()
    callback.arena = make()
    assert unsaved([callback]) == ["callback Plain keeps an environment of its own, arena"]


def test_an_evaluation_of_stable_baselines_is_told():
    assert any("eval_env" in text for text in unsaved([evaluating()]))


def test_what_is_saved_whole_and_what_is_a_setting_is_not_told():
    callback = Plain()
    callback.function, callback.module, callback.kind = len, gym, Plain
    callback.method = callback._on_step
    assert unsaved([callback, Keeper(), *nested(), StopTrainingOnMaxEpisodes(2)]) == []


# Ours


@pytest.fixture
def ours(tmp_path):
    """Return a function that makes the callbacks of a run, as lists."""

    def make():
        config = tiny_config("ppo", "tests/TinyReach-v0", "eval.every_steps=32")
        run = start_run(tmp_path / "run", config)
        return make_callbacks(config, run, make_eval_env(config.env, 1), StopRequest(), None)

    return make


def test_our_callbacks_have_nothing_to_tell(ours):
    assert unsaved(ours().checkpoint.snapshot.callbacks) == []


def test_the_outcome_of_evaluations_comes_back(ours):
    before, after = ours(), ours()
    record = {"step": 64, "mean_return": 1.0 / 3.0, "std_return": 0.1, "success_rate": None}
    before.evaluation.last = before.evaluation.best = record
    before.evaluation.since_best, before.evaluation._next = 2, 96
    state = through_a_file(before.checkpoint.snapshot.callbacks)
    restore_callbacks(after.checkpoint.snapshot.callbacks, state)
    assert_same_tree(after.evaluation.best, record)
    assert (after.evaluation.since_best, after.evaluation._next) == (2, 96)


def test_the_time_used_is_counted_on(ours, monkeypatch):
    before, after = ours(), ours()
    before.acting[2]._started -= 1000.0
    state = through_a_file(before.checkpoint.snapshot.callbacks)
    restore_callbacks(after.checkpoint.snapshot.callbacks, state)
    assert 1000.0 <= after.acting[2].state_dict()["clock"] < 1100.0


def test_where_checkpoints_were_made_is_not_part_of_the_state(ours, tmp_path):
    callbacks = ours()
    before = pack(capture_callbacks([callbacks.checkpoint]))
    callbacks.checkpoint.start_at(Checkpoint(tmp_path, 96, {}, {}))
    assert pack(capture_callbacks([callbacks.checkpoint])) == before
