"""Updates from recordings give the bits of Stable-Baselines3, or are not made."""

import logging
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN, TQC, CrossQ
from sb3_contrib.common.utils import quantile_huber_loss as sb3_quantile_loss
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from support.training import assert_same_tree, tiny_config, train_run
from torch.nn import functional
from twins import outcome, same_as_sb3, train

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.fast.door import Accelerated, record
from rlzoo_plus.fast.recorded import graphs, tape
from rlzoo_plus.fast.recorded.quantiles import quantile_huber_loss

pytestmark = pytest.mark.training


def linear(value):
    return lambda remaining: value * remaining


SCHEDULES = {"learning_rate": linear(1e-3), "clip_range": linear(0.3)}
CONTINUOUS, DISCRETE, TINY = "Pendulum-v1", "CartPole-v1", "tests/TinyReach-v0"
GOAL, HINDSIGHT = "tests/TinyGoal-v0", {"replay_buffer_class": HerReplayBuffer}
GSDE = {"use_sde": True, "sde_sample_freq": 4}
SMALL = {"n_steps": 64, "batch_size": 48, "n_epochs": 3}  # the last minibatch is smaller
ONE_STEP = {"learning_starts": 40, "batch_size": 32, "policy_kwargs": {"net_arch": [32, 24]}}
TWO_STEPS = {**ONE_STEP, "train_freq": 8, "gradient_steps": 2}
SIX_STEPS = {**ONE_STEP, "train_freq": 8, "gradient_steps": 6, "learning_rate": linear(1e-3)}
# Fewer batches of actors and of critics than the tests make: both pass the boundary, one by one.
WARM = {"net_arch": {"pi": [24], "qf": [32, 16]}, "renorm_warmup_steps": 9, "n_critics": 3}
NOISE = {"action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1))}
OFF_POLICY = {
    "sac": (SAC, TINY, False, ONE_STEP),
    "sac-gsde-normalized-schedule": (SAC, CONTINUOUS, True, {**SIX_STEPS, "use_sde": True}),
    "sac-fixed-entropy": (SAC, CONTINUOUS, False, {**SIX_STEPS, "ent_coef": 0.1}),
    "sac-late-targets": (SAC, CONTINUOUS, False, {**SIX_STEPS, "target_update_interval": 4}),
    "sac-nstep": (SAC, CONTINUOUS, False, {**SIX_STEPS, "n_steps": 3}),
    "td3": (TD3, CONTINUOUS, False, ONE_STEP),
    "td3-tiny-normalized-schedule": (TD3, TINY, True, SIX_STEPS),
    # The first update that moves the actor does so in its first step, the next one in its second.
    "td3-late-actor": (TD3, CONTINUOUS, False, {**TWO_STEPS, "policy_delay": 3}),
    "tqc": (TQC, CONTINUOUS, False, SIX_STEPS),
    "tqc-tiny-gsde-normalized": (TQC, TINY, True, {**SIX_STEPS, "use_sde": True}),
    "dqn": (DQN, DISCRETE, False, {**ONE_STEP, "target_update_interval": 100}),
    "dqn-normalized-schedule": (DQN, DISCRETE, True, {**SIX_STEPS, "max_grad_norm": 0.5}),
    "crossq": (CrossQ, TINY, False, ONE_STEP),
    "crossq-late-actor-gsde": (CrossQ, CONTINUOUS, True, {**SIX_STEPS, **GSDE, "policy_delay": 4}),
    "crossq-fixed-entropy-noise": (
        CrossQ,
        CONTINUOUS,
        False,
        {**SIX_STEPS, **NOISE, "ent_coef": 0.1},
    ),
    "crossq-warm": (CrossQ, TINY, True, {**SIX_STEPS, "n_steps": 3, "policy_kwargs": WARM}),
    "qrdqn": (QRDQN, DISCRETE, False, {**ONE_STEP, "target_update_interval": 100}),
    "qrdqn-clipped": (QRDQN, DISCRETE, True, {**SIX_STEPS, "max_grad_norm": 0.5, "n_steps": 3}),
    "sac-goal-hindsight": (SAC, GOAL, False, {**SIX_STEPS, **HINDSIGHT}),
    "tqc-goal-normalized-gsde": (TQC, GOAL, True, {**SIX_STEPS, "use_sde": True}),
    "td3-goal-hindsight-normalized": (TD3, GOAL, True, {**SIX_STEPS, **HINDSIGHT}),
}
# For many steps only: a third environment for each, with few updates.
FEW = {**SIX_STEPS, "train_freq": 16, "gradient_steps": 4}
FURTHER = {
    "sac-car-gsde": (SAC, "MountainCarContinuous-v0", False, {**FEW, "use_sde": True}),
    "td3-car-normalized": (TD3, "MountainCarContinuous-v0", True, FEW),
    "tqc-car-normalized": (TQC, "MountainCarContinuous-v0", True, FEW),
    "crossq-car-gsde": (CrossQ, "MountainCarContinuous-v0", False, {**FEW, "use_sde": True}),
    "qrdqn-acrobot": (QRDQN, "Acrobot-v1", False, FEW),
    "dqn-acrobot": (DQN, "Acrobot-v1", False, FEW),
    "dqn-car-normalized": (DQN, "MountainCar-v0", True, FEW),
}
CASES = {
    "ppo": (PPO, CONTINUOUS, False, SMALL),
    "ppo-discrete-schedules": (PPO, DISCRETE, False, {**SMALL, **SCHEDULES}),
    "ppo-tiny-normalized": (PPO, TINY, True, {**SMALL, "ent_coef": 0.01}),
    "ppo-gsde-normalized-schedules": (PPO, CONTINUOUS, True, {**SMALL, **GSDE, **SCHEDULES}),
    "ppo-early-stop": (PPO, CONTINUOUS, False, {**SMALL, "target_kl": 0.005}),
    "ppo-value-clip": (PPO, DISCRETE, True, {**SMALL, "clip_range_vf": linear(0.2)}),
    "a2c": (A2C, CONTINUOUS, False, {"n_steps": 16}),
    "a2c-discrete-normalized": (
        A2C,
        DISCRETE,
        True,
        {"n_steps": 16, "learning_rate": linear(1e-3)},
    ),
    "a2c-tiny-adam": (A2C, TINY, False, {"n_steps": 16, "use_rms_prop": False}),
    "ppo-goal-schedules": (PPO, GOAL, False, {**SMALL, **SCHEDULES}),
    "a2c-goal-normalized-gsde": (A2C, GOAL, True, {"n_steps": 16, **GSDE}),
    "a2c-gsde": (A2C, CONTINUOUS, True, {"n_steps": 16, **GSDE, "normalize_advantage": True}),
}


def assert_same_as_sb3(case, steps):
    agent = same_as_sb3(case, steps)
    assert not agent.recorded.reason
    assert agent.recorded.n_recorded > 2
    if issubclass(case[0], OnPolicyAlgorithm):
        assert not agent.rollouts.reason
        assert agent.rollouts.n_recorded > 2
    else:
        assert not agent.rollouts.reason


@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_stable_baselines3(name):
    assert_same_as_sb3(CASES[name], 1_280)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_weights_of_off_policy_algorithms_are_those_of_stable_baselines3(name):
    assert_same_as_sb3(OFF_POLICY[name], 400)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, *OFF_POLICY, *FURTHER])
