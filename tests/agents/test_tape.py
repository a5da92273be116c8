"""A recording makes the calls of a function again: the same numbers, nothing superfluous."""

import pytest
import torch
from torch.nn import functional

from rlzoo_plus.agents.recorded.tape import NotRecordableError, Tape


def replay(tape, inputs, numbers=None):
    with torch.no_grad():
        return tape.run(0, tape.start(inputs, numbers or {}))


def test_gradients_of_a_network_come_out_the_same():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    weights = list(net.parameters())

    def parts(inputs, numbers):
        loss = functional.mse_loss(net(inputs[0]), inputs[1]) * numbers.scale
        yield [*torch.autograd.grad(loss, weights), loss.detach()]

    tape = Tape(parts, [torch.randn(7, 5), torch.randn(7, 3)], ["scale"], weights)
    with torch.no_grad():
        for weight in weights:
            weight.mul_(1.7)  # in place: the recording reads the weights where they are
    inputs = [torch.randn(7, 5), torch.randn(7, 3)]
    loss = functional.mse_loss(net(inputs[0]), inputs[1]) * 0.3
    expected = [*torch.autograd.grad(loss, weights), loss.detach()]
    for left, right in zip(replay(tape, inputs, {"scale": 0.3}), expected, strict=True):
        assert torch.equal(left, right)


def test_a_part_after_a_change_of_weights_sees_them():
    weight = torch.nn.Parameter(torch.ones(3))

    def parts(inputs, numbers):
        yield [(weight * inputs[0]).detach()]
        yield [(weight * inputs[0]).detach()]

    given = [torch.arange(3.0)]
    tape = Tape(parts, given, [], [weight])
    registers = tape.start(given, {})
    with torch.no_grad():
        (first,) = tape.run(0, registers)
        weight.add_(1.0)
        (second,) = tape.run(1, registers)
    assert torch.equal(second, 2 * first)


def test_random_numbers_are_drawn_as_before_even_if_unused():
    def parts(inputs, numbers):
        torch.randn(4)
        yield [inputs[0] + torch.randn(2)]

    tape = Tape(parts, [torch.zeros(2)], [], [])
    torch.manual_seed(3)
    (drawn,) = replay(tape, [torch.zeros(2)])
    state = torch.get_rng_state()
    torch.manual_seed(3)
    torch.randn(4)
    assert torch.equal(drawn, torch.randn(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_what_nobody_uses_and_what_was_computed_before_is_left_out():
    def parts(inputs, numbers):
        torch.exp(inputs[0])
        yield [torch.tanh(inputs[0]) + torch.tanh(inputs[0])]

    tape = Tape(parts, [torch.ones(2)], [], [])
    assert tape.n_calls == 2


def test_changes_in_place_are_made_each_time():
    def parts(inputs, numbers):
        total = torch.zeros(2)
        total += inputs[0]
        total.unsqueeze_(dim=1)
        yield [total * 2]

    tape = Tape(parts, [torch.ones(2)], [], [])
    for value in (1.0, 2.0):
        (result,) = replay(tape, [torch.full((2,), value)])
        assert torch.equal(result, torch.full((2, 1), 2 * value))


def _reads_a_value(inputs, numbers):
    yield [inputs[0] * (2 if inputs[0].sum() > 0 else 3)]


def _keeps_a_number(inputs, numbers):
    yield [inputs[0] * (numbers.scale + 1)]


def _reads_from_elsewhere(inputs, numbers):
    yield [inputs[0] * ELSEWHERE]


def _changes_a_parameter(inputs, numbers):
    inputs[0].detach()
    with torch.no_grad():
        WEIGHT.mul_(1.0)
    yield [inputs[0] * WEIGHT]


ELSEWHERE = torch.ones(1)
WEIGHT = torch.nn.Parameter(torch.ones(1))


@pytest.mark.parametrize(
    "function", [_reads_a_value, _keeps_a_number, _reads_from_elsewhere, _changes_a_parameter]
)
def test_what_a_recording_would_get_wrong_is_refused(function):
    with pytest.raises(NotRecordableError):
        Tape(function, [torch.ones(2)], ["scale"], [WEIGHT])
