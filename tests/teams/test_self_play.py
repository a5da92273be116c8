"""Self-play: one side learns against frozen policies of its run, rated and kept exactly."""

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from support.duels import Duel
from support.resuming import StopAfter, train_with_a_kill
from support.training import make_config, start_run, train_run

from rlzoo_plus.artifacts.atomic import write_folder
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.own_vec_env import make_own_vec_env
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.teams.one_sided import AT_RANDOM, RESULT
from rlzoo_plus.teams.opponent_pool import OpponentPool, expected_score
from rlzoo_plus.training.exp_manager import ExpManager

POOL = "env.opponents={pool: 2, from: checkpoints, every_steps: 40}"
WORLD = ("env=pettingzoo", "env.id=support.duels.Duel", "tuned=none", "network.net_arch=[8]",
         "device=cpu", "num_threads=1", "n_envs=2", "eval.episodes=4", "log.tensorboard=false",
         "report.video=false")  # fmt: skip
TASK = (*WORLD, POOL, "n_timesteps=200", "eval.every_steps=100", "algo.hyperparams.n_steps=10",
        "algo.hyperparams.batch_size=20")  # fmt: skip


def make_worlds(*words, n_envs=2):
    config = make_config(*TASK, *words)
    return make_own_vec_env(config.env, n_envs, config.vec_env, 3)


class Always:
    """An opponent of step 7 that always does the same, and remembers what it saw."""

    is_maskable = False

    def __init__(self, action=3):
        self.action, self.seen = action, []

    def draw(self, random):
        return 7

    def find(self, step):
        return self if step == 7 else None

    def act(self, step, observations, masks, seed):
        self.seen.append(observations)
        n = len(observations["turn"] if isinstance(observations, dict) else observations)
        return np.full(n, self.action)


def test_the_rows_are_the_side_that_learns_and_the_opponent_plays_the_other():
    venv, alone = make_worlds("env.opponents.side=blue", n_envs=1), Duel()
    venv.inner.opponents = opponent = Always()
    seen = venv.reset()
    alone.reset(seed=venv.inner.worlds[0].seed)
    assert seen.shape == (1, 3)
    for bid in (0, 2, 1):
        seen, rewards, dones, infos = venv.step(np.array([bid]))
        expected = alone.step({"red": 3, "blue": bid})
        assert rewards[0] == np.float32(expected[1]["blue"])
        last = infos[0]["terminal_observation"] if dones[0] else seen[0]
        assert np.array_equal(last, expected[0]["blue"])
    assert dones.all()
    assert infos[0][RESULT] == (7, 0.0)
    assert infos[0]["episode"]["win_rate/pool"] == 0
    assert len(opponent.seen) == 3


def test_sides_alternate_from_episode_to_episode_and_between_worlds():
    venv = make_worlds()
    venv.reset()
    played = []
    for _ in range(4):
        for _ in range(3):
            _, _, _, infos = venv.step(np.zeros(2, int))
        played.append(["return/red" in info["episode"] for info in infos])
    assert played == [[True, False], [False, True]] * 2


def test_a_step_of_a_game_in_turns_has_the_reply():
    venv = make_worlds("env.id=support.games.Countdown", "env.kwargs.heap=20", n_envs=2)
    venv.inner.opponents = Always(action=1)
    seen = venv.reset()
    assert seen["turn"].ravel().tolist() == [1, 1]
    # In the second world the opponent has begun, and has taken two.
    heaps = [world.inner.game.left for world in venv.inner.worlds]
    assert heaps[0] in (20, 21)
    assert heaps[1] in (18, 19)
    seen, _, _, _ = venv.step(np.zeros(2, int))
    assert seen["turn"].ravel().tolist() == [1, 1]
    assert seen["observation"][:, 0].tolist() == [heap - 3 for heap in heaps]


def test_a_game_that_ends_with_the_reply_is_over_in_that_step():
    venv = make_worlds("env.id=support.games.Countdown", "env.kwargs.heap=3",
                       "env.opponents.side=left", n_envs=1)  # fmt: skip
    venv.inner.opponents = Always(action=1)
    venv.reset()
    if venv.inner.worlds[0].inner.game.left == 4:
        venv.step(np.ones(1, int))
    else:
        venv.step(np.zeros(1, int))
    assert venv.inner.worlds[0].n_steps in (0, 2)
    venv.reset()
    for _ in range(20):
        _, rewards, dones, infos = venv.step(np.zeros(1, int))
        if dones[0] and rewards[0] < 0:
            assert infos[0][RESULT] == (7, 0.0)
            return
    raise AssertionError("the opponent never took the last")


