"""Which of a study's values matter: PED-ANOVA (Watanabe et al., 2023), as Optuna computes it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optuna.study import Study
    from optuna.trial import FrozenTrial

# With fewer, the answer is the luck of the draw.
FEWEST_TRIALS = 4


def importances(study: Study, objective: int = 0) -> dict[str, float]:
    """Return the share of each parameter in reaching good values, the largest first.

    Parameters that only some trials have count too. The method needs no random forest.

    Args:
        study: The study.
        objective: Which of its objectives, by position.

    Returns:
        Shares that sum to 1, by name; empty if there are fewer than `FEWEST_TRIALS` finished
        trials, or all of them have the same value.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    values = [
        trial.values[objective]
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if trial.values is not None
    ]
    if len(values) < FEWEST_TRIALS or len(set(values)) < 2:
        return {}
    # The evaluator takes low targets for good ones, whatever the study's direction.
    sign = 1.0 if study.directions[objective] is StudyDirection.MINIMIZE else -1.0

    def target(trial: FrozenTrial) -> float:
        found: Sequence[float] = trial.values or ()
        return sign * found[objective]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), target=target)
    return dict(sorted(found.items(), key=lambda item: -item[1]))
