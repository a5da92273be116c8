"""The jobs of a study, in processes of their own: a run of a trial, and the last examination."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.run_dir import RunDir

if TYPE_CHECKING:
    from rlzoo_plus.callbacks import StopRequest
    from rlzoo_plus.commands.train import Watcher

TRIAL = "rlzoo_plus.commands.trial_job:run_trial"
EXAMINATION = "rlzoo_plus.commands.trial_job:examine"
EXAMINED = "held_out.json"

log = logging.getLogger(__name__)


def run_trial(data: dict[str, Any]) -> int:
    """Train one run of a trial; each evaluation is reported, and may be the last.

    Args:
        data: `config` and `command`, as of any job, and `report`, which `follow` takes.

    Returns:
        What a job returns; 74 if the trial was pruned.
    """
    from rlzoo_plus.commands.train_job import run_job

    return run_job(data, watch=follow(data["report"], data["config"]["n_timesteps"]))


def follow(report: dict[str, Any], n_timesteps: int) -> Watcher | None:
    """Return what is called with each evaluation of a trial's run.

    Args:
        report: `figure`, what is reported, None for nothing; `seed_index`; `earlier`, the
            directories of the trial's earlier runs; `trial`, the arguments of a `TrialReporter`.
        n_timesteps: Length of the run.
    """
    from rlzoo_plus.tuning.metrics import RUNGS, followed_value, rung_of, rung_values
    from rlzoo_plus.tuning.study import TrialReporter

    figure = report["figure"]
    if figure is None:
        return None
    reporter = TrialReporter(**{**report["trial"], "folder": Path(report["trial"]["folder"])})
    earlier = [rung_values(RunDir(Path(p)), n_timesteps, figure) for p in report["earlier"]]

    def watch(record: dict[str, Any], stop: StopRequest) -> None:
        value = followed_value(record, figure)
        if value is None or record["step"] == 0:
            # `eval.at_start` is no rung: the first one counts from the first training.
            return
        rung = rung_of(record["step"], n_timesteps)
        values = [value, *(run[rung] for run in earlier if rung in run)]
        behind = RUNGS * report["seed_index"]
        reason = reporter.report(sum(values) / len(values), behind + rung)
        if reason is None and not math.isfinite(value):
            reason = f"diverged: {figure} is {value}"
        if reason is not None and record["step"] < n_timesteps:
            stop.reason = reason

    return watch


def examine(data: dict[str, Any]) -> int:
    """Let a run's best policy play held-out episodes, and write down what it got.

    Args:
        data: `run`, the run's directory; `config`, what the study has trained there; `episodes`.
    """
    from rlzoo_plus.commands.continuing import stored_config
    from rlzoo_plus.commands.open_run import one_torch_thread, open_run
    from rlzoo_plus.config.resolve import config_hash, validate_config
    from rlzoo_plus.envs.factory import make_eval_env
    from rlzoo_plus.envs.seeding import held_out_seeds
    from rlzoo_plus.evaluation import evaluate

    one_torch_thread()
    stored = stored_config(RunDir(Path(data["run"])))
    # A run that lay there before may be anybody's; the code of this study's own is the user's.
    is_own = config_hash(stored) == config_hash(validate_config(data["config"]))
    opened = open_run(data["run"], trust=is_own)
    seeds = held_out_seeds(data["episodes"])
    n_envs = min(int(opened.config.eval.n_envs), len(seeds))
    venv = make_eval_env(opened.config.env, n_envs)
    try:
        result = evaluate(opened.policy, venv, seeds)
    finally:
        venv.close()
    write_json(Path(data["run"]) / EXAMINED, result.record(opened.step))
    return 0
