"""Learning from a teacher: DAgger and distillation, as ordinary runs."""

import json
import shutil

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
import torch
from gymnasium import spaces
from support.resuming import assert_same_in_pieces, train_with_a_kill
from support.teachers import write_teacher
from support.training import evaluations, make_config, tiny_config, train_run

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.policy import load_policy
from rlzoo_plus.analysis.series import metric_rows
from rlzoo_plus.artifacts.bundle import load_bundle, save_bundle
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.demonstrations.data_of_run import with_digest
from rlzoo_plus.demonstrations.labelled_rows import LabelledRows
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

HYPER = "algo.hyperparams"
TAUGHT = ("dagger", "distill", "dagger_sac", "dagger_td3", "dagger_tqc", "dagger_crossq")
ROUNDS = (
    *(f"{HYPER}.n_steps=200", f"{HYPER}.gradient_steps=100", f"{HYPER}.batch_size=64"),
    *(f"{HYPER}.learning_rate=3e-3", "n_timesteps=1000", "normalize=true", "network.net_arch=[32]"),
)
DISCRETE = "env.kwargs.discrete=true"
DICT = ("env.kwargs.picture=false", "teacher.observation=zeta")


def config_of(algo, teacher, *overrides, env="tests/TinyReach-v0"):
    few = (f"teacher.run={teacher}", f"{HYPER}.gradient_steps=5")
    return with_digest(tiny_config(algo, env, *few, *overrides))


def agent_of(config):
    torch.set_num_threads(1)
    return make_agent(config, make_train_env(config, 1), 1)


@pytest.fixture
def teacher(tmp_path):
    """Return the bundle of a policy that goes to the goal of TinyReach."""
    return write_teacher(tmp_path / "teacher")


@pytest.fixture
def of_zeta(tmp_path):
    """Return the bundle of one that sees the entry `zeta` of TinyDict alone."""
    return write_teacher(tmp_path / "zeta", sees=2)


@pytest.mark.training
@pytest.mark.parametrize("algo", TAUGHT)
def test_a_policy_comes_to_do_what_its_teacher_does(algo, teacher, tmp_path):
    run_dir, result = train_run(tmp_path / "run", config_of(algo, teacher, *ROUNDS))
    rows = [row for row in metric_rows(run_dir) if "train/unseen_loss" in row]
    assert result.num_timesteps == 1000
    assert rows[-1]["train/unseen_loss"] < rows[0]["train/unseen_loss"]
    rng = np.random.default_rng(0)
    seen = rng.normal((0, 5, 5), (5, 1, 1), (500, 3)).astype(np.float32)
    wanted, _ = load_policy(teacher).predict(seen)
    chosen, _ = load_policy(run_dir.final).predict(seen)
    assert np.mean(np.abs(chosen - wanted)) < 0.3
    assert evaluations(run_dir)


@pytest.mark.training
def test_a_policy_of_dqn_comes_to_choose_as_its_teacher(tmp_path):
    teacher = write_teacher(tmp_path / "teacher", DISCRETE)
    config = config_of("dagger_dqn", teacher, DISCRETE, *ROUNDS)
    run_dir, _ = train_run(tmp_path / "run", config)
    rng = np.random.default_rng(0)
    seen = rng.normal((0, 5, 5), (5, 1, 1), (500, 3)).astype(np.float32)
    wanted, _ = load_policy(teacher).predict(seen)
    chosen, _ = load_policy(run_dir.final).predict(seen)
    assert np.mean(chosen == wanted) > 0.8


@pytest.mark.training
@pytest.mark.parametrize("algo", ["dagger", "dagger_crossq", "dagger_dqn"])
def test_a_resumed_run_is_the_one_that_was_never_stopped(algo, tmp_path):
    discrete = (DISCRETE,) if algo == "dagger_dqn" else ()
    teacher = write_teacher(tmp_path / "teacher", *discrete)
    # Its dataset is full after three of six rounds.
    small = (f"{HYPER}.buffer_size=100", "eval.every_steps=64")
    words = (*discrete, *small, "n_timesteps=192", "normalize=true")
    assert_same_in_pieces(tmp_path, config_of(algo, teacher, *words))


@pytest.mark.training
def test_a_run_that_was_killed_between_rounds_ends_with_the_same_bits(of_zeta, tmp_path):
    words = (*DICT, "checkpoint.every_steps=64", "n_timesteps=448")
    config = config_of("distill", of_zeta, *words, "n_envs=2", env="tests/TinyDict-v0")
    whole, _ = train_run(tmp_path / "whole", config)
    killed, result = train_with_a_kill(tmp_path / "killed", config, 2, 3)
    assert result.exact == "no difference found" or result.exact is True
    assert run_digests(killed) == run_digests(whole)


