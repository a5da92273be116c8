"""An agent with the methods of Stable-Baselines3, and its run."""

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.evil_folders import own_extractor
from support.forged import copy_bundle
from support.training import assert_same_tree, bundle_weights

import rlzoo_plus as rz
from rlzoo_plus import sb3

SCRIPT = Path(__file__).parents[2] / "examples" / "from_sb3.py"
SMALL = {"tuned": "none", "n_steps": 64, "batch_size": 32, "seed": 1}
SMALL |= {"eval.every_steps": None, "report.video": False}


@pytest.mark.training
def test_an_agent_is_the_run_of_the_same_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = rz.make("ppo", "cartpole_bullet", **SMALL)
    assert agent.predict(np.zeros(5, np.float32))[0].shape == (1,)
    assert agent.learn(128).run.status == "finished"
    run = rz.train("ppo", "cartpole_bullet", total_timesteps=128, quiet=True, **SMALL)
    assert_same_tree(bundle_weights(agent.run.path / "final"), bundle_weights(run.path / "final"))
    observation = np.ones(5, np.float32)
    expected, _ = agent.predict(observation, deterministic=True)
    loaded = rz.load(agent.save("kept").with_suffix(""))
    np.testing.assert_array_equal(loaded.predict(observation, deterministic=True)[0], expected)
    np.testing.assert_array_equal(agent.model.predict(observation, deterministic=True)[0], expected)
    assert agent.evaluate(2)["episodes"] == 2
    of_sb3 = {"progress_bar": False, "tb_log_name": "any", "reset_num_timesteps": False}
    assert agent.learn(64, **of_sb3).num_timesteps == 192
    assert rz.load(run.path).learn(64).num_timesteps == 192


