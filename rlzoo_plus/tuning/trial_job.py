"""The jobs of a study, in processes of their own: a run of a trial, and the last evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.find_run import stored_config
from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.resolve import config_hash, validate_config
from rlzoo_plus.runs.train_job import run_job

TRIAL = "rlzoo_plus.tuning.trial_job:run_trial"
EXAMINATION = "rlzoo_plus.tuning.trial_job:examine"
PRELOAD = (
    "rlzoo_plus.runs.preload",
    "rlzoo_plus.tuning.trial_job",
    "rlzoo_plus.tuning.trial_reporter",
)
EXAMINED = "held_out.json"


def run_trial(data: dict[str, Any]) -> int:
    """Train one run of a trial; return the exit code, 74 if an evaluation has pruned it.

    `data` has `config` and `command`, as of any job, and `report`, which `follow` takes.
    """
    from rlzoo_plus.tuning.trial_reporter import follow

    return run_job(data, watch=follow(data["report"], data["config"]["n_timesteps"]))


def examine(data: dict[str, Any]) -> int:
    """Evaluate the best policy of `run`, which the study trained with `config`, on `episodes`."""
    from rlzoo_plus.runs.run import Run

    stored = stored_config(RunDir(Path(data["run"])))
    # A run that was there before may be anybody's; the code of this study's own is the user's.
    own = validate_config(data["config"])
    # No hash has the packages; and without code of the user's, nothing has to be trusted.
    code = own_code(own)
    is_own = config_hash(stored) == config_hash(own) and own_code(stored) == code != []
    run = Run.open(data["run"], trust=is_own)
    n_envs = run.config.eval.n_envs
    parallel = 10 if n_envs == "auto" else n_envs
    record = run.evaluate(data["episodes"], which="best", n_envs=parallel)
    write_json(Path(data["run"]) / EXAMINED, record)
    return 0
