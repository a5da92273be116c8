"""Products of `fast` by oneDNN: where they are used, the same numbers, and exact resumes."""

import pytest
import torch
from sb3_contrib import TQC
from stable_baselines3 import PPO, SAC, TD3
from support.resuming import assert_same_in_pieces
from support.training import tiny_config
from test_fast_updates import LARGE, SMALL, TINY, train

from rlzoo_plus.fast.handwritten import products
from rlzoo_plus.fast.handwritten.fast_updates import FastUpdates
from rlzoo_plus.fast.handwritten.products import Batched, Single, prefers_onednn, product_of

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"
)


@pytest.fixture
def onednn(monkeypatch):
    """Use it for every layer; return the shapes of what it multiplied."""
    shapes = []
    by_onednn = products._by_onednn

    def noted(x, weight, bias=None):
        shapes.append((*x.shape, len(weight)))
        return by_onednn(x, weight, bias)

    monkeypatch.setattr(products, "_by_onednn", noted)
    monkeypatch.setattr(products, "prefers_onednn", lambda: True)
    monkeypatch.setattr(products, "_SMALLEST_OF_ONEDNN", 1)
    return shapes


@needs_onednn
@pytest.mark.parametrize("batch", [1, 7, 256])
@pytest.mark.parametrize(("inputs", "units"), [(1, 1), (3, 40), (400, 300), (130, 129)])
@pytest.mark.parametrize("networks", [None, 1, 3])
@pytest.mark.parametrize("has_bias", [True, False])
def test_products_are_the_same_up_to_rounding(onednn, batch, inputs, units, networks, has_bias):
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
    assert len(onednn) == 4 * (networks or 1)
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
    monkeypatch.setattr(products, "_CPU_INFO", told)
    assert prefers_onednn.__wrapped__() is expected
    # Elsewhere than on Linux.
    monkeypatch.setattr(products, "_CPU_INFO", tmp_path / "none")
    monkeypatch.setattr(products.platform, "processor", lambda: f"Family 26, {vendor}")
    assert prefers_onednn.__wrapped__() is expected


def test_an_older_torch_cannot_tell_and_keeps_its_own(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert prefers_onednn.__wrapped__() is False


def test_small_products_and_other_numbers_stay(monkeypatch):
    monkeypatch.setattr(products, "prefers_onednn", lambda: True)
    small, large = torch.ones(64, 64), torch.ones(256, 256)
    assert type(product_of(Single, small, small, rounds=False)) is Single
    assert type(product_of(Single, large, large, rounds=False)) is not Single
    double = large.double()
    assert type(product_of(Single, double, double, rounds=False)) is Single


CASES = {
    "sac": (SAC, LARGE),
    "td3": (TD3, LARGE),
    "tqc": (TQC, LARGE),
    "ppo": (PPO, {**SMALL, "policy_kwargs": {"net_arch": [160, 130]}}),
}


@needs_onednn
@pytest.mark.training
@pytest.mark.parametrize("name", CASES)
def test_updates_are_those_of_stable_baselines3_up_to_rounding(name, onednn):
    algorithm, arguments = CASES[name]
    steps = 4 * arguments["n_steps"] if "n_steps" in arguments else 64
    exact = train(algorithm, TINY, arguments, steps, None)
    assert not onednn
    fast = train(algorithm, TINY, arguments, steps, FastUpdates())
    assert onednn
    assert not fast.recorded.not_fast
    assert fast.recorded.n_recorded
    theirs = exact.policy.state_dict()
    for key, mine in fast.policy.state_dict().items():
        assert float((mine - theirs[key]).abs().mean()) < 2e-5, key


@needs_onednn
@pytest.mark.training
@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_a_run_in_pieces_is_the_run_as_a_whole(algo, onednn, tmp_path):
    config = tiny_config(
        *(algo, TINY, "fast=true", "normalize=true", "n_timesteps=160"),
        "network.net_arch=[160,130]",
    )
    assert_same_in_pieces(tmp_path, config, 2 if algo == "ppo" else 9)
    assert onednn