def test_a_file_of_others_imports_nothing_unless_it_is_trusted(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_package.py").write_text("raise SystemExit('imported')")
    folder = copy_bundle(tmp_path / "bundle")
    own_extractor(folder)
    shutil.make_archive(str(folder), "zip", folder)
    for load in (rz.load, sb3.PPO.load):
        with pytest.raises(rz.ConfigError, match=r"evil_package\.Extractor"):
            load(folder.with_suffix(".zip")).predict(np.zeros(3, np.float32))


@pytest.mark.training
def test_a_run_is_drawn_exported_compared_and_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {**SMALL, "eval.every_steps": 64, "eval.episodes": 1, "total_timesteps": 64}
    runs = [rz.train("ppo", "cartpole_bullet", quiet=True, **values, gamma=g) for g in (0.9, 0.8)]
    assert runs[0].plot(tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert runs[0].export("torchscript").is_file()
    with pytest.raises(rz.ConfigError, match="the formats are"):
        runs[0].export("pickle")
    found = runs[0].compare(runs[1])
    assert found["algo.hyperparams.gamma"] == (0.9, 0.8)
    assert set(found) == {"algo.hyperparams.gamma", "best", "final"}
    shown = runs[0]._repr_html_()
    assert all(part in shown for part in ("<table>", "<polyline", "&lt;Run"))
    assert runs[0].model.num_timesteps == 64


def weights(agent):
    return {name: value.numpy().copy() for name, value in agent.policy.state_dict().items()}


@pytest.mark.training
def test_an_untrained_agent_acts_as_its_algorithm_and_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = np.random.get_state()[1].copy()
    agent, observation = rz.make("ppo", "cartpole_bullet", **SMALL), np.ones(5, np.float32)
    action, _ = agent.predict(observation, deterministic=True)
    np.testing.assert_array_equal(agent.model.predict(observation, deterministic=True)[0], action)
    played = agent.evaluate(1)
    assert (played["run"], played["which"], played["step"]) == (None, None, 0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    assert not (tmp_path / "outputs").exists()
    saved = rz.load(agent.save("untrained"))
    np.testing.assert_array_equal(saved.predict(observation, deterministic=True)[0], action)
    # As if it had not been asked.
    expected = rz.make("ppo", "cartpole_bullet", **SMALL).learn(64)
    assert_same_tree(weights(agent.learn(64)), weights(expected))
    assert agent.run.result["exact"] is True


OFF = {"tuned": "none", "learning_starts": 20, "policy_kwargs": {"net_arch": [8]}}
OFF |= {"eval.every_steps": None, "report.video": False}


@pytest.mark.training
@pytest.mark.parametrize(
    ("algo", "values"), [("ppo", SMALL), pytest.param("sac", OFF, marks=pytest.mark.slow)]
)
def test_a_state_goes_on_as_the_agent_it_is_from(algo, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = rz.make(algo, "cartpole_bullet", **values).learn(64)
    state = copy.deepcopy(first.get_state())
    kept = first.checkpoint()
    expected = weights(first.learn(64))

    second = rz.make(algo, "cartpole_bullet", **values).set_state(state)
    assert second.num_timesteps == 64
    assert_same_tree(weights(second.learn(64)), expected)
    result = second.run.result
    assert (result["exact"], result["inexact_since"], result["num_timesteps"]) == (False, 64, 128)
    assert "set or updated from Python" in result["inexact_because"][0]
    third = rz.make(algo, "cartpole_bullet", **values).resume_from_checkpoint(kept)
    assert_same_tree(weights(third.learn(64)), expected)
    # Setting it has changed nothing in it.
    assert_same_tree(weights(third.set_state(state).learn(64)), expected)


@pytest.mark.slow
@pytest.mark.training
def test_an_update_is_that_of_learn_and_begins_a_run_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = weights(rz.make("ppo", "cartpole_bullet", **SMALL).learn(64))
    agent = rz.make("ppo", "cartpole_bullet", **SMALL).setup().update()
    assert_same_tree(weights(agent), expected)
    assert agent.checkpoint().name == "000000000064"
    assert agent.run.model.num_timesteps == 64
    before = agent.run.path
    assert agent.learn(64).run.path == before
    assert agent.run.result["exact"] is False
    agent.update()
    assert agent.learn(64, run_dir="other").run.path.name == "other"
    with pytest.raises(rz.ConfigError, match="holds a run"):
        agent.update().learn(64, run_dir="other")


@pytest.mark.training
def test_updates_of_a_replay_buffer_repeat(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = rz.make("sac", "cartpole_bullet", **OFF)
    with pytest.raises(rz.ConfigError, match="buffer is empty"):
        agent.update()
    before = weights(agent.learn(40))
    state = agent.get_state()
    updated = weights(agent.update(2))
    assert any((updated[name] != before[name]).any() for name in before)
    np.random.rand(3)
    assert_same_tree(weights(agent.set_state(state).update(2)), updated)


@pytest.mark.training
def test_a_state_of_another_agent_is_refused_in_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = rz.make("ppo", "cartpole_bullet", **SMALL)
    state = agent.get_state()
    with pytest.raises(rz.ConfigError, match="no state of an agent"):
        agent.set_state({"weights": 1})
    with pytest.raises(rz.ConfigError, match="does not fit this agent"):
        rz.make("a2c", "cartpole_bullet", **{"network.net_arch": [3]}).set_state(state)
    with pytest.raises(rz.ConfigError, match="whole rollouts"):
        agent.update(3)
    with pytest.raises(rz.ConfigError, match="no run with a checkpoint"):
        agent.resume_from_checkpoint(tmp_path)
    with pytest.raises(rz.ConfigError, match="while it plays"):
        rz.make("ars", "cartpole_bullet").update()


@pytest.mark.slow
@pytest.mark.training
def test_a_loaded_agent_learns_in_another_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = rz.make("ppo", "cartpole_bullet", **SMALL).learn(64)
    observation = np.ones(5, np.float32)
    action, _ = agent.predict(observation, deterministic=True)
    for path in (agent.save("kept"), agent.run.path):
        heavy = rz.load(path, env="cartpole_bullet", **{"env.kwargs.motor_strength": 0.5})
        np.testing.assert_array_equal(heavy.predict(observation, deterministic=True)[0], action)
        assert heavy.learn(64).run.path != agent.run.path
        assert heavy.run.config.env.kwargs["motor_strength"] == 0.5
        assert heavy.run.config.init_from == str(path.absolute())
    assert rz.load(agent.run.path, env="cartpole_bullet").learn(64).run.path == agent.run.path
    with pytest.raises(rz.ConfigError, match=r"does not fit|refuses"):
        rz.load("kept", env="CartPole-v1")


@pytest.mark.training
def test_the_model_of_a_run_is_read_from_its_checkpoints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {**OFF, "checkpoint.every_steps": 30, "total_timesteps": 60}
    path = rz.train("sac", "cartpole_bullet", quiet=True, **values).path
    model = rz.Run.open(path).model
    assert (model.num_timesteps, model.replay_buffer.size()) == (60, 60)
    assert_same_tree(
        {name: value.numpy() for name, value in model.policy.state_dict().items()},
        bundle_weights(path / "final"),
    )
    assert rz.Run.open(path).load_model("30").num_timesteps == 30
    assert model.learn(10).num_timesteps == 10
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(rz.ConfigError, match="no checkpoint"):
        _ = rz.Run.open(path).model


@pytest.mark.slow
@pytest.mark.training
@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "SAC", "TD3", "DQN"])
def test_a_script_of_sb3_trains_the_same_weights_with_another_import(algorithm, tmp_path):
    def printed(script):
        # A script's own folder comes first on its path.
        done = subprocess.run(
            [sys.executable, script, algorithm],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-2:]

    line = "import stable_baselines3 as sb3\n"
    text = SCRIPT.read_text()
    assert text.count(line) == 1
    here = tmp_path / "script.py"
    here.write_text(text.replace(line, "import rlzoo_plus.sb3 as sb3\n"))
    assert printed(here) == printed(SCRIPT)
    assert list((tmp_path / "outputs").rglob("result.json"))
