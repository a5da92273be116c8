"""A training imports what it uses; whoever asks for the rest gets it."""

import os
import subprocess
import sys

import pytest

from rlzoo_plus.fast.startup import before_torch

_TRAINED = """
import sys, torch
from rlzoo_plus.fast.startup import import_compiler_late
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


# Each use in a fork of its own, as importing torch takes seconds.
_FORKS = """
import os, traceback
failed = []
for name, use in {uses!r}.items():
    pid = os.fork()
    if pid == 0:
        try:
            exec(use)
            optimizer.step()
            torch.optim.SGD(layer.parameters(), lr=0.1).step()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        failed.append(name)
assert not failed, failed
"""


@pytest.mark.training
def test_the_compiler_is_there_as_soon_as_somebody_uses_it():
    _run(f"{_TRAINED}\n{_FORKS.format(uses=_USES)}")


_COMMAND = """
import sys
from rlzoo_plus.commands.dispatch import entry_point
sys.argv = ["rlzoo-plus", "algo=ppo", "env=cartpole", "n_timesteps=256", "eval.every_steps=null",
    "report.plot=false", "report.video=false", "device=cpu", "run_dir=run"] + sys.argv[1:]
try:
    entry_point("train")
except SystemExit as stop:
    assert not stop.code, stop.code
found = [name for name in {names} if name in sys.modules]
assert not found, found
"""


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": "2000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_idle_threads_sleep_soon_unless_the_user_says_otherwise(own, expected, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    before_torch()
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    assert {name: os.environ[name] for name in names if name in os.environ} == expected


@pytest.mark.training
def test_a_training_imports_no_compiler(tmp_path):
    names = ("torch._dynamo.symbolic_convert", "torch._inductor", "sympy", "matplotlib", "optuna")
    _run(_COMMAND.format(names=names), folder=tmp_path)


def _run(code, *arguments, folder=None):
    """Execute code in a process of its own, where nothing is imported yet."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "" if folder is None else str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done
