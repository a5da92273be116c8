"""The probe: trains for some seconds in child processes, and picks the fastest setting."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import IN_PROCESS, InfraConfig, RunConfig, is_own_vec_env
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.sweeps.launchers.launcher import JobSpec, Launcher
from rlzoo_plus.sweeps.launchers.scheduler import run_together
from rlzoo_plus.sweeps.launchers.usage import cores
from rlzoo_plus.sweeps.refusals import last_line

RATES_FILE = "rates.json"
_TARGET = "rlzoo_plus.sweeps.probe_job:run_probe"
_IMPORTS = "rlzoo_plus.sweeps.probe_job:only_import"
# A shorter measurement says little; a longer one says no more.
_SHORTEST_S, _USUAL_S, _LONGEST_S = 2.0, 2.5, 6.0
_MOST_KINDS = 4
# The least share of the whole time for the measurements, however long the imports take.
_LEAST_SHARE = 0.6
# A simpler setting is taken if it reaches this share of the fastest.
_WORTH_IT = 0.95
# A busy machine takes long to start a training.
_OVERTIME_S = 30.0
# Share of the whole time by which other settings may be late.
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
    """Jobs that are about equally fast."""

    name: str  # Algorithm and environment
    jobs: list[RunConfig]  # Their configurations; the first stands for all

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return sum(job.n_timesteps for job in self.jobs)


@dataclass(frozen=True)
class Setting:
    """How jobs are run."""

    vec_env: str  # As in the configuration
    threads: int  # torch threads of each job
    workers: int  # Jobs at once

    def __str__(self) -> str:
        return f"{self.vec_env}, threads {self.threads}, {self.workers} at once"


@dataclass(frozen=True)
class Measurement:
    """How fast a kind of job was with a setting."""

    kind: Kind  # The jobs
    setting: Setting  # How they were run
    rate: float | None  # Environment steps a second of all workers, if known
    rough: bool = False  # Whether no whole iteration after the first was seen
    eval_rate: float | None = None  # Evaluation steps a second, if measured
    reason: str = ""  # Why the rate is not known

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "jobs": self.kind.name,
            "vec_env": self.setting.vec_env,
            "num_threads": self.setting.threads,
            "workers": self.setting.workers,
            "steps_per_s": self.rate,
            "rough": self.rough,
            "evaluation_steps_per_s": self.eval_rate,
            "reason": self.reason,
        }


@dataclass
class ProbeResult:
    """All measurements of a probe."""

    measurements: list[Measurement] = field(default_factory=list)  # In order of time
    left_out: list[Kind] = field(default_factory=list)  # Kinds of jobs that there was no time for
    not_tried: list[Setting] = field(default_factory=list)  # Settings that there was no time for
    best: Measurement | None = None  # Of the longest kind, None if no rate is known


@dataclass
class Probe:
    """Measures jobs, one setting after the other."""

    launcher: Launcher
    folder: Path  # Empty, for the files of the trainings
    seconds: float  # For all measurements
    is_sweep: bool
    compares: bool = True  # Whether other settings are tried
    _n_started: int = 0

    def run(self, configs: list[RunConfig]) -> ProbeResult:
        """Measure each kind of job as configured, then other settings for the longest kind."""
        began = time.monotonic()
        ready = JobSpec("probe", _IMPORTS, {}, self.folder / "ready.log")
        run_together(self.launcher, [ready], _LONGEST_IMPORTS_S)
        until = max(began + self.seconds, time.monotonic() + _LEAST_SHARE * self.seconds)
        kinds, result = kinds_of(configs), ProbeResult()
        n_others = len(self._settings(kinds[0])) - 1
        n_kinds = max(1, min(int(self.seconds / _USUAL_S) - n_others, _MOST_KINDS, len(kinds)))
        result.left_out = kinds[n_kinds:]
        for position, kind in enumerate(kinds[:n_kinds]):
            share = (until - time.monotonic()) / (n_kinds - position + n_others)
            measured = self._measure(kind, self._settings(kind)[0], share, evaluate=True)
            result.measurements.append(measured)

        def training_s(measured: Measurement) -> float:
            return measured.kind.steps / measured.rate if measured.rate else 0.0

        longest = max(result.measurements, key=training_s).kind
        others = self._settings(longest)[1:]
        for position, setting in enumerate(others):
            if time.monotonic() > until + _LATE * self.seconds:
                result.not_tried = others[position:]
                break
            share = (until - time.monotonic()) / (len(others) - position)
            result.measurements.append(self._measure(longest, setting, share, evaluate=False))
        result.best = pick([m for m in result.measurements if m.kind is longest])
        return result

    def _settings(self, kind: Kind) -> list[Setting]:
        job, is_sweep = kind.jobs[0], self.is_sweep
        if not self.compares:
            return [configured(job, cores(), is_sweep=is_sweep)]
        return alternatives(job, len(kind.jobs), cores(), is_sweep=is_sweep)

    def _measure(
        self, kind: Kind, setting: Setting, share_s: float, *, evaluate: bool
    ) -> Measurement:
        seconds = min(max(share_s, min(_SHORTEST_S, self.seconds / 2)), _LONGEST_S)
        first, self._n_started = self._n_started + 1, self._n_started + setting.workers
        folders = [self.folder / str(first + number) for number in range(setting.workers)]
        specs = []
        for number, folder in enumerate(folders):
            config = short_version(kind.jobs[0], setting, number, str(folder))
            data = {"config": config.model_dump(), "seconds": seconds, "evaluate": evaluate}
            specs.append(JobSpec("probe", _TARGET, data, folder.with_suffix(".log")))
        run_together(self.launcher, specs, seconds + _OVERTIME_S)
        rates = []
        for folder in folders:
            try:
                rates.append(json.loads((folder / RATES_FILE).read_text()))
            except OSError:
                reason = last_line(folder.with_suffix(".log")) or "it took too long"
                return Measurement(kind, setting, None, reason=reason)
        if any(rate["rate"] is None for rate in rates):
            return Measurement(kind, setting, None, reason="not one step in the time there was")
        total, rough = sum(rate["rate"] for rate in rates), any(rate["rough"] for rate in rates)
        return Measurement(kind, setting, total, rough, rates[0].get("eval_rate"))


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
    if get_algorithm(config.algo.name).backend == "jax":
        return Setting(config.vec_env, 1, 1)  # whatever num_threads says
    if config.num_threads != "auto":
        return Setting(config.vec_env, int(config.num_threads), 1)
    is_off_policy = get_algorithm(config.algo.name).family is Family.OFF_POLICY
    return Setting(config.vec_env, n_cores if is_off_policy and not is_sweep else 1, 1)


def alternatives(config: RunConfig, n_jobs: int, n_cores: int, *, is_sweep: bool) -> list[Setting]:
    """Return the settings to compare, the configured one first, then the simplest first."""
    first = configured(config, n_cores, is_sweep=is_sweep)
    # With one environment, or batched ones, no other way of stepping in one process is better.
    is_own = is_own_vec_env(config.vec_env)
    is_fixed = config.vec_env == "batched" or config.n_envs == 1
    in_process = "auto"
    if is_own or (is_fixed and config.vec_env in IN_PROCESS):
        in_process = config.vec_env
    vec_envs = [in_process, "subproc"] if config.n_envs > 1 and not is_own else [in_process]
    threads = sorted({1, n_cores})
    if get_algorithm(config.algo.name).backend == "jax":
        threads = [1]
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


def short_version(config: RunConfig, setting: Setting, seed: int, run_dir: str) -> RunConfig:
    """Return a run that takes the same time for a step, learns soon and has no end."""
    values, spec = dict(config.algo.hyperparams), get_algorithm(config.algo.name)
    if spec.family is Family.ON_POLICY and "n_steps" in values:
        batch = int(values.get("batch_size") or 1)
        rollout = max(_ROLLOUT // batch, 1) * batch
        values["n_steps"] = min(int(values["n_steps"]), max(-(-rollout // config.n_envs), 2))
    if spec.family is Family.OFF_POLICY:
        most = {"learning_starts": _LEARNING_STARTS, "buffer_size": _REPLAY_ROWS}
        if (config.algo.replay_buffer or spec.replay_buffer) == "her":
            # Hindsight replay needs a whole episode first.
            del most["learning_starts"]
        values |= {key: min(int(values[key]), most[key]) for key in most if key in values}
    never = {"every_steps": None, "every_minutes": None, "milestone_steps": None}
    nothing = {"reward_threshold": None, "no_improvement_evals": None, "wall_clock_minutes": None}
    # The schedule in numbers: an evaluation that is timed alone needs them as well.
    evaluation = scheduled(config).eval
    return config.model_copy(
        update={
            "n_timesteps": _ENDLESS,
            "seed": seed,
            "vec_env": setting.vec_env,
            "num_threads": setting.threads,
            "run_dir": run_dir,
            "sweep": None,
            "store": None,
            # Here, wherever the jobs will be.
            "infra": InfraConfig(name="local"),
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


def pick(measurements: list[Measurement]) -> Measurement | None:
    """Return the first setting that is about as fast as the fastest; the simplest come first."""
    known = [m for m in measurements if m.rate is not None]
    fastest = max((m.rate or 0.0 for m in known), default=0.0)
    return next((m for m in known if (m.rate or 0.0) >= _WORTH_IT * fastest), None)
