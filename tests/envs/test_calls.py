"""Calls of user code into environments are recorded and made again."""

import numpy as np
import pytest
import support.forgetful_envs  # noqa: F401
from support.tiny_envs import TinyReach
from support.training import make_config, tiny_config

from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs import calls
from rlzoo_plus.envs.calls import CallRecord
from rlzoo_plus.envs.episodes import RecordedEpisodes
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.training.resume.env_state import capture_envs, restore_envs, unrecorded_calls


def make():
    """Return training environments with stages, at the start of their episodes."""
    package = "env.packages=[support.forgetful_envs]"
    venv = make_train_env(tiny_config("ppo", "tests/Staged-v0", package, "n_envs=2"), 0)
    venv.reset()
    return venv


def through_a_file(venv):
    return unpack(pack({"envs": capture_envs(venv)}))["envs"]


def play(venv, n_steps):
    for _ in range(n_steps):
        rewards = venv.step(np.full((2, 1), 0.5))[1]
    return rewards


def test_calls_come_back_at_their_steps_and_in_their_order():
    venv, fresh = make(), make()
    play(venv, 3)
    venv.env_method("set_n", 4)
    play(venv, 7)
    venv.env_method("advance", by=np.int64(2), indices=[1])
    venv.env_method("set_n", 5, indices=0)
    play(venv, 2)
    assert restore_envs(fresh, through_a_file(venv), may_call=True) == []
    assert fresh.get_attr("n") == [5, 6]
    assert play(fresh, 20).tolist() == play(venv, 20).tolist()
    third = make()
    assert restore_envs(third, through_a_file(fresh), may_call=True) == []
    assert third.get_attr("n") == [5, 6]


def test_calls_that_a_new_process_makes_by_itself_are_not_made_twice():
    venv, fresh = make(), make()
    for each in (venv, fresh):
        each.env_method("advance")
    play(venv, 10)
    venv.env_method("advance")
    play(venv, 10)
    assert restore_envs(fresh, through_a_file(venv), may_call=True) == []
    assert fresh.get_attr("n") == venv.get_attr("n") == [3, 3]


def test_attributes_that_were_set_come_back():
    venv, fresh = make(), make()
    venv.set_attr("bonus", 5.0, indices=[1])
    venv.set_attr("weights", {"effort": [0.5, 1.0]})
    restore_envs(fresh, through_a_file(venv), may_call=True)
    assert fresh.get_attr("bonus", indices=[1]) == [5.0]
    assert fresh.get_attr("weights") == [{"effort": [0.5, 1.0]}] * 2


def test_questions_are_not_recorded():
    venv = make()
    for _ in range(3):
        venv.env_method("get_stage")
    assert CallRecord.from_state(capture_envs(venv)["episodes"][0]["calls"]) == CallRecord()


@pytest.mark.parametrize("value", [object(), {1}, [lambda: 1]])
def test_what_is_no_plain_data_is_told_once(value):
    venv = make()
    for _ in range(3):
        venv.env_method("set_n", value)
        venv.set_attr("n", value)
    missed = unrecorded_calls(venv)
    assert [text.split(" ")[0] for text in missed] == ["env_method", "set_attr"]


def test_the_same_call_again_and_again_is_kept_as_a_number():
    record = CallRecord()
    for _ in range(50):
        record.note(("set_n", (np.array([1.0]),), {}), 0)
    record.begin_episode()
    assert [times for _, times in record.before] == [50]
    assert len(list(record.calls_before())) == 50
    assert CallRecord.from_state(unpack(pack(record.state()))).before[0][1] == 50


def test_calls_without_end_are_given_up(monkeypatch):
    monkeypatch.setattr(calls, "MOST_ENTRIES", 5)
    env = RecordedEpisodes(TinyReach())
    env.reset(seed=1)
    for number in range(8):
        env.note_call("set_n", (number,), {})
    state = unpack(pack(env.episode_state()))
    assert state["calls"]["dropped"] == 3
    problem = RecordedEpisodes(TinyReach()).restore_episode(state, np.zeros(0))
    assert problem == "3 calls of its methods were too many to be recorded"


def test_a_call_that_fails_when_made_again_is_a_problem():
    venv, fresh = make(), make()
    venv.env_method("set_n", 4)
    play(venv, 9)
    state = through_a_file(venv)
    state["episodes"][0]["calls"]["before"][0][0] = "no_such"
    (problem,) = restore_envs(fresh, state, may_call=True)
    assert problem.startswith("environment 0: calling no_such again failed: AttributeError")


def test_without_code_of_a_user_nothing_is_called_or_set():
    venv, fresh = make(), make()
    venv.env_method("set_n", 4)
    with pytest.raises(ValueError, match="nothing in this run does"):
        restore_envs(fresh, through_a_file(venv))
    other = make()
    other.set_attr("bonus", 1.0)
    with pytest.raises(ValueError, match="nothing in this run does"):
        restore_envs(fresh, through_a_file(other))


@pytest.mark.parametrize(
    "entry",
    [
        ["__init__", [], {}, 1],
        ["_private", [], {}, 1],
        ["close", [], {}, 1],
        ["unwrapped.close", [], {}, 1],
        ["set_n", "x", {}, 1],
        ["set_n", [], [], 1],
        ["set_n", [], {}, -1],
        ["set_n", [], {}, 10**12],
        ["set_n", [], {}],
        [3, [], {}, 1],
    ],
)
def test_a_forged_call_is_refused(entry):
    venv, fresh = make(), make()
    state = through_a_file(venv)
    state["episodes"][1]["calls"]["before"] = [entry]
    with pytest.raises(ValueError):  # noqa: PT011 - any of them
        restore_envs(fresh, state, may_call=True)


@pytest.mark.parametrize("attributes", [{"rewards": []}, {"__class__": 1}, {"_x": 1}])
def test_a_forged_attribute_is_refused(attributes):
    venv, fresh = make(), make()
    state = through_a_file(venv)
    state["attributes"] = [attributes, {}]
    with pytest.raises(ValueError, match="to be set"):
        restore_envs(fresh, state, may_call=True)


def test_a_stage_of_robots_side_by_side_comes_back():
    level = "env.kwargs.randomization={mass: {uniform: [0.5, 2.0]}}"
    config = make_config("env=cartpole_bullet", "n_envs=4", "vec_env=batched", level)
    venvs = [make_train_env(config, 0) for _ in range(2)]
    for venv in venvs:
        venv.reset()
    venvs[0].env_method("set_randomization_level", 0.5)
    assert restore_envs(venvs[1], through_a_file(venvs[0]), may_call=True) == []
    calls_made = capture_envs(venvs[1])["episodes"][3]["calls"]["during"]
    assert calls_made == [["set_randomization_level", (0.5,), {}, 0]]


class _Bad(TinyReach):
    def state_dict(self):
        return {"n": 1}

    def load_state_dict(self, state):
        raise KeyError("m")


def test_an_account_that_is_refused_is_a_problem():
    env = RecordedEpisodes(_Bad())
    env.reset(seed=1)
    problem = RecordedEpisodes(_Bad()).restore_episode(env.episode_state(), np.zeros(0))
    assert problem == "_Bad refuses its state: KeyError: 'm'"
