"""What a recording has computed already is not computed again; nothing else changes."""

import pytest
import torch
from torch.nn import functional

from rlzoo_plus.fast.recorded import tape as tapes
from rlzoo_plus.fast.recorded.tape import Tape


def both(function, inputs, readable=(), changed=()):
    """Return results of a recording, how many calls it makes, and how many it would have made."""
    made = Tape(function, inputs, [], readable, changed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tapes, "without_repeats", lambda calls, recording: calls)
        whole = Tape(function, inputs, [], readable, changed)
    before = [tensor.clone() for tensor in changed]
    found = []
    for one in (made, whole):
        torch.manual_seed(1)
        with torch.no_grad():
            results = [tensor.clone() for tensor in one.run(inputs, {})]
            found.append([*results, *(tensor.clone() for tensor in changed)])
            for tensor, values in zip(changed, before, strict=True):
                tensor.copy_(values)
    assert all(map(torch.equal, *found))
    return found[0], made.n_calls, whole.n_calls


def test_autograd_divides_and_takes_means_once():
    torch.manual_seed(0)
    x, weight = torch.randn(32, 8), torch.randn(8, 8, requires_grad=True)

    def parts(inputs, numbers):
        hidden = functional.relu(inputs[0] @ weight)
        mean, variance = hidden.mean(dim=0), hidden.var(dim=0)
        scaled = (hidden - mean[None]) / (variance + 0.001).sqrt()
        return torch.autograd.grad(scaled.pow(3).sum(), [weight])

    _, n, whole = both(parts, [x], [weight])
    # The quotient, the mean (there is a view for it), and the difference.
    assert n == whole - 3


def test_what_changed_in_between_is_computed_again():
    total = torch.ones(3)

    def parts(inputs, numbers):
        first = total * 2
        total.add_(inputs[0])
        return [first + total * 2]

    (result, after), n, whole = both(parts, [torch.ones(3)], changed=[total])
    assert result.tolist() == [6.0] * 3
    assert after.tolist() == [2.0] * 3
    assert n == whole


def test_a_view_shows_what_is_there_now():
    total = torch.ones(2, 3)

    def parts(inputs, numbers):
        first = total.t() * 2
        total.add_(inputs[0])
        return [first + total.t() * 2]

    (result, _), n, whole = both(parts, [torch.ones(2, 3)], changed=[total])
    assert result.tolist() == [[6.0] * 2] * 3
    assert n == whole - 1


def test_what_is_changed_in_place_keeps_its_memory():
    def parts(inputs, numbers):
        first, second = inputs[0] * 2, inputs[0] * 2
        second.add_(1)
        return [first - second]

    (result,), n, whole = both(parts, [torch.ones(3)])
    assert result.tolist() == [-1.0] * 3
    assert n == whole


def test_results_that_are_wanted_are_tensors_of_their_own():
    def parts(inputs, numbers):
        return [inputs[0] * 2, inputs[0] * 2]

    made = Tape(parts, [torch.ones(3)], [], [])
    with torch.no_grad():
        first, second = made.run([torch.ones(3)], {})
    first.add_(1)
    assert second.tolist() == [2.0] * 3


def test_random_numbers_are_drawn_each_time():
    def parts(inputs, numbers):
        return [torch.rand_like(inputs[0]) - torch.rand_like(inputs[0])]

    (result,), n, whole = both(parts, [torch.ones(3)])
    assert result.abs().min() > 0
    assert n == whole


def test_an_integer_is_no_float():
    def parts(inputs, numbers):
        return [(inputs[0] + 1) / ((inputs[0] + 1.0) * 2)]

    (result,), n, whole = both(parts, [torch.ones(3, dtype=torch.int64)])
    assert result.tolist() == [0.5] * 3
    assert n == whole


def test_a_result_that_was_changed_in_place_is_computed_again():
    def parts(inputs, numbers):
        first = inputs[0] * 2
        first.add_(1)
        return [first - inputs[0] * 2]

    (result,), n, whole = both(parts, [torch.ones(3)])
    assert result.tolist() == [1.0] * 3
    assert n == whole
