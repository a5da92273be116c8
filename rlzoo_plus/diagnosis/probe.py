"""The probe: trains for some seconds in child processes, and picks the fastest setting."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import IN_PROCESS, RunConfig, is_own_vec_env
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.infra.launcher import JobSpec, Launcher
from rlzoo_plus.infra.scheduler import run_together
from rlzoo_plus.infra.usage import cores

FIGURES = "figures.json"
_TARGET = "rlzoo_plus.diagnosis.probe_job:run_probe"
_READY = "rlzoo_plus.diagnosis.probe_job:be_ready"
# A measurement that is shorter says little; one that is longer says no more.
_SHORTEST_S, _USUAL_S, _LONGEST_S = 2.0, 2.5, 6.0
_MOST_KINDS = 4
# Of the whole time, for the measurements, however long the imports take.
_LEAST_SHARE = 0.6
# What is slower by less than this is taken if it is simpler.
_WORTH_IT = 0.95
_OVERTIME_S = 10.0
# Of the whole time: later than this, no other setting is tried.
_LATE = 0.25
_LONGEST_IMPORTS_S = 60.0
# Never reached: the probe ends by the clock.
_ENDLESS = 10**9
# Steps of an on-policy rollout, so that a short probe sees some with their updates. The work of an
# update is in proportion to the steps, so the rate stays the same.
_ROLLOUT = 1024
_REPLAY_ROWS = 50_000
_LEARNING_STARTS = 200


@dataclass(frozen=True)
class Kind:
    """Jobs that are about equally fast.

    Attributes:
        name: What they are called.
        jobs: Their configurations; the first stands for all.
    """

    name: str
    jobs: list[RunConfig]

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return sum(job.n_timesteps for job in self.jobs)


@dataclass(frozen=True)
class Setting:
    """How jobs are run.

    Attributes:
        vec_env: As in the configuration.
        threads: torch threads of each job.
        workers: Jobs at once.
    """

    vec_env: str
    threads: int
    workers: int


@dataclass(frozen=True)
class Measurement:
    """How fast a kind of job was with a setting.

    Attributes:
        kind: The jobs.
        setting: How they were run.
        rate: Environment steps a second, of all workers together; None if there is no figure.
        rough: Whether not one whole iteration after the first was seen.
        eval_rate: Steps a second of its evaluations, None if they were not measured.
        reason: Why there is no figure.
    """

    kind: Kind
    setting: Setting
    rate: float | None
    rough: bool = False
    eval_rate: float | None = None
    reason: str = ""


@dataclass
class ProbeResult:
    """What a probe found.

    Attributes:
        measurements: In the order in which they were made.
        left_out: Kinds of jobs that there was no time for.
        not_tried: Settings that there was no time for.
        best: What the jobs of the largest kind are to be run with, None without any figure.
        took_s: How long it took [s].
    """

    measurements: list[Measurement] = field(default_factory=list)
    left_out: list[Kind] = field(default_factory=list)
    not_tried: list[Setting] = field(default_factory=list)
    best: Measurement | None = None
    took_s: float = 0.0


class Probe:
    """Measures jobs, one setting after the other."""

    def __init__(self, launcher: Launcher, folder: Path, seconds: float, *, is_sweep: bool) -> None:
        """Take a launcher; nothing is measured yet.

        Args:
            launcher: Where the trainings run.
            folder: An empty directory for their files.
            seconds: Time for all measurements.
            is_sweep: Whether the jobs are those of a sweep.
        """
        self._launcher, self._folder = launcher, folder
        self._seconds, self._is_sweep = seconds, is_sweep
        self._least_s = min(_SHORTEST_S, seconds / 2)
        self._n_started = 0

    def run(
        self, configs: list[RunConfig], tell: Callable[[Measurement], None] = lambda _: None
    ) -> ProbeResult:
        """Measure each kind of job as configured, then other settings for the longest kind.

        Args:
            configs: The jobs; all have been found to be right.
            tell: Called with each measurement.
        """
        began = time.monotonic()
        self._wait_for_imports()
        until = max(began + self._seconds, time.monotonic() + _LEAST_SHARE * self._seconds)
        kinds, result = kinds_of(configs), ProbeResult()
        n_cores = cores()
        n_others = len(self._others(kinds[0], n_cores))
        room = int(self._seconds / _USUAL_S) - n_others
        n_kinds = max(1, min(room, _MOST_KINDS, len(kinds)))
        result.left_out = kinds[n_kinds:]
        for position, kind in enumerate(kinds[:n_kinds]):
            share = (until - time.monotonic()) / (n_kinds - position + n_others)
            setting = configured(kind.jobs[0], n_cores, is_sweep=self._is_sweep)
            self._measure(result, kind, setting, share, tell, evaluate=True)
        longest = max(result.measurements, key=_training_s).kind
        others = self._others(longest, n_cores)
        for position, setting in enumerate(others):
            if time.monotonic() > until + _LATE * self._seconds:
                result.not_tried = others[position:]
                break
            share = (until - time.monotonic()) / (len(others) - position)
            self._measure(result, longest, setting, share, tell, evaluate=False)
        result.best = pick([m for m in result.measurements if m.kind is longest])
        result.took_s = time.monotonic() - began
        return result

    def _others(self, kind: Kind, n_cores: int) -> list[Setting]:
        config, n_jobs = kind.jobs[0], len(kind.jobs)
        return alternatives(config, n_jobs, n_cores, is_sweep=self._is_sweep)[1:]

    def _measure(
        self,
        result: ProbeResult,
        kind: Kind,
        setting: Setting,
        share: float,
        tell: Callable[[Measurement], None],
        *,
        evaluate: bool,
    ) -> None:
        seconds = min(max(share, self._least_s), _LONGEST_S)
        specs = []
        folders = []
        for number in range(setting.workers):
            self._n_started += 1
            folder = self._folder / str(self._n_started)
            folders.append(folder)
            config = short_version(kind.jobs[0], setting, number, str(folder))
            data = {
                "config": config.model_dump(),
                "seconds": seconds,
                "evaluate": evaluate,
            }
            specs.append(JobSpec("probe", _TARGET, data, folder.with_suffix(".log")))
        run_together(self._launcher, specs, seconds + _OVERTIME_S)
        measurement = _read(kind, setting, folders)
        result.measurements.append(measurement)
        tell(measurement)

    def _wait_for_imports(self) -> None:
        ready = JobSpec("probe", _READY, {}, self._folder / "ready.log")
        run_together(self._launcher, [ready], _LONGEST_IMPORTS_S)


def kinds_of(configs: list[RunConfig]) -> list[Kind]:
    """Group jobs by algorithm, environment and number of environments; most steps first."""
    groups: dict[str, list[RunConfig]] = {}
    for config in configs:
        side_by_side = "" if config.n_envs == 1 else f" x {config.n_envs}"
        name = f"{config.algo.name} on {config.env.name}{side_by_side}"
        groups.setdefault(name, []).append(config)
    kinds = [Kind(name, jobs) for name, jobs in groups.items()]
    return sorted(kinds, key=lambda kind: kind.steps, reverse=True)


def configured(config: RunConfig, n_cores: int, *, is_sweep: bool) -> Setting:
    """Return the setting of a job that is run alone, as it is configured."""
    if config.num_threads != "auto":
        threads = int(config.num_threads)
    else:
        is_off_policy = get_algorithm(config.algo.name).family is Family.OFF_POLICY
        threads = n_cores if is_off_policy and not is_sweep else 1
    return Setting(config.vec_env, threads, 1)


def alternatives(config: RunConfig, n_jobs: int, n_cores: int, *, is_sweep: bool) -> list[Setting]:
    """Return the settings to compare, the configured one first, then the simplest first."""
    first = configured(config, n_cores, is_sweep=is_sweep)
    in_process = _in_process(config)
    is_free = config.n_envs > 1 and not is_own_vec_env(config.vec_env)
    vec_envs = [in_process, "subproc"] if is_free else [in_process]
    threads = sorted({1, n_cores})
    if not is_sweep:
        others = [Setting(vec_env, count, 1) for vec_env in vec_envs for count in threads]
        return list(dict.fromkeys([first, *others]))
    most = min(n_cores, n_jobs)
    counts = sorted({min(count, most) for count in (2, n_cores // 2, n_cores)} - {0, 1})
    others = [Setting(in_process, 1, workers) for workers in (1, *counts)]
    others += [Setting(in_process, count, 1) for count in threads]
    # Last: their processes take long to start.
    if "subproc" in vec_envs:
        fitting = [workers for workers in counts if workers * config.n_envs <= n_cores]
        others += [Setting("subproc", 1, workers) for workers in (1, *fitting)]
    return list(dict.fromkeys([first, *others]))


def _in_process(config: RunConfig) -> str:
    """Return how environments are best stepped in one process; only then is there a choice."""
    if is_own_vec_env(config.vec_env):
        return config.vec_env
    is_the_same = config.vec_env == "batched" or config.n_envs == 1
    return config.vec_env if is_the_same and config.vec_env in IN_PROCESS else "auto"


def short_version(config: RunConfig, setting: Setting, seed: int, run_dir: str) -> RunConfig:
    """Return a run that takes the same time for a step, learns soon and has no end."""
    never = {"every_steps": None, "every_minutes": None, "milestone_steps": None}
    nothing = {"reward_threshold": None, "no_improvement_evals": None, "wall_clock_minutes": None}
    values = _soon_learning(config)
    # Numbers of a schedule, which an evaluation that is timed alone needs as well.
    evaluation = scheduled(config).eval
    return config.model_copy(
        update={
            "n_timesteps": _ENDLESS,
            "seed": seed,
            "vec_env": setting.vec_env,
            "num_threads": setting.threads,
            "run_dir": run_dir,
            "sweep": None,
            "tracker": None,
            "algo": config.algo.model_copy(update={"hyperparams": values}),
            "eval": evaluation.model_copy(update={"every_steps": None}),
            "checkpoint": config.checkpoint.model_copy(update={**never, "keep_best": False}),
            "stop": config.stop.model_copy(update=nothing),
            "log": config.log.model_copy(update={"sb3": False}),
        }
    )


def warm_steps(config: RunConfig) -> int:
    """Return the steps after which the first update, which is slow, is over."""
    starts = int(config.algo.hyperparams.get("learning_starts", 0))
    return starts + 2 * rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)


def _soon_learning(config: RunConfig) -> dict[str, object]:
    values = dict(config.algo.hyperparams)
    spec = get_algorithm(config.algo.name)
    if spec.family is Family.ON_POLICY and "n_steps" in values:
        batch = int(values.get("batch_size") or 1)
        rollout = max(_ROLLOUT // batch, 1) * batch
        values["n_steps"] = min(int(values["n_steps"]), max(-(-rollout // config.n_envs), 2))
    if spec.family is Family.OFF_POLICY:
        # Hindsight replay needs a whole episode first.
        is_her = (config.algo.replay_buffer or spec.replay_buffer) == "her"
        if "learning_starts" in values and not is_her:
            values["learning_starts"] = min(int(values["learning_starts"]), _LEARNING_STARTS)
        if "buffer_size" in values:
            values["buffer_size"] = min(int(values["buffer_size"]), _REPLAY_ROWS)
    return values


def pick(measurements: list[Measurement]) -> Measurement | None:
    """Return the simplest setting that is about as fast as the fastest; the simplest come first."""
    known = [m for m in measurements if m.rate is not None]
    if not known:
        return None
    fastest = max(m.rate or 0.0 for m in known)
    return next(m for m in known if (m.rate or 0.0) >= _WORTH_IT * fastest)


def _training_s(measurement: Measurement) -> float:
    """Return how long all jobs of a kind train, one after the other [s]."""
    return measurement.kind.steps / measurement.rate if measurement.rate else 0.0


def _read(kind: Kind, setting: Setting, folders: list[Path]) -> Measurement:
    """Add up what the workers have written."""
    figures = []
    for folder in folders:
        try:
            figures.append(json.loads((folder / FIGURES).read_text()))
        except OSError:
            return Measurement(kind, setting, None, reason=_last_line(folder.with_suffix(".log")))
    rates = [f["rate"] for f in figures]
    if None in rates:
        return Measurement(kind, setting, None, reason="not one step in the time there was")
    rough = any(f["rough"] for f in figures)
    return Measurement(kind, setting, sum(rates), rough, figures[0].get("eval_rate"))


def _last_line(log: Path) -> str:
    """Return the last that a process said, without the line that every log begins with."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines and not lines[-1].startswith("--- ") else "it took too long"