def test_games_that_the_other_side_always_ends_first_are_told():
    venv = make_worlds("env.id=support.games.Countdown", "env.kwargs.heap=1",
                       "env.opponents.side=right", n_envs=1)  # fmt: skip
    venv.inner.opponents = Always(action=1)
    with pytest.raises(RunError, match="ended before the first turn of right"):
        venv.reset()


def test_sides_can_have_several_agents():
    venv = make_worlds("env.kwargs.size=2", n_envs=2)
    assert venv.num_envs == 4
    venv.reset()
    for _ in range(3):
        _, rewards, dones, infos = venv.step(np.zeros(4, int))
    assert dones.all()
    assert rewards[0] == rewards[1]
    assert [RESULT in info for info in infos] == [True, False, True, False]


def test_opponents_act_at_random_where_there_is_no_pool_and_by_the_masks():
    venv = make_worlds("env.id=classic/tictactoe-v3", n_envs=1)
    venv.reset()
    for _ in range(40):
        mask = venv.env_method("action_masks")[0]
        _, rewards, dones, infos = venv.step(np.array([np.flatnonzero(mask)[0]]))
        if dones[0]:
            assert rewards[0] in (-1, 0, 1)
            assert infos[0][RESULT][0] == AT_RANDOM


def test_a_state_is_played_again_against_the_same_opponents():
    venv, other = make_worlds(), make_worlds()
    venv.inner.opponents, other.inner.opponents = Always(), Always()
    venv.reset()
    for _ in range(4):
        venv.step(np.ones(2, int))
    other.reset()
    assert other.restore(venv.state()) is None
    for _ in range(6):
        one, two = (each.step(np.full(2, 2)) for each in (venv, other))
        assert all(np.array_equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))
    assert venv.state()["inner"]["games"].tolist() == other.state()["inner"]["games"].tolist()
    missing = make_worlds()
    missing.reset()
    assert "the opponent of step 7 is missing" in missing.restore(venv.state())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("env.opponents.side=green",), "Known: alternate, blue, red"),
        (("env.kwargs.together=true",), "They work together, and none has an opponent"),
        (("env.id=support.meeting.Meeting",), "needs two sides of as many agents"),
        (("env.id=mpe2.simple_tag_v3",), "needs two sides of as many agents"),
        (("env.kwargs.names=[red,blue,green]",), "its agents are red, blue, green"),
    ],
)
def test_worlds_without_two_sides_are_refused(words, told):
    with pytest.raises(ConfigError, match=told):
        make_worlds(*words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("env=two_arms", POOL), "its robots work together"),
        (("env=cartpole", POOL), "opponents are for worlds of PettingZoo"),
        ((*TASK, "algo=recurrent_ppo"), "its policy cannot be an opponent"),
        ((*TASK, "algo=mappo"), "would see the opponent"),
        ((*TASK, "env.frame_stack=2"), "env.frame_stack with env.opponents"),
        ((*TASK, "distributed=2"), "distributed with env.opponents"),
        ((*TASK, "env.opponents.pool=0"), "env.opponents.pool=0"),
        ((*TASK, "env.opponents.latest_ratio=2"), "env.opponents.latest_ratio=2"),
        ((*TASK, "env.opponents={from: there}"), "must be 'checkpoints' or 'random'"),
        ((*TASK, "env.opponents={poool: 3}"), "Did you mean 'env.opponents.pool'"),
    ],
)
def test_what_does_not_go_with_opponents_is_refused(words, told, capsys):
    assert dispatch.run("train", [*words]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_without_opponents_nothing_changes():
    plain = make_config(*WORLD)
    assert plain.vec_env == "pettingzoo"
    assert "opponents" not in plain.env.model_dump()
    assert make_config(*TASK).vec_env == "self_play"
    assert make_config(*WORLD, "vec_env=self_play").vec_env == "pettingzoo"
    assert config_hash(make_config(*WORLD)) != config_hash(make_config(*TASK))


def test_ratings_are_those_of_elo():
    # Elo 1978: 400 points are ten to one, and 200 are 0.76.
    assert expected_score(1600, 1200) == pytest.approx(10 / 11)
    assert expected_score(1400, 1200) == pytest.approx(0.76, abs=0.001)
    pool = OpponentPool(make_config(*TASK))
    pool.rate(AT_RANDOM, 1.0)
    assert pool.rating == 1208
    pool.rate(AT_RANDOM, 0.5)
    assert 1207 < pool.rating < 1208


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a whole run, and one killed twice."""
    config = make_config(*TASK, "normalize=true", "checkpoint.every_steps=20")
    path = tmp_path_factory.mktemp("self_play")
    killed, result = train_with_a_kill(path / "killed", config, 4, 3)
    return train_run(path / "whole", config)[0], killed, result


@pytest.mark.training
def test_a_killed_run_goes_on_against_the_same_opponents(trained):
    whole, killed, result = trained
    assert result.exact, result.inexact_because
    assert run_digests(whole) == run_digests(killed)


@pytest.mark.training
def test_ratings_and_win_rates_are_logged(trained):
    run = trained[0]
    logged = {record["key"] for record in read_records(run.metrics_file)}
    assert {"selfplay/elo", "selfplay/pool", "rollout/win_rate/pool"} <= logged
    rates = list(read_records(run.evaluations_file))[-1]["metrics"]
    assert {"win_rate/random", "win_rate/pool", "draw_rate/random"} <= rates.keys()


@pytest.mark.training
def test_the_pool_is_bounded_and_holds_the_newest(trained):
    store = trained[0].checkpoints()
    state = store.load(store.steps()[-1]).state
    (kept,) = (v["account"]["pool"] for k, v in state["callbacks"].items() if "SelfPlay" in k)
    steps = [one["step"] for one in kept["opponents"]]
    # No iteration begins at the last step, 200.
    assert steps[-2:] == [120, 160]
    # Beside the pool only those that still play, one a world at most.
    assert len(steps) <= 2 + 2
    games = state["envs"]["vec_env"]["inner"]["games"]
    assert set(steps[:-2]) <= set(games[:, 2].tolist())


@pytest.mark.training
@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda one: one["weights"].popitem(), "do not fit the network"),
        (lambda one: one.update(rating=float("nan")), "a rating is nan"),
        (lambda one: one.update(step=-5), "step -5 is not a whole number"),
        (lambda one: one.update(weights={"a": "b"}), "are no arrays"),
        (lambda one: one.pop("normalization"), "does not fit this run"),
    ],
)
def test_a_damaged_opponent_is_one_line(edit, told, tmp_path):
    config = make_config(*TASK, "normalize=true")
    run = start_run(tmp_path / "run", config)
    assert ExpManager(config, run, StopAfter(4)).train().state == "interrupted"
    store = RunDir(run.path).checkpoints()
    checkpoint = store.load(store.steps()[-1])
    (kept,) = (
        value["account"]["pool"]
        for key, value in checkpoint.state["callbacks"].items()
        if "SelfPlay" in key
    )
    edit(kept["opponents"][0])
    write_folder(checkpoint.path, pack(checkpoint.state), dict(checkpoint.about))
    with pytest.raises(ConfigError, match=told) as caught:
        ExpManager(config, run).train()
    assert "\n" not in str(caught.value)


@pytest.mark.training
@pytest.mark.parametrize(
    "words",
    [
        ("algo=maskable_ppo", "env.id=classic/tictactoe-v3", "env.opponents.every_steps=20"),
        ("env.kwargs.size=2", "normalize=true"),
        ("env.opponents={from: random}",),
    ],
)
def test_a_run_is_resumed_exactly(words, capsys):
    assert dispatch.run("verify-resume", [*TASK, "n_timesteps=120", "eval.every_steps=60",
                                          *words]) == 0  # fmt: skip
    assert "identical" in capsys.readouterr().out


@pytest.mark.training
@pytest.mark.parametrize("algo", ["sac", "dqn"])
def test_off_policy_algorithms_play_too(algo, capsys):
    words = [*WORLD, POOL, f"algo={algo}", f"env.kwargs.continuous={str(algo == 'sac').lower()}",
             "n_timesteps=120", "eval.every_steps=60", "algo.hyperparams.learning_starts=30",
             "algo.hyperparams.batch_size=16"]  # fmt: skip
    assert dispatch.run("verify-resume", words) == 0
    assert "identical" in capsys.readouterr().out


@pytest.mark.training
def test_a_trained_policy_is_evaluated_against_random_actions(trained, capsys):
    assert dispatch.run("evaluate", [str(trained[0].path), "--episodes", "6", "--trust"]) == 0
    assert "win_rate/random" in capsys.readouterr().out
