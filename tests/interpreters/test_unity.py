"""Builds of Unity: agents are rows, runs are exact, and what ends a player is told.

No build of Unity runs here. Most tests talk to a stand-in for `mlagents_envs`; the slow ones to the
real one in an old interpreter, and to a player that sends it real messages over gRPC.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
from support.interpreters import ML_AGENTS, interpreter
from support.processes import environ_of_tests, has_ended
from support.training import make_config

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.own_code import is_harmless, own_code
from rlzoo_plus.envs.own_vec_env import make_own_vec_env
from rlzoo_plus.errors import ConfigError, RunError

SUPPORT = Path(__file__).resolve().parents[1] / "support"
TASK = ("env=unity", "tuned=none", "network.net_arch=[8]", "device=cpu", "num_threads=1",
        "n_timesteps=300", "eval.every_steps=150", "eval.episodes=6", "log.tensorboard=false",
        "report.video=false", "algo.hyperparams.n_steps=10",
        "algo.hyperparams.batch_size=10")  # fmt: skip


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Words for players of a stand-in for mlagents_envs, in an interpreter like this one."""
    shutil.copy(SUPPORT / "fake_mlagents.py", tmp_path / "mlagents_envs.py")
    shutil.copy(SUPPORT / "unity_cart.py", tmp_path)
    (tmp_path / "grpc.py").write_text("")
    (tmp_path / "Build.x86_64").write_text("")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", path)
    return words_for(sys.executable, tmp_path / "Build.x86_64")


@pytest.fixture
def own_forkserver():
    """Let trainings of `verify-resume` see the variables of a test; their server has others."""
    forkserver._forkserver._stop()
    yield
    forkserver._forkserver._stop()


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """Words for players that send real messages to the real mlagents_envs."""
    folder = tmp_path_factory.getbasetemp()
    python = interpreter(str(folder), *ML_AGENTS)
    build = folder / "Carts.x86_64"
    build.write_text(f'#!/bin/sh\nexec "{python}" "{SUPPORT / "unity_player.py"}" "$@"\n')
    build.chmod(0o700)
    return words_for(python, build)


def words_for(python, build):
    return [*TASK, f"env.python={python}", f"env.kwargs.executable={build}"]


def players(words, *more, args="", n_envs=1, seed=3):
    if args:
        words = [*words, f"env.kwargs.args=[{','.join(map(repr, args.split()))}]"]
    config = make_config(*words, *more)
    return make_own_vec_env(config.env, n_envs, config.vec_env, seed)


def played(venv, n_steps, seed=0):
    draw, found = np.random.default_rng(seed), []
    for _ in range(n_steps):
        acts = draw.uniform(-1, 1, (venv.num_envs, 1)).astype(np.float32)
        found.append(venv.step(acts))
    return found


def same(left, right):
    """Check that steps are equal, bit for bit."""
    for one, other in zip(left, right, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))


def ends_of(found):
    """Return number, row and info of each end of an agent's episode."""
    return [(at, row, infos[row]) for at, (_, _, dones, infos) in enumerate(found)
            for row in np.flatnonzero(dones) if "episode" in infos[row]]  # fmt: skip


def test_agents_are_rows_and_an_interrupted_one_is_truncated(pretended):
    venv = players(pretended, n_envs=2)
    assert venv.num_envs == 6
    assert venv.observation_space.shape == (2,)
    first = venv.reset()
    # Each player is seeded by itself.
    assert not np.array_equal(first[:3], first[3:])
    found = played(venv, 40)
    ends = ends_of(found)
    assert {row for _, row, _ in ends} == set(range(6))
    assert {info["TimeLimit.truncated"] for _, _, info in ends} == {True, False}
    for at, row, info in ends:
        last = info["terminal_observation"]
        assert info["TimeLimit.truncated"] == (0.05 <= abs(last[0]) <= 3)
        assert 12 <= info["episode"]["l"] <= 14 or not info["TimeLimit.truncated"]
        # The next agent is there at once, and stands still.
        assert found[at][0][row][1] == 0 != last[1]
        assert found[at][1][row] == pytest.approx(-abs(last[0]))
    venv.close()


