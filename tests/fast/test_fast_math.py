"""`fast_math=true`: MKL's path for Intel's processors on AMD's, where it can be."""

import shutil
import subprocess
import sys

import pytest

from rlzoo_plus import compose
from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.fast import fast_math

_CAN_BE = (
    sys.platform == "linux"
    and "AMD" in str(machine_fingerprint()["processor"])
    and shutil.which("cc") is not None
)
needs_amd = pytest.mark.skipif(not _CAN_BE, reason="needs an AMD processor and a C compiler")
# Processes forked from one that has imported PyTorch, as the jobs of a sweep are.
_FORKS = """
import os, sys
from rlzoo_plus.fast import fast_math
from rlzoo_plus.errors import ConfigError
fast_math.load_switch(compiles=True)
import torch
from rlzoo_plus.training.resume.fingerprint import numeric_fingerprint
if not torch.backends.mkl.is_available():
    print("skip", flush=True)
    os._exit(0)
torch.set_num_threads(1)
numbers = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))

def forked(work):
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            answer = work()
        except ConfigError as error:
            answer = str(error)
        os.write(writing, str(answer).encode())
        os._exit(0)
    os.wait()
    return os.read(reading, 1000).decode()

def product(fast):
    fast_math.require(fast=fast)
    assert fast_math.is_fast() is fast
    assert ("matrix products" in numeric_fingerprint("cpu")) is fast
    return (numbers @ numbers).sum(dtype=torch.float64).item()

def too_late():
    product(fast=False)
    product(fast=True)

def back():
    product(fast=True)
    product(fast=False)

for work in (lambda: product(True), lambda: product(True), lambda: product(False), too_late, back):
    print(forked(work))
"""


@needs_amd
@pytest.mark.training
def test_each_process_takes_the_path_that_its_run_asks_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBOTS_NATIVE_FOLDER", str(tmp_path / "native"))
    done = subprocess.run(
        [sys.executable, "-c", _FORKS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if done.stdout == "skip\n":
        pytest.skip("this build of PyTorch is without MKL")
    fast, again, usual, too_late, back = done.stdout.splitlines()
    assert fast == again
    assert fast != usual
    assert abs(float(fast) - float(usual)) < 1
    assert "MKL has chosen its path already" in too_late
    assert "Train in another process" in back


@needs_amd
def test_it_is_refused_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBOTS_NATIVE_FOLDER", str(tmp_path / "native"))
    monkeypatch.setattr(fast_math.shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match=r"no C compiler \(cc, gcc, clang\). Leave fast_math="):
        fast_math.load_switch(compiles=True)


def test_a_server_of_jobs_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBOTS_NATIVE_FOLDER", str(tmp_path / "native"))
    monkeypatch.setattr(fast_math, "_needs_no_switch", lambda: False)
    fast_math.load_switch(compiles=False)
    assert not list(tmp_path.rglob("*.so"))


def test_it_is_refused_on_other_machines(monkeypatch):
    monkeypatch.setattr(fast_math.platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigError, match="it is for Linux on x86_64"):
        fast_math.require(fast=True)


def test_it_is_part_of_the_configuration_hash_only_where_it_is_used():
    usual, fast = (compose(["env=cartpole", f"fast_math={on}"]) for on in ("false", "true"))
    assert "fast_math" not in usual.model_dump()
    assert fast.model_dump()["fast_math"] is True
    assert config_hash(usual) != config_hash(fast)
