"""Shipped teams of robots, from the command line."""

import pytest

pytest.importorskip("pettingzoo")
from support.training import make_config

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.own_code import own_code

SHORT = ("n_envs=2", "n_timesteps=160", "eval.every_steps=80", "eval.episodes=2", "tuned=none",
         "log.tensorboard=false", "report.video=false", "network.net_arch=[8]", "device=cpu",
         "algo.hyperparams.n_steps=20", "algo.hyperparams.batch_size=40",
         "env.kwargs.episode_s=0.5")  # fmt: skip


@pytest.mark.parametrize("env", ["two_racecars", "two_arms"])
def test_a_team_needs_no_other_key_and_no_trust(env):
    config = make_config(f"env={env}")
    assert config.vec_env == "pettingzoo"
    assert config.env.name == env
    assert config.n_envs == 8
    assert own_code(config) == []


@pytest.mark.training
@pytest.mark.parametrize("env", ["two_racecars", "two_arms"])
def test_a_team_is_trained_and_resumed_exactly(env, tmp_path, capsys):
    assert dispatch.run("verify-resume", [f"env={env}", *SHORT]) == 0
    assert "identical" in capsys.readouterr().out


@pytest.mark.training
def test_a_run_of_a_team_remembers_its_engine(tmp_path, capsys):
    pytest.importorskip("mujoco")
    run = tmp_path / "run"
    words = ["env=two_arms", *SHORT, f"run_dir={run}", "env.kwargs.engine=mujoco"]
    assert dispatch.run("train", words) == 0
    assert RunDir(run).read_provenance()["engine"].startswith("mujoco ")
    assert dispatch.run("train", ["env=two_arms", *SHORT, "env.kwargs.cube=1"]) == 2
    assert "no argument 'cube'" in capsys.readouterr().err
    pytest.importorskip("onnxscript")
    capsys.readouterr()
    assert dispatch.run("deploy", [str(run), "--out", str(tmp_path / "robot")]) == 0
    assert "no commands of joints: its environment has several agents" in capsys.readouterr().out
