"""Products of `fast` by oneDNN: where they are used, the same numbers, and exact resumes."""

import logging

import pytest
import torch
from sb3_contrib import TQC
from stable_baselines3 import PPO, SAC, TD3
from support.resuming import assert_same_in_pieces
from support.training import tiny_config
from test_fast_updates import LARGE, SMALL, TINY, train
from torch.utils._python_dispatch import TorchDispatchMode

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.fast.handwritten.fast_updates import FastUpdates
from rlzoo_plus.fast.handwritten.products import Batched, Single, product_of
from rlzoo_plus.fast.recorded import graphs, onednn
from rlzoo_plus.fast.recorded.tape import Tape

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"
)


@pytest.fixture
def multiplied(monkeypatch):
    """Use it for every layer; return the shapes of what it multiplied."""
    shapes, linear = [], onednn.linear

    def noted(x, weight, bias=None):
        shapes.append((*x.shape, len(weight)))
        return linear(x, weight, bias)

    monkeypatch.setattr(onednn, "linear", noted)
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    monkeypatch.setattr(onednn, "_SMALLEST", 1)
    return shapes


@needs_onednn
@pytest.mark.parametrize("batch", [1, 7, 256])
@pytest.mark.parametrize(("inputs", "units"), [(1, 1), (3, 40), (400, 300), (130, 129)])
@pytest.mark.parametrize("networks", [None, 1, 3])
@pytest.mark.parametrize("has_bias", [True, False])
def test_products_are_the_same_up_to_rounding(multiplied, batch, inputs, units, networks, has_bias):
    kind, many = (Single, ()) if networks is None else (Batched, (networks,))
    torch.manual_seed(0)
    x = torch.randn(batch, inputs)
    x = x if networks is None else x.expand(networks, -1, -1)
    weight, gradient = torch.randn(*many, units, inputs), torch.randn(*many, batch, units)
    bias = None
    if has_bias:
        bias = torch.randn(units) if networks is None else torch.randn(networks, 1, units)
    made, expected = product_of(kind, x, weight, rounds=False), kind(x, weight)
    assert type(made) is not kind
    for factor in (1, 2):
        torch.testing.assert_close(
            made.forward(bias, factor), expected.forward(bias, factor), rtol=1e-4, atol=1e-4
        )
    for name in ("of_weight", "of_input"):
        found, other = (getattr(p, name)(p.operand(gradient)) for p in (made, expected))
        torch.testing.assert_close(found, other, rtol=1e-4, atol=1e-4)
    assert len(multiplied) == 4 * (networks or 1)
    part = made.first(3) if networks is None else None
    assert part is None or type(part) is type(made)


@pytest.mark.parametrize(
    ("vendor", "able", "expected"),
    [
        ("AuthenticAMD", {"avx512_f": True}, True),
        ("AuthenticAMD", {"avx512_f": False, "avx2": True}, False),
        ("AuthenticAMD", {}, False),
        ("GenuineIntel", {"avx512_f": True}, False),
    ],
)
@needs_onednn
def test_onednn_is_for_processors_of_amd_with_avx512(monkeypatch, tmp_path, vendor, able, expected):
    told = tmp_path / "cpuinfo"
    told.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n", encoding="utf-8")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    monkeypatch.setattr(onednn, "_CPU_INFO", told)
    assert onednn.is_faster.__wrapped__() is expected
    # Elsewhere than on Linux.
    monkeypatch.setattr(onednn, "_CPU_INFO", tmp_path / "none")
    monkeypatch.setattr(onednn.platform, "processor", lambda: f"Family 26, {vendor}")
    assert onednn.is_faster.__wrapped__() is expected


