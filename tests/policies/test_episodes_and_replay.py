"""Episodes on disk, and playing them again: exact on every robot, and a difference is named."""

import hashlib
import json
import tracemalloc
import zipfile
from contextlib import closing
from dataclasses import replace as changed
from io import BytesIO
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from support.training import tiny_config, train_run

from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.baselines import random_actions
from rlzoo_plus.policies.episode import Episode, episode_files, load_episode, save_episodes
from rlzoo_plus.policies.recorder import EpisodeRecorder
from rlzoo_plus.policies.replay import replay
from rlzoo_plus.training.evaluation import evaluate

# On a rail, with a goal, on wheels, and one that differs from episode to episode.
ROBOTS = [
    f"robots/{name}"
    for name in ("CartPoleBalance-v0", "KukaReach-v1", "HuskyDrive-v1", "A1Walk-v1")
]
SEEDS = [2**30 + 5, 2**30 + 6, 2**30 + 7]


def played(spec, n_envs=3):
    with closing(make_eval_env(spec, n_envs)) as venv:
        policy = random_actions(venv.action_space)
        recorder = EpisodeRecorder(policy, SEEDS, venv.num_envs)
        result = evaluate(policy, venv, SEEDS, watch=recorder)
    return recorder.episodes(), result


def spec_of(env_id, **kwargs):
    nothing = dict.fromkeys(("time_limit", "max_return", "solved_return"))
    values = {"name": "x", "wrappers": [], "frame_stack": 1, "warmup_resets": 0, **nothing}
    return EnvConfig(id=env_id, packages=["robots"], kwargs=kwargs, **values)


def short(env_id):
    with closing(gym.make(env_id)) as env:
        step_s = 1.0 / env.metadata["render_fps"]
    varied = {"randomization": {"mass": {"uniform": [0.8, 1.2]}}} if "Walk" in env_id else {}
    return spec_of(env_id, episode_s=6 * step_s, **varied)


@pytest.mark.parametrize("env_id", ROBOTS)
def test_a_replay_is_exact_on_every_kind_of_robot_and_finds_a_changed_action(env_id, tmp_path):
    spec = short(env_id)
    episodes, _ = played(spec)
    files = save_episodes(tmp_path / "kept", episodes, {"overrides": []})
    for file in files:
        episode, _ = load_episode(file)
        with closing(make_eval_env(spec, 1)) as venv:
            assert replay(episode, venv) is None
    other = episode.actions.copy()
    other[2] = -other[2] if other.dtype.kind == "f" else 1 - other[2]
    with closing(make_eval_env(spec, 1)) as venv:
        found = replay(changed(episode, actions=other), venv)
    assert found is not None
    assert found.step == 3


def test_episodes_are_in_the_order_of_their_seeds_and_have_what_the_evaluation_counted():
    episodes, result = played(spec_of("robots/CartPoleBalance-v0"), n_envs=2)
    assert [episode.seed for episode in episodes] == SEEDS
    assert [episode.n_steps for episode in episodes] == result.episode_lengths
    assert [e.episode_return for e in episodes] == pytest.approx(result.returns, abs=1e-4)
    assert [episode.success for episode in episodes] == result.successes
    first = episodes[0]
    assert first.end_reason == "pole_fell"
    assert first.terminated
    assert sum(first.term_totals().values()) == pytest.approx(first.episode_return, abs=1e-4)


def small(**options):
    numbers = np.arange(3, dtype=np.float32)
    values = {
        "seed": 1, "actions": numbers[:, None], "rewards": numbers, "terms": {"a": numbers},
        "digests": np.zeros(3, np.uint64), "values": None, "value_kind": None, "success": None,
        "last_observation": numbers, "end_reason": "time_limit", "terminated": False,
    }  # fmt: skip
    return Episode(**{**values, **options})


def test_what_was_saved_comes_back(tmp_path):
    last = {"a/b": np.int64(3), "picture": np.zeros((2, 3), np.uint8)}
    episode = small(last_observation=last, values=np.arange(3.0), value_kind="V", success=True)
    (file,) = save_episodes(tmp_path, [episode], {"run": "somewhere", "overrides": ["env.x=1"]})
    back, about = load_episode(file)
    assert about == {"run": "somewhere", "overrides": ["env.x=1"]}
    assert back.last_observation.keys() == last.keys()
    assert back.last_observation["a/b"] == 3
    np.testing.assert_array_equal(back.values, episode.values)
    assert (back.success, back.terminated, back.end_reason) == (True, False, "time_limit")
    assert np.load(file.with_suffix(".npz"), allow_pickle=False)["rewards"].tolist() == [0, 1, 2]


def _edit(file, key, value):
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, key: value}))


def _claims_more(file):
    _with_header(file, b"{'descr': '<f8', 'fortran_order': False, 'shape': (9,), }\n")


def _with_header(file, header):
    """Give the rewards of an episode another header, and the file its hash."""
    content = BytesIO()
    with zipfile.ZipFile(file.with_suffix(".npz")) as old, zipfile.ZipFile(content, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "rewards.npy":
                data = data[:8] + len(header).to_bytes(2, "little") + header + data[128:]
            new.writestr(name, data)
    data = content.getvalue()
    file.with_suffix(".npz").write_bytes(data)
    _edit(file, "sha256", hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda file: _edit(file, "format", 2), "format 2 is not 1"),
        (lambda file: _edit(file, "seed", -1), "seed -1"),
        (lambda file: _edit(file, "about", {"overrides": [1]}), "overrides"),
        (lambda file: _edit(file, "sha256", "0"), "not the file that was written with it"),
        (lambda file: file.with_suffix(".npz").unlink(), "no such file"),
        (lambda file: file.write_text("[]"), "not a mapping"),
        (_claims_more, "whole episode"),
    ],
)
def test_a_damaged_episode_is_refused_in_one_line(tmp_path, spoil, told):
    (file,) = save_episodes(tmp_path, [small()], {"overrides": []})
    spoil(file)
    with pytest.raises(ConfigError, match=told) as caught:
        load_episode(file)
    assert "\n" not in str(caught.value)