def test_weights_are_those_of_stable_baselines3_after_many_steps(name):
    assert_same_as_sb3({**CASES, **OFF_POLICY, **FURTHER}[name], 20_000)


@pytest.mark.parametrize("seed", range(40))
def test_the_quantile_loss_has_the_bits_of_sb3_contrib(seed):
    torch.manual_seed(seed)
    n, m, batch = torch.randint(1, 40, (3,)).tolist()
    is_of_tqc, scale = seed % 2 == 0, 10.0 ** (seed % 5 - 2)
    current = (scale * torch.randn(batch, *[2] * is_of_tqc, n)).requires_grad_()
    target = scale * torch.randn(batch, *[1] * is_of_tqc, m)
    if seed % 4 < 2:  # some differences are 0 or 1
        current, target = current.detach().round().requires_grad_(), target.round()
    target[0].view(-1)[0] = (0.0, torch.inf, torch.nan)[seed % 3]
    expected = sb3_quantile_loss(current, target, sum_over_quantiles=not is_of_tqc)
    found = quantile_huber_loss(current, target, sums=not is_of_tqc)
    gradients = [torch.autograd.grad(each, current)[0] for each in (found, expected)]
    for part in ((found, expected), gradients):
        torch.testing.assert_close(*part, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("algorithm", [PPO, DQN, SAC])
def test_updates_from_pictures_are_those_of_stable_baselines3(algorithm):
    def env():
        return gym.make("tests/TinyImage-v0", discrete=algorithm is DQN)

    arguments = SMALL if algorithm is PPO else {**FEW, "buffer_size": 500, "policy_kwargs": {}}
    agent = same_as_sb3((algorithm, env, False, arguments), 600)
    assert not agent.recorded.reason
    assert agent.recorded.n_recorded
    if algorithm is PPO:
        assert not agent.rollouts.reason


class Ascent(PPO):
    """A loss of its own: half of the usual gradient."""

    def train(self):
        self.ent_coef = 0.5
        super().train()


def test_an_algorithm_with_its_own_train_is_left_alone(caplog):
    caplog.set_level(logging.INFO)
    case = (Ascent, DISCRETE, False, SMALL)
    agent = same_as_sb3(case, 600)
    assert agent.recorded.n_recorded == 0
    assert "Ascent.train" in caplog.text


class OwnLoss(PPO):
    """A policy gradient of the user, without a ratio, and one pass over the rollout."""

    def train(self):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for data in self.rollout_buffer.get(self.batch_size):
            values, log_prob, _ = self.policy.evaluate_actions(data.observations, data.actions)
            loss = functional.mse_loss(values.flatten(), data.returns)
            loss = loss - (log_prob * data.advantages).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()
        self._n_updates += 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ascent, OwnLoss])
