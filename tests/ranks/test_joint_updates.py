"""Updates of two ranks against those of one process with all environments, by the same samples."""

import os
import signal
import traceback
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.running_mean_std import RunningMeanStd
from support.training import tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.config.shares import share_of
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.seeding import seed_generators
from rlzoo_plus.ranks.group import Group
from rlzoo_plus.ranks.joint_updates import JointLimit
from rlzoo_plus.ranks.rank_zero import join
from rlzoo_plus.ranks.statistics_of_ranks import merge

N_STEPS, N_ENVS, SIZE = 32, 4, 2
COLUMNS = ("observations", "actions", "values", "log_probs", "advantages", "returns")
JOINT = (f"n_envs={N_ENVS}", f"distributed={SIZE}", f"algo.hyperparams.n_steps={N_STEPS}")


class Alone:
    """The other ranks, of a test: nobody is told anything."""

    def __init__(self, group):
        self.group = group

    def order(self, order):
        pass

    def note_episodes(self, episodes):
        pass


def new_agent(config):
    agent = make_agent(config, make_train_env(config, 0), 0)
    agent.set_logger(Logger(None, []))
    agent._setup_learn(1000, None)
    return agent


def weights(agent):
    return {name: value.numpy().copy() for name, value in agent.policy.state_dict().items()}


def in_processes(alone, joint, folder):
    """Call `alone()` in a process and `joint(group)` in two; return what they have returned.

    This process never computes a gradient: a fork of one that has would wait for its threads.
    """
    for rank in (*range(SIZE), "alone"):
        if os.fork() == 0:
            signal.alarm(100)
            try:
                # Threads of this process are not there after a fork, and would be waited for.
                torch.set_num_threads(1)
                if rank == "alone":
                    found = alone()
                else:
                    found = joint(Group(folder, rank, SIZE, lambda error: error))
                np.savez(folder / f"{rank}.npz", **found)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    codes = [os.wait()[1] for _ in range(SIZE + 1)]
    assert codes == [0] * (SIZE + 1)
    return [dict(np.load(folder / f"{name}.npz")) for name in ("alone", *range(SIZE))]


