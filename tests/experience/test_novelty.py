"""Random network distillation: what is new, what an agent gets for it, and what is refused."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.logger import configure
from support.resuming import assert_same_in_pieces
from support.training import assert_same_tree, bundle_weights, evaluations, tiny_config, train_run

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience.novelty import Novelty, NoveltyCallback

RND, TINY_ENV = "exploration=rnd", "tests/TinyReach-v0"
DISCRETE = "env.kwargs.discrete=true"
SPACE = spaces.Box(-1, 1, (3,), np.float32)


class Counting(gymnasium.Env):
    """Observes a number that counts all steps; each episode has three."""

    observation_space, action_space = SPACE, spaces.Discrete(2)

    def __init__(self):
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return np.full(3, -self.count / 1000, np.float32), {}

    def step(self, action):
        self.count, self.left = self.count + 1, self.left - 1
        return np.full(3, self.count / 1000, np.float32), 1.0, self.left == 0, False, {}


@pytest.fixture
def counting():
    gymnasium.register("tests/Counting-v0", Counting)
    yield "tests/Counting-v0"
    del gymnasium.registry["tests/Counting-v0"]


def agent_of(algo, env=TINY_ENV, *overrides):
    config = tiny_config(algo, env, RND, *overrides)
    torch.set_num_threads(1)
    return make_agent(config, make_train_env(config, 1), 1), NoveltyCallback(config.exploration)


def novelty_of(seed=0, n_envs=2):
    torch.manual_seed(seed)
    return Novelty(SPACE, n_envs, torch.device("cpu"))


def test_what_was_seen_often_is_no_longer_new():
    novelty, draws = novelty_of(), np.random.default_rng(0)
    for _ in range(100):
        rows = novelty.rows_of(draws.normal(0, 0.1, (64, 3)).astype(np.float32))
        novelty.rate(rows)
        novelty.learn(rows)
    near, far = (
        float(novelty.errors(novelty.rows_of(np.full((1, 3), x, np.float32)))) for x in (0.05, 0.4)
    )
    assert far > 5 * near


def test_the_discounted_sum_of_what_it_gives_has_unit_deviation():
    novelty, draws, sums, running = novelty_of(), np.random.default_rng(0), [], np.zeros(2)
    for _ in range(100):
        for step in novelty.rate(novelty.rows_of(draws.normal(size=(32, 3)).astype(np.float32))):
            running = 0.99 * running + step
            sums.append(running)
    tail = np.concatenate(sums[300:])
    assert novelty.rate(novelty.rows_of(np.zeros((6, 3), np.float32))).shape == (3, 2)
    assert 0.2 < tail.std() < 5


def test_dictionaries_and_choices_are_rows_of_numbers():
    space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2, 2), np.float32))
    novelty = Novelty(space, 1, torch.device("cpu"))
    given = {"b": np.arange(8, dtype=np.float32).reshape(2, 2, 2), "a": np.array([2, 0])}
    rows = novelty.rows_of(given).tolist()
    assert rows == [[0, 0, 1, 0, 1, 2, 3], [1, 0, 0, 4, 5, 6, 7]]


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_a_rollout_gets_the_bonus_of_what_each_step_led_to(algo, counting):
    agent, callback = agent_of(algo, counting, "n_envs=2", "exploration.start=0.25")
    rated, novelty = [], agent.novelty
    plain = novelty.rate
    novelty.rate = lambda rows: rated.append((rows, plain(rows))) or rated[-1][1]
    agent.train = agent._write_log = lambda *_: None
    steps = agent.n_steps
    agent.learn(2 * steps, callback)
    ((rows, bonus),) = rated
    # The end of an episode, not the start of the next one, whose numbers are negative.
    expected = np.repeat(np.arange(1, steps + 1) / 1000, 2)
    assert rows[:, 0].numpy() == pytest.approx(expected)
    assert agent.rollout_buffer.rewards == pytest.approx(1.0 + 0.25 * bonus)
    values = agent.rollout_buffer.values
    assert agent.rollout_buffer.returns == pytest.approx(agent.rollout_buffer.advantages + values)
    at_end = agent.rollout_buffer.rewards[2] - values[2]
    assert agent.rollout_buffer.advantages[2] == pytest.approx(at_end, abs=1e-5)
    assert agent.logger.name_to_value["rollout/rnd_bonus"] == pytest.approx(0.25 * bonus.mean())


@pytest.mark.training
@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_a_batch_of_a_replay_buffer_gets_the_bonus(algo, counting):
    env = (counting,) if algo == "dqn" else (TINY_ENV,)
    agent, callback = agent_of(algo, *env, "n_envs=2", "exploration.start=3")
    agent.learn(20, callback)
    np.random.seed(0)
    parent = type(agent.replay_buffer).__mro__[1]
    plain = parent.sample(agent.replay_buffer, 8)
    novelty = agent.novelty
    errors = novelty.scaled(novelty.errors(novelty.rows_of(plain.next_observations)))
    np.random.seed(0)
    batch = agent.replay_buffer.sample(8)
    assert torch.allclose(batch.rewards, plain.rewards + 3 * errors[:, None])
    assert torch.equal(batch.observations, plain.observations)
    assert (agent.replay_buffer.rewards[:10] <= 1.0).all()  # what is stored is the true one


def test_its_weight_follows_the_schedule():
    agent, callback = agent_of("ppo", TINY_ENV, "exploration.start=0.8", "exploration.end=0")
    callback.model = agent
    agent.set_logger(configure(None, []))
    for left, weight in ((1.0, 0.8), (0.75, 0.6), (0.0, 0.0)):
        agent._current_progress_remaining = left
        callback._set_weight(agent.novelty)
        assert agent.novelty.weight == pytest.approx(weight)


@pytest.mark.training
def test_evaluations_and_episodes_report_the_true_reward(tmp_path):
    run, _ = train_run(tmp_path / "a", tiny_config("ppo", TINY_ENV, RND, "exploration.start=1000"))
    rows = [(row["key"], row["value"]) for row in read_records(run.metrics_file)]
    assert max(value for key, value in rows if key == "rollout/rnd_bonus") > 1
    assert max(value for key, value in rows if key == "rollout/ep_rew_mean") < 50
    assert all(row["mean_return"] < 50 for row in evaluations(run))


@pytest.mark.training
@pytest.mark.parametrize(
    "case",
    [
        ("ppo", TINY_ENV, "n_envs=2", "exploration.end=0.1", "n_timesteps=512"),
        ("a2c", TINY_ENV, "n_timesteps=128"),
        ("sac", TINY_ENV, "normalize=true"),
        ("dqn", TINY_ENV, DISCRETE, "algo.replay_buffer=prioritized"),
    ],
    ids=" ".join,
)
def test_a_run_in_pieces_is_the_same(case, tmp_path):
    algo, env, *more = case
    config = tiny_config(algo, env, RND, *more, "checkpoint.every_steps=64")
    assert_same_in_pieces(tmp_path, config, 3)


@pytest.mark.slow
@pytest.mark.training
def test_a_run_that_is_killed_resumes_bit_for_bit(capsys):
    task = [
        *("algo=ppo", "env=cartpole_bullet", "tuned=none", "network.net_arch=[16]", RND),
        *("num_threads=1", "n_timesteps=768", "algo.hyperparams.n_steps=64", "eval.episodes=1"),
        *("algo.hyperparams.batch_size=32", "env.kwargs.episode_s=1"),
    ]
    assert dispatch.run("verify-resume", [*task, "--kills", "3"]) == 0
    assert "identical" in capsys.readouterr().out


@pytest.mark.training
@pytest.mark.parametrize(
    ("algo", "env", "overrides"),
    [
        ("trpo", TINY_ENV, ()),
        ("her", "tests/TinyGoal-v0", ()),
        ("td3", TINY_ENV, ("algo.hyperparams.n_steps=3", "algo.replay_buffer=lap")),
        ("ppo", "tests/TinyCrowd-v0", ("env.wrappers=[]",)),
    ],
)
def test_others_train_with_it(algo, env, overrides):
    agent, callback = agent_of(algo, env, *overrides)
    agent.learn(96, callback)
    assert agent._n_updates > 0
    assert agent.novelty.loss > 0


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_recorded_updates_give_the_same_weights(algo, tmp_path):
    found = []
    for key in ("record_updates=false", "record_updates=true"):
        run, _ = train_run(tmp_path / key, tiny_config(algo, TINY_ENV, RND, key, "n_timesteps=128"))
        found.append(bundle_weights(run.final))
    assert all(np.array_equal(value, found[1][name]) for name, value in found[0].items())


@pytest.mark.training
def test_updates_of_rollouts_are_still_recorded():
    agent, callback = agent_of("ppo", TINY_ENV)
    agent.learn(128, callback)
    assert agent.recorded.n_recorded > 0


def test_the_state_is_complete_and_one_that_does_not_fit_is_refused():
    one, other = novelty_of(0), novelty_of(1)
    rows = one.rows_of(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))
    one.rate(rows)
    one.learn(rows)
    state = one.state_dict()
    pack(state)
    other.load_state_dict(state)
    for each in (one, other):
        each.rate(rows)
        each.learn(rows)
    assert_same_tree(one.state_dict(), other.state_dict())
    name = "adam.0.exp_avg"
    for changed in ({name: np.zeros(2, np.float32)}, {name: "x"}, {"target.0.weight": None}):
        with pytest.raises((ValueError, TypeError)):
            other.load_state_dict({**state, "tensors": {**state["tensors"], **changed}})
    with pytest.raises(ValueError, match="does not fit"):
        other.load_state_dict({**state, "running": np.zeros(5)})
    with pytest.raises(KeyError):
        other.load_state_dict({**state, "tensors": {}})


def test_actions_are_chosen_as_without_it():
    for algo in ("td3", "ppo"):
        plain, with_bonus = (tiny_config(algo, TINY_ENV, *more) for more in ((), (RND,)))
        assert with_bonus.algo == plain.algo
        assert with_bonus.exploration.start == 20.0
        assert config_hash(plain) != config_hash(with_bonus)


@pytest.mark.training
def test_agents_with_and_without_it_do_not_share_it():
    agent, callback = agent_of("ppo")
    agent.learn(32, CallbackList([callback]))
    other, _ = agent_of("ppo")
    assert other.novelty is not agent.novelty
    assert "novelty" not in vars(agent)
    config = tiny_config()
    assert not hasattr(make_agent(config, make_train_env(config, 1), 1), "novelty")


@pytest.mark.parametrize(
    ("algo", "overrides", "text"),
    [
        ("recurrent_ppo", (RND,), "exploration=rnd is for ppo, a2c, sac and others without memory"),
        ("ars", (RND,), "exploration=rnd is for ppo, a2c, sac and others without memory"),
        ("ppo", (RND, "distributed=2", "n_envs=2"), "exploration=rnd with distributed=2"),
        ("sac", (RND, "asynchronous=true"), "exploration=rnd with asynchronous"),
        ("ppo", (RND, "exploration.start=-1"), r"exploration\.start"),
        ("ppo", (RND, "exploration.fraction=0.5"), r"Set exploration\.end, too"),
        ("ppo", ("exploration=rndd",), "exploration"),
    ],
)
def test_what_does_not_fit_is_refused(algo, overrides, text):
    with pytest.raises(ConfigError, match=text):
        tiny_config(algo, TINY_ENV, *overrides)


def test_images_are_refused_before_training(tmp_path, capsys):
    words = ["algo=ppo", "env.id=tests/TinyImage-v0", "env.packages=[support.tiny_envs]"]
    words += ["num_threads=1", "n_timesteps=64", f"run_dir={tmp_path / 'run'}"]
    assert dispatch.run("train", [*words, RND]) == 2
    assert "exploration=rnd compares rows of numbers" in capsys.readouterr().err
