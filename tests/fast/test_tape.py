"""A recording makes the calls of a function again: the same numbers, nothing superfluous."""

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from rlzoo_plus.fast.recorded import graphs, lanes, memory, recording
from rlzoo_plus.fast.recorded.tape import NotRecordableError, Tape

pytestmark = pytest.mark.filterwarnings("error:An output with one or more elements")


@pytest.fixture(params=["on one lane", "on two lanes"], autouse=True)
def way(request, monkeypatch):
    """Each test is for all ways of making the calls."""
    monkeypatch.setattr(graphs, "may_use_lanes", lambda: request.param == "on two lanes")
    # As if all were worth forgetting.
    monkeypatch.setattr(recording, "_LARGE", 0)
    if request.param == "on two lanes":
        # As if starting a lane saved time.
        for name, value in {"_LEAST": 0, "_BEGIN": 0, "_START": -1.0}.items():
            monkeypatch.setattr(lanes, name, value)
        monkeypatch.setattr(graphs, "FasterOf", lambda plain, other: other)
    return request.param


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
        total = inputs[0] * 2
        total += inputs[0]
        total.unsqueeze_(dim=1)
        yield [total * 2]

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
        yield [loss.detach(), *torch.autograd.grad(loss, [weight])]

    inputs = [torch.linspace(-1, 1, 2**16)]
    tape = Tape(parts, inputs, [], [])
    assert [value is None for value in found] == [True, False] * 2
    expected = next(parts(inputs, None))
    assert all(map(torch.equal, replay(tape, inputs), expected))


def test_what_is_wanted_is_not_written_again_by_the_next_run():
    def parts(inputs, numbers):
        yield [torch.tanh(inputs[0] * 2) + 1, (inputs[0] * 3).view(4)]

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
        yield [loss.detach()]

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
        yield values[10:30:5]
        yield [values[-1], values[4].sum()]

    inputs = [torch.linspace(-1, 1, 12).view(3, 4), torch.linspace(0, 3, 12).view(3, 4)]
    tape = Tape(parts, inputs, ["scale"], [])
    for scale in (0.7, 1.3):
        given = [tensor * scale for tensor in inputs]
        torch.manual_seed(5)
        with torch.no_grad():
            expected = [t for part in parts(given, SimpleNamespace(scale=scale)) for t in part]
        state = torch.get_rng_state()
        torch.manual_seed(5)
        with torch.no_grad():
            registers = tape.start(given, {"scale": scale})
            made = [t for part in (0, 1) for t in tape.run(part, registers)]
        assert torch.equal(torch.get_rng_state(), state)
        for left, right in zip(made, expected, strict=True):
            assert torch.equal(left.nan_to_num(), right.nan_to_num())


def test_independent_networks_are_on_two_lanes_and_what_joins_them_is_not(way):
    if way != "on two lanes":
        pytest.skip("no lanes")
    nets = [torch.nn.Linear(64, 64) for _ in range(2)]

    def parts(inputs, numbers):
        left, right = (torch.tanh(net(torch.tanh(net(inputs[0])))) for net in nets)
        yield [left + right]

    weights = [p for net in nets for p in net.parameters()]
    tape = Tape(parts, [torch.randn(256, 64)], [], weights)
    assert "prim::fork" in str(tape._parts[0].function.graph)
    inputs = [torch.randn(256, 64)]
    with torch.no_grad():
        (expected,) = next(parts(inputs, None))
    for _ in range(50):
        assert torch.equal(replay(tape, inputs)[0], expected)


def test_a_call_that_returns_nothing_changes_its_arguments(way):
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
        yield [weight * 2]

    tape = Tape(parts, [first], ["rate", "count"], changed, changed)
    assert all(map(torch.equal, changed, state))
    numbers = {"rate": 0.1, "count": 3.0}
    with torch.no_grad():
        (made,) = tape.run(0, tape.start([second], numbers))
    found = [tensor.clone() for tensor in changed]
    for tensor, values in zip(changed, state, strict=True):
        tensor.copy_(values)
    (expected,) = next(parts([second], SimpleNamespace(**numbers)))
    assert torch.equal(made, expected)
    assert all(map(torch.equal, found, changed))
    assert not torch.equal(weight, state[0])


