"""`profile=true`: where a training's time goes, by phase and as a flame graph.

A thread looks at the stack of the training thread many times a second. Each look counts for one
phase, by the functions on the stack. It costs a few percent, where a profiler that follows every
call costs a third, and weights stay identical. `profile=torch` writes a trace of some iterations,
for ui.perfetto.dev.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile, schedule

from rlzoo_plus.analysis.flame import flame_graph
from rlzoo_plus.artifacts.atomic import write_atomic, write_json
from rlzoo_plus.config.schema import RunConfig

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

log = logging.getLogger(__name__)
# Between two looks [s].
_INTERVAL_S = 0.01
# Iterations that a trace leaves out, and holds.
_TRACE_WAIT, _TRACE_ITERATIONS = 2, 4
_ENVIRONMENT, _ACT, _BUFFER = "environment", "act", "buffer"
# Recorded updates are one call: forward and backward pass, and most optimizers.
_FORWARD, _BACKWARD, _RECORDED = "forward", "backward", "recorded updates"
_OPTIMIZER, _EVALUATE, _CHECKPOINT, _LOG = "optimizer", "evaluate", "checkpoint", "log"
_OTHER = "other"
PHASES = (
    *(_ACT, _ENVIRONMENT, _BUFFER, _FORWARD, _BACKWARD, _RECORDED, _OPTIMIZER),
    *(_EVALUATE, _CHECKPOINT, _LOG, _OTHER),
)
# The phase of a function and of all that it calls, by the end of its file's path and its name
# ("" for all of the file). Where several are on a stack, the outermost of _WHOLE decides, else the
# innermost; what a rollout computes is to act.
_WHOLE = (
    ("rlzoo_plus/training/callbacks/evaluation_callback.py", "", _EVALUATE),
    ("rlzoo_plus/training/callbacks/checkpoint_callback.py", "", _CHECKPOINT),
    ("", "dump_logs", _LOG),
    ("", "step_wait", _ENVIRONMENT),
    ("stable_baselines3/common/vec_env/base_vec_env.py", "step", _ENVIRONMENT),
    ("stable_baselines3/common/buffers.py", "", _BUFFER),
    ("stable_baselines3/her/her_replay_buffer.py", "", _BUFFER),
    ("", "_store_transition", _BUFFER),
)
_PARTS = (
    ("", "collect_rollouts", _ACT),
    ("", "train", _FORWARD),
    ("rlzoo_plus/fast/recorded/tape.py", "run", _RECORDED),
    ("rlzoo_plus/fast/recorded/optimizers.py", "", _OPTIMIZER),
    ("torch/nn/utils/clip_grad.py", "", _OPTIMIZER),
    ("torch/optim/optimizer.py", "", _OPTIMIZER),
    ("torch/_tensor.py", "backward", _BACKWARD),
    ("torch/autograd/__init__.py", "", _BACKWARD),
)


# The functions on a stack, from the outermost on.
Stack = tuple[CodeType, ...]


class Sampler(threading.Thread):
    """Looks at the stack of the thread that made it, until `stop`.

    Attributes:
        times: How long each stack was seen [s].
    """

    def __init__(self, interval_s: float = _INTERVAL_S) -> None:
        super().__init__(name="profiler", daemon=True)
        self.times: dict[Stack, float] = {}
        self._interval_s, self._watched = interval_s, threading.get_ident()
        self._is_over = threading.Event()
        # By identity: to hash code would read all of it.
        self._seen: dict[tuple[int, ...], tuple[Stack, float]] = {}

    def run(self) -> None:
        """Look, and count the time since the look before for what is seen."""
        before = time.perf_counter()
        while not self._is_over.wait(self._interval_s):
            frame = sys._current_frames().get(self._watched)
            codes = []
            while frame is not None:
                codes.append(frame.f_code)
                frame = frame.f_back
            now = time.perf_counter()
            key = tuple(map(id, reversed(codes)))
            stack, spent = self._seen.get(key, (tuple(reversed(codes)), 0.0))
            self._seen[key] = stack, spent + now - before
            before = now

    def stop(self) -> None:
        """End the thread, and complete `times`."""
        self._is_over.set()
        self.join()
        for stack, spent in self._seen.values():
            self.times[stack] = self.times.get(stack, 0.0) + spent


@contextlib.contextmanager
def profiled(config: RunConfig, folder: Path, agent: BaseAlgorithm) -> Iterator[None]:
    """Profile a block that trains an agent, as `profile` says; write the result to a folder.

    A file that cannot be written is a warning.
    """
    if config.profile is False:
        yield
        return
    profile = _trace if config.profile == "torch" else _sample
    with profile(folder, agent):
        yield


@contextlib.contextmanager
def _sample(folder: Path, agent: BaseAlgorithm) -> Iterator[None]:
    sampler, started, began_at = Sampler(), time.perf_counter(), agent.num_timesteps
    sampler.start()
    try:
        yield
    finally:
        sampler.stop()
        seconds = time.perf_counter() - started
        phases, steps = phase_times(sampler.times), agent.num_timesteps - began_at
        for line in phase_table(phases, seconds, steps):
            log.info("%s", line)
        record = {"seconds": seconds, "steps": steps, "phases": phases}
        _write(folder / "phases.json", lambda path: write_json(path, record))
        named = {tuple(map(_name, stack)): spent for stack, spent in sampler.times.items()}
        _write(folder / "flame.svg", lambda path: write_atomic(path, flame_graph(named)))


@contextlib.contextmanager
def _trace(folder: Path, agent: Any) -> Iterator[None]:
    activities = [ProfilerActivity.CPU]
    if agent.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)

    def finish(trace: Any) -> None:
        _write(folder / "trace.json", lambda path: trace.export_chrome_trace(str(path)))

    plan = schedule(wait=_TRACE_WAIT, warmup=1, active=_TRACE_ITERATIONS, repeat=1)
    before = agent.before_iteration
    with profile(activities=activities, schedule=plan, on_trace_ready=finish) as trace:
        agent.before_iteration = [*before, trace.step]
        try:
            yield
        finally:
            agent.before_iteration = before


def phase_times(times: Mapping[Stack, float]) -> dict[str, float]:
    """Return the time of each phase [s], in the order of `PHASES`, of the times of stacks."""
    phases = dict.fromkeys(PHASES, 0.0)
    for stack, spent in times.items():
        phases[_phase_of(stack)] += spent
    return {name: seconds for name, seconds in phases.items() if seconds > 0}


def phase_table(phases: dict[str, float], seconds: float, steps: int) -> list[str]:
    """Return lines that show the phases of a training: seconds, share, time of each step."""
    lines = [f"profile: {seconds:.1f} s, {steps:,} environment steps"]
    for name, spent in sorted(phases.items(), key=lambda item: -item[1]):
        each = f", {1e6 * spent / steps:8.1f} us a step" if steps else ""
        lines.append(f"  {name:32} {spent:8.2f} s {spent / seconds:6.1%}{each}")
    return lines


def _phase_of(stack: Sequence[CodeType]) -> str:
    found = _OTHER
    for code in stack:
        path = code.co_filename.replace("\\", "/")
        for rules, is_settled in ((_WHOLE, True), (_PARTS, False)):
            for ending, name, phase in rules:
                if path.endswith(ending) and name in ("", code.co_name):
                    if is_settled:
                        return phase
                    found = found if found == _ACT else phase
    return found


def _name(code: CodeType) -> str:
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def _write(path: Path, write: Callable[[Path], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        log.info("written %s", path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
