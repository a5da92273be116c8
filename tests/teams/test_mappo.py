"""MAPPO: a critic that sees all agents of a world, and a policy that sees its own."""

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from support.meeting import Meeting
from support.training import make_config

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.own_vec_env import make_own_vec_env
from rlzoo_plus.errors import ConfigError

TASK = ("algo=mappo", "env=pettingzoo", "env.id=support.meeting.Meeting", "tuned=none",
        "network.net_arch=[8]", "device=cpu", "num_threads=1", "n_envs=2", "n_timesteps=300",
        "eval.every_steps=150", "eval.episodes=6", "log.tensorboard=false", "report.video=false",
        "algo.hyperparams.n_steps=10", "algo.hyperparams.batch_size=20")  # fmt: skip


def worlds(*words, n_envs=2):
    config = make_config(*TASK, *words)
    return make_own_vec_env(config.env, n_envs, config.vec_env, 3)


def acts(venv, rng):
    return rng.uniform(-1, 1, (venv.num_envs, 1)).astype(np.float32)


@pytest.mark.parametrize("late", [(), ("env.kwargs.late=c", "env.kwargs.leaves=100")])
def test_rows_of_a_world_see_its_agents_and_who_is_there(late):
    venv, alone, rng = worlds(*late), Meeting(late="c" if late else None), np.random.default_rng(0)
    alone.leaves = 100 if late else 4
    seen = venv.reset()
    expected = alone.reset(seed=venv.inner.worlds[0].seed)[0]
    n_absent = 0
    for _ in range(6):
        there = [agent in alone.agents for agent in "abc"]
        n_absent += there.count(False)
        for row in range(3):
            assert seen["present"][row].tolist() == there
            for agent, is_there in enumerate(there):
                own = expected["abc"[agent]] if is_there else np.zeros(3)
                assert np.array_equal(seen["team"][row, agent], own)
        assert np.array_equal(seen["observation"], [team[i % 3] for i, team in
                                                    enumerate(seen["team"])])  # fmt: skip
        assert not np.array_equal(seen["team"][0], seen["team"][3])
        actions = acts(venv, rng)
        seen = venv.step(actions)[0]
        mine = dict(zip("abc", actions[:3], strict=True))
        expected = alone.step({agent: mine[agent] for agent in alone.agents})[0]
    assert n_absent > 0
    assert venv.observation_space.contains({key: value[0] for key, value in seen.items()})


def test_the_last_observation_of_an_episode_has_all_that_acted():
    venv, alone, rng = worlds(), Meeting(), np.random.default_rng(0)
    venv.reset()
    alone.reset(seed=venv.inner.worlds[0].seed)
    for _ in range(7):
        there, actions = list(alone.agents), acts(venv, rng)
        mine = dict(zip("abc", actions[:3], strict=True))
        expected = alone.step({agent: mine[agent] for agent in there})[0]
        _, _, dones, infos = venv.step(actions)
        for row in np.flatnonzero(dones[:3]):
            last = infos[row]["terminal_observation"]
            team = [expected[agent] if agent in there else np.zeros(3) for agent in "abc"]
            assert np.array_equal(last["team"], team)
            assert last["present"].tolist() == [agent in there for agent in "abc"]
            assert np.array_equal(last["observation"], team[row])
    assert dones.all()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("vec_env=dummy",), "its critic sees all agents of a world, and vec_env=dummy has none"),
        (("network.critic_observation=[teem]",), "entry of the observation 'teem'. Did you mean"),
        (("network.share_features_extractor=true",), "see different entries"),
    ],
)
def test_what_does_not_fit_is_refused(words, told, tmp_path, capsys):
    assert dispatch.run("train", [*TASK, *words, f"run_dir={tmp_path / 'run'}"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_observations_must_be_boxes():
    with pytest.raises(ConfigError, match="needs observations that are a Box"):
        worlds("env.id=support.meeting.Choosing")


def test_other_algorithms_see_their_own_unless_asked():
    config = make_config(*TASK, "algo=ppo")
    assert config.network.critic_observation is None
    assert config.env.kwargs == {}
    asked = make_config(*TASK, "algo=ppo", "env.kwargs.joint_observation=true",
                        "network.critic_observation=[team,present]")  # fmt: skip
    assert make_config(*TASK).env == asked.env


@pytest.mark.training
def test_a_run_is_resumed_exactly_and_its_policy_needs_its_own_observation(tmp_path, capsys):
    run = tmp_path / "run"
    assert dispatch.run("train", [*TASK, "normalize=true", f"run_dir={run}"]) == 0
    policy = rz.load_policy(run, trust=True)
    assert list(policy.observation_space.spaces) == ["observation"]
    seen = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert np.array_equal(policy.predict(seen)[0], policy.predict({"observation": seen})[0])
    assert dispatch.run("evaluate", [str(run), "--episodes", "6", "--trust"]) == 0
    assert "return/team" in capsys.readouterr().out
    assert RunDir(run).has_policy("final")
    assert dispatch.run("export", [str(run), "--format", "torchscript", "--trust"]) == 0
    capsys.readouterr()
    assert dispatch.run("verify-resume", [*TASK, "normalize=true"]) == 0
    assert "identical" in capsys.readouterr().out
