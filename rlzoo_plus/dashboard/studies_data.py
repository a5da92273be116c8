"""What the pages show of a sweep and of a study: which settings mattered, and each trial."""

from __future__ import annotations

from typing import Any

from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.variants import differing_keys, shown_value
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.dashboard.runs_data import rounded
from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.errors import ConfigError

_MOST_KEYS = 12


def sweep_data(source: Source, parent_id: str) -> dict[str, Any]:
    """Return the importance of each setting that differs between the runs of one folder."""
    runs = [
        run
        for run in source.runs().values()
        if source.id_of(source.parent_of(run)[0]) == parent_id and run.summary.final is not None
    ]
    keys = differing_keys([run.values for run in runs])[:_MOST_KEYS]
    data: dict[str, Any] = {"keys": keys, "importance": {}, "n": len(runs), "problem": ""}
    try:
        data["importance"] = _importance(runs, keys)
    except ConfigError as error:
        data["problem"] = one_line(error)
    return data


def _importance(runs: list[RunEntry], keys: list[str]) -> dict[str, float]:
    """Return the share of each setting in high final returns, as of a study's trials."""
    # Studies need Optuna, which is optional.
    from rlzoo_plus.tuning.stored_study import importances
    from rlzoo_plus.tuning.with_optuna import optuna

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    spaces: dict[str, Any] = {}
    for key in keys:
        values = [run.values.get(key) for run in runs]
        numbers = [float(v) for v in values if v is not None and type(v) in (int, float)]
        if len(numbers) == len(values):
            low, high = min(numbers), max(numbers)
            is_log = low > 0 and high / low >= 10
            spaces[key] = optuna.distributions.FloatDistribution(low, high, log=is_log)
        else:
            spaces[key] = optuna.distributions.CategoricalDistribution(
                sorted({shown_value(key, value) for value in values})
            )
    for run in runs:
        params = {
            key: float(run.values[key])
            if isinstance(space, optuna.distributions.FloatDistribution)
            else shown_value(key, run.values.get(key))
            for key, space in spaces.items()
        }
        value = run.summary.final
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=value))
    return {key: round(share, 4) for key, share in importances(study).items()}


def study_data(source: Source, study_id: str) -> dict[str, Any]:
    """Return the trials of a study, and the importance of what was searched."""
    folder = source.studies().get(study_id)
    if folder is None:
        raise ConfigError(f"there is no study {printable(study_id, 40)}.")
    data: dict[str, Any] = {"id": study_id, "name": source.shown(folder), "problem": ""}
    try:
        # Studies need Optuna, which is optional.
        from rlzoo_plus.tuning.stored_study import importances, read_study_file

        stored = read_study_file(folder)
        trials = stored.study.trials()
        shares = importances(stored.study.optuna_study)
    except ConfigError as error:
        return {**data, "problem": one_line(error), "objectives": [], "trials": []}
    by_folder = {
        path.relative_to(folder).as_posix(): run_id
        for run_id, run in source.runs().items()
        if (path := run.summary.path).is_relative_to(folder)
    }
    names = list(dict.fromkeys(name for trial in trials for name in trial.used))
    return data | {
        "objectives": [printable(name) for name in stored.hpo.objectives],
        "directions": list(stored.hpo.objectives.values()),
        "wanted": stored.hpo.n_trials,
        "keys": [printable(name) for name in names[:_MOST_KEYS]],
        "importance": {printable(key): round(share, 4) for key, share in shares.items()},
        "best": [trial.number for trial in stored.study.best(3)],
        "trials": [
            {
                "number": trial.number,
                "state": str(trial.state),
                "values": [rounded(value) for value in trial.values or ()],
                "params": {printable(k): _param(k, v) for k, v in trial.used.items()},
                "steps": [
                    list(trial.intermediate),
                    [rounded(v) for v in trial.intermediate.values()],
                ],
                "reason": printable(trial.reason),
                "runs": [i for name, i in by_folder.items() if name.startswith(f"{trial.folder}/")],
            }
            for trial in trials
        ],
    }


def _param(key: str, value: Any) -> Any:
    return rounded(value) if type(value) in (int, float) else shown_value(key, value)
