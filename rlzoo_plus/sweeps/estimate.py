"""How fast jobs train, and how long all of them will take."""

from __future__ import annotations

import heapq
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlzoo_plus.analysis.run_list import duration
from rlzoo_plus.config.cadence import evaluation_steps, with_schedule
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.single import longest_episode
from rlzoo_plus.sweeps import multirun
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.sweeps.launchers.usage import cores
from rlzoo_plus.sweeps.probe import Measurement, Probe, ProbeResult, kinds_of


@dataclass(frozen=True)
class Estimate:
    """The time that all jobs take with the best setting."""

    training_s: float  # Until all have trained [s]
    with_evaluations_s: float | None  # With the longest evaluations [s]; None if not known
    workers: int  # Jobs at once

    def text(self, n_jobs: int, *, is_study: bool = False) -> str:
        """Return how long it will take, in a line."""
        what = f"{n_jobs} jobs, {self.workers} at once" if n_jobs > 1 else "the run"
        what = f"all runs of the study, {self.workers} at once" if is_study else what
        training = duration(self.training_s)
        text = f"{what}: about {training} of training"
        if self.with_evaluations_s is None:
            return f"{text}, and the time for evaluations"
        whole = duration(self.with_evaluations_s)
        return text if whole == training else f"{text}, up to {whole} with evaluations"


@dataclass(frozen=True)
class JobTime:
    """The time that a job takes."""

    training_s: float  # Without evaluations [s]
    evaluating_s: float | None  # Of the longest evaluations [s]; None if not known

    @property
    def seconds(self) -> float:
        """All of it as far as it is known [s]."""
        return self.training_s + (self.evaluating_s or 0.0)


def probe_jobs(
    configs: list[RunConfig], seconds: float, *, is_sweep: bool, compares: bool = True
) -> ProbeResult:
    """Train some of the jobs for some seconds, in a temporary folder, and return how fast it was.

    None of the jobs is refused. With `compares`, other settings than the configured one are tried.
    """
    launcher = LocalLauncher(cores(), multirun.PRELOAD)
    with tempfile.TemporaryDirectory(prefix="rlzoo-doctor-", ignore_cleanup_errors=True) as folder:
        probe = Probe(launcher, Path(folder), seconds, is_sweep=is_sweep, compares=compares)
        return probe.run(configs)


def longest_episodes(configs: list[RunConfig]) -> dict[str, int | None]:
    """Return the steps of the longest episode by the name of an environment, None if not known."""
    return {str(config.env.name): longest_episode(config) for config in configs}


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
    best, rates = result.best, rates_of(result, configs)
    if best is None or best.rate is None:
        return None
    workers = best.setting.workers
    gain = best.rate / workers / rates[best.kind.name]
    # Longest kinds first, as they were measured.
    jobs = [job for kind in kinds_of(configs) for job in kind.jobs]
    times = job_times(result, jobs, longest_episode, gain)
    whole = None
    if all(time.evaluating_s is not None for time in times):
        whole = makespan([time.seconds for time in times], workers)
    return Estimate(makespan([time.training_s for time in times], workers), whole, workers)


def job_times(
    result: ProbeResult,
    configs: list[RunConfig],
    longest_episode: dict[str, int | None],
    gain: float = 1.0,
) -> list[JobTime]:
    """Return the time of each job if it has a process for itself; none if no rate is known.

    With `gain`, each is so many times as fast as measured; for `longest_episode` see `estimate`.
    """
    rates = rates_of(result, configs)
    if not rates:
        return []
    names = {id(job): kind.name for kind in kinds_of(configs) for job in kind.jobs}
    of_evaluations = {m.kind.name: m.eval_rate for m in result.measurements if m.eval_rate}
    slowest = min(of_evaluations.values(), default=None)
    times = []
    for job in configs:
        longest = longest_episode.get(str(job.env.name))
        played = evaluation_steps(with_schedule(job, lambda: longest), longest)  # noqa: B023
        eval_rate = of_evaluations.get(names[id(job)], slowest)
        evaluating = 0.0 if played == 0 else None
        if played and eval_rate:
            evaluating = played / (eval_rate * gain)
        times.append(JobTime(job.n_timesteps / (rates[names[id(job)]] * gain), evaluating))
    return times


def rates_of(result: ProbeResult, configs: list[RunConfig]) -> dict[str, float]:
    """Return steps a second of one job as configured, by the name of its kind.

    Kinds that were not measured are taken to be as slow as the slowest that was; if no rate is
    known, there are none.
    """
    rates: dict[str, float] = {}
    for measurement in result.measurements:
        if measurement.rate:
            rates.setdefault(measurement.kind.name, measurement.rate)
    slowest = min(rates.values(), default=0.0)
    return {kind.name: rates.get(kind.name, slowest) for kind in kinds_of(configs)} if rates else {}


def makespan(durations: list[float], workers: int) -> float:
    """Return when the last job ends if each begins as soon as a worker is free [s]."""
    free = [0.0] * workers
    for seconds in durations:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
