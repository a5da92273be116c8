"""What a probe measures: kinds of jobs, settings to compare, and short versions of runs."""

from __future__ import annotations

from dataclasses import dataclass

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import IN_PROCESS, RunConfig

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
    vec_envs = [in_process, "subproc"] if config.n_envs > 1 else [in_process]
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
    is_the_same = config.vec_env == "batched" or config.n_envs == 1
    return config.vec_env if is_the_same and config.vec_env in IN_PROCESS else "auto"


def short_version(config: RunConfig, setting: Setting, seed: int, run_dir: str) -> RunConfig:
    """Return a run that takes the same time for a step, learns soon and has no end."""
    never = {"every_steps": None, "every_minutes": None, "milestone_steps": None}
    nothing = {"reward_threshold": None, "no_improvement_evals": None, "wall_clock_minutes": None}
    values = _soon_learning(config)
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
            "eval": config.eval.model_copy(update={"every_steps": None}),
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
