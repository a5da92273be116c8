"""Each agent's share of what its team earns: against hand-computed shares, and without a trace."""

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from support.carrying import STRENGTH, Carrying
from support.training import make_config

from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.envs.fit import inspect_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.teams.idle_actions import idle_actions
from rlzoo_plus.teams.pettingzoo_vec_env import worlds_of

TASK = ("env=pettingzoo", "env.id=support.carrying.Carrying", "tuned=none", "network.net_arch=[8]",
        "device=cpu", "num_threads=1", "n_envs=2", "n_timesteps=120", "eval.every_steps=60",
        "eval.episodes=4", "log.tensorboard=false", "report.video=false",
        "algo.hyperparams.n_steps=15", "algo.hyperparams.batch_size=30")  # fmt: skip
KINDS = ("Carrying", "Attached", "Shared", "Stored", "Global", "Pickled")
METHODS = ("difference", "wonderful_life")


def worlds(*words, kind="Carrying", credit="difference"):
    given = () if credit is None else (f"env.credit={credit}",)
    kind_of = f"env.id=support.carrying.{kind}"
    config = make_config(*TASK, kind_of, "env.time_limit=6", *given, *words)
    return make_train_env(config, seed=3)


def played(venv, n_steps=12, seed=0):
    """Return what the same random actions lead to: observations, rewards, ends, infos."""
    rng, rows = np.random.default_rng(seed), [(venv.reset(),)]
    for _ in range(n_steps):
        space = venv.action_space
        actions = rng.uniform(-1, 1, (venv.num_envs, *space.shape)).astype(np.float32)
        rows.append((*venv.step(actions), actions))
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_the_difference_of_a_step_is_what_the_own_action_adds(kind):
    for _, rewards, _, _, actions in played(worlds(kind=kind))[1:]:
        for row, push in enumerate(actions[:, 0]):
            strength = list(STRENGTH.values())[row % 2]
            # The load is where both earn, and the cost of the push is its own.
            assert rewards[row] == pytest.approx(2 * strength * push - 0.5 * abs(push), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_wonderful_life_counts_all_that_an_agent_did_in_the_episode(kind):
    pushed = np.zeros(4)
    for _, rewards, dones, _, actions in played(worlds(kind=kind, credit="wonderful_life"))[1:]:
        pushes = actions[:, 0]
        pushed += pushes
        strengths = np.array([*STRENGTH.values()] * 2)
        expected = 2 * strengths * pushed - 0.5 * np.abs(pushes)
        assert rewards == pytest.approx(expected, abs=1e-4)
        pushed[dones] = 0


@pytest.mark.parametrize("credit", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_asked_leaves_a_trace_in_the_worlds(kind, credit):
    np.random.seed(5)
    plain = played(worlds(kind=kind, credit=None))
    drawn = np.random.random()
    np.random.seed(5)
    asked = played(worlds(kind=kind, credit=credit))
    assert np.random.random() == drawn
    for one, other in zip(plain, asked, strict=True):
        assert np.array_equal(one[0], other[0])
    for one, other in zip(plain[1:], asked[1:], strict=True):
        assert np.array_equal(one[2], other[2])
        for info, same in zip(one[3], other[3], strict=True):
            # The record of an episode has what the world gave.
            whole, its = (x.get("episode", {}) for x in (info, same))
            assert {k: v for k, v in whole.items() if k != "t"} == {
                k: v for k, v in its.items() if k != "t"
            }
    assert any("episode" in info for row in asked[1:] for info in row[3])
    assert not np.allclose([row[1] for row in plain[1:]], [row[1] for row in asked[1:]])


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *(("Carrying", "_by_copy"), ("Pickled", "_by_copy"), ("Stored", "_by_state")),
        *(("Attached", "_by_play"), ("Shared", "_by_play")),
    ],
)
def test_a_moment_is_had_again_by_the_first_way_that_is_exact(kind, way):
    assert worlds_of(worlds(kind=kind))._credit._again.__name__ == way
    # Followers only need their seed.
    credit = worlds_of(worlds(kind=kind, credit="wonderful_life"))._credit
    assert credit._again.__name__ == "_by_play"


@pytest.mark.parametrize("credit", METHODS)
def test_one_who_has_left_earns_and_is_owed_nothing(credit):
    words = ("env.kwargs={leaves: 2, length: 4}",)
    rows = played(worlds(*words, credit=credit), n_steps=4)[1:]
    for step, (_, rewards, _, _, actions) in enumerate(rows, start=1):
        assert (rewards[0] == 0) == (step > 2)
        if credit == "difference":
            n_earn = 2 if step <= 2 else 1
            push = actions[1, 0]
            assert rewards[1] == pytest.approx(n_earn * 3 * push - 0.5 * abs(push), abs=1e-4)


def test_a_group_is_the_team_of_its_agents():
    venv = worlds("env.groups={a: [weak], b: [strong]}")
    for _, rewards, _, _, actions in played(venv, n_steps=3)[1:]:
        push = actions[:, 0]
        strength = np.array([1, 3, 1, 3])
        assert rewards == pytest.approx(strength * push - 0.5 * np.abs(push), abs=1e-4)


