"""An agent with the methods of Stable-Baselines3, and its run."""

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
    with pytest.raises(rz.ConfigError, match=r"call its learn"):
        agent.predict(np.zeros(5, np.float32))
    assert agent.learn(128).run.status == "finished"
    run = rz.train("ppo", "cartpole_bullet", total_timesteps=128, quiet=True, **SMALL)
    assert_same_tree(bundle_weights(agent.run.path / "final"), bundle_weights(run.path / "final"))
    observation = np.ones(5, np.float32)
    expected, _ = agent.predict(observation, deterministic=True)
    loaded = rz.load(agent.save("kept").with_suffix(""))
    np.testing.assert_array_equal(loaded.predict(observation, deterministic=True)[0], expected)
    np.testing.assert_array_equal(agent.model.predict(observation, deterministic=True)[0], expected)
    assert agent.evaluate(2)["episodes"] == 2
    assert agent.learn(64).num_timesteps == 192
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
    assert all(part in shown for part in ("<table>", "data:image/png;base64,", "&lt;Run"))
    assert runs[0].model.num_timesteps == 64
    with pytest.raises(rz.ConfigError, match="has not trained"):
        _ = rz.Run.open(runs[0].path).model


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
