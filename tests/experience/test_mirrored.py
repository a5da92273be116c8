"""Mirror images of experience: what a batch holds, what it teaches, and what is refused."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from support.training import make_config, tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError
from robots.mirror import Mirror, Reflection, flips

SHORT = (
    *("tuned=none", "network.net_arch=[16]", "num_threads=1", "device=cpu", "eval.episodes=1"),
    *("normalize=true", "n_timesteps=256", "env.kwargs.episode_s=1"),
)
OFF = ("algo.hyperparams.learning_starts=32", "algo.hyperparams.batch_size=16")
OF_ALGO = {
    "ppo": ("algo.hyperparams.n_steps=64", "algo.hyperparams.batch_size=32"),
    **dict.fromkeys(("sac", "td3", "tqc"), OFF),
    "dqn": (*OFF, "env.kwargs.discrete=true"),
}
SYMMETRY = "algo.symmetry=augment"


class Sided(gymnasium.Env):
    """Rewards an action that is what is observed first; with a mirror of its own."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)
    mirror = Mirror(flips(-1.0, 1.0, 1.0), flips(-1.0, 1.0))

    def __init__(self, **changed):
        vars(self).update(changed)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = self.observation_space.sample()
        return self.seen, {}

    def step(self, action):
        reward = -abs(float(action[0] - self.seen[0]))
        return self.reset()[0], reward, False, True, {}


def agent_of(algo, *overrides, env="cartpole_bullet"):
    config = make_config(f"algo={algo}", f"env={env}", *SHORT, *OF_ALGO[algo], SYMMETRY, *overrides)
    torch.set_num_threads(1)
    return make_agent(config, make_train_env(config, 1), 1)


def batch_of(agent):
    agent.learn(128)
    if hasattr(agent, "replay_buffer"):
        batch = agent.replay_buffer.sample(15, env=agent.get_vec_normalize_env())
        assert {len(values) for values in batch if values is not None} == {15}
        return agent.replay_buffer.sample(20, env=agent.get_vec_normalize_env())
    return next(agent.rollout_buffer.get(10))


def meant(agent, observations):
    """Return observations in the units of the environment."""
    normalizer = agent.get_vec_normalize_env()
    return normalizer.unnormalize_obs(observations.numpy().astype(np.float64))


@pytest.mark.parametrize("algo", ["ppo", "sac", "td3", "tqc", "dqn"])
def test_the_second_half_of_a_batch_is_the_mirror_image_of_the_first(algo):
    agent = agent_of(algo, "normalize.clip_observation=1000")
    batch = batch_of(agent)
    mirror = agent.get_env().get_attr("mirror")[0]
    for name, values in zip(batch._fields, batch, strict=True):
        if values is None:
            continue
        assert len(values) == 20
        first, second = values[:10], values[10:]
        if name.endswith("observations"):
            expected = mirror.observation.of(meant(agent, first))
            np.testing.assert_allclose(meant(agent, second), expected, atol=1e-5)
        elif name == "actions":
            expected = 1 - first if algo == "dqn" else -first
            assert torch.equal(second, expected)
        else:
            assert torch.equal(first, second), name


def test_without_normalization_the_numbers_themselves_are_mirrored():
    batch = batch_of(agent_of("sac", "normalize=false"))
    signs = torch.tensor([-1.0, -1.0, -1.0, 1.0, -1.0])
    assert torch.equal(batch.next_observations[10:], batch.next_observations[:10] * signs)


@pytest.mark.training
def test_a_policy_learns_to_act_alike_on_both_sides():
    gaps = []
    for symmetry in ("null", "augment"):
        agent = agent_of("ppo", f"algo.symmetry={symmetry}", "normalize=false", "n_timesteps=512")
        agent.learn(512)
        seen = np.random.default_rng(0).normal(0.0, 0.1, (200, 5)).astype(np.float32)
        seen[:, 3] = 1.0
        other = seen * np.array([-1, -1, -1, 1, -1], np.float32)
        one, opposite = (agent.predict(each, deterministic=True)[0] for each in (seen, other))
        gaps.append(float(abs(one + opposite).mean() / abs(one).mean()))
    assert gaps[1] < 0.5 * gaps[0]


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_run_resumes_bit_for_bit(algo, capsys):
    task = [f"algo={algo}", "env=cartpole_bullet", *SHORT, *OF_ALGO[algo], SYMMETRY]
    assert dispatch.run("verify-resume", [*task, "--kills", "1"]) == 0
    assert "identical" in capsys.readouterr().out


def test_an_environment_without_a_mirror_is_refused_before_training(tmp_path, capsys):
    task = ["algo=ppo", "env=pendulum", "num_threads=1", "n_timesteps=64", SYMMETRY]
    assert dispatch.run("train", [*task, f"run_dir={tmp_path / 'run'}"]) == 2
    assert "the environment has no mirror" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["env.wrappers=[time_feature]"], "observation is not one of 6 numbers"),
        (["env.frame_stack=2"], "observation is not one of 10 numbers"),
        (["env.kwargs.privileged=true", "env.kwargs.latency=1"], "a mirror is of a row of numbers"),
    ],
)
def test_what_changes_observations_is_refused(overrides, text):
    with pytest.raises(ConfigError, match=text):
        agent_of("ppo", *overrides)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"mirror": None}, "has no mirror"),
        ({"mirror": "left"}, "is not one of robots"),
        ({"mirror": ((1,), 2)}, "is not one of robots"),
        ({"mirror": Mirror(flips(1.0, 1.0), flips(1.0, 1.0))}, "observation is not one of 3"),
        ({"mirror": Mirror(flips(1.0, 1.0, 0.5), flips(1.0, 1.0))}, "observation is not one of 3"),
        (
            {"mirror": Mirror(Reflection((1, 2, 0), (1.0,) * 3), flips(1.0, 1.0))},
            "gives them back",
        ),
        ({"action_space": spaces.Box(-1, np.array([2, 1], np.float32))}, "bounds of Box"),
        ({"action_space": spaces.Discrete(2)}, "mirror of the action"),
        ({"action_space": spaces.MultiBinary(2)}, "Box or Discrete"),
    ],
)
def test_a_mirror_that_is_none_is_refused(changed, text):
    gymnasium.register("tests/Sided-v0", lambda: Sided(**changed))
    try:
        config = tiny_config("ppo", "tests/Sided-v0", SYMMETRY, "normalize=false")
        with pytest.raises(ConfigError, match=text):
            make_agent(config, make_train_env(config, 1), 1)
    finally:
        del gymnasium.registry["tests/Sided-v0"]


def test_an_environment_of_the_user_has_its_own_mirror():
    gymnasium.register("tests/Sided-v0", Sided)
    try:
        config = tiny_config("sac", "tests/Sided-v0", SYMMETRY, "normalize=false")
        batch = batch_of(make_agent(config, make_train_env(config, 1), 1))
    finally:
        del gymnasium.registry["tests/Sided-v0"]
    assert torch.equal(batch.actions[10:], batch.actions[:10] * torch.tensor([-1.0, 1.0]))


@pytest.mark.parametrize(
    ("algo", "overrides"),
    [
        ("recurrent_ppo", ()),
        ("ars", ()),
        ("maskable_ppo", ()),
        ("sac", ("algo.replay_buffer=prioritized",)),
        ("sac", ("asynchronous=true",)),
        ("sac", ("algo.symmetry=both",)),
    ],
)
def test_what_does_not_fit_is_refused(algo, overrides):
    with pytest.raises(ConfigError, match=r"algo\.symmetry"):
        tiny_config(algo, "tests/TinyReach-v0", SYMMETRY, *overrides)
