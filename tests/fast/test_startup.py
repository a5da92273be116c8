"""A training imports what it uses; whoever asks for the rest gets it."""

import os
import subprocess
import sys

import pytest

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


@pytest.mark.training
@pytest.mark.parametrize("use", _USES.values(), ids=_USES)
def test_the_compiler_is_there_as_soon_as_somebody_uses_it(use):
    after = "optimizer.step()\ntorch.optim.SGD(layer.parameters(), lr=0.1).step()"
    _run(f"{_TRAINED}\n{use}\n{after}")


_LIBRARIES = """
import sys, rlzoo_plus
from rlzoo_plus.fast.startup import import_libraries
import_libraries(rlzoo_plus.compose(["env=cartpole"]))
import torch
for name in ("torch._decomp", "torch._refs", "torch._prims", "tensorboard", "boto3"):
    assert name not in sys.modules, name
"""
_ASKED = {
    "shapes of tensors without numbers": (
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        "with FakeTensorMode():\n"
        "    assert torch.linalg.qr(torch.ones(3, 2))[0].shape == (3, 2)"
    ),
    "a module in the circle": (
        "import torch._refs.linalg as asked\n"
        "assert asked is torch._refs.linalg and asked.__spec__.origin == asked.__file__\n"
        "assert len(torch._decomp.decomposition_table) > 500"
    ),
    "a forward derivative": (
        "ones = torch.ones(1)\n"
        "assert torch.func.jvp(lambda x: x * x, (ones,), (ones,))[1].item() == 2"
    ),
    "a writer of events": (
        "import tempfile, stable_baselines3.common.logger as logger\n"
        "from torch.utils.tensorboard import SummaryWriter\n"
        "class Own(logger.SummaryWriter): pass\n"
        "assert issubclass(Own, SummaryWriter)\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    writer = logger.SummaryWriter(folder)\n"
        "    writer.add_scalar('a', 1.0)\n"
        "    writer.close()\n"
        "assert isinstance(writer, logger.SummaryWriter)\n"
        "assert logger.hparams({}, {'a': 0})"
    ),
}


@pytest.mark.training
@pytest.mark.parametrize("use", _ASKED.values(), ids=_ASKED)
def test_what_was_left_out_is_there_as_soon_as_somebody_asks_for_it(use):
    _run(f"{_LIBRARIES}\n{use}")


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
# Where each begins; none is used by a training with values of its own algorithm and environment.
_NEVER = (
    *("torch._dynamo.symbolic_convert", "torch._inductor", "torch._decomp", "torch._refs"),
    *("sympy", "networkx", "matplotlib", "pandas", "optuna", "boto3", "fsspec", "scipy", "numba"),
)


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
    _run(
        "import os, sys\n"
        "class SeesTorch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch':\n"
        "            names = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')\n"
        "            found = {n: os.environ[n] for n in names if n in os.environ}\n"
        f"            assert found == {expected}, found\n"
        "            sys.exit(0)\n"
        "import rlzoo_plus\n"
        "from rlzoo_plus.fast.startup import import_libraries\n"
        "config = rlzoo_plus.compose(['env=cartpole'])\n"
        "sys.meta_path.insert(0, SeesTorch())\n"
        "import_libraries(config)\n"
        "sys.exit('torch was not imported')\n"
    )


@pytest.mark.training
def test_a_training_imports_nothing_that_it_does_not_use(tmp_path):
    names = (*_NEVER, "tensorboard", "torch.utils.tensorboard")
    done = _run(_COMMAND.format(names=names), "log.tensorboard=false", folder=tmp_path)
    assert "metric_dict" not in done.stderr
    assert not list(tmp_path.rglob("events.out.*"))


@pytest.mark.training
def test_a_training_writes_events_without_the_libraries_of_stores(tmp_path):
    _run(_COMMAND.format(names=_NEVER), "log.tensorboard=true", folder=tmp_path)
    written = [file.read_bytes() for file in tmp_path.rglob("events.out.*")]
    assert any(b"rollout/ep_rew_mean" in events for events in written)


@pytest.mark.training
def test_a_training_with_code_of_the_user_gets_all_of_pytorch(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from stable_baselines3.common.callbacks import BaseCallback\n"
        "class Mine(BaseCallback):\n"
        "    def _on_step(self):\n"
        "        torch._meta_registrations.device_hint(None)\n"
        "        return True\n"
    )
    options = ("log.tensorboard=false", "callbacks=[mine.Mine]")
    _run(_COMMAND.format(names=()), *options, folder=tmp_path)


def test_collections_are_rare_until_a_command_has_imported():
    _run("""
import gc
from rlzoo_plus.fast import startup
usual = gc.get_threshold()
startup.pause_gc()
assert gc.isenabled()
assert gc.get_threshold()[0] > 100 * usual[0]
startup.resume_gc()
assert gc.get_threshold() == usual
assert gc.get_freeze_count() > 0
""")


def test_a_program_that_uses_the_package_keeps_its_own_collections():
    _run("""
import gc
from rlzoo_plus.fast import startup
usual = gc.get_threshold()
startup.resume_gc()
assert gc.get_freeze_count() == 0
assert gc.get_threshold() == usual
""")


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
