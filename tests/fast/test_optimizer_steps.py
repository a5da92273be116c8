"""Steps on flat tensors against torch's optimizers: the same bits, or the same up to rounding."""

import pytest
import torch
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from rlzoo_plus.fast.handwritten.adam_steps import FusedAdam, make_fast_steps
from rlzoo_plus.fast.recorded import optimizers
from rlzoo_plus.fast.recorded.optimizers import FlatSteps, make_steps

OPTIMIZERS = {
    "adam": (torch.optim.Adam, {"lr": 1e-2}),
    "adam with weight decay": (torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-2, "alpha": 0.9}),
    "rmsprop as tensorflow's": (RMSpropTFLike, {"lr": 1e-2, "alpha": 0.9}),
}
# Together more than what is made by halves; the middle is within the second one.
SHAPES = (7,), (201, 173), (33, 11), (1,)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(kind, options, make, max_norm, n_steps=4):
    """Return parameters and averages after some steps."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    optimizer = kind(parameters, **options)
    steps = make and make(optimizer, parameters)
    for _ in range(n_steps):
        gradients = [torch.randn(p.shape) for p in parameters]
        if steps is None:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, max_norm)
            optimizer.step()
        else:
            with torch.no_grad():
                steps.step(gradients, max_norm)
    if steps is not None:
        steps.publish()
    averages = [v for p in parameters for v in optimizer.state[p].values() if torch.is_tensor(v)]
    return [*(p.detach() for p in parameters), *averages], steps


@pytest.mark.parametrize("max_norm", [None, 0.5, 1e6])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_by_halves_have_the_bits_of_the_optimizer(name, max_norm):
    kind, options = OPTIMIZERS[name]
    expected, _ = trained(kind, options, None, max_norm)
    found, steps = trained(kind, options, make_steps, max_norm)
    assert isinstance(steps, FlatSteps)
    assert len(steps._pieces) == 2
    for left, right in zip(found, expected, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("max_norm", [None, 0.5, 1e6])
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if "adam" in name])
def test_fused_steps_are_those_of_the_optimizer_up_to_rounding(name, max_norm, monkeypatch):
    kind, options = OPTIMIZERS[name]
    expected, _ = trained(kind, options, None, max_norm)
    halves, steps = trained(kind, options, make_fast_steps, max_norm)
    assert isinstance(steps, FusedAdam)
    for left, right in zip(halves, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(optimizers, "_MANY", 2**30)
    whole, steps = trained(kind, options, make_fast_steps, max_norm)
    assert len(steps._pieces) == 1
    if max_norm is None:  # a norm of halves is rounded otherwise
        assert all(map(torch.equal, halves, whole))


def test_with_more_threads_torch_shares_a_step_itself():
    torch.set_num_threads(2)
    _, steps = trained(*OPTIMIZERS["adam"], make_steps, None)
    assert len(steps._pieces) == 1
