"""Collecting: a policy's own episodes, saved ones, and a session on a robot."""

import json
import shutil

import numpy as np
import pytest
import support.tiny_envs as tiny
from support.demonstrations import demonstrate
from support.training import tiny_config, train_run

import rlzoo_plus
from rlzoo_plus.commands import dispatch
from rlzoo_plus.demonstrations.collecting import seeds_of
from rlzoo_plus.demonstrations.minari_format import read_dataset, write_dataset
from rlzoo_plus.envs.seeding import evaluation_seeds, held_out_seeds

SESSION_WORDS = ("--driver", "sim", "--set", "clock=simulated", "--episodes", "2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the directory of a short training of PPO on TinyReach."""
    run_dir, _ = train_run(tmp_path_factory.mktemp("run") / "ppo", tiny_config("ppo"))
    return run_dir.path


def collect(*words):
    return dispatch.run("collect", [*(str(word) for word in words), "--trust"])


def test_no_evaluation_begins_where_a_demonstration_does():
    seeds = set(seeds_of(5000, 0))
    assert not seeds & {*evaluation_seeds(5000), *held_out_seeds(5000)}
    assert seeds_of(3, 1) != seeds_of(3, 0)


@pytest.mark.training
def test_the_episodes_of_a_policy_are_those_that_it_plays(run, tmp_path, capsys):
    assert collect(run, "--which", "final", "--episodes", 3, "--out", tmp_path / "demos") == 0
    assert "3 episodes, " in capsys.readouterr().out
    data, policy = (
        read_dataset(tmp_path / "demos"),
        rlzoo_plus.load_policy(run, "final", trust=True),
    )
    assert [one.seed for one in data.episodes] == seeds_of(3, 0)
    assert data.about["algorithm_name"] == "ppo"
    for one in data.episodes:
        chosen, _ = policy.predict(one.observations[:-1])
        assert np.allclose(chosen, one.actions, atol=1e-6)
        assert not one.terminated


@pytest.mark.training
def test_a_stochastic_policy_explores(run, tmp_path):
    same = (run, "--which", "final", "--episodes", 1)
    for name, more in (("a", ()), ("b", ("--stochastic",))):
        assert collect(*same, "--out", tmp_path / name, *more) == 0
    one, other = (read_dataset(tmp_path / name).episodes[0] for name in ("a", "b"))
    assert np.array_equal(one.observations[0], other.observations[0])
    assert not np.array_equal(one.actions, other.actions)


@pytest.mark.training
def test_saved_episodes_are_played_again_for_what_was_seen(run, tmp_path, capsys):
    saved = tmp_path / "saved"
    words = [str(run), "--which", "final", "--episodes", "2"]
    words += ["--save-episodes", str(saved), "--trust"]
    assert dispatch.run("evaluate", words) == 0
    assert collect(saved, "--run", run, "--out", tmp_path / "demos") == 0
    data = read_dataset(tmp_path / "demos")
    facts = [json.loads(file.read_text()) for file in sorted(saved.glob("*.json"))]
    facts = [one for one in facts if "seed" in one and "return" in one]
    assert [one.seed for one in data.episodes] == [one["seed"] for one in facts]
    assert [one.episode_return for one in data.episodes] == pytest.approx(
        [one["return"] for one in facts]
    )
    # What a file says of itself is not believed: another return is another episode.
    capsys.readouterr()
    arrays = next(iter(sorted(saved.glob("*.npz"))))
    other = sorted(saved.glob("*.npz"))[1]
    shutil.copy(other, arrays)
    assert collect(saved, "--run", run, "--out", tmp_path / "again") == 2
    assert "not the file that was written with it" in capsys.readouterr().err


@pytest.mark.slow
def test_a_session_on_a_robot_becomes_a_dataset(tmp_path, capsys):
    session, name = tmp_path / "session", "trained/cartpole_bullet"
    assert dispatch.run("run-robot", [name, *SESSION_WORDS, "--out", str(session)]) == 0
    assert collect(session, "--run", name, "--out", tmp_path / "demos") == 0
    data, policy = read_dataset(tmp_path / "demos"), rlzoo_plus.load_policy(name)
    played = json.loads((session / "report.json").read_text())["episodes"]
    # The last step led to what no line tells.
    assert [one.n_steps for one in data.episodes] == [one["length"] - 1 for one in played]
    for one in data.episodes:
        chosen, _ = policy.predict(one.observations[:-1])
        assert np.allclose(chosen, one.actions, atol=1e-5)
    capsys.readouterr()
    assert collect(session, "--run", "trained/a1_walk", "--out", tmp_path / "other") == 2
    assert "Name the run whose policy acted" in capsys.readouterr().err


def test_a_mistake_is_told_in_a_line_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "demos"
    assert collect("nowhere", "--out", out) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_with_files_is_refused_before_anything_is_played(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert collect("trained/cartpole_bullet", "--out", tmp_path) == 2
    assert "holds files already" in capsys.readouterr().err


def test_datasets_says_what_it_needs(capsys, reach):
    assert dispatch.run("datasets", ["show"]) == 2
    assert "name a dataset" in capsys.readouterr().err
    assert dispatch.run("datasets", ["show", str(reach), "--run", "x"]) == 2
    assert "takes no --run" in capsys.readouterr().err
    assert dispatch.run("datasets", ["check", str(reach)]) == 0
    assert "is whole: 6 episodes" in capsys.readouterr().out
    assert dispatch.run("datasets", ["show", str(reach), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 6


def test_datasets_tells_of_actions_beyond_their_bounds(capsys, tmp_path):
    dataset = demonstrate(tiny.TinyReach())
    write_dataset(tmp_path / "inside", dataset)
    dataset.episodes[0].actions[0] = 3.0
    write_dataset(tmp_path / "beyond", dataset)
    for name, is_told in (("inside", False), ("beyond", True)):
        assert dispatch.run("datasets", ["show", str(tmp_path / name)]) == 0
        assert ("learned from as if" in capsys.readouterr().out) == is_told
