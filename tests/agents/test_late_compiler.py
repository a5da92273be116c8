"""PyTorch's compiler is imported by those who compile, not by every training."""

import subprocess
import sys

import pytest

_TRAINED = """
import sys, torch
from rlzoo_plus.agents.late_compiler import import_compiler_late
import_compiler_late()
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(layer.parameters())
layer(torch.ones(1, 2)).sum().backward()
optimizer.step()
optimizer.zero_grad()
assert "torch._dynamo.symbolic_convert" not in sys.modules, "imported by an optimizer"
assert not hasattr(sys.modules["torch._dynamo"], "__file__")
"""
_USES = {
    "a name": "from torch._dynamo import config; assert config.recompile_limit > 0",
    "a module below": "import torch._dynamo.backends.registry",
    "the spec": "import importlib.util as u; assert u.find_spec('torch._dynamo').origin",
    "a compiled function": (
        "f = torch.compile(lambda x: x * 2 + 1, backend='eager')\n"
        "assert f(torch.ones(1)).item() == 3"
    ),
    "a user's mark": (
        "f = torch.compiler.disable(lambda x: x + 1)\n"
        "assert torch.compile(f, backend='eager')(torch.ones(1)).item() == 2\n"
        "assert 'torch._dynamo.symbolic_convert' in sys.modules"
    ),
    "an unknown name": (
        "assert not hasattr(torch._dynamo, 'no_such_name')\n"
        "assert torch._dynamo is sys.modules['torch._dynamo']"
    ),
}


@pytest.mark.training
@pytest.mark.parametrize("use", _USES.values(), ids=_USES)
def test_the_compiler_is_there_as_soon_as_somebody_uses_it(use):
    after = "optimizer.step()\ntorch.optim.SGD(layer.parameters(), lr=0.1).step()"
    done = subprocess.run(
        [sys.executable, "-c", f"{_TRAINED}\n{use}\n{after}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.training
def test_a_training_does_not_import_the_compiler(tmp_path):
    code = (
        "import sys, rlzoo_plus\n"
        "rlzoo_plus.train('algo=ppo', 'env=cartpole', 'n_timesteps=256', 'eval.every_steps=null',\n"
        "    'report.plot=false', 'report.video=false', 'device=cpu')\n"
        "assert 'torch._dynamo.symbolic_convert' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "metric_dict" not in done.stderr
