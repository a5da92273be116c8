"""Training on a reward model: what agents, curves and checkpoints see; models of others."""

import json
import shutil

import gymnasium as gym
import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
from support.training import make_config

from rlzoo_plus.artifacts.atomic import write_folder
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences.reward_inputs import RewardInputs
from rlzoo_plus.preferences.reward_model import (
    KIND,
    RewardModel,
    load_reward_model,
    save_reward_model,
)

TASK = (
    "algo=ppo", "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "tuned=none",
    "n_envs=2", "network.net_arch=[8]", "algo.hyperparams.n_steps=16",
    "algo.hyperparams.batch_size=16", "n_timesteps=128", "eval.episodes=2", "num_threads=1",
    "log.tensorboard=false",
)  # fmt: skip


def made_model(env_id="tests/TinyReach-v0", members=2):
    """Return a reward model of a task with random weights."""
    env, rng = gym.make(env_id), np.random.default_rng(0)
    inputs = RewardInputs(env.observation_space, env.action_space)
    actions = inputs.size - inputs.observed
    widths = (inputs.observed, 4), (4 + actions, 4), (4, 1)
    layers = [
        tuple(rng.normal(size=(members, *shape)).astype(np.float32) for shape in ((i, o), (1, o)))
        for i, o in widths
    ]
    zeros, ones = np.zeros(inputs.size, np.float32), np.ones(inputs.size, np.float32)
    return RewardModel(inputs, zeros, ones, 2.0, layers, {"members": members})


@pytest.fixture
def folder(tmp_path):
    """The folder of a reward model."""
    save_reward_model(tmp_path / "model", made_model())
    return tmp_path / "model"


def test_agents_get_the_learned_reward_of_what_they_saw_and_did_evaluations_their_own(folder):
    config = make_config(*TASK, f"reward_model={folder}", "normalize=false")
    model, plain = made_model(), make_config(*TASK, "normalize=false")
    with_model, without = make_train_env(config, 0), make_train_env(plain, 0)
    with_model.reset()
    seen = without.reset().copy()
    sums, n_ended = np.zeros(2), 0
    for _ in range(60):
        actions = np.stack([with_model.action_space.sample() for _ in range(2)])
        rows = np.hstack([model.inputs.of_observations(seen), model.inputs.of_actions(actions)])
        _, rewards, dones, infos = with_model.step(actions)
        seen, own, _, own_infos = without.step(actions)
        members = model.members(rows)
        assert np.allclose(rewards, members.mean(axis=0) - members.std(axis=0))
        assert not np.allclose(rewards, own)
        sums += rewards
        for rank in np.flatnonzero(dones):
            n_ended += 1
            told = infos[rank]["episode"]
            # The monitors record the environment's own.
            assert told["r"] == own_infos[rank]["episode"]["r"]
            assert told["reward_model/return"] == pytest.approx(sums[rank], rel=1e-4)
            assert told["reward_model/disagreement"] > 0
            sums[rank] = 0.0
    assert n_ended > 2
    evaluated = make_eval_env(config.env, 1)
    evaluated.env_method("set_episode_seeds", [1])
    evaluated.reset()
    assert not np.allclose(evaluated.step(actions[:1])[1], rewards[:1])


@pytest.mark.training
def test_a_run_logs_learned_return_and_disagreement_and_evaluates_the_true_return(
    folder, tmp_path, capsys
):
    assert dispatch.run("train", [*TASK, f"reward_model={folder}", f"run_dir={tmp_path / 'run'}",
                                  "report.video=false", "report.plot=false"]) == 0  # fmt: skip
    logged = {row["key"] for row in read_records(tmp_path / "run" / "metrics.jsonl")}
    assert {"rollout/reward_model/return", "rollout/reward_model/disagreement"} <= logged
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert load_reward_model(folder)[1][:16] in config
    # Its own model was changed: such a run does not go on with another reward.
    save_reward_model(folder, made_model(members=3))
    words = (*TASK, f"reward_model={folder}", "reward_model.sha256=0123")
    assert dispatch.run("train", words) == 2
    assert "It was changed" in capsys.readouterr().err