@pytest.mark.parametrize("statistics", [False, True])
def test_each_observation_has_the_action_of_the_teacher_as_it_sees(statistics, tmp_path):
    bundle = write_teacher(tmp_path / "teacher", statistics=statistics)
    agent = agent_of(config_of("distill", bundle, "normalize=true", "n_envs=3"))
    agent.learn(192)
    held = agent.replay_buffer
    assert len(held) == 192
    seen, labels = held.rows(np.arange(len(held)))
    # Not normalized by the statistics of the one that learns.
    assert seen[:, 1].mean() == pytest.approx(5.0, abs=1.0)
    move = (seen[:, 1] - 5 - seen[:, 0] / 10) / 0.3
    assert np.allclose(labels[:, 0], np.clip(move, -1, 1), atol=1e-3)


def test_the_share_of_the_teachers_turns_is_beta(teacher):
    acted = {}
    for beta in (1.0, 0.5, 0.0):
        words = (f"{HYPER}.beta={beta}", f"{HYPER}.n_steps=400")
        agent = agent_of(config_of("dagger", teacher, *words))
        taken, given = [], agent.env.step_async
        agent.env.step_async = lambda a, given=given, taken=taken: (taken.append(a), given(a))
        agent.learn(400)
        labels = agent.replay_buffer.actions[:400]
        acted[beta] = np.mean([np.array_equal(*pair) for pair in zip(taken, labels, strict=True)])
    assert acted[1.0] == 1.0
    assert 0.4 < acted[0.5] < 0.6
    assert acted[0.0] < 0.1


def test_a_policy_acts_without_what_its_teacher_alone_sees(of_zeta):
    agent = agent_of(config_of("distill", of_zeta, *DICT, env="tests/TinyDict-v0"))
    agent.learn(64)
    seen, labels = agent.replay_buffer.rows(np.arange(64))
    move = (seen["zeta"][:, 1] - 5 - seen["zeta"][:, 0] / 10) / 0.3
    assert np.allclose(labels[:, 0], np.clip(move, -1, 1), atol=1e-3)
    other = {**seen, "zeta": seen["zeta"] + 100}
    one, two = (agent.policy.predict(each, deterministic=True)[0] for each in (seen, other))
    assert np.array_equal(one, two)


def test_a_teacher_of_dictionaries_sees_the_entries_of_its_space(tmp_path):
    whole = ("env.kwargs.picture=false",)
    bundle = write_teacher(tmp_path / "teacher", *whole, env="tests/TinyDict-v0")
    hidden = "network.critic_observation=[zeta]"
    picture = ("network.net_arch=[8]", hidden)
    agent = agent_of(config_of("distill", bundle, *picture, env="tests/TinyDict-v0"))
    agent.learn(32)
    seen, labels = agent.replay_buffer.rows(np.arange(32))
    move = (seen["zeta"][:, 1] - 5 - seen["zeta"][:, 0] / 10) / 0.3
    assert np.allclose(labels[:, 0], np.clip(move, -1, 1), atol=1e-3)
    assert "picture" in seen


def test_the_oldest_rows_make_room():
    held = LabelledRows(7, 2, spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(9))
    for step in range(5):
        held.add(np.full((2, 1), step), np.array([step, step + 4]))
    assert (len(held), held.size(), held.pos) == (6, 3, 2)
    _, labels = held.rows(held.newest(2))
    assert sorted(labels) == [3, 4, 7, 8]
    seen, labels = held.rows(np.arange(6))
    assert sorted(labels) == [2, 3, 4, 6, 7, 8]
    assert seen.shape == (6, 1)