def test_an_algorithm_with_a_loss_of_its_own_is_itself_after_many_steps(kind):
    case = (kind, CONTINUOUS, True, {**SMALL, **GSDE})
    agent = same_as_sb3(case, 20_000)
    assert agent.recorded.n_recorded == 0


class OwnPolicy(ActorCriticPolicy):
    def evaluate_actions(self, obs, actions):
        values, log_prob, entropy = super().evaluate_actions(obs, actions)
        return values, log_prob * np.random.default_rng(0).random(), entropy


class OwnAdam(torch.optim.Adam):
    pass


@pytest.mark.parametrize("part", ["policy", "optimizer", "hook"])
def test_code_of_the_user_is_left_alone(part):
    torch.set_num_threads(1)
    policy = OwnPolicy if part == "policy" else "MlpPolicy"
    kwargs = {"policy_kwargs": {"optimizer_class": OwnAdam}} if part == "optimizer" else {}
    agent = with_iteration_hook(PPO, Accelerated)(
        policy, make_vec_env(DISCRETE, 2), device="cpu", **SMALL, **kwargs
    )
    if part == "hook":
        agent.policy.action_net.register_forward_hook(lambda module, given, result: result * 1.0)
    record(agent)
    agent.learn(300)
    assert agent.recorded.n_recorded == 0
    assert "yours" in agent.recorded.reason


def test_a_wrong_recording_is_noticed_and_not_used(monkeypatch, caplog):
    case = CASES["ppo-discrete-schedules"]
    plain = outcome(train(case, 1_000, recorded=False))
    monkeypatch.setattr(
        "rlzoo_plus.fast.recorded.on_policy.F.mse_loss",
        lambda a, b: functional.smooth_l1_loss(a, b),
    )
    # SB3 looks the loss up in the same module.
    monkeypatch.setattr("stable_baselines3.ppo.ppo.F", _Losses())
    agent = train(case, 1_000, recorded=True)
    assert_same_tree(outcome(agent), plain)
    assert agent.recorded.n_recorded == 0
    assert "updates are not recorded" in caplog.text


