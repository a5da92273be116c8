"""Exploration by name: what it stands for, what it does, and what it refuses."""

import numpy as np
import pytest
import torch
from torch.func import functional_call

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.config.exploration import ExplorationConfig
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience.pink_noise import PinkActionNoise, pink_sequence
from rlzoo_plus.runs.load import load

TINY = ("env=cartpole_bullet", "tuned=none", "network.net_arch=[16]", "num_threads=1", "n_envs=2")
DISCRETE = ("env.kwargs.discrete=true",)


@pytest.fixture
def agent_of():
    """Return a function that makes the agent of a configuration."""
    made = []

    def make(*overrides):
        config = load([*TINY, *overrides])
        venv = make_train_env(config, 0, None)
        made.append(venv)
        return make_agent(config, venv, 0)

    yield make
    for venv in made:
        venv.close()


@pytest.mark.parametrize(
    ("by_name", "by_key"),
    [
        (
            ["algo=td3", "exploration=normal"],
            ["algo=td3", "algo.action_noise={type: normal, std: 0.1}"],
        ),
        (
            ["algo=sac", "exploration=ou", "exploration.start=0.2"],
            ["algo=sac", "algo.action_noise={type: ou, std: 0.2}"],
        ),
        (["algo=ppo", "exploration=gsde"], ["algo=ppo", "algo.hyperparams.use_sde=true"]),
        (
            ["algo=dqn", *DISCRETE, "exploration=epsilon_greedy", "exploration.end=0.2"],
            ["algo=dqn", *DISCRETE, "algo.hyperparams.exploration_final_eps=0.2"],
        ),
        (["algo=td3", "exploration=null"], ["algo=td3"]),
    ],
)
def test_what_the_library_does_itself_is_the_same_run_by_name_and_by_key(by_name, by_key):
    assert config_hash(load([*TINY, *by_name])) == config_hash(load([*TINY, *by_key]))


def test_a_name_replaces_the_noise_of_tuned_values():
    config = load(["algo=td3", "env=cartpole_bullet", "exploration=pink"])
    assert config.algo.action_noise.type == "pink"
    assert config.algo.action_noise.std == 0.3


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["algo=ppo", "exploration=pink"], "exploration=pink is for off-policy .* not for ppo"),
        (["algo=sac", "exploration=boltzmann"], "for dqn and qrdqn, and not for sac"),
        (["algo=dqn", "exploration=normal"], "try exploration=epsilon_greedy"),
        (["algo=sac", "exploration=parameter_noise"], "for td3 and ddpg"),
        (["algo=sac", "exploration=gsde", "exploration.start=1"], "gsde learns its own size"),
        (["algo=dqn", "exploration=boltzmann", "exploration.end=0"], "temperatures above 0"),
        (["algo=dqn", "exploration=epsilon_greedy", "exploration.start=2"], "from 0 to 1"),
        (["algo=td3", "exploration=pink", "exploration.fraction=0.5"], "nothing changes"),
        (["algo=td3", "exploration.start=0.5"], "needs a kind"),
        (["algo=td3", "exploration=pnk"], "pink"),
        (["algo=td3", "exploration=pink", "exploration.start=-1"], "exploration.start=-1"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(overrides, said):
    with pytest.raises(ConfigError, match=said) as refused:
        load(["env=cartpole_bullet", *overrides])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("progress", "value"), [(0.0, 1.0), (0.25, 0.6), (0.5, 0.2), (0.9, 0.2)])
def test_a_schedule_is_linear_in_its_share_of_the_run(progress, value):
    schedule = ExplorationConfig(kind="boltzmann", start=1.0, end=0.2, fraction=0.5)
    assert schedule.value(progress) == pytest.approx(value)


