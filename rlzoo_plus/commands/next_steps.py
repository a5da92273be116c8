"""What `train` and `resume` say at the end: how a finished run ended, and what to type next."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.runs.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig


def print_done(console: Console, plan: Plan) -> None:
    """Say that a run is finished, and how it ended."""
    assert plan.run_dir is not None
    from rlzoo_plus.analysis.series import finite
    from rlzoo_plus.artifacts.untrusted import printable

    result = plan.run_dir.read_result()
    record = result.get("best")
    best = finite(record.get("mean_return")) if isinstance(record, dict) else None
    taken = plan.run_dir.read_status().get("num_timesteps", plan.config.n_timesteps)
    steps = finite(result.get("num_timesteps", taken))
    shown = "" if steps is None else f": {steps:,.0f} steps"
    shown += "" if best is None else f", best mean return {best:.1f}"
    reason = printable(str(result.get("reason", "all steps taken")))
    # Only a checkpoint can be gone on from.
    has_more = plan.run_dir.checkpoints().steps()
    longer = "a larger n_timesteps makes it longer, " if has_more else ""
    console.print(
        f"{plan.run_dir.path} is finished ({reason}){shown}. Nothing to do; {longer}restart=true "
        "starts it anew.",
        markup=False,
    )


def _saved_policy(run_dir: RunDir) -> str:
    """Return the option that chooses a policy which is there: the best needs none."""
    if run_dir.best.is_dir():
        return ""
    if run_dir.final.is_dir():
        return " --which final"
    return "".join(f" --which {step}" for step in run_dir.checkpoints().steps()[-1:])


def next_commands(config: RunConfig, run_dir: RunDir, state: str) -> str:
    """Return the commands that one may type after a run."""
    from rlzoo_plus.config.own_code import own_code

    program = "rlzoo-plus"
    options = _saved_policy(run_dir)
    options += " --trust" if own_code(config, "play") else ""
    # Without a display there is nothing to watch a robot in.
    has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    watch = "enjoy" if has_display or not sys.platform.startswith("linux") else "record"
    trust = " --trust" if "--trust" in options or config.callbacks or config.tracker else ""
    resume = f"  {program} resume {run_dir.path}{trust}\n" if state == "interrupted" else ""
    return (
        f"\nnext:\n{resume}"
        f"  {program} evaluate {run_dir.path} --episodes 100{options}\n"
        f"  {program} {watch} {run_dir.path}{options}\n"
        f"  {_program('tensorboard')} --logdir {run_dir.tensorboard}\n"
        f"  {program} runs"
    )


def _program(name: str) -> str:
    """Return a program as it must be typed here: with its folder if that is not on the path."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name) is not None or not beside.is_file():
        return name
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