def test_the_command_trains_and_records_whom_it_learned_from(teacher, tmp_path):
    words = ["env=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "n_timesteps=64"]
    words += [f"teacher={teacher}", f"run_dir={tmp_path / 'run'}", f"{HYPER}.n_steps=32"]
    words += [f"{HYPER}.gradient_steps=2", f"{HYPER}.batch_size=16", "report.video=false"]
    assert dispatch.run("train", ["algo=distill", *words, "eval.episodes=2"]) == 0
    told = json.loads((tmp_path / "run" / "provenance.json").read_text())["teacher"]
    assert told["path"] == str(teacher)
    assert (told["algo"], told["step"]) == ("ppo", 7)
    stored = (tmp_path / "run" / "config.yaml").read_text()
    assert told["sha256"] in stored
    # Its own policy is shared without the place of the teacher.
    assert str(tmp_path) not in (tmp_path / "run" / "best" / "policy.json").read_text()


def test_the_hash_of_a_run_is_of_the_content_of_its_teacher(teacher, tmp_path):
    first = config_hash(config_of("dagger", teacher))
    shutil.move(teacher, tmp_path / "moved")
    assert config_hash(config_of("dagger", tmp_path / "moved")) == first
    other = write_teacher(tmp_path / "other", scale=2.0)
    assert config_hash(config_of("dagger", other)) != first


def test_a_teacher_that_was_changed_is_refused(teacher):
    config = config_of("dagger", teacher)
    shutil.rmtree(teacher)
    write_teacher(teacher, scale=2.0)
    with pytest.raises(ConfigError, match="It was changed"):
        agent_of(config)


def test_a_damaged_teacher_is_refused(teacher):
    file = next(teacher.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(ConfigError, match=r"^teacher=.*tensors") as error:
        config_of("dagger", teacher)
    assert "\n" not in str(error.value)


def test_a_teacher_that_needs_code_of_others_is_refused(teacher, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    whole = load_bundle(teacher)
    whole.config["network"]["features_extractor"] = "evil.Extractor"
    save_bundle(teacher, whole)
    with pytest.raises(ConfigError, match=r"^teacher=.*code that is not ours"):
        agent_of(config_of("dagger", teacher))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("overrides", "env", "words"),
    {
        "other actions": ((DISCRETE,), "TinyReach", ("actions", "Box(-1", "Discrete(3)")),
        "no such entry": (
            (DICT[0], "teacher.observation=x", "network.critic_observation=[zeta]"),
            "TinyDict",
            ("teacher.observation=x", "zeta, kind, alpha"),
        ),
        "entry of another shape": (DICT, "TinyDict", ("the entry zeta is", "(3,)", "(2,)")),
        "a dictionary": (
            ("env.kwargs.picture=false",),
            "TinyDict",
            ("observations", "(3,)", "'alpha'", "wrappers"),
        ),
    }.values(),
)
def test_a_teacher_that_does_not_fit_is_told_in_a_line(overrides, env, words, teacher):
    with pytest.raises(ConfigError) as error:
        agent_of(config_of("dagger", teacher, *overrides, env=f"tests/{env}-v0"))
    assert all(word in str(error.value) for word in words)
    assert str(error.value).startswith("teacher")
    assert "\n" not in str(error.value)


def test_the_entry_that_would_fit_is_named(of_zeta):
    with pytest.raises(ConfigError, match=r"Set teacher\.observation=zeta"):
        agent_of(config_of("distill", of_zeta, DICT[0], env="tests/TinyDict-v0"))


def test_a_teacher_with_a_memory_is_refused(tmp_path):
    run_dir, _ = train_run(tmp_path / "run", tiny_config("recurrent_ppo"))
    with pytest.raises(ConfigError, match="recurrent_ppo needs more than one observation"):
        agent_of(config_of("dagger", run_dir.path))


@pytest.mark.parametrize(
    ("words", "message"),
    {
        "no teacher": (("algo=dagger",), r"dagger learns from a teacher. Add teacher=RUN"),
        "an entry alone": (("teacher.observation=x",), "Add teacher=RUN"),
        "no learner": (("algo=ppo", "teacher=x"), "Use algo=dagger"),
        "a cloner": (("algo=bc", "teacher=x", "data=y"), "bc learns without a teacher"),
        "data": (("algo=dagger", "teacher=x", "data=y"), "learns from what its teacher does"),
        "beta": (("algo=dagger", "teacher=x", f"{HYPER}.beta=lin_2"), "from 0 to 1"),
        "entropy": (("algo=dagger_td3", "teacher=x", f"{HYPER}.ent_weight=1"), "ent_weight"),
        "rows": (("algo=dagger", "teacher=x", f"{HYPER}.buffer_size=0"), "buffer_size"),
    }.values(),
)
def test_what_cannot_work_is_told_in_a_line(words, message):
    with pytest.raises(ConfigError, match=message):
        make_config("env=cartpole_bullet", "tuned=none", *words)


def test_a_missing_teacher_is_told_in_a_line(tmp_path):
    with pytest.raises(ConfigError, match=r"^teacher=.*nowhere: .*no such directory"):
        config_of("dagger", tmp_path / "nowhere")
