"""NaN and infinity end a run with one line, and never reach what is saved."""

import random

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from support.libraries import ACTING, needs
from support.training import start_run, tiny_config

from rlzoo_plus.agents.policy import save_policy
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.errors import RunError
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
FAST = ("ppo", "td3", "dqn", "ars")
EVERY = [
    pytest.param(algo, marks=needs(algo) + ([] if algo in FAST else [pytest.mark.slow]))
    for algo in ACTING
]
OFTEN = (
    "n_timesteps=640", "checkpoint.every_steps=32", "eval.every_steps=32",
    "checkpoint.keep=50", "checkpoint.every_minutes=null",
)  # fmt: skip


def _config(algo, *overrides):
    """Return a short run of an algorithm, with many checkpoints and evaluations."""
    env = {"maskable_ppo": "tests/TinyMasked-v0", "her": "tests/TinyGoal-v0"}
    if algo in ("dqn", "qrdqn", "sac_discrete", "sbx_dqn"):
        overrides += ("env.kwargs.discrete=true",)
    if algo == "her":
        overrides += ("algo.hyperparams.learning_starts=40",)
    keys = {override.partition("=")[0] for override in overrides}
    often = [override for override in OFTEN if override.partition("=")[0] not in keys]
    return tiny_config(algo, env.get(algo, "tests/TinyReach-v0"), *often, *overrides)


def _poisoned(algo, at_step, what="reward", value="nan", n_envs=1):
    poison = f"{{at_step: {at_step}, what: {what}, value: {value}}}"
    wrapper = f"env.wrappers=[{{support.tiny_envs.Poisoned: {poison}}}]"
    every = f"checkpoint.every_steps={32 * n_envs}"
    return _config(algo, wrapper, "eval.every_steps=null", f"n_envs={n_envs}", every)


def _broken_off(path, config):
    """Train a run that must break off; return its directory and the reason."""
    run_dir = start_run(path, config)
    with pytest.raises(RunError) as caught:
        ExpManager(config, run_dir).train()
    status = run_dir.read_status()
    assert (status["state"], status["message"]) == ("failed", str(caught.value))
    assert "\n" not in str(caught.value)
    assert not run_dir.final.exists()
    return run_dir, str(caught.value)


def _assert_only_numbers(run_dir):
    """Check every weight of every checkpoint, and of best/ if there is one."""
    store = run_dir.checkpoints()
    assert store.steps()
    trees = [store.load(step).state["agent"] for step in store.steps()]
    states = [[tree["parameters"], tree["tensors"]] for tree in trees]
    if run_dir.best.is_dir():
        states.append(load_bundle(run_dir.best).weights)
    for array in _arrays(states):
        assert np.isfinite(array).all()


def _arrays(tree):
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, (dict, list, tuple)):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _arrays(part)


@pytest.mark.parametrize("algo", EVERY)
@pytest.mark.parametrize("what", ["reward", "observation", "last"])
def test_nan_of_an_environment_ends_the_run_and_is_never_saved(tmp_path, algo, what):
    at_step = random.Random(f"{algo} {what}").randrange(100, 300)
    run_dir, message = _broken_off(tmp_path, _poisoned(algo, at_step, what))
    # The last observation of an episode comes up to one episode later.
    expected = range(at_step, at_step + (9 if what == "last" else 1))
    assert any(f"returned NaN at step {step}: " in message for step in expected), message
    name = {"reward": ": reward", "observation": "observation", "last": ": last observation"}
    assert name[what] in message
    assert message.endswith("of environment 0.")
    _assert_only_numbers(run_dir)
    assert run_dir.checkpoints().load_newest().step <= at_step


def test_infinity_is_no_number_either_and_the_environment_is_named(tmp_path):
    config = _poisoned("ppo", 70, "reward", "inf", n_envs=2)
    _, message = _broken_off(tmp_path, config)
    assert message == "the environment returned inf at step 140: reward of environment 0."


class Spoiler(BaseCallback):
    """Makes one weight NaN at a step, as a diverging update does."""

    def __init__(self, at_step=200):
        super().__init__()
        self.at_step = at_step

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def _on_step(self):
        if self.num_timesteps >= self.at_step:
            policy = self.model.policy
            # The last: of most algorithms a critic, whose NaN no action shows.
            *_, (name, weight) = policy.named_parameters()
            weight = weight.detach().clone()
            weight.view(-1)[0] = torch.nan
            policy.load_state_dict({**policy.state_dict(), name: weight})
        return True


@pytest.mark.parametrize("algo", EVERY)
def test_weights_that_diverge_end_the_run_and_are_never_saved(tmp_path, algo):
    at_step = random.Random(algo).randrange(100, 300)
    spoiler = f"callbacks=[{{test_not_a_number.Spoiler: {{at_step: {at_step}}}}}]"
    run_dir, message = _broken_off(tmp_path, _config(algo, spoiler))
    assert "diverged" in message
    assert "NaN" in message
    _assert_only_numbers(run_dir)
    assert run_dir.checkpoints().load_newest().step <= at_step + 32
    assert load_bundle(run_dir.best).about["step"] <= at_step + 32


class Narrower(Spoiler):
    """Leaves the distribution of actions no width, with weights that are all finite."""

    def _on_step(self):
        if self.num_timesteps >= self.at_step:
            self.model.policy.log_std.data.fill_(-1e30)
        return True


def test_a_distribution_that_refuses_finite_weights_is_told_in_our_words(tmp_path, monkeypatch):
    # torch.compile and an export to ONNX switch the check off for the whole process.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    narrower = "callbacks=[{test_not_a_number.Narrower: {at_step: 1}}]"
    run_dir, message = _broken_off(tmp_path, _config("a2c", narrower, "eval.every_steps=null"))
    assert message.startswith("scale of the policy's Normal distribution became NaN, inf or zero")
    assert run_dir.checkpoints().steps() == []


def test_a_policy_with_nan_is_not_saved(tmp_path):
    from rlzoo_plus.agents.factory import make_agent
    from rlzoo_plus.envs.factory import make_train_env

    config = tiny_config()
    venv = make_train_env(config, 1)
    agent = make_agent(config, venv, 1)
    next(agent.policy.parameters()).data.fill_(torch.inf)
    with pytest.raises(RunError, match="diverged"):
        save_policy(tmp_path / "best", agent, config, {"step": 1})
    assert not (tmp_path / "best").exists()
    venv.close()


def test_a_run_with_nan_goes_on_from_its_last_checkpoint_to_the_same_end(tmp_path):
    config = _poisoned("sac", 150)
    run_dir, before = _broken_off(tmp_path, config)
    assert run_dir.checkpoints().steps()
    with pytest.raises(RunError) as caught:
        ExpManager(config, run_dir).train()
    # The step counts from the beginning of the run.
    step = int(str(caught.value).split("step ")[1].split(":")[0])
    assert step > run_dir.checkpoints().steps()[-1]
    assert before.replace("150", str(step)) == str(caught.value)
