"""How fast jobs train and how long all of them will take, from what a probe measures."""

from __future__ import annotations

import heapq
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlzoo_plus.config.cadence import evaluation_steps, with_schedule
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.diagnosis.findings import Outcome
from rlzoo_plus.diagnosis.probe import Measurement, Probe, ProbeResult, kinds_of
from rlzoo_plus.infra.local import LocalLauncher
from rlzoo_plus.infra.usage import cores
from rlzoo_plus.sweeps import multirun


@dataclass(frozen=True)
class Estimate:
    """The time that all jobs take with the best setting.

    Attributes:
        training_s: Until all have trained [s].
        with_evaluations_s: The same with evaluations of the longest episodes [s]; None if how long
            an episode can be is not known.
        workers: Jobs at once.
    """

    training_s: float
    with_evaluations_s: float | None
    workers: int


def measure(outcome: Outcome, seconds: float) -> None:
    """Train some of the jobs for a few seconds, in a temporary folder, and add what was found.

    Args:
        outcome: A diagnosis without errors, of jobs for this machine.
        seconds: Time for all measurements.
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
    words = [f"num_threads={setting.threads}"]
    if best.kind.jobs[0].n_envs > 1:
        words.insert(0, f"vec_env={setting.vec_env}")
    return [*words, f"infra.workers={setting.workers}"] if is_sweep else words


def estimate(
    result: ProbeResult, configs: list[RunConfig], longest_episode: dict[str, int | None]
) -> Estimate | None:
    """Return the time that jobs take with the best setting, None without figures.

    Kinds that were not measured are taken to be as slow as the slowest that was. What another
    setting gains is taken to be the same for all kinds.

    Args:
        result: Of the probe.
        configs: All jobs.
        longest_episode: Steps of the longest episode, by the name of an environment.
    """
    best = result.best
    if best is None or best.rate is None:
        return None
    first: dict[str, Measurement] = {}
    for measurement in result.measurements:
        if measurement.rate is not None:
            first.setdefault(measurement.kind.name, measurement)
    alone = first[best.kind.name]
    assert alone.rate is not None
    gain = best.rate / best.setting.workers / alone.rate
    slowest = min(first.values(), key=lambda m: m.rate or 0.0)
    training, evaluating = [], []
    for kind in kinds_of(configs):
        measured = first.get(kind.name, slowest)
        for job in kind.jobs:
            training.append(job.n_timesteps / ((measured.rate or 1.0) * gain))
            longest = longest_episode.get(str(job.env.name))
            evaluating.append(_evaluation_s(job, measured, longest, gain))
    workers = best.setting.workers
    whole = None
    if None not in evaluating:
        pairs = zip(training, evaluating, strict=True)
        whole = _makespan([train + (play or 0.0) for train, play in pairs], workers)
    return Estimate(_makespan(training, workers), whole, workers)


def _evaluation_s(
    job: RunConfig, measured: Measurement, longest: int | None, gain: float
) -> float | None:
    played = evaluation_steps(with_schedule(job, lambda: longest), longest)
    if played == 0 or played is None or not measured.eval_rate:
        return 0.0 if played == 0 else None
    return played / (measured.eval_rate * gain)


def _makespan(durations: list[float], workers: int) -> float:
    """Return when the last job ends if each begins as soon as a worker is free [s]."""
    free = [0.0] * workers
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
