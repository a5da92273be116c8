"""`evaluate --shares`: what each agent adds to its team's return, from the command line."""

import json

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from support.carrying import Carrying

import rlzoo_plus
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.seeding import held_out_seeds

TASK = ("env=pettingzoo", "env.id=support.carrying.Carrying", "tuned=none", "network.net_arch=[8]",
        "device=cpu", "num_threads=1", "n_envs=2", "n_timesteps=60", "eval.every_steps=60",
        "eval.episodes=2", "log.tensorboard=false", "report.video=false",
        "algo.hyperparams.n_steps=15", "algo.hyperparams.batch_size=30")  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("shares") / "run"
    assert dispatch.run("train", [*TASK, "env.credit=difference", f"run_dir={path}"]) == 0
    return str(path)


def printed(capsys, *words):
    capsys.readouterr()
    code = dispatch.run("evaluate", [*words])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def returns_by_hand(policy, n_episodes, resting=None, seed=0):
    """Return what the team earns in each episode, one agent resting."""
    world, found = Carrying(), []
    for number in range(n_episodes):
        start = np.random.SeedSequence([held_out_seeds(1, seed)[0], number]).generate_state(1)
        seen, _ = world.reset(seed=int(start[0] >> 1))
        total = 0.0
        while world.agents:
            actions, _ = policy.predict(np.stack([seen[agent] for agent in world.agents]))
            acts = dict(zip(world.agents, actions, strict=True))
            if resting is not None:
                acts[resting] = np.zeros(1, np.float32)
            seen, rewards, *_ = world.step(acts)
            total += sum(rewards.values())
        found.append(total)
    return np.array(found)


@pytest.mark.training
def test_a_share_is_what_is_missing_where_one_rests_and_the_others_react(run, capsys):
    words = (run, "--trust", "--shares", "idle", "--episodes", "4", "--seed", "2", "--json")
    code, text = printed(capsys, *words)
    assert code == 0
    record = json.loads(text.splitlines()[-1])
    policy = rlzoo_plus.load_policy(run)
    whole = returns_by_hand(policy, 4, seed=2)
    assert record["team"]["episodes"] == pytest.approx(whole, abs=1e-3)
    for agent in ("weak", "strong"):
        expected = whole - returns_by_hand(policy, 4, agent, seed=2)
        share = record["shares"][agent]
        assert share["episodes"] == pytest.approx(expected, abs=1e-3)
        assert share["mean"] == pytest.approx(expected.mean(), abs=1e-3)
        assert share["interval"][0] <= share["mean"] <= share["interval"][1]
    # As the true rewards of evaluations tell.
    assert record["shares"]["strong"]["mean"] != record["shares"]["weak"]["mean"]


@pytest.mark.training
def test_shares_are_printed_and_repeat_themselves_against_random_actions_too(run, capsys):
    words = (run, "--trust", "--shares", "random", "--episodes", "3", "--stochastic")
    code, text = printed(capsys, *words)
    assert code == 0
    assert "3, stochastic; again for each agent: random" in text
    assert "share of weak " in text
    assert printed(capsys, *words) == (code, text)


@pytest.mark.training
def test_mistakes_are_told(run, capsys, tmp_path):
    assert printed(capsys, run, "--shares", "idle")[0] == 2  # It needs trust.
    both = (run, "--trust", "--shares", "idle", "--save-episodes", str(tmp_path / "kept"))
    assert "leave one of them out" in printed(capsys, *both)[1]
    code, text = printed(capsys, "trained/cartpole_bullet", "--shares", "idle")
    assert code == 2
    assert "has no team. Name a run with env=pettingzoo" in text
