"""How fast jobs train and how long all of them will take, as measured, estimated and shown."""

from __future__ import annotations

import heapq
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.analysis.runs import duration
from rlzoo_plus.config.cadence import evaluation_steps, with_schedule
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.diagnosis.diagnose import Outcome
from rlzoo_plus.diagnosis.probe import Measurement, Probe, ProbeResult, kinds_of
from rlzoo_plus.infra.local import LocalLauncher
from rlzoo_plus.infra.usage import cores
from rlzoo_plus.sweeps import multirun

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Estimate:
    """The time that all jobs take with the best setting."""

    training_s: float  # Until all have trained [s]
    with_evaluations_s: float | None  # With the longest evaluations [s]; None if not known
    workers: int  # Jobs at once

    def text(self, n_jobs: int) -> str:
        """Return how long it will take, in a line."""
        what = f"{n_jobs} jobs, {self.workers} at once" if n_jobs > 1 else "the run"
        training = duration(self.training_s)
        text = f"{what}: about {training} of training"
        if self.with_evaluations_s is None:
            return f"{text}, and the time for evaluations"
        whole = duration(self.with_evaluations_s)
        return text if whole == training else f"{text}, up to {whole} with evaluations"


def measure(outcome: Outcome, seconds: float) -> None:
    """Train some of the jobs for some seconds, in a temporary folder, and add the measurements.

    The outcome has no errors, and its jobs are for this machine.
    """
    from rlzoo_plus.diagnosis.building import agent_facts

    configs = outcome.configs
    launcher = LocalLauncher(cores(), multirun.PRELOAD)
    with tempfile.TemporaryDirectory(prefix="rlzoo-doctor-", ignore_cleanup_errors=True) as folder:
        probe = Probe(launcher, Path(folder), seconds, is_sweep=outcome.is_sweep)
        outcome.result = probe.run(configs)
    longest = {str(config.env.name): agent_facts(config).episode_steps for config in configs}
    outcome.estimate = estimate(outcome.result, configs, longest)
    if outcome.result.best is not None:
        outcome.overrides = overrides_for(outcome.result.best, is_sweep=outcome.is_sweep)


def overrides_for(best: Measurement, *, is_sweep: bool) -> list[str]:
    """Return what to add to the command line."""
    setting = best.setting
    overrides = [f"vec_env={setting.vec_env}"] if best.kind.jobs[0].n_envs > 1 else []
    overrides.append(f"num_threads={setting.threads}")
    return [*overrides, f"infra.workers={setting.workers}"] if is_sweep else overrides


def estimate(
    result: ProbeResult, configs: list[RunConfig], longest_episode: dict[str, int | None]
) -> Estimate | None:
    """Return the time that jobs take with the best setting, None if no rate is known.

    Kinds that were not measured are taken to be as slow as the slowest that was. The gain of
    another setting is taken to be the same for all kinds. `longest_episode` has the steps of the
    longest episode by the name of an environment.
    """
    best = result.best
    if best is None or best.rate is None:
        return None
    first: dict[str, Measurement] = {}
    rates: dict[str, float] = {}
    for measurement in result.measurements:
        if measurement.rate is not None:
            first.setdefault(measurement.kind.name, measurement)
            rates.setdefault(measurement.kind.name, measurement.rate)
    workers = best.setting.workers
    gain = best.rate / workers / rates[best.kind.name]
    slowest = min(rates, key=lambda name: rates[name])
    training, evaluating = [], []
    for kind in kinds_of(configs):
        name = kind.name if kind.name in rates else slowest
        eval_rate = (first[name].eval_rate or 0.0) * gain
        for job in kind.jobs:
            training.append(job.n_timesteps / ((rates[name] or 1.0) * gain))
            longest = longest_episode.get(str(job.env.name))
            played = evaluation_steps(with_schedule(job, lambda: longest), longest)  # noqa: B023
            if played == 0:
                evaluating.append(0.0)
            elif played is not None and eval_rate:
                evaluating.append(played / eval_rate)
    whole = None
    if len(evaluating) == len(training):
        whole = _makespan([sum(pair) for pair in zip(training, evaluating, strict=True)], workers)
    return Estimate(_makespan(training, workers), whole, workers)


def _makespan(durations: list[float], workers: int) -> float:
    """Return when the last job ends if each begins as soon as a worker is free [s]."""
    free = [0.0] * workers
    for seconds in durations:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def probe_table(result: ProbeResult) -> Table:
    """Return the measurements of a probe; the setting that is recommended is marked."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("jobs")
    for name in ("vec_env", "threads", "at once", "steps/s"):
        table.add_column(name, no_wrap=True, justify="left" if name == "vec_env" else "right")
    table.add_column("")
    for measured in result.measurements:
        setting, rate = measured.setting, measured.rate
        table.add_row(
            Text(measured.kind.name),
            setting.vec_env,
            str(setting.threads),
            str(setting.workers),
            "-" if rate is None else f"{'~' if measured.rough else ''}{rate:,.0f}",
            Text("<- recommended" if measured is result.best else measured.reason),
        )
    return table
