"""Writes a policy as C, compiles it, and compares what it does with the policy."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.deploy.c_graph import Array
from rlzoo_plus.deploy.c_source import START, Case, Source, frame_shape, write_c
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import PolicyGraph, write_onnx
from rlzoo_plus.export.parity import Parity, Recording, compare, record
from rlzoo_plus.export.signature import STATE_NAMES, Signature, make_signature
from rlzoo_plus.export.writing import check_backend, facts_of

N_CASES = 8
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O2", "-std=c99")


@dataclass(frozen=True)
class InC:
    """A policy that was written in C."""

    signature: Signature
    parity: Parity | None  # How it compares with the policy; None without a compiler
    slowest_us: float | None  # The slowest of its decisions here
    bytes: int | None  # Of the compiled code with its constants


def export_c(policy: Policy, config: RunConfig, path: Path, about: Mapping[str, Any]) -> InC:
    """Write a policy as one C99 file, and let it repeat what the policy does.

    Args:
        policy: The policy.
        config: Its run.
        path: The file.
        about: Step, run and the like, for the file's comment.

    Raises:
        ConfigError: The policy cannot be written in C.
    """
    check_backend(config, "c")
    signature, frames = make_signature(policy), config.env.frame_stack
    facts = facts_of(policy, config, signature, dict(about))
    data = write_onnx(PolicyGraph(policy, signature), {}, batch=1)
    recording = record(policy, signature, config)
    cases = decisions(policy, signature, recording, frames)
    source = write_c(data, signature, frames, facts, cases)
    write_atomic(path, source.text.encode())
    compiler = find_compiler()
    if compiler is None:
        return InC(signature, None, None, None)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "policy.c")
        file.write_text(source.text, encoding="utf-8")
        run = c_runner(source, signature, frames, build(compiler, file, "-shared", "-fPIC"))
        parity = compare(policy, signature, run, recording)
        slowest_us, size = _tried(compiler, file)
    return InC(signature, parity, slowest_us, size)


def find_compiler() -> str | None:
    """Return a C compiler, if there is one."""
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def build(compiler: str, file: Path, *flags: str) -> Path:
    """Compile a file and return the result, which lies beside it.

    Raises:
        ConfigError: The compiler failed.
    """
    out = file.with_suffix(".so" if "-shared" in flags else ".exe")
    command = [compiler, *_FLAGS, *flags, str(file), "-o", str(out), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        said = printable((lines or ["it says nothing"])[0])
        raise ConfigError(f"{compiler} does not compile the policy: {said}.")
    return out


def _tried(compiler: str, file: Path) -> tuple[float, int]:
    """Return the slowest decision of the file's own test [us], and the size of what is compiled."""
    program = build(compiler, file, "-DPOLICY_TEST")
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    found = re.search(r"slowest_us (\S+)", done.stdout)
    assert found is not None
    object_file = file.with_suffix(".o")
    subprocess.run([compiler, *_FLAGS, "-c", str(file), "-o", str(object_file)], check=True)
    return float(found[1]), object_file.stat().st_size


def c_runner(
    source: Source, signature: Signature, frames: int, library: Path
) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs the compiled file: arrays in, by name, to arrays out.

    The arrays have stacked frames and the state before, as the policy takes them; both are put
    where the file keeps them.
    """
    act = ctypes.CDLL(str(library)).policy_act
    places, start = [], 0
    for array in source.state:
        start += -start % np.dtype(array.dtype).itemsize
        places.append(start)
        start += _bytes(array)
    *taken, action = source.arguments
    own = (*STATE_NAMES, START) if signature.recurrent else ()
    given = [port for port in signature.inputs if port.name not in own]
    stacked = signature.observations if frames > 1 else ()
    kept = [port for port in signature.inputs if port in stacked or port.name in STATE_NAMES]

    def one(inputs: Mapping[str, np.ndarray], row: int) -> list[np.ndarray]:
        memory = np.zeros(source.room + 64, np.uint8)
        memory = memory[-memory.ctypes.data % 64 :]
        views = [
            memory[place : place + _bytes(array)].view(array.dtype).reshape(array.shape)
            for place, array in zip(places, source.state, strict=True)
        ]
        arguments = []
        for port, array in zip(given, taken, strict=True):
            value = np.asarray(inputs[port.name][row], array.dtype)
            if port in kept:
                axis = 0 if value.ndim == 3 else value.ndim - 1
                width = frame_shape(port, frames)[axis]
                # The newest comes to the front, from where it is pushed out.
                views[kept.index(port)][0] = np.roll(value, width, axis)
                value = np.take(value, range(value.shape[axis] - width, value.shape[axis]), axis)
            arguments.append(np.ascontiguousarray(value))
        for port, view in zip(kept, views, strict=True):
            if port.name in STATE_NAMES and not inputs[START][row]:
                view[:] = inputs[port.name][:, row : row + 1]
        result = np.zeros(action.shape, action.dtype)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (memory, *arguments, result)]
        act(*pointers)
        after = [view.copy() for p, view in zip(kept, views, strict=True) if p.name in STATE_NAMES]
        return [result[None], *after]

    def run(**inputs: np.ndarray) -> list[np.ndarray]:
        count = len(inputs[given[0].name])
        rows = [one(inputs, row) for row in range(count)]
        actions, *states = (list(column) for column in zip(*rows, strict=True))
        return [np.concatenate(actions), *(np.concatenate(state, axis=1) for state in states)]

    return run


def _bytes(array: Array) -> int:
    return np.dtype(array.dtype).itemsize * array.size


def decisions(
    policy: Policy, signature: Signature, recording: Recording, frames: int
) -> list[Case]:
    """Return the policy's decisions at the start of an episode, of recorded observations."""
    cases: list[Case] = []
    state: dict[str, np.ndarray] = {}
    stacks: dict[str, np.ndarray] = {}
    for port in signature.inputs:
        if port.name in STATE_NAMES:
            state[port.name] = np.zeros(port.sizes(1), np.float32)
    for number in range(N_CASES):
        part = recording.part(number, number + 1)
        inputs, frame = {**part, **state, START: np.array([number == 0])}, {}
        for port in signature.observations:
            value = np.asarray(part[port.name][0], port.dtype)
            axis = 0 if value.ndim == 3 else value.ndim - 1
            width = frame_shape(port, frames)[axis] if frames > 1 else 0
            newest = np.take(value, range(value.shape[axis] - width, value.shape[axis]), axis) \
                if frames > 1 else value  # fmt: skip
            if frames > 1:
                before = stacks.get(port.name, np.zeros_like(value))
                kept = np.take(before, range(width, before.shape[axis]), axis)
                stacks[port.name] = np.concatenate([kept, newest], axis)
                inputs[port.name] = stacks[port.name][None]
            frame[port.name] = newest
        if "action_masks" in part:
            frame["action_masks"] = part["action_masks"][0]
        action, *after = signature.predict(policy.predict, inputs)
        state = dict(zip(STATE_NAMES, after, strict=False))
        cases.append(Case(number == 0, frame, action[0]))
    return cases