@pytest.mark.parametrize("seed", range(20))
def test_no_lane_writes_where_the_other_one_reads_or_writes(seed, way, monkeypatch):
    if way != "on two lanes":
        pytest.skip("no lanes")
    chosen = np.random.default_rng(seed)
    picks = chosen.integers([2, 8, 8], size=(60, 3))
    segments_of, add, leave = lanes.segments_of, graphs._Builder._add, memory.MemoryPlan.leave
    touched, n_beside = [], 0

    def of_any_cost(calls, recording):
        for call in calls:
            call.cost = chosen.random()
        return segments_of(calls, recording)

    def watched_add(builder, call):
        add(builder, call)
        read, written = (
            [builder._memory[slot] for slot in slots if slot in builder._memory]
            for slots in (call.inputs, [*call.outs, *call.changed])
        )
        touched.append((builder._plan._lane, read, written))

    def watched_leave(plan):
        nonlocal n_beside
        leave(plan)
        one, other = ([t for t in touched if t[0] == lane] for lane in (0, 1))
        n_beside += len(other)
        for _, read, written in one:
            for _, others_read, others_written in other:
                places = {t.data_ptr() for t in written}
                assert places.isdisjoint(t.data_ptr() for t in [*others_read, *others_written])
                assert {t.data_ptr() for t in others_written}.isdisjoint(t.data_ptr() for t in read)
        touched.clear()

    monkeypatch.setattr(graphs, "segments_of", of_any_cost)
    monkeypatch.setattr(graphs._Builder, "_add", watched_add)
    monkeypatch.setattr(memory.MemoryPlan, "leave", watched_leave)
    monkeypatch.setattr(lanes, "_START", -0.1)

    def parts(inputs, numbers):
        values = [*inputs] * 4
        for which, left, right in picks:
            values.append((torch.tanh, torch.sin)[which](values[left - 8] + values[right - 8]))
        yield [torch.stack(values[-8:]).sum()]

    Tape(parts, [torch.ones(3, 4), torch.zeros(3, 4)], [], [])
    assert n_beside


@pytest.mark.parametrize("every", [1, 2, 3])
def test_what_is_no_planned_memory_crosses_between_lanes(every, way, monkeypatch):
    if way != "on two lanes":
        pytest.skip("no lanes")
    # On alternate lanes: each reads and changes what the other one has just made.
    monkeypatch.setattr(
        graphs, "segments_of", lambda calls, recording: _alternating(len(calls), every)
    )

    def parts(inputs, numbers):
        scale = inputs[0].sum().mul_(0.5)  # torch cannot write this sum into planned memory
        for _ in range(3):
            scale = (inputs[0] * scale).sum().mul_(0.5)
        made = inputs[0].cumsum(0)
        more = made.mul_(scale) + 1
        yield [scale, made, made.mul_(2), more]

    tape = Tape(parts, [torch.ones(3)], [], [])
    assert "prim::fork" in str(tape._parts[0].function.graph)
    first = replay(tape, [torch.arange(3.0)])
    for inputs in ([torch.arange(3.0) + 1], [torch.arange(3.0)]):
        (expected,) = parts(inputs, None)
        found = replay(tape, inputs)
        assert [t.tolist() for t in found] == [t.tolist() for t in expected]
    # They have memory of their own.
    assert [t.tolist() for t in first] == [t.tolist() for t in found]


def _alternating(n_calls, every):
    found = []
    for number in range(n_calls):
        sides = ([], [number]) if number // every % 2 else ([number], [])
        found.append(lanes.Segment([], sides))
    return [*found, lanes.Segment()]


@pytest.mark.parametrize("faster", [0, 1])
def test_the_faster_way_is_chosen(faster, way, monkeypatch):
    made, now = [], [0.0]
    monkeypatch.setattr(lanes.time, "perf_counter", lambda: now[0])

    def waiting(which):
        def way(registers):
            made.append(which)
            now[0] += 0.004 if which != faster else 0.0005
            return ()

        return way

    chosen = lanes.FasterOf(waiting(0), waiting(1))
    for _ in range(60):
        chosen([])
    assert chosen.uses_lanes == bool(faster)
    assert set(made[-10:]) == {faster}


def test_lanes_that_lost_once_are_soon_tried_again(way, monkeypatch):
    made, now = [], [0.0]
    monkeypatch.setattr(lanes.time, "perf_counter", lambda: now[0])

    def plain(registers):
        made.append(0)
        now[0] += 0.001
        return ()

    def on_one_core_at_first(registers):
        made.append(1)
        now[0] += 0.004 if len(made) < 50 else 0.0005
        return ()

    chosen = lanes.FasterOf(plain, on_one_core_at_first)
    for _ in range(50):
        chosen([])
    assert not chosen.uses_lanes
    for _ in range(150):
        chosen([])
    assert chosen.uses_lanes


def test_lanes_that_lose_are_tried_less_and_less_often(way, monkeypatch):
    made, now = [], [0.0]
    monkeypatch.setattr(lanes.time, "perf_counter", lambda: now[0])

    def waiting(which):
        def way(registers):
            made.append(which)
            now[0] += 0.004 if which else 0.001
            return ()

        return way

    chosen = lanes.FasterOf(waiting(0), waiting(1))
    for _ in range(10_000):
        chosen([])
    tried = [number for number, which in enumerate(made) if which]
    assert len(tried) < 40
    assert len([number for number in tried if number > 5_000]) < 10


def test_jobs_that_share_cores_have_one_lane(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert not lanes.may_use_lanes()


@pytest.mark.parametrize(("machine", "may"), [("x86_64", True), ("AMD64", True), ("arm64", False)])
def test_lanes_are_where_stores_are_seen_in_their_order(machine, may, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(lanes.torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(lanes, "usable_cores", lambda: 2)
    monkeypatch.setattr(lanes.platform, "machine", lambda: machine)
    assert lanes.may_use_lanes() is may


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
