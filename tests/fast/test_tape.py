"""A recording makes the calls of a function again: the same numbers, nothing superfluous."""

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from rlzoo_plus.fast.recorded import recording
from rlzoo_plus.fast.recorded.tape import NotRecordableError, Tape

pytestmark = pytest.mark.filterwarnings("error:An output with one or more elements")


@pytest.fixture(autouse=True)
def all_is_forgotten(monkeypatch):
    """As if all results were worth forgetting."""
    monkeypatch.setattr(recording, "_LARGE", 0)


def replay(tape, inputs, numbers=None):
    with torch.no_grad():
        return tape.run(inputs, numbers or {})


def test_gradients_of_a_network_come_out_the_same():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    weights = list(net.parameters())

    def parts(inputs, numbers):
        loss = functional.mse_loss(net(inputs[0]), inputs[1]) * numbers.scale
        return [*torch.autograd.grad(loss, weights), loss.detach()]

    tape = Tape(parts, [torch.randn(7, 5), torch.randn(7, 3)], ["scale"], weights)
    with torch.no_grad():
        for weight in weights:
            weight.mul_(1.7)  # in place: the recording reads the weights where they are
    inputs = [torch.randn(7, 5), torch.randn(7, 3)]
    loss = functional.mse_loss(net(inputs[0]), inputs[1]) * 0.3
    expected = [*torch.autograd.grad(loss, weights), loss.detach()]
    for left, right in zip(replay(tape, inputs, {"scale": 0.3}), expected, strict=True):
        assert torch.equal(left, right)