@pytest.mark.parametrize("length", [512, 513])
def test_the_power_of_pink_noise_falls_with_the_frequency(length):
    np.random.seed(0)
    noise = pink_sequence(length, 200)
    assert noise.shape == (length, 200)
    assert noise.var() == pytest.approx(1, rel=0.1)
    power = (np.abs(np.fft.rfft(noise, axis=0)) ** 2).mean(axis=1)[1 : length // 2]
    slope = np.polyfit(np.log(np.arange(1, length // 2)), np.log(power), 1)[0]
    assert slope == pytest.approx(-1, abs=0.03)


def test_pink_noise_begins_anew_with_an_episode_and_goes_on_beyond_its_length():
    noise = PinkActionNoise(np.zeros(2), np.full(2, 0.5), length=4)
    first = np.array([noise() for _ in range(4)])
    assert noise.sequence * 0.5 == pytest.approx(first)
    assert not np.allclose([noise() for _ in range(4)], first)
    before = noise.sequence
    noise()
    noise.reset()
    noise()
    assert noise.at == 1
    assert not np.allclose(before, noise.sequence)


def test_sequences_are_as_long_as_episodes(agent_of):
    assert agent_of("algo=td3", "exploration=pink", "env.time_limit=77").action_noise.length == 77


def test_noise_with_a_schedule_shrinks(agent_of):
    agent = agent_of("algo=td3", "exploration=normal", "exploration.start=0.4", "exploration.end=0")
    agent.learn(10)
    agent.num_timesteps = 1000
    sizes = []
    for progress in (0.0, 0.5, 1.0):
        agent._current_progress_remaining = 1 - progress
        drawn = [agent._sample_action(0, lambda: np.full((2, 1), 0.1), 2)[1] for _ in range(1)]
        clean = agent.predict(agent._last_obs, deterministic=True)[0]
        sizes.append(float(np.abs(drawn[0] - agent.policy.scale_action(clean)).max()))
    assert sizes == pytest.approx([0.1, 0.05, 0.0], abs=1e-6)


@pytest.mark.parametrize("algo", ["dqn", "qrdqn"])
def test_boltzmann_draws_in_proportion_to_the_exponential_of_values(algo, agent_of):
    agent = agent_of(f"algo={algo}", *DISCRETE, "exploration=boltzmann", "exploration.start=0.005")
    agent.learn(8)
    agent.num_timesteps = 1000
    observation = agent.policy.obs_to_tensor(agent._last_obs)[0]
    with torch.no_grad():
        values = (
            agent.policy.q_net(observation)
            if algo == "dqn"
            else agent.policy.quantile_net(observation).mean(dim=1)
        )
    expected = torch.softmax(values.double() / 0.005, dim=1).numpy()[0]
    np.random.seed(0)
    drawn = np.array([agent._sample_action(0)[0][0] for _ in range(1500)])
    counts = np.bincount(drawn, minlength=len(expected))
    # The 99.9% quantile of chi-square with one degree of freedom.
    assert ((counts - 1500 * expected) ** 2 / (1500 * expected)).sum() < 10.8
    assert not np.allclose(expected, 1 / len(expected), atol=0.01)


def test_parameter_noise_stays_for_an_episode_and_follows_the_distance(agent_of):
    agent = agent_of("algo=td3", "exploration=parameter_noise", "exploration.start=0.3")
    agent.learn(10)
    agent.num_timesteps = 1000
    first, again = (agent._sample_action(0)[1] for _ in range(2))
    assert np.array_equal(first, again)
    clean = agent.policy.scale_action(agent.predict(agent._last_obs, deterministic=True)[0])
    assert not np.allclose(first, clean)
    observation = agent.policy.obs_to_tensor(agent._last_obs)[0]
    with torch.no_grad():
        expected = functional_call(agent.actor, agent._noisy(), observation).numpy()
    assert first == pytest.approx(expected.clip(-1, 1))
    agent._episode_num += 1
    assert not np.array_equal(agent._sample_action(0)[1], first)
    for wanted, factor in ((0.0, 1 / 1.01), (9.0, 1.01)):
        before, agent.noise_steps = agent.noise_size, 49
        agent._adapt(0.25, wanted)
        assert agent.noise_size == pytest.approx(before * factor)


@pytest.mark.parametrize(
    "overrides",
    [
        ["algo=td3", "exploration=parameter_noise"],
        ["algo=ddpg", "exploration=pink", "exploration.end=0.05"],
        ["algo=crossq", "exploration=pink"],
        ["algo=qrdqn", *DISCRETE, "exploration=boltzmann", "exploration.end=0.1"],
    ],
    ids=lambda value: value[0] + value[-1],
)
def test_it_trains(overrides, agent_of):
    agent = agent_of(*overrides, "algo.hyperparams.learning_starts=10")
    agent.learn(64)
    assert agent.num_timesteps == 64
    assert agent._n_updates > 0