def test_a_row_is_idle_until_another_agent_comes(pretended):
    venv = players(pretended, args="--gap 2")
    venv.reset()
    found = played(venv, 40)
    # One that does not end together with the others: then nobody would be asked.
    at, row, info = next(end for end in ends_of(found) if not found[end[0]][2].all())
    assert info["terminal_observation"].any()
    assert not found[at][0][row].any()
    seen, rewards, dones, infos = found[at + 1]
    assert not seen[row].any()
    assert (rewards[row], dones[row], "episode" in infos[row]) == (0.0, True, False)
    lengths = [info["episode"]["l"] for _, _, info in ends_of(found)]
    assert 12 <= max(lengths) <= 14
    venv.close()


def test_an_agent_that_is_not_asked_waits_where_it_is(pretended):
    venv = players(pretended, args="--slow 1 --length 1000")
    venv.reset()
    (seen, rewards, dones, _), (after, _, _, _) = played(venv, 2)
    assert rewards[0] == 0.0 != rewards[1]
    assert not dones.any()
    assert not np.array_equal(seen[0], after[0])
    venv.close()


def test_more_agents_than_rows_are_told_and_can_be_given_rows(pretended):
    # Of three, one comes later.
    venv = players(pretended, "env.kwargs.agents=2", args="--slow 0 --count 2")
    assert venv.num_envs == 2
    venv.close()
    with pytest.raises(ConfigError, match=r"more than 2 agents at once. Set env.kwargs.agents"):
        players(pretended, "env.kwargs.agents=2")
    venv = players(pretended, "env.kwargs.agents=5")
    venv.reset()
    _, _, dones, _ = played(venv, 1)[0]
    assert dones.tolist() == [False, False, False, True, True]
    venv.close()


@pytest.mark.parametrize("args", ["", "--gap 2 --slow 1"])
def test_a_state_is_played_again(pretended, args):
    words = [*pretended, "env.kwargs.restart_steps=13"]
    venv, other = players(words, args=args, n_envs=2), players(words, args=args, n_envs=2, seed=9)
    for n_steps in (0, 5, 20):
        venv.reset()
        played(venv, n_steps)
        assert other.restore(venv.state()) is None
        same(played(venv, 15, seed=1), played(other, 15, seed=1))
    assert "it has 6 agents, not 3" in players(words).restore(venv.state())
    other.close()
    venv.close()