def test_random_numbers_are_drawn_as_before_even_if_unused():
    def parts(inputs, numbers):
        torch.randn(4)
        return [inputs[0] + torch.randn(2)]

    tape = Tape(parts, [torch.zeros(2)], [], [])
    torch.manual_seed(3)
    (drawn,) = replay(tape, [torch.zeros(2)])
    state = torch.get_rng_state()
    torch.manual_seed(3)
    torch.randn(4)
    assert torch.equal(drawn, torch.randn(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_what_nobody_uses_is_left_out():
    def parts(inputs, numbers):
        torch.exp(inputs[0])
        return [torch.tanh(inputs[0]) + 1]

    tape = Tape(parts, [torch.ones(2)], [], [])
    assert tape.n_calls == 2


def test_changes_in_place_are_made_each_time():
    def parts(inputs, numbers):
        total = inputs[0] * 2
        total += inputs[0]
        total.unsqueeze_(dim=1)
        return [total * 2]

    tape = Tape(parts, [torch.ones(2, 3)], [], [])
    for value in (1.0, 2.0):
        (result,) = replay(tape, [torch.full((2, 3), value)])
        assert torch.equal(result, torch.full((2, 1, 3), 6 * value))


def test_memory_of_large_results_is_free_before_the_recording_ends():
    found = []

    def parts(inputs, numbers):
        values = inputs[0] * 2
        first = weakref.ref(values)
        for _ in range(3):
            values = torch.tanh(values)
        found.append(first())
        weight = torch.ones(2**16, requires_grad=True)
        product = values * weight
        kept = weakref.ref(product)
        loss = (product * product).sum()  # its gradient needs the product
        del product
        found.append(kept())
        return [loss.detach(), *torch.autograd.grad(loss, [weight])]

    inputs = [torch.linspace(-1, 1, 2**16)]
    tape = Tape(parts, inputs, [], [])
    assert [value is None for value in found] == [True, False] * 2
    expected = parts(inputs, None)
    assert all(map(torch.equal, replay(tape, inputs), expected))


def test_what_is_wanted_is_not_written_again_by_the_next_run():
    def parts(inputs, numbers):
        return [torch.tanh(inputs[0] * 2) + 1, (inputs[0] * 3).view(4)]

    tape = Tape(parts, [torch.ones(2, 2)], [], [])
    first = replay(tape, [torch.ones(2, 2)])
    copies = [tensor.clone() for tensor in first]
    replay(tape, [torch.zeros(2, 2)])
    assert all(map(torch.equal, first, copies))


def test_steps_of_an_optimizer_change_what_they_are_told_to_and_recording_does_not():
    weight, mean = torch.nn.Parameter(torch.ones(3, 2)), torch.zeros(6)
    flat, gradient = weight.data.view(6), torch.zeros(6)

    def parts(inputs, numbers):
        loss = (inputs[0] @ weight.t()).tanh().sum()
        (found,) = torch.autograd.grad(loss, [weight])
        with torch.no_grad():
            gradient.view(3, 2).copy_(found)
            mean.lerp_(gradient, 0.1)
            flat.addcdiv_(mean, gradient.square() + 1, value=numbers.rate)
        return [loss.detach()]

    inputs = [torch.linspace(-1, 1, 8).view(4, 2)]
    tape = Tape(parts, inputs, ["rate"], [weight], [flat, gradient, mean])
    assert torch.equal(weight, torch.ones(3, 2))
    assert not mean.any()
    for rate in (0.3, 0.1):
        before = weight.detach().clone().requires_grad_()
        loss = (inputs[0] @ before.t()).tanh().sum()
        (found,) = torch.autograd.grad(loss, [before])
        moved = mean.clone().lerp_(found.view(6), 0.1)
        expected = before.detach().view(6).addcdiv(moved, found.view(6).square() + 1, value=rate)
        assert torch.equal(replay(tape, inputs, {"rate": rate})[0], loss.detach())
        assert torch.equal(flat, expected)
        assert torch.equal(gradient, found.view(6))


@pytest.mark.parametrize("seed", range(12))
def test_any_calls_come_out_the_same(seed):
    def parts(inputs, numbers):
        chosen = np.random.default_rng(seed)
        values = [*inputs]
        for _ in range(40):
            number, *picked = chosen.integers([len(_CALLS), len(values), len(values)])
            values.append(_CALLS[number](*(values[k] for k in picked), numbers.scale))
        return [*values[10:30:5], values[-1], values[4].sum()]

    inputs = [torch.linspace(-1, 1, 12).view(3, 4), torch.linspace(0, 3, 12).view(3, 4)]
    tape = Tape(parts, inputs, ["scale"], [])
    for scale in (0.7, 1.3):
        given = [tensor * scale for tensor in inputs]
        torch.manual_seed(5)
        with torch.no_grad():
            expected = parts(given, SimpleNamespace(scale=scale))
        state = torch.get_rng_state()
        torch.manual_seed(5)
        with torch.no_grad():
            made = tape.run(given, {"scale": scale})
        assert torch.equal(torch.get_rng_state(), state)
        for left, right in zip(made, expected, strict=True):
            assert torch.equal(left.nan_to_num(), right.nan_to_num())


def test_a_call_that_returns_nothing_changes_its_arguments():
    first, second = torch.rand(2, 64)
    weight, gradient, mean, square = (torch.rand(64) for _ in range(4))
    count = torch.zeros(())
    changed = [weight, gradient, mean, square, count]
    state = [tensor.clone() for tensor in changed]

    def parts(inputs, numbers):
        gradient.copy_(inputs[0])
        count.fill_(numbers.count)
        torch._fused_adam_(
            *([weight], [gradient], [mean], [square], [], [count]),
            **{"lr": numbers.rate, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
            **{"weight_decay": 0.0, "amsgrad": False, "maximize": False},
        )
        return [weight * 2]

    tape = Tape(parts, [first], ["rate", "count"], changed, changed)
    assert all(map(torch.equal, changed, state))
    numbers = {"rate": 0.1, "count": 3.0}
    with torch.no_grad():
        (made,) = tape.run([second], numbers)
    found = [tensor.clone() for tensor in changed]
    for tensor, values in zip(changed, state, strict=True):
        tensor.copy_(values)
    (expected,) = parts([second], SimpleNamespace(**numbers))
    assert torch.equal(made, expected)
    assert all(map(torch.equal, found, changed))
    assert not torch.equal(weight, state[0])


def _changed(a, b, scale):
    copy = a.clone()
    copy.mul_(0.5).add_(b, alpha=0.25)
    return copy


_CALLS = [
    lambda a, b, scale: a + b,
    lambda a, b, scale: a * scale,
    lambda a, b, scale: torch.tanh(a - b),
    lambda a, b, scale: torch.relu(a),
    lambda a, b, scale: (a @ b.t()) @ a,
    lambda a, b, scale: torch.cat([a, b], dim=1)[:, 2:6],
    lambda a, b, scale: a.clamp(-1.0, scale),
    lambda a, b, scale: torch.cat([a, b]).split(3)[1],
    lambda a, b, scale: a + torch.randn(4),
    lambda a, b, scale: torch.randn_like(a),
    lambda a, b, scale: b + a.max(dim=1, keepdim=True)[0],
    lambda a, b, scale: a.t().contiguous().t(),
    lambda a, b, scale: torch.where(a > 0, a, b * 2),
    lambda a, b, scale: 1 - a,
    _changed,
]


def _reads_a_value(inputs, numbers):
    return [inputs[0] * (2 if inputs[0].sum() > 0 else 3)]


def _keeps_a_number(inputs, numbers):
    return [inputs[0] * (numbers.scale + 1)]


def _reads_from_elsewhere(inputs, numbers):
    return [inputs[0] * ELSEWHERE]


def _changes_a_parameter(inputs, numbers):
    inputs[0].detach()
    with torch.no_grad():
        WEIGHT.mul_(1.0)
    return [inputs[0] * WEIGHT]


ELSEWHERE = torch.ones(1)
WEIGHT = torch.nn.Parameter(torch.ones(1))


@pytest.mark.parametrize(
    "function", [_reads_a_value, _keeps_a_number, _reads_from_elsewhere, _changes_a_parameter]
)
def test_what_a_recording_would_get_wrong_is_refused(function):
    with pytest.raises(NotRecordableError):
        Tape(function, [torch.ones(2)], ["scale"], [WEIGHT])