@pytest.mark.training
@pytest.mark.slow
def test_a_run_with_a_reward_model_resumes_bit_for_bit(folder, capsys):
    words = [*TASK, f"reward_model={folder}", "--kills", "3"]
    assert dispatch.run("verify-resume", words) == 0
    assert "identical" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("env.id=CartPole-v1",), "of another task"),
        (("reward_model=null", "reward_model.sha256=0123"), "Add reward_model=FOLDER"),
        (("algo=bc",), "learns from demonstrations"),
        (("reward_model=nowhere",), "holds no reward model"),
    ],
)
@pytest.mark.training
def test_what_cannot_learn_from_a_reward_model_is_refused(folder, tmp_path, words, wrong, capsys):
    given = {w.partition("=")[0]: w for w in (*TASK, f"reward_model={folder}", *words)}
    assert dispatch.run("train", [*given.values(), f"run_dir={tmp_path / 'run'}"]) == 2
    assert wrong in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


def state(**changes):
    model = made_model()
    return {
        "spaces": model.inputs.data, "mean": model.mean, "std": model.std, "scale": model.scale,
        "layers": [list(layer) for layer in model.layers], **changes,
    }  # fmt: skip


def resealed(value):
    """Write a folder whose hashes are right, and whose content is somebody else's."""

    def write(folder):
        shutil.rmtree(folder)
        write_folder(folder, pack(value), {"kind": KIND})

    return write


def changed_byte(folder):
    file = folder / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def link(folder):
    (folder / "tensors.safetensors").rename(folder.parent / "taken")
    (folder / "tensors.safetensors").symlink_to(folder.parent / "taken")


def huge_file(folder):
    with (folder / "tensors.safetensors").open("r+b") as file:
        file.truncate(2**40)


def huge_header(folder):
    with (folder / "tensors.safetensors").open("r+b") as file:
        file.write((2**60).to_bytes(8, "little"))


def more_files(folder):
    files = {name: (folder / name).read_bytes() for name in ("state.json", "tensors.safetensors")}
    shutil.rmtree(folder)
    write_folder(folder, {**files, "model.pkl": b"\x80\x04N."}, {"kind": KIND})


def other_kind(folder):
    shutil.rmtree(folder)
    write_folder(folder, pack(state()), {"kind": "rlzoo_plus clips"})


HUGE = [{"type": "box", "low": -1.0, "high": 1.0, "shape": [2**40], "dtype": "float32"}] * 2
FEW = np.zeros(1, np.float32)
ATTACKS = {
    "a changed byte": changed_byte,
    "a link": link,
    "a file of a tebibyte": huge_file,
    "a huge header": huge_header,
    "a pickle beside it": more_files,
    "another kind of folder": other_kind,
    "spaces of a trillion numbers": resealed(state(spaces=HUGE)),
    "no spaces": resealed(state(spaces=[])),
    "a scale that is infinite": resealed(state(scale=float("inf"))),
    "a scale that is a text": resealed(state(scale="1")),
    "statistics of another size": resealed(state(mean=FEW)),
    "a deviation of 0": resealed(state(std=np.zeros_like(made_model().std))),
    "layers too few": resealed(state(layers=[])),
    "layers that are numbers": resealed(state(layers=[1, 2, 3])),
    "layers that do not fit": resealed(state(layers=[[FEW, FEW]] * 3)),
    "weights that are NaN": resealed(
        state(layers=[[w * np.float32("nan"), b] for w, b in made_model().layers])
    ),
    "a list": resealed([1, 2]),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_reward_model_of_somebody_else_is_checked_and_never_run(folder, attack):
    attack(folder)
    with pytest.raises(ConfigError, match="holds no reward model that can be used"):
        load_reward_model(folder)


def test_a_model_is_read_as_it_was_written_and_replaces_no_other_files(folder, tmp_path):
    model, _ = load_reward_model(folder)
    rows = np.random.default_rng(1).normal(size=(5, model.inputs.size)).astype(np.float32)
    assert np.array_equal(model.members(rows), made_model().members(rows))
    assert json.loads((folder / "MANIFEST.json").read_text())["about"]["members"] == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    with pytest.raises(ConfigError, match="holds something else"):
        save_reward_model(tmp_path / "mine", model)