def test_an_older_torch_cannot_tell_and_keeps_its_own(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert onednn.is_faster.__wrapped__() is False


def test_small_products_and_other_numbers_stay(monkeypatch):
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    small, large = torch.ones(64, 64), torch.ones(256, 256)
    assert type(product_of(Single, small, small, rounds=False)) is Single
    assert type(product_of(Single, large, large, rounds=False)) is not Single
    double = large.double()
    assert type(product_of(Single, double, double, rounds=False)) is Single


def has_gaps(matrix):
    return not (matrix.is_contiguous() or matrix.t().is_contiguous())


@needs_onednn
@pytest.mark.parametrize("many", [None, 2])
def test_weights_with_gaps_are_copied_for_which_onednn_is_slow(multiplied, many):
    """A weight's gradient multiplies the inputs, which are columns of a rollout."""
    rows, gradient, weight = torch.randn(32, 80), torch.randn(32, 40), torch.randn(40, 53)
    x, kind = rows[:, 3:56], Single
    if many:
        x, gradient, weight = (it.expand(many, *it.shape) for it in (x, gradient, weight))
        kind = Batched
    expected, given = kind(x, weight), []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.mkldnn._linear_pointwise.default:
                given.append(args[1])
            return func(*args, **kwargs or {})

    made = product_of(kind, x, weight, rounds=False)
    with Watched():
        found = made.of_weight(gradient)
    torch.testing.assert_close(found, expected.of_weight(gradient), rtol=1e-4, atol=1e-4)
    assert len(given) == (many or 1)
    assert has_gaps(rows[:, 3:56].t())
    assert not any(map(has_gaps, given))


@needs_onednn
@pytest.mark.usefixtures("multiplied")
@pytest.mark.parametrize(("columns", "by_onednn"), [(53, 2), (80, 1)])
def test_recorded_products_with_such_weights_stay(columns, by_onednn):
    def parts(inputs, numbers):
        rows, gradient, weight = inputs
        x = rows[:, :53]
        return [x @ weight, gradient.t() @ x]

    inputs = [torch.randn(32, columns), torch.randn(32, 40), torch.randn(53, 40)]
    with torch.no_grad():
        tape = Tape(parts, inputs, [], [], by_onednn=True)
        found = tape.run(inputs, {})
    assert tape.n_by_onednn == by_onednn
    for mine, theirs in zip(found, parts(inputs, {}), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


CASES = {
    "sac": (SAC, LARGE),
    "td3": (TD3, LARGE),
    "tqc": (TQC, LARGE),
    "ppo": (PPO, {**SMALL, "policy_kwargs": {"net_arch": [160, 130]}}),
}


@needs_onednn
@pytest.mark.training
@pytest.mark.parametrize("name", CASES)
def test_updates_are_those_of_stable_baselines3_up_to_rounding(name, multiplied):
    algorithm, arguments = CASES[name]
    steps = 4 * arguments["n_steps"] if "n_steps" in arguments else 64
    exact = train(algorithm, TINY, arguments, steps, None)
    assert not multiplied
    fast = train(algorithm, TINY, arguments, steps, FastUpdates())
    assert multiplied
    assert not fast.recorded.not_fast
    assert fast.recorded.n_recorded
    theirs = exact.policy.state_dict()
    for key, mine in fast.policy.state_dict().items():
        assert float((mine - theirs[key]).abs().mean()) < 2e-5, key


# Without gradients by hand.
UNKNOWN = {
    "layer_norm": ("sac", ("network=layer_norm", "network.net_arch=[40,30]")),
    "simba": ("sac", ("network=simba", "network.net_arch={actor: [12], critic: [16]}")),
    "crossq": ("crossq", ()),
    "dqn": ("dqn", ("env.kwargs.discrete=true",)),
    "ppo": ("ppo", ("network.features_extractor=attention",)),
}


@needs_onednn
@pytest.mark.training
@pytest.mark.usefixtures("multiplied")
@pytest.mark.parametrize("name", UNKNOWN)
def test_recorded_updates_make_large_products_by_it(name, caplog):
    caplog.set_level(logging.INFO)
    torch.set_num_threads(1)
    algo, overrides = UNKNOWN[name]
    agents = []
    for fast in ("true", "false"):
        config = tiny_config(algo, TINY, *overrides, f"fast={fast}", "normalize=true")
        agents.append(make_agent(config, make_train_env(config, 1), 1).learn(96))
    fast, exact = agents
    assert fast.recorded.n_recorded
    assert fast.recorded._update.n_by_onednn > 3
    assert not fast.recorded.reason
    assert "large products by oneDNN" in caplog.text
    assert "no effect" not in caplog.text
    theirs = exact.policy.state_dict()
    for key, mine in fast.policy.state_dict().items():
        # Adam moves a weight whose gradient is next to nothing either way.
        assert float((mine - theirs[key]).abs().double().mean()) < 1e-3, key


@needs_onednn
@pytest.mark.training
@pytest.mark.usefixtures("multiplied")
@pytest.mark.parametrize("name", ["simba", "ppo"])
def test_a_run_of_recorded_updates_in_pieces_is_the_run_as_a_whole(name, tmp_path):
    algo, overrides = UNKNOWN[name]
    words = ("fast=true", "normalize=true", "n_timesteps=160")
    config = tiny_config(algo, TINY, *overrides, *words)
    assert_same_in_pieces(tmp_path, config, 2 if algo == "ppo" else 9)


@needs_onednn
@pytest.mark.training
def test_what_cannot_be_recorded_with_it_is_recorded_without(monkeypatch, caplog):
    def fails(self, call):
        if self._by_onednn:
            raise RuntimeError("no such call")
        return False

    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    monkeypatch.setattr(graphs._Builder, "_add_by_onednn", fails)
    algo, overrides = UNKNOWN["layer_norm"]
    weights = []
    for fast in ("true", "false"):
        config = tiny_config(algo, TINY, *overrides, f"fast={fast}")
        agent = make_agent(config, make_train_env(config, 1), 1).learn(96)
        weights.append(agent.policy.state_dict())
        assert agent.recorded.n_recorded
    assert all(torch.equal(weights[0][key], value) for key, value in weights[1].items())
    assert "fast=true has no effect on updates" in caplog.text


@needs_onednn
@pytest.mark.training
@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_a_run_in_pieces_is_the_run_as_a_whole(algo, multiplied, tmp_path):
    config = tiny_config(
        *(algo, TINY, "fast=true", "normalize=true", "n_timesteps=160"),
        "network.net_arch=[160,130]",
    )
    assert_same_in_pieces(tmp_path, config, 2 if algo == "ppo" else 9)
    assert multiplied