@pytest.mark.parametrize(("target_kl", "epochs"), [(None, 1), (1000.0, 3)])
def test_only_what_tells_as_much_as_the_whole_is_made_twice(target_kl, epochs, monkeypatch):
    taken = []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *a, **k: taken.append(step(*a, **k)))
    arguments = {**SMALL, "target_kl": target_kl}
    agent = train((PPO, TINY, False, arguments), 256, recorded=True)
    # Steps of SB3 itself; 256 rows a rollout.
    assert len(taken) == epochs * len(range(0, 256, SMALL["batch_size"]))
    assert agent._n_updates == SMALL["n_epochs"]


def test_a_call_bound_to_the_wrong_function_is_noticed(monkeypatch):
    case, aten, found = CASES["a2c"], torch.ops.aten, graphs._writing
    plain = outcome(train(case, 500, recorded=False))

    def wrong(call):
        return found(aten.sin.default if call is aten.tanh.default else call)

    monkeypatch.setattr(graphs, "_writing", wrong)
    agent = train(case, 500, recorded=True)
    assert_same_tree(outcome(agent), plain)
    assert agent.recorded.n_recorded == 0
    assert "differs from SB3" in agent.recorded.reason


def test_what_torchscript_cannot_call_is_left_to_stable_baselines3(monkeypatch):
    def not_compiled(*args, **kwargs):
        raise graphs.NotCompilableError("no such call")

    monkeypatch.setattr(tape, "compiled", not_compiled)
    agent = train(CASES["a2c"], 200, recorded=True)
    assert "no such call" in agent.recorded.reason


class _Losses:
    mse_loss = staticmethod(functional.mse_loss)


_BLOCKS = ("network=simba", "network.net_arch=[8,8]")


@pytest.mark.parametrize(
    ("algo", "network"),
    [
        *((algo, ("network=droq",)) for algo in ("sac", "td3", "crossq", "qrdqn")),
        *((algo, _BLOCKS) for algo in ("ppo", "sac", "dqn")),
    ],
)
def test_other_networks_are_recorded(algo, network):
    discrete = ["env.kwargs.discrete=true"] if algo in ("dqn", "qrdqn") else []
    config = tiny_config(algo, TINY, *discrete, *network, "n_timesteps=160")
    agents = []
    for updates in (True, False):
        torch.set_num_threads(1)
        chosen = config.model_copy(update={"record_updates": updates})
        agents.append(make_agent(chosen, make_train_env(chosen, 1), 1))
        agents[-1].learn(160)
    assert_same_tree(*map(outcome, agents))
    assert agents[0].recorded.n_recorded
    assert not agents[0].recorded.reason


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_run_writes_the_same_with_and_without(algo, tmp_path):
    config = tiny_config(algo, TINY, "normalize=true", "n_timesteps=160", "export.sb3_zip=true")
    off = config.model_copy(update={"record_updates": False})
    assert config_hash(off) == config_hash(config)
    digests, zips = [], []
    for name, one in (("on", config), ("off", off)):
        run_dir, _ = train_run(tmp_path / name, one)
        digests.append(run_digests(run_dir))
        with zipfile.ZipFile(run_dir.path / "final_sb3" / "model.zip") as archive:
            zips.append({n: archive.read(n) for n in archive.namelist() if n.endswith("pth")})
    assert digests[0] == digests[1]
    assert zips[0] == zips[1]


def test_frozen_parts_stay_and_the_others_learn_the_same():
    config = tiny_config("ppo", TINY, "freeze=[action_net]", "n_timesteps=160")
    results = []
    for updates in (True, False):
        chosen = config.model_copy(update={"record_updates": updates})
        torch.set_num_threads(1)
        venv = make_train_env(chosen, 1)
        agent = make_agent(chosen, venv, 1)
        agent.learn(160)
        results.append(outcome(agent))
    assert_same_tree(*results)