def test_players_start_anew_after_some_steps_and_all_agents_are_truncated(pretended):
    venv = players(pretended, "env.kwargs.restart_steps=4", args="--length 1000")
    first = venv.reset()
    seen, _, dones, infos = played(venv, 4)[-1]
    assert dones.all()
    assert all(info["TimeLimit.truncated"] for info in infos)
    assert not np.array_equal(seen, first)
    assert not np.array_equal(seen, np.array([info["terminal_observation"] for info in infos]))
    # The same seed begins as it did.
    venv.seed(3)
    assert np.array_equal(venv.reset(), first)
    venv.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["env.python=null"], "vec_env=unity needs mlagents_envs in another interpreter"),
        (["env.kwargs.executable=null"], "env.kwargs.executable is missing"),
        (["env.kwargs.executable=/no/Build"], "no build at env.kwargs.executable=/no/Build"),
        (["env.kwargs.behavior=Ball"], "Ball names none of those that the build has: Cart"),
        (["env.kwargs.time_scale=0"], "env.kwargs.time_scale"),
        (["env.kwargs.agents=0"], "env.kwargs.agents"),
        (["+env.kwargs.seed=3"], "env.kwargs.seed"),
        (["env.time_limit=10"], "Set their Max Step in Unity"),
        (["env.worlds_per_process=2"], "has an interpreter of its own"),
        (["env.wrappers=[clip_reward]"], "env.wrappers"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(pretended, words, told):
    with pytest.raises(ConfigError, match=told) as caught:
        players(pretended, *words)
    assert "\n" not in str(caught.value)


def test_an_interpreter_without_mlagents_is_told(pretended, tmp_path):
    (tmp_path / "mlagents_envs.py").unlink()
    with pytest.raises(ConfigError, match=r"pip install mlagents_envs==1.1.0 \(Python 3.10\)"):
        players(pretended)


def test_a_build_is_a_program_that_needs_trust(pretended):
    assert own_code(make_config(*pretended), "play") == [sys.executable]
    assert not is_harmless("env.kwargs.executable=/tmp/Build")
    assert not is_harmless("env.kwargs.args=[-logFile,/tmp/file]")
    assert not is_harmless("env.kwargs.args.0=-logFile")
    assert is_harmless("env.kwargs.time_scale=5")


def test_versions_there_are_part_of_a_checkpoint(pretended):
    venv = players(pretended)
    (there,) = venv.env_method("loaded_code", [], [], indices=[0])
    assert there["package mlagents_envs of env.python"] == "1.1.0"
    assert there["package python of env.python"] == sys.version.split()[0]
    assert not venv.unrecorded
    venv.close()


def test_an_interpreter_that_is_killed_is_named(pretended):
    venv = players(pretended)
    venv.reset()
    os.kill(venv.inner._places[0].process.pid, signal.SIGKILL)
    with pytest.raises(RunError, match=r"process, .*python.* \(pid \d+\), was killed by SIGKILL"):
        played(venv, 1)
    venv.close()


def test_doctor_tells_of_a_build_that_does_not_repeat_itself(pretended, capsys):
    words = [*pretended, "env.kwargs.args=['--forgets',1]"]
    assert dispatch.run("doctor", [*words, "--no-probe"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "exact resume: no, because" in told
    assert "gives other observations when it is played again" in told
    assert dispatch.run("doctor", [*pretended, "--no-probe", "env.kwargs.behavior=Ball"]) == 2
    assert "behavior=Ball names none" in " ".join(capsys.readouterr().out.split())


@pytest.mark.training
@pytest.mark.usefixtures("own_forkserver")
def test_a_run_is_trained_evaluated_and_resumed_exactly(pretended, tmp_path, capsys):
    run = tmp_path / "run"
    assert dispatch.run("train", [*pretended, f"run_dir={run}"]) == 0
    assert len(list(read_records(RunDir(run).evaluations_file))) >= 2
    capsys.readouterr()
    assert dispatch.run("evaluate", [str(run), "--episodes", "6"]) == 2
    assert "--trust" in capsys.readouterr().err
    assert dispatch.run("evaluate", [str(run), "--episodes", "6", "--trust"]) == 0
    words = [*pretended, "env.kwargs.restart_steps=13", "env.kwargs.args=[--gap,2,--slow,1]"]
    capsys.readouterr()
    assert dispatch.run("verify-resume", [*words, "--kills", "2"]) == 0
    assert "identical" in capsys.readouterr().out
    assert dispatch.run("doctor", [*words, "--no-probe"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("args", ["", "--gap 2 --slow 1"])
def test_real_messages_give_what_the_carts_of_the_stand_in_give(real, pretended, monkeypatch, args):
    other = players(pretended, args=args)
    monkeypatch.delenv("PYTHONPATH")
    truth = players(real, args=args)
    assert truth.observation_space == other.observation_space
    assert truth.action_space == other.action_space
    np.testing.assert_array_equal(truth.reset(), other.reset())
    same(played(truth, 40), played(other, 40))
    assert other.restore(truth.state()) is None
    assert truth.restore(other.state()) is None
    (there,) = truth.env_method("loaded_code", [], [], indices=[0])
    assert there["package mlagents_envs of env.python"] == "1.1.0"
    truth.close()
    other.close()


@pytest.mark.slow
def test_real_discrete_actions_cameras_and_masks(real):
    venv = players(real, args="--actions branch --sees both")
    assert venv.action_space.n == 3
    assert {key: space.shape for key, space in venv.observation_space.items()} == {
        "Camera_1": (3, 4, 4),
        "vector": (2,),
    }
    seen = venv.reset()
    light = np.clip(0.5 + seen["vector"][:, 0] / 6, 0, 1)
    assert seen["Camera_1"].dtype == np.uint8
    np.testing.assert_array_equal(seen["Camera_1"][:, 0, 0, 0], np.rint(light * 255))
    assert [mask.tolist() for mask in venv.env_method("action_masks")] == [[True, True, False]] * 3
    after = venv.step(np.array([0, 1, 1]))[0]
    # The first is pushed to the left; the stand-in refuses what is masked.
    assert after["vector"][0, 1] < 0 == after["vector"][1, 1]
    with pytest.raises(RunError, match="an action that is masked"):
        venv.step(np.array([2, 1, 1]))
    venv.close()
    # None of those that it tries.
    venv = players(real, args="--actions branch")
    venv.try_out()
    assert venv.replay_problem() is None
    venv.close()
    venv = players(real, args="--actions branches --sees camera")
    assert venv.action_space.nvec.tolist() == [3, 2]
    assert venv.reset().shape == (3, 3, 4, 4)
    venv.step(np.array([[0, 1], [1, 0], [2, 1]]))
    assert venv.env_method("action_masks", indices=[0])[0].tolist() == [True] * 4 + [False]
    venv.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("--actions hybrid", "has hybrid actions, 1 continuous and 1 discrete"),
        ("--behaviors Cart,Ball", "set env.kwargs.behavior to one that the build has: Ball, Cart"),
        ("--fails-at 0", "ended with exit code 7: the stand-in has begun | NullReferenceException"),
        ("--hangs-at 0", "has not answered for env.kwargs.timeout_s=3: the stand-in has begun"),
    ],
)
def test_a_real_player_that_does_not_fit_is_told_in_one_line(real, args, told):
    with pytest.raises(ConfigError) as caught:
        players(real, "env.kwargs.timeout_s=3", args=args)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_behavior_is_named_a_port_is_passed_over_and_parameters_arrive(real):
    words = ["env.kwargs.behavior=Cart", "env.kwargs.parameters.mass=2.5"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words.append(f"env.kwargs.base_port={taken.getsockname()[1]}")
        venv = players(real, *words, args="--behaviors Cart?team=0,Ball --fails-at 2")
    venv.reset()
    with pytest.raises(RunError, match=r"exit code 7: .*parameter mass 2.5"):
        played(venv, 3)
    venv.close()


def child_of(pid):
    """Return the process that another has started, as an interpreter its player."""
    stats = {file.parent.name: file.read_text() for file in Path("/proc").glob("[0-9]*/stat")}
    parents = {int(name): text.rpartition(")")[2].split()[1] for name, text in stats.items()}
    return next(child for child, parent in parents.items() if parent == str(pid))


@pytest.mark.slow
def test_a_real_player_that_is_killed_is_named_and_none_is_left(real):
    venv = players(real, n_envs=2)
    venv.reset()
    pids = [child_of(place.process.pid) for place in venv.inner._places]
    os.kill(pids[1], signal.SIGKILL)
    said = rf"the Unity player Carts.x86_64 \(pid {pids[1]}\) was killed by SIGKILL: the stand-in"
    with pytest.raises(RunError, match=said) as caught:
        played(venv, 1)
    assert "\n" not in str(caught.value)
    venv.close()
    assert all(has_ended(pid) for pid in pids)


@pytest.mark.slow
def test_a_real_player_that_hangs_ends_with_a_run_that_is_killed(real):
    script = (
        "import sys\n"
        "from support.training import make_config\n"
        "from rlzoo_plus.envs.own_vec_env import make_own_vec_env\n"
        "config = make_config(*sys.argv[1:])\n"
        "venv = make_own_vec_env(config.env, 1, config.vec_env, 3)\n"
        "venv.reset()\n"
        "print(venv.inner._places[0].process.pid, flush=True)\n"
        "venv.step(venv._any_actions())\n"
    )
    line = [sys.executable, "-c", script, *real, "env.kwargs.args=['--hangs-at','1']"]
    run = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environ_of_tests())
    player = child_of(int(run.stdout.readline()))
    # In the middle of a step that never ends.
    time.sleep(1)
    run.kill()
    run.communicate()
    assert has_ended(player)


@pytest.mark.slow
def test_a_player_that_does_not_repeat_itself_is_told_in_one_line(real):
    venv, other = (players(real, args="--forgets-seed") for _ in range(2))
    venv.reset()
    played(venv, 3)
    told = other.restore(venv.state())
    assert "gives other observations when it is played again" in told
    assert "\n" not in told
    other.close()
    venv.close()