def test_pickled_objects_are_never_read(tmp_path):
    (file,) = save_episodes(tmp_path, [small()], {"overrides": []})
    np.savez(file.with_suffix(".npz"), actions=np.array([object()], dtype=object))
    _edit(file, "sha256", hashlib.sha256(file.with_suffix(".npz").read_bytes()).hexdigest())
    with pytest.raises(ConfigError, match="no array of plain numbers"):
        load_episode(file)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }\n",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -3), }\n",
        b"{'descr': '<f9', 'fortran_order': False, 'shape': (3,), }\n",
        b"{'descr': "
        + b"(" * 80
        + b"'<f8'"
        + b",)" * 80
        + b", 'fortran_order': False, 'shape': ()}",
        b"(" * 5000,
        b"-" * 9000 + b"1",
        b"  x\n y\n",
        b"__import__('os').mkdir('owned')",
    ],
    ids=lambda header: header[:30].decode(),
)
def test_a_crafted_header_of_an_array_gets_one_line(tmp_path, monkeypatch, capsys, header):
    monkeypatch.chdir(tmp_path)
    (file,) = save_episodes(tmp_path, [small()], {"overrides": []})
    _with_header(file, header)
    tracemalloc.start()
    try:
        assert run_verb("replay", [str(file)]) == 2
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "is no whole episode: rewards.npy" in lines[0]
    assert not (tmp_path / "owned").exists()


def test_a_folder_without_episodes_is_said(tmp_path):
    with pytest.raises(ConfigError, match="holds no episodes"):
        episode_files(tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    made = {}

    def train(algo, env="tests/TinyReach-v0", *overrides):
        key = (algo, env, *overrides)
        if key not in made:
            config = tiny_config(algo, env, *overrides)
            made[key] = train_run(tmp_path_factory.mktemp("run"), config)[0].path
        return made[key]

    return train


REACH = "tests/TinyReach-v0"
CASES = [
    pytest.param("ppo", REACH, "V"),
    pytest.param("sac", REACH, "Q"),
    pytest.param("ppo", "tests/TinyDict-v0", "V", marks=pytest.mark.slow),
    pytest.param("recurrent_ppo", "tests/TinyMemory-v0", "V", marks=pytest.mark.slow),
    pytest.param("maskable_ppo", "tests/TinyMasked-v0", "V", marks=pytest.mark.slow),
    pytest.param("tqc", REACH, "Q", marks=pytest.mark.slow),
    pytest.param("crossq", REACH, "Q", marks=pytest.mark.slow),
    pytest.param("td3", REACH, "Q", marks=pytest.mark.slow),
    pytest.param("ars", REACH, None, marks=pytest.mark.slow),
]


@pytest.mark.training
@pytest.mark.parametrize(("algo", "env", "kind"), CASES)
def test_episodes_of_every_kind_of_algorithm_have_values_and_replay(runs, answer, algo, env, kind):
    path = str(runs(algo, env))
    words = ("--episodes", "3", "--n-envs", "2", "--trust", "--json")
    code, text = answer("evaluate", path, *words, "--save-episodes", "kept")
    assert code == 0, text
    # Keeping them changes nothing.
    assert answer("evaluate", path, *words) == (0, text)
    episodes = [load_episode(file)[0] for file in episode_files(Path("kept"))]
    assert [e.value_kind for e in episodes] == [kind] * 3
    assert all(e.values is None or np.isfinite(e.values).all() for e in episodes)
    code, text = answer("replay", "kept", "--trust")
    assert code == 0, text
    assert "3 of 3 episodes are exactly the same" in text


@pytest.mark.training
def test_a_replay_names_the_step_that_differs_and_uses_the_overrides(runs, answer):
    path = str(runs("ppo"))
    words = ("env.kwargs.scale=3", "--episodes", "2", "--trust", "--save-episodes", "kept")
    assert answer("evaluate", path, *words)[0] == 0
    assert answer("replay", "kept", "--trust")[0] == 0
    file = Path("kept/episode-0001.json")
    episode, about = load_episode(file)
    actions = episode.actions.copy()
    actions[4] = np.where(actions[4] > 0, -0.5, 0.5)
    save_episodes(Path("other"), [changed(episode, actions=actions)], about)
    code, text = answer("replay", "other", "--trust", "--json")
    row = json.loads(text)["episodes"][0]
    assert code == 1
    assert row["difference"]["step"] == 5
    assert row["difference"]["what"] == "reward"
    code, text = answer("evaluate", path, *words)
    assert code == 2
    assert "holds episodes already" in text


@pytest.mark.training
def test_code_of_the_run_needs_trust(runs, answer):
    path = str(runs("ppo"))
    answer("evaluate", path, "--episodes", "1", "--trust", "--save-episodes", "kept")
    code, text = answer("replay", "kept")
    assert code == 2
    assert "--trust" in text
