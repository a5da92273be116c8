"""Each reference of examples/reference equals Stable-Baselines3 bit for bit."""

import importlib.util
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv

FOLDER = Path(__file__).parents[2] / "examples" / "reference"
SEED = 3


def reference(name):
    """Return a reference as a module, imported from its file."""
    spec = importlib.util.spec_from_file_location(f"reference_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def recorded(algorithm):
    """Return the algorithm with a record of each update: losses, weights, rollout."""

    class Recorded(algorithm):
        def train(self, *args, **kwargs):
            rollout = getattr(self, "rollout_buffer", None)
            parts = (
                {} if rollout is None else {name: np.copy(getattr(rollout, name)) for name in PARTS}
            )
            # The logger keeps means over gradient steps until the next report.
            self.logger.name_to_value.clear()
            super().train(*args, **kwargs)
            losses = {
                name.removeprefix("train/"): value
                for name, value in self.logger.name_to_value.items()
            }
            self.updates.append((parts, losses, weights(self.policy)))

    return Recorded


PARTS = ("observations", "actions", "log_probs", "rewards", "values", "advantages")


def weights(*modules):
    return [each.detach().numpy().copy() for module in modules for each in module.parameters()]


def copy_weights(target, source):
    """Give one module the weights of another, whatever their names."""
    with torch.no_grad():
        for ours, theirs in zip(target.parameters(), source.parameters(), strict=True):
            ours.copy_(theirs)


def seed_generators():
    np.random.seed(SEED)
    torch.manual_seed(SEED)


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def stable_baselines(algorithm, env, steps, count=1, **settings):
    """Return a model that has not yet trained, with a function that trains it and tells all."""
    envs = DummyVecEnv([lambda: gym.make(env)] * count)
    model = recorded(algorithm)("MlpPolicy", envs, seed=SEED, device="cpu", **settings)
    model.updates = []

    def train():
        seed_generators()
        model.learn(steps, log_interval=None)
        return model.updates

    return model, train


pytestmark = [
    pytest.mark.training,
    pytest.mark.filterwarnings("ignore:You have specified a mini-batch size"),
]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# CartPole has discrete actions and episodes that end by themselves; Pendulum has bounds that a
# Gaussian leaves, and episodes that only time ends.
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize(
    ("name", "algorithm", "ours", "theirs"),
    [
        ("ppo", PPO, {"num_steps": 64, "epochs": 2}, {"n_steps": 64, "n_epochs": 2}),
        ("a2c", A2C, {"num_steps": 60}, {"n_steps": 60}),
    ],
)
def test_on_policy(name, algorithm, ours, theirs, env):
    module = reference(name)
    shared = {"gamma": 0.98, "gae_lambda": 0.9, "learning_rate": 2e-3}
    steps = 4 * 3 * ours["num_steps"]
    settings = module.Settings(
        env=env, seed=SEED, total_steps=steps, num_envs=3, entropy_weight=0.01, **shared, **ours
    )
    if name == "ppo":
        settings.batch_size, theirs = 48, {**theirs, "batch_size": 48}
    model, train = stable_baselines(
        algorithm, env, steps, count=3, ent_coef=0.01, **shared, **theirs
    )
    envs = module.make_envs(env, 3)
    agent = module.Agent(envs.single_observation_space, envs.single_action_space)
    copy_weights(agent, model.policy)
    expected = train()
    seed_generators()
    policy_loss = "policy_gradient_loss" if name == "ppo" else "policy_loss"
    ended = 0
    updates = 0
    for update, (rollout, losses, after) in zip(
        module.train(settings, envs, agent), expected, strict=True
    ):
        for part in PARTS:
            own = getattr(update.rollout, part, update.advantages)
            np.testing.assert_array_equal(own.numpy().reshape(rollout[part].shape), rollout[part])
        assert update.losses["policy"] == losses[policy_loss]
        assert update.losses["value"] == losses["value_loss"]
        assert update.losses["entropy"] == losses["entropy_loss"]
        same(weights(agent), after)
        ended += len(update.returns)
        updates += 1
    assert updates == 4
    # What follows an episode that ended, or that time cut off, was part of it.
    assert ended > 0


# MountainCar's episodes end by time.
@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCar-v0"])
def test_dqn(env):
    module = reference("dqn")
    settings = module.Settings(
        seed=SEED,
        env=env,
        total_steps=304,
        buffer_size=200,
        learning_starts=100,
        train_every=8,
        gradient_steps=4,
        exploration_part=0.5,
        learning_rate=2.3e-3,
        target_every=10,
        hidden=64,
    )
    model, train = stable_baselines(
        DQN,
        env,
        304,
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=200,
        learning_starts=100,
        train_freq=8,
        gradient_steps=4,
        target_update_interval=10,
        exploration_fraction=0.5,
        exploration_final_eps=0.04,
    )
    world = gym.make(env)
    network = module.QNetwork(world, 64)
    copy_weights(network, model.q_net)
    expected = train()
    seed_generators()
    ours = module.train(settings, world, network)
    for update, (_, losses, after) in zip(ours, expected, strict=True):
        assert np.mean(update.losses) == losses["loss"]
        same(weights(network), after[: len(after) // 2])
    assert update.step == 304


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("sac", SAC), ("td3", TD3)],
)
def test_off_policy_with_bounded_actions(name, algorithm):
    module = reference(name)
    settings = module.Settings(
        seed=SEED, total_steps=230, buffer_size=150, learning_starts=100, hidden=32, batch_size=32
    )
    own = {}
    if name == "td3":
        own["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, 0.1))
    model, train = stable_baselines(
        algorithm,
        "Pendulum-v1",
        230,
        learning_rate=1e-3,
        gamma=settings.gamma,
        batch_size=32,
        buffer_size=150,
        learning_starts=100,
        policy_kwargs={"net_arch": [32, 32]},
        **own,
    )
    env = gym.make("Pendulum-v1")
    learner = module.Learner(env, settings)
    copy_weights(learner.actor, model.actor)
    copy_weights(learner.critics, model.critic)
    if name == "sac":
        copy_weights(learner.target, model.critic_target)
        nets = [learner.actor, learner.critics, learner.target]
    else:
        copy_weights(learner.target_actor, model.actor_target)
        copy_weights(learner.target_critics, model.critic_target)
        nets = [learner.actor, learner.target_actor, learner.critics, learner.target_critics]
    expected = train()
    seed_generators()
    for update, (_, losses, after) in zip(
        module.train(settings, env, learner), expected, strict=True
    ):
        assert {f"{key}_loss": value for key, value in update.losses.items()} == {
            key.replace("ent_coef", "temperature"): value
            for key, value in losses.items()
            if key.endswith("_loss")
        }
        same(weights(*nets), after)
    assert update.step == 230
    if name == "sac":
        assert learner.log_temperature.item() == model.log_ent_coef.item() != 0


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_a_reference_is_short_and_needs_torch_and_gymnasium_alone(file):
    text = file.read_text()
    assert len(text.splitlines()) < 250
    imported = {
        line.split()[1].split(".")[0]
        for line in text.splitlines()
        if line[:5] in {"impor", "from "}
    }
    assert imported - set(sys.stdlib_module_names) == {"gymnasium", "numpy", "torch"}
