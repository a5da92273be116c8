"""The weight of the cost: what agents are given, how it moves, that its state is whole."""

import gymnasium
import numpy as np
import pytest
from sb3_contrib import ARS
from stable_baselines3.common.vec_env import DummyVecEnv
from support.training import tiny_config

from rlzoo_plus.config.schema import CostConfig
from rlzoo_plus.envs.cost_limit import CostLimitVecEnv, cost_of
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.monitor import EpisodeMonitor
from rlzoo_plus.errors import ConfigError, RunError


class Priced(gymnasium.Env):
    """Episodes of four steps of reward 1, each of which costs what it is told."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, cost):
        self.cost = cost

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, False, self.steps == 4, {"cost": self.cost}


def priced(*costs, **config):
    makers = [lambda cost=cost: EpisodeMonitor(Priced(cost)) for cost in costs]
    return CostLimitVecEnv(DummyVecEnv(makers), CostConfig(every_episodes=1, **config))


def played(venv, n_steps):
    venv.reset()
    return [venv.step(np.zeros((venv.num_envs, 1)))[1:] for _ in range(n_steps)]


def test_a_cost_above_the_limit_takes_more_of_the_reward_episode_by_episode():
    steps = played(priced(2.0, limit=4.0, kp=0.25, ki=0.5, kd=0.0), 9)
    rewards = [float(step[0][0]) for step in steps]
    # 8 - 4 above the limit: 0.25 * 4 + 2, then 0.25 * 4 + 4.
    assert rewards[:4] == [1.0] * 4
    assert rewards[4:8] == pytest.approx([(1 - 3 * 2) / 4] * 4)
    assert rewards[8] == pytest.approx((1 - 5 * 2) / 6)


def test_a_cost_below_the_limit_costs_nothing_and_saves_nothing_up():
    venv = priced(0.5, limit=4.0)
    assert {float(step[0][0]) for step in played(venv, 40)} == {1.0}
    assert venv.state()["integral"] == 0.0


def test_the_weight_has_a_greatest_value():
    venv = priced(1000.0, limit=0.0, max_weight=7.0)
    played(venv, 40)
    assert venv.weight == 7.0


def test_returns_are_those_of_the_environment_and_the_cost_is_told_with_them():
    ended = [step[2][0]["episode"] for step in played(priced(2.0, limit=4.0), 8) if step[1][0]]
    assert [episode["r"] for episode in ended] == [4.0, 4.0]
    assert [episode["cost/episode"] for episode in ended] == [8.0, 8.0]
    assert ended[0]["cost/weight"] == 0.0 < ended[1]["cost/weight"]


def test_ars_rates_its_candidates_by_what_agents_are_given():
    # Their returns in the environment are 4: those of its monitor.
    ars = ARS("LinearPolicy", priced(2.0, limit=0.0, kp=100.0, max_weight=3.0), n_delta=1, seed=0)
    rated = []
    evaluate = ars.evaluate_candidates
    ars.evaluate_candidates = lambda *args: rated.append(evaluate(*args)) or rated[-1]
    ars.learn(16)
    assert rated[-1].tolist() == pytest.approx([4 * (1 - 3 * 2) / 4] * 2)


def test_each_environment_pays_its_own_cost():
    rewards = played(priced(0.0, 2.0, limit=4.0), 5)[-1][0]
    assert rewards[1] < 0.0 < rewards[0] < 1.0


def test_the_state_goes_on_where_it_was():
    one, other = (priced(2.0, 1.0, limit=3.0, kd=0.3) for _ in range(2))
    played(one, 7)
    other.restore(one.state())
    for layer in (one, other):
        layer.venv.reset()
    rewards = [[venv.step(np.zeros((2, 1)))[1].tolist() for _ in range(9)] for venv in (one, other)]
    assert rewards[0] == rewards[1]
    assert {k: np.asarray(v).tolist() for k, v in one.state().items()} == {
        k: np.asarray(v).tolist() for k, v in other.state().items()
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [({"running": np.zeros(3)}, "environments"), ({"weight": "1"}, "not a number")],
)
def test_a_state_that_does_not_fit_is_refused(change, message):
    venv = priced(1.0, limit=1.0)
    with pytest.raises(ValueError, match=message):
        venv.restore({**venv.state(), **change})


def test_a_cost_that_is_no_number_ends_the_run():
    with pytest.raises(RunError, match="must be a number"):
        played(priced(float("nan"), limit=1.0), 1)


def test_the_cost_of_a_robot_is_the_number_of_joints_beyond_its_limits():
    assert cost_of({"violations": {"velocity": 2, "torque": 1}}) == 3.0
    assert cost_of({"violations": {"velocity": 2}, "cost": 0.5}) == 0.5
    assert cost_of({}) == 0.0


def test_goals_that_are_exchanged_afterwards_have_no_price():
    config = tiny_config("ppo", "tests/TinyGoal-v0", "cost={limit: 1}")
    with pytest.raises(ConfigError, match="hindsight replay"):
        make_train_env(config, 0)
