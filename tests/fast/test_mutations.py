"""Whatever is changed in a live agent has the effect that it has without recordings."""

import copy
import datetime
import functools
import random

import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN, TQC, CrossQ
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize
from support.training import assert_same_tree
from torch import nn
from torch.nn.modules import module as all_modules
from torch.optim import optimizer as all_optimizers

from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.envs.plain_state import to_plain
from rlzoo_plus.fast.door import Accelerated, record
from rlzoo_plus.fast.recorded.bit_comparison import optimizers_of
from rlzoo_plus.fast.recorded.change_detector import watched

pytestmark = pytest.mark.training
SMALL = {"policy_kwargs": {"net_arch": [8, 8]}}
ON = {**SMALL, "n_steps": 16}
OFF = {**SMALL, "learning_starts": 16, "batch_size": 16, "train_freq": 4, "gradient_steps": 2}
BATCHES = {"renorm_warmup_steps": 8}
ALGORITHMS = {
    "PPO": (PPO, {**ON, "batch_size": 16, "n_epochs": 2}, 192),
    "A2C": (A2C, ON, 192),
    "SAC": (SAC, OFF, 96),
    "TD3": (TD3, OFF, 96),
    "TQC": (TQC, OFF, 96),
    "DDPG": (DDPG, OFF, 96),
    "DQN": (DQN, {**OFF, "target_update_interval": 20}, 96),
    "QRDQN": (QRDQN, {**OFF, "target_update_interval": 20}, 96),
    "CrossQ": (CrossQ, {**OFF, "policy_kwargs": {**BATCHES, "net_arch": [8, 8]}}, 96),
}
# Changing them stops or prolongs a training, or breaks any algorithm.
LEFT_ALONE = {
    *("num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "n_envs", "num_envs", "pos"),
    *("buffer_size", "full", "verbose", "start_time", "iterations", "logged_at", "log_every"),
    *("resume_from", "seed", "n_calls", "_episode_num", "ep_info_buffer", "ep_success_buffer"),
}
LIBRARIES = tuple(f"<class '{name}" for name in ("stable_baselines3", "sb3_contrib", "torch"))
# What torch and Python call to look after objects: how often is nobody's promise.
OF_UPKEEP = {
    *("modules", "named_modules", "children", "named_children", "buffers", "named_buffers"),
    *("parameters", "named_parameters", "apply", "state_dict", "get_parameters", "extra_repr"),
    *("get_env", "get_vec_normalize_env", "policy_aliases"),
}


class Once(BaseCallback):
    """Changes an agent at a step, as a user's callback may."""

    def __init__(self, change, at):
        super().__init__()
        self.change, self.at = change, at

    def _on_step(self):
        if self.n_calls == self.at:
            self.change(self.model)
        return True


def drawing(function):
    """Let a function draw a random number: a call that is left out leaves another generator."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        torch.rand(1)
        return function(*args, **kwargs)

    return wrapped


def objects_of(agent):
    return [agent, *watched(agent), agent.logger]


def set_a_value(agent, rng, undo):
    owner = rng.choice(objects_of(agent))
    numbers = [
        name
        for name, value in vars(owner).items()
        if isinstance(value, (bool, int, float)) and name not in LEFT_ALONE
    ]
    if numbers:
        name = rng.choice(sorted(numbers))
        value = getattr(owner, name)
        other = value + 1 if isinstance(value, int) else (value * 0.5 if value else 0.1)
        setattr(owner, name, not value if isinstance(value, bool) else other)
        return f"{type(owner).__name__}.{name}"
    return set_an_option(agent, rng, undo)


def set_an_option(agent, rng, undo):
    name, optimizer = rng.choice(sorted(optimizers_of(agent).items()))
    group = optimizer.param_groups[0]
    key = rng.choice(sorted(set(group) & {"eps", "betas", "weight_decay", "alpha", "lr"}))
    group[key] = (0.5, 0.9) if key == "betas" else 0.3
    return f"{name}: {key}"


def add_a_hook(agent, rng, undo):
    optimizer = rng.choice(list(optimizers_of(agent).values()))
    module = rng.choice(list(agent.policy.modules()))
    tensor = rng.choice([p for p in agent.policy.parameters() if p.requires_grad])
    kinds = {
        "tensor": lambda: tensor.register_hook(lambda gradient: gradient * 0.5),
        "accumulated": lambda: tensor.register_post_accumulate_grad_hook(
            lambda p: p.grad.mul_(0.5)
        ),
        "step": lambda: optimizer.register_step_pre_hook(lambda *_: torch.rand(1) and None),
        "stepped": lambda: optimizer.register_step_post_hook(drawing(lambda *_: None)),
        "forward": lambda: module.register_forward_hook(drawing(lambda *_: None)),
        "inputs": lambda: module.register_forward_pre_hook(drawing(lambda *_: None)),
        "backward": lambda: module.register_full_backward_hook(drawing(lambda *_: None)),
        "any step": lambda: all_optimizers.register_optimizer_step_pre_hook(
            drawing(lambda *_: None)
        ),
        "any stepped": lambda: all_optimizers.register_optimizer_step_post_hook(
            drawing(lambda *_: None)
        ),
        "any forward": lambda: all_modules.register_module_forward_hook(drawing(lambda *_: None)),
    }
    kind = rng.choice(sorted(kinds))
    undo.append(kinds[kind]().remove)
    return f"hook: {kind} {type(module).__name__}"


def patch_a_method(agent, rng, undo):
    owner = rng.choice(objects_of(agent))
    names = [
        name
        for kind in type(owner).__mro__
        if str(kind).startswith(LIBRARIES)
        for name, value in vars(kind).items()
        if callable(value) and not name.startswith("__") and name not in OF_UPKEEP
    ]
    if not names:
        return patch_a_class(agent, rng, undo)
    name = rng.choice(sorted(names))
    setattr(owner, name, drawing(getattr(owner, name)))
    return f"method {type(owner).__name__}.{name}"


PATCHED = {
    *("train", "step", "forward", "log_prob", "sample", "get", "add", "scale_action", "predict"),
    *("evaluate_actions", "action_log_prob", "_predict", "zero_grad", "_update_learning_rate"),
}


def patch_a_class(agent, rng, undo):
    kinds = {str(k): k for owner in objects_of(agent) for k in type(owner).__mro__}
    places = [(path, name) for path, k in kinds.items() for name in set(vars(k)) & PATCHED]
    path, name = rng.choice(sorted(p for p in places if p[0].startswith(LIBRARIES)))
    kind, method = kinds[path], vars(kinds[path])[name]
    undo.append(lambda: setattr(kind, name, method))
    if isinstance(method, staticmethod):
        setattr(kind, name, staticmethod(drawing(method.__func__)))
    else:
        setattr(kind, name, drawing(method))
    return f"class {path}.{name}"


def replace_an_object(agent, rng, undo):
    module = rng.choice([m for m in agent.policy.modules() if m._parameters])
    first = min(module._parameters)
    owner = rng.choice([m for m in agent.policy.modules() if m._modules])
    part = rng.choice(sorted(owner._modules))
    name, optimizer = rng.choice(sorted(optimizers_of(agent).items()))
    parent = functools.reduce(getattr, name.split(".")[:-1], agent)
    buffer = "rollout_buffer" if hasattr(agent, "rollout_buffer") else "replay_buffer"
    shadow = drawing(getattr(getattr(agent, buffer), "get", None) or agent.replay_buffer.sample)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kinds = {
        "parameter": lambda: setattr(module, first, nn.Parameter(getattr(module, first) * 0.9)),
        "module": lambda: setattr(owner, part, copy.deepcopy(owner._modules[part])),
        "wrapped": lambda: setattr(owner, part, nn.Sequential(owner._modules[part])),
        "optimizer": lambda: setattr(
            parent, name.split(".")[-1], torch.optim.Adam(parameters, lr=1e-2, weight_decay=0.1)
        ),
        "buffer's method": lambda: setattr(
            getattr(agent, buffer), "get" if buffer == "rollout_buffer" else "sample", shadow
        ),
        "schedule": lambda: setattr(agent, "lr_schedule", drawing(lambda _: 1e-2)),
        "space": lambda: setattr(agent, "action_space", copy.deepcopy(agent.action_space)),
        "group": lambda: optimizer.param_groups.__setitem__(0, dict(optimizer.param_groups[0])),
    }
    kind = rng.choice(sorted(kinds))
    kinds[kind]()
    return f"replaced {kind} {type(owner).__name__}.{part} {name}"


def change_in_place(agent, rng, undo):
    parameter = rng.choice(list(agent.policy.parameters()))
    name, optimizer = rng.choice(sorted(optimizers_of(agent).items()))
    states = [state for state in optimizer.state.values() if state]
    state = rng.choice(states) if states else {}
    averages = [key for key, value in state.items() if torch.is_tensor(value) and value.dim()]

    def scale():
        parameter.data *= 0.9

    kinds = {
        "weights": scale,
        "moved": lambda: setattr(parameter, "data", parameter.data * 0.9),
        "frozen": lambda: parameter.requires_grad_(False),
        "no gradient": lambda: setattr(parameter, "grad", None),
        "averages": lambda: [state[key].mul_(0.5) for key in averages],
        "new averages": lambda: state.update({key: state[key] * 0.5 for key in averages}),
        "steps": lambda: [own.update(step=own["step"] * 0) for own in states],
        "a step": lambda: state.update(step=state["step"] * 0) if state else None,
        "forgotten": lambda: optimizer.state.clear(),
        "optimizer loaded": lambda: optimizer.load_state_dict(
            copy.deepcopy(optimizer.state_dict())
        ),
        "policy loaded": lambda: agent.policy.load_state_dict(
            {key: value * 0.9 for key, value in agent.policy.state_dict().items()}
        ),
        "training": lambda: agent.policy.train(not agent.policy.training),
    }
    kind = rng.choice(sorted(kinds))
    kinds[kind]()
    return f"in place: {kind} {name}"


CHANGES = [
    set_a_value,
    set_an_option,
    add_a_hook,
    patch_a_method,
    patch_a_class,
    replace_an_object,
    change_in_place,
]


def trained(algorithm, seed, *, recorded):
    """Train with the change that belongs to a seed; return what is left, and what was changed."""
    base, arguments, steps = ALGORITHMS[algorithm]
    rng, undo, done = random.Random(seed), [], []
    torch.set_num_threads(1)
    arguments = copy.deepcopy(arguments)
    if base not in (DQN, QRDQN, TD3, DDPG) and rng.random() < 0.25:
        arguments["use_sde"] = True
    is_normalized, at = rng.random() < 0.3, rng.choice([0, *range(1, steps // 2 - 8)])
    kind = rng.choice(CHANGES)
    venv = make_vec_env("CartPole-v1" if base in (DQN, QRDQN) else "Pendulum-v1", 2, seed=0)
    if is_normalized:
        venv = VecNormalize(venv)
    agent = with_iteration_hook(base, Accelerated)(
        "MlpPolicy", venv, seed=0, device="cpu", **arguments
    )
    if recorded:
        record(agent)

    def change(agent):
        done.append(kind(agent, rng, undo))

    agent._setup_learn(steps)
    error = None
    try:
        if not at:
            change(agent)
        agent.learn(steps, Once(change, at) if at else None)
    except Exception as raised:
        error = type(raised).__name__
    finally:
        for each in reversed(undo):
            each()
    return left_behind(agent, error), (*done, at, is_normalized, arguments.get("use_sde"), error)


def left_behind(agent, error):
    if error:
        return {"error": error}
    coefficient = getattr(agent, "log_ent_coef", None)
    # Those of critics also have the actor's loss in Stable-Baselines3; the next step clears them.
    has_own = isinstance(agent, OnPolicyAlgorithm)
    gradients = [p.grad for p in agent.policy.parameters()] if has_own else []
    return {
        "parameters": to_plain(agent.get_parameters()),
        "gradients": [0 if gradient is None else gradient.numpy() for gradient in gradients],
        "coefficient": 0 if coefficient is None else coefficient.detach().numpy(),
        "logged": {k: v for k, v in agent.logger.name_to_value.items() if "time" not in k},
        "updates": agent._n_updates,
        "torch": torch.get_rng_state().numpy(),
        "numpy": np.random.get_state()[1],
    }


def differences(algorithm, seeds):
    found = []
    for seed in seeds:
        expected, what = trained(algorithm, f"{algorithm}-{seed}", recorded=False)
        try:
            assert_same_tree(trained(algorithm, f"{algorithm}-{seed}", recorded=True)[0], expected)
        except AssertionError as error:
            found.append((seed, what, str(error)[:200]))
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_change_has_its_effect(algorithm):
    today = datetime.date.today().toordinal()
    assert differences(algorithm, range(3 * today, 3 * today + 3)) == []


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_of_many_changes_has_its_effect(algorithm):
    assert differences(algorithm, range(72)) == []