def test_another_action_than_zeros_can_stand_for_doing_nothing():
    venv = worlds("env.kwargs={low: 0.5}", credit="{method: difference, default: 0.5}")
    venv.reset()
    _, rewards, _, _ = venv.step(np.full((4, 1), 1.5, np.float32))
    assert rewards == pytest.approx([2 * 1 - 0.5, 2 * 3 - 0.5] * 2, abs=1e-4)
    # What does nothing adds nothing.
    assert not venv.step(np.full((4, 1), 0.5, np.float32))[1].any()


def test_choices_have_a_first_one_that_stands_for_doing_nothing():
    assert idle_actions("here", "x", Carrying(starts=2)) == {"weak": 2, "strong": 2}
    assert idle_actions("here", "x", Carrying(starts=2), 3) == {"weak": 3, "strong": 3}
    assert idle_actions("here", "x", Carrying(), [1.5])["weak"] == [1.5]
    for world, default in (
        (Carrying(starts=2), 0),
        (Carrying(starts=0), 0.5),
        (Carrying(low=0.5), None),
        (Carrying(), [0, 0]),
        (Carrying(), 5),
    ):
        with pytest.raises(ConfigError, match="is no action of weak, whose space is"):
            idle_actions("here", "x", world, default)


@pytest.mark.parametrize("engine", ["bullet", "mujoco"])
@pytest.mark.parametrize("credit", METHODS)
def test_robots_go_their_way_and_learn_from_their_share(engine, credit):
    pytest.importorskip("pybullet" if engine == "bullet" else "mujoco")
    words = ("env=two_arms", "tuned=none", "n_envs=1", f"env.kwargs.engine={engine}",
             "algo.hyperparams.n_steps=20", "algo.hyperparams.batch_size=20",
             "n_timesteps=40")  # fmt: skip
    plain = make_train_env(make_config(*words), seed=1)
    asked = make_train_env(make_config(*words, f"env.credit={credit}"), seed=1)
    if credit == "difference":
        assert worlds_of(asked)._credit._again.__name__ == "_by_state"
    one, other = played(plain, 8), played(asked, 8)
    for before, after in zip(one, other, strict=True):
        assert np.array_equal(before[0], after[0])
    # By hand: all of it again, and again with a first arm that rests in the last step or in all.
    (world,), earned = worlds_of(plain).worlds, []
    for rests in (range(0), range(8) if credit == "wonderful_life" else [7]):
        world.inner.reset(seed=world.seed)
        for step, row in enumerate(one[1:]):
            actions = {"robot_0": row[4][0] * (step not in rests), "robot_1": row[4][1]}
            rewards = world.inner.step(actions)[1]
        earned.append(sum(rewards.values()))
    assert other[-1][1][0] == np.float32(earned[0] - earned[1])
    assert other[-1][1][0] != 0


def test_evaluations_have_the_rewards_of_the_world():
    plain, asked = (
        make_eval_env(make_config(*TASK, *more).env, 1, "pettingzoo")
        for more in ((), ("env.credit=difference",))
    )
    for one, other in zip(played(plain)[1:], played(asked)[1:], strict=True):
        assert np.array_equal(one[1], other[1])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("env.credit=shapley",), "env.credit.method=shapley: must be 'difference' or 'wonder"),
        (("env.credit={default: much}",), "env.credit.default=much: must be a valid number"),
        (("env.credit=[difference]",), "env.credit="),
        (("env.credit={metod: difference}",), "Did you mean 'env.credit.method'"),
        (
            ("env.opponents={pool: 2}", "env.credit=difference"),
            "env.credit with env.opponents: .*Leave one of them",
        ),
    ],
)
def test_mistakes_of_the_configuration_are_told(words, told):
    with pytest.raises(ConfigError, match=told):
        make_config(*TASK, *words)


def test_one_agent_has_no_share():
    with pytest.raises(ConfigError, match=r"has one agent, which earns all. Add env=pettingzoo"):
        inspect_env(make_config("env=cartpole_bullet", "env.credit=difference"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("env.id=support.carrying.Unrepeatable",), "cannot be played again from its seed: a step"),
        (("env.id=support.carrying.Attached",), "Set env.time_limit to at most 500"),
        (("env.credit.default=7",), "7.0 is no action of weak"),
        (("env.kwargs.low=0.1",), "zeros is no action of weak"),
        (("env.id=classic/tictactoe-v3", "algo=maskable_ppo"), "act in turns"),
    ],
)
def test_worlds_that_have_no_shares_are_refused(words, told):
    words = [*TASK, "env.credit.method=difference", *words]
    with pytest.raises(ConfigError, match=told):
        make_train_env(make_config(*words), seed=0)


@pytest.mark.training
@pytest.mark.parametrize("credit", METHODS)
def test_a_run_that_learns_from_shares_is_resumed_exactly(credit, capsys):
    words = [*TASK, f"env.credit={credit}", "env.kwargs={leaves: 3}", "env.time_limit=6"]
    assert dispatch.run("verify-resume", words) == 0
    assert "identical" in capsys.readouterr().out
