"""Agents that act in turns: what a step is, who sees what, masks, and exact resumes."""

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from support.games import Countdown, taking_turns
from support.training import make_config

from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.own_vec_env import make_own_vec_env
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.teams.turns import Turns, in_parallel

TASK = ("env=pettingzoo", "env.id=support.games.Countdown", "tuned=none", "network.net_arch=[8]",
        "device=cpu", "num_threads=1", "n_envs=2", "n_timesteps=120", "eval.every_steps=60",
        "eval.episodes=4", "log.tensorboard=false", "report.video=false",
        "algo.hyperparams.n_steps=10", "algo.hyperparams.batch_size=20")  # fmt: skip


def make_rows(*words, n_envs=1):
    config = make_config(*TASK, *words)
    return make_own_vec_env(config.env, n_envs, config.vec_env, 3)


def test_only_the_agent_whose_turn_it_is_acts():
    venv = make_rows()
    seen = venv.reset()
    heap = seen["observation"][0, 0]
    assert seen["turn"].ravel().tolist() == [1, 0]
    for mover in (0, 1, 0):
        taken = 1 + mover
        actions = np.full(2, 1 - mover)  # The other one would take another number.
        actions[mover] = mover
        seen, rewards, dones, _ = venv.step(actions)
        heap -= taken
        if heap > 0:
            assert (seen["observation"][:, 0] == heap).all()
            assert seen["turn"].ravel().tolist() == [mover, 1 - mover]
            assert not rewards.any()
            assert not dones.any()


def test_a_game_ends_for_both_and_begins_again():
    venv = make_rows("env.kwargs.heap=1", n_envs=2)
    venv.reset()
    while True:
        heap = venv.inner.worlds[0].inner.game.left
        _, rewards, dones, infos = venv.step(np.ones(4, int))
        if heap <= 2:
            break
    assert rewards[:2].tolist() == [1, -1]
    assert dones.all()
    assert infos[0]["episode"]["return/left"] == 1
    assert infos[1]["episode"]["return/right"] == -1
    assert infos[0]["episode"]["return/team"] == 0
    assert not infos[0]["TimeLimit.truncated"]


def test_masks_are_those_of_each_agent_and_free_while_it_waits():
    venv = make_rows("env.kwargs.masked=true", "env.kwargs.heap=0", n_envs=1)
    venv.reset()
    while venv.inner.worlds[0].inner.game.left != 1:  # Until a game begins with one left.
        venv.reset()
    assert np.stack(venv.env_method("action_masks")).tolist() == [[True, False], [True, True]]
    plain = Turns(Countdown())
    plain.reset(seed=0)
    assert plain.action_masks("left").all()


def test_what_is_parallel_inside_keeps_its_steps():
    venv = make_rows("env.id=support.games.taking_turns")
    assert venv.num_envs == 3
    assert venv.observation_space.shape == (3,)
    assert not isinstance(in_parallel(taking_turns()), Turns)
    assert isinstance(in_parallel(Countdown()), Turns)


def test_a_registered_game_is_found_and_a_wrong_name_is_told():
    venv = make_rows("env.id=classic/tictactoe-v3")
    assert venv.reset()["action_mask"].shape == (2, 9)
    with pytest.raises(ConfigError, match="Did you mean 'classic/tictactoe-v3'"):
        make_rows("env.id=classic/tictactoe-v2")


def test_a_game_that_only_claims_to_be_parallel_is_told():
    # Its agents end in the middle of a cycle.
    venv = make_rows("env.kwargs.parallel=true", "env.kwargs.heap=1")
    venv.reset()
    with pytest.raises(RunError, match="dead"):
        venv.step(np.ones(2, int))


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "maskable_ppo"])
def test_games_in_turns_are_trained_and_resumed_exactly(algo, capsys):
    words = [*TASK, f"algo={algo}", "env.kwargs.masked=true"]
    assert dispatch.run("verify-resume", words) == 0
    assert "identical" in capsys.readouterr().out
