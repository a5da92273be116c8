"""`inspect RUN`: entries have names, keys move through an episode, and JSON has every step."""

import io
import json
from contextlib import closing

import numpy as np
import pytest
from support.training import tiny_config, train_run

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.policies.entries import entry_names, flat_entries, one_of
from rlzoo_plus.policies.stepping import StepView, page, spikes, step_through, table
from robots import ROBOT_IDS


def names_of(env_id, frame_stack=1, packages=("robots",)):
    nothing = dict.fromkeys(("time_limit", "max_return", "solved_return"))
    values = {"name": "x", "wrappers": [], "warmup_resets": 0, "kwargs": {}, **nothing}
    spec = EnvConfig(id=env_id, packages=list(packages), frame_stack=frame_stack, **values)
    with closing(make_eval_env(spec, 1)) as venv:
        return entry_names(venv), flat_entries(one_of(venv.reset(), 0))


@pytest.mark.parametrize("env_id", ROBOT_IDS)
def test_each_entry_of_a_robot_has_a_name_of_its_own(env_id):
    names, entries = names_of(env_id)
    if "Camera" in env_id:
        assert names is None
        return
    assert len(names) == len(entries) == len(set(names))
    assert not any(name.startswith("observation[") for name in names)


def test_frames_of_a_stack_say_how_old_they_are():
    names, entries = names_of("CartPole-v1", frame_stack=2, packages=())
    assert names[:2] == ["cart position (1 steps ago)", "cart velocity (1 steps ago)"]
    assert names[4:6] == ["cart position", "cart velocity"]
    # The older frame of the first observation is zeros.
    assert entries[:4].tolist() == [0.0] * 4
    assert np.abs(entries[4:]).min() > 0


def test_entries_of_a_dictionary_begin_with_their_key():
    names, entries = names_of("tests/TinyCrowd-v0", packages=("support.tiny_envs",))
    assert names[:2] == ["obstacles[0]", "obstacles[1]"]
    assert names[-5:] == ["robot", "there[0]", "there[1]", "there[2]", "there[3]"]
    assert len(names) == len(entries) == 13


def views(rewards, values=None):
    count = len(rewards)
    return [
        StepView(
            i + 1, {"x": float(i)}, [0.5], r, {"alive": r}, None if values is None else values[i],
            "fell" if i + 1 == count else None,
        )
        for i, r in enumerate(rewards)
    ]  # fmt: skip


def test_a_spike_is_the_largest_change_of_reward_or_value():
    assert spikes(views([1.0, 1.0, 1.0, 9.0, 1.0]))[:2] == [3, 4]
    assert spikes(views([1.0] * 5, [500.0, 500.0, 10.0, 10.0, 10.0])) == [2]
    assert spikes(views([1.0] * 5)) == []


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (["", "", "q"], [1, 2, 3]),
        (["s", "s", "q"], [1, 4, 5]),
        (["e", ""], [1, 5]),
        (["b", "", "b", "q"], [1, 1, 2, 1]),
        ([], [1]),
    ],
)
def test_keys_move_through_the_episode(keys, shown):
    pages, left = [], iter(keys)

    def read(prompt):
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    step_through(views([1.0, 1.0, 1.0, 9.0, 1.5]), read, pages.append)
    assert [int(text.split()[1]) for text in pages] == shown


def test_a_page_has_names_changes_terms_and_the_end():
    text = page(views([1.0, 3.0], [5.0, 4.0]), 1)
    for part in ("step 2 of 2", "x", "(+1)", "alive", "(+2)", "value", "(-1)", "the end: fell"):
        assert part in text


def test_what_a_file_names_cannot_control_the_terminal():
    view = StepView(1, {}, [0.0], 1.0, {"\x1b[2J": 1.0}, None, "\x1b]0;x")
    assert "\x1b" not in page([view], 0) + table([view])


@pytest.mark.training
def test_an_episode_of_a_run_and_of_its_file_are_shown_alike(tmp_path, answer, monkeypatch):
    path = str(train_run(tmp_path / "run", tiny_config("ppo"))[0].path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, text = answer("inspect", path, "--trust", "--json")
    assert code == 0, text
    data = json.loads(text)
    assert len(data["steps"]) == data["n_steps"] == 8
    assert data["value_kind"] == "V"
    assert set(data["steps"][0]["observation"]) == {f"observation[{i}]" for i in range(3)}
    assert data["steps"][-1]["end"] == "time_limit"
    assert answer("evaluate", path, "--trust", "--episodes", "1", "--save-episodes", "kept")[0] == 0
    code, text = answer("inspect", "kept/episode-0000.json", "--trust", "--json")
    assert code == 0, text
    assert json.loads(text) == data
    code, text = answer("inspect", path, "--trust")
    assert code == 0
    assert len(text.splitlines()) == 10
    assert "the end: time_limit" in text
    code, text = answer("inspect", path, "seed=3")
    assert code == 2
    assert "unrecognized arguments: seed=3" in text