def order_of(rank, epoch):
    return np.random.default_rng([rank, epoch]).permutation(N_STEPS * N_ENVS // SIZE)


def permutations_of_rank(rank):
    epochs = iter(range(100))
    return lambda count: order_of(rank, next(epochs))


def permutations_of_both(batch_size):
    """Return an order in which each minibatch consists of one of each rank."""
    share, epochs = batch_size // SIZE, iter(range(100))

    def permutation(count):
        epoch = next(epochs)
        parts = [order_of(rank, epoch) + rank * count // SIZE for rank in range(SIZE)]
        rows = zip(*(part.reshape(-1, share) for part in parts), strict=True)
        return np.concatenate([np.concatenate(row) for row in rows])

    return permutation


PPO = ("algo.hyperparams.n_epochs=3", "algo.hyperparams.learning_rate=1e-3")
CASES = {
    "ppo, whole rollouts": ("ppo", 128, PPO),
    "ppo, minibatches": ("ppo", 32, PPO),
    "ppo, plain advantages": ("ppo", 32, (*PPO, "algo.hyperparams.normalize_advantage=false")),
    "ppo, early stop": ("ppo", 32, (*PPO, "algo.hyperparams.target_kl=1e-5")),
    "ppo, value clipped": ("ppo", 32, (*PPO, "algo.hyperparams.clip_range_vf=0.1")),
    "a2c": ("a2c", 128, ("algo.hyperparams.normalize_advantage=true",)),
}


@pytest.mark.training
@pytest.mark.parametrize(("algo", "batch_size", "more"), CASES.values(), ids=CASES)
def test_two_ranks_make_the_step_of_one_process(algo, batch_size, more, tmp_path, monkeypatch):
    size = () if algo == "a2c" else (f"algo.hyperparams.batch_size={batch_size}",)
    config = tiny_config(algo, "tests/TinyReach-v0", *JOINT, *size, *more)
    whole = new_agent(config.model_copy(update={"distributed": 1, "record_updates": False}))
    before, columns = collected(whole)

    def work(group):
        agent = new_agent(share_of(config))
        take(agent, before, columns, group.rank)
        join(agent, Alone(group))
        monkeypatch.setattr(np.random, "permutation", permutations_of_rank(group.rank))
        agent.train()
        return weights(agent) | logged_by(agent)

    def alone():
        monkeypatch.setattr(np.random, "permutation", permutations_of_both(batch_size))
        whole.train()
        return weights(whole) | logged_by(whole)

    expected, *found = in_processes(alone, work, tmp_path)
    check(before, expected, found)
    if "target_kl" in str(more):
        assert expected["log train/n_updates"] < 3


@pytest.mark.training
def test_trpo_searches_along_the_same_line_in_all_ranks(tmp_path):
    config = tiny_config("trpo", "tests/TinyReach-v0", *JOINT)
    whole = new_agent(config.model_copy(update={"distributed": 1, "record_updates": False}))
    before, columns = collected(whole)

    def work(group):
        agent = new_agent(share_of(config))
        take(agent, before, columns, group.rank)
        join(agent, Alone(group))
        np.random.seed(7 + group.rank)
        agent.train()
        assert (agent.rollout_buffer.n_envs, agent.batch_size) == (N_ENVS // SIZE, 8)
        return weights(agent) | logged_by(agent)

    def alone():
        np.random.seed(7)
        seed_generators(np.random.randint(2**31))
        whole.train()
        return weights(whole) | logged_by(whole)

    expected, *found = in_processes(alone, work, tmp_path)
    check(before, expected, found)
    assert expected["log train/is_line_search_success"] == 1


def collected(agent):
    """Let an agent collect a rollout; return its weights, and the columns."""
    before = weights(agent)
    agent.collect_rollouts(
        agent.env, SimpleNamespace(**no_callback()), agent.rollout_buffer, N_STEPS
    )
    return before, {name: getattr(agent.rollout_buffer, name).copy() for name in COLUMNS}


def no_callback():
    names = ("on_rollout_start", "update_locals", "on_rollout_end")
    return {"on_step": lambda: True, **dict.fromkeys(names, lambda *_: None)}


def take(agent, before, columns, rank):
    """Give an agent the weights, and its environments' part of a rollout."""
    agent.policy.load_state_dict({k: torch.from_numpy(v) for k, v in before.items()})
    share = slice(rank * N_ENVS // SIZE, (rank + 1) * N_ENVS // SIZE)
    agent.rollout_buffer.reset()
    for name, column in columns.items():
        setattr(agent.rollout_buffer, name, column[:, share].copy())
    agent.rollout_buffer.full = True


def logged_by(agent):
    return {f"log {k}": np.array(v) for k, v in agent.logger.name_to_value.items()}


def check(before, expected, found):
    """Compare the steps: all ranks alike bit for bit, and one process to 1e-6."""
    for name, value in expected.items():
        np.testing.assert_array_equal(found[0][name], found[1][name])
        is_logged = name.startswith("log ")
        # The mean of what each rank explains is another number.
        if not name.endswith("explained_variance"):
            np.testing.assert_allclose(found[0][name], value, rtol=1e-4 * is_logged, atol=1e-6)
    assert max(np.abs(expected[name] - value).max() for name, value in before.items()) > 1e-4


class Sum:
    """A group of a test whose other ranks have sent `news`."""

    def __init__(self, size=2):
        self.size, self.sent = size, []

    def total(self, values):
        self.sent.append(values.clone())
        return sum(self.sent[1:], self.sent[0].clone())


@pytest.mark.parametrize("shape", [(3,), ()])
def test_merged_statistics_are_those_of_all_samples(shape):
    rng = np.random.default_rng(0)
    common, together = RunningMeanStd(shape=shape), RunningMeanStd(shape=shape)
    for part in (common, together):
        part.update(np.random.default_rng(1).normal(100.0, 3.0, (50, *shape)))
    group = Sum()
    for _ in range(2):
        own = common.copy()
        for _ in range(5):
            samples = rng.normal(120.0, 0.1, (8, *shape))
            own.update(samples)
            together.update(samples)
        merge([own], [common], group)
    np.testing.assert_allclose(own.mean, together.mean, rtol=1e-12)
    np.testing.assert_allclose(own.var, together.var, rtol=1e-10)
    assert own.count == pytest.approx(together.count)
    assert np.shape(own.mean) == shape


def test_a_joint_limit_is_compared_with_the_mean_of_all_ranks():
    group = Sum()
    limit = JointLimit(0.02, group)
    assert not np.array(0.02, np.float32) > 1.5 * limit
    # The other rank's 0.05 is there by now: the mean is 0.035.
    assert np.array(0.05, np.float32) > 1.5 * limit
