"""Draws trials before a study is begun: a space that no trial can be made of is told at once."""

from __future__ import annotations

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.tuning.plan import StudyPlan

# So many draws without one configuration are no accident, and fewer if all say the same.
_MOST_DRAWS = 20
_SAME_REASON = 3


def check_draws(plan: StudyPlan) -> None:
    """Draw until a draw is a configuration; nothing is written.

    Raises:
        ConfigError: None is; it names the reason.
    """
    reasons: list[str] = []
    for number in range(_MOST_DRAWS):
        reason = _draw(plan, number)
        if reason is None:
            return
        reasons.append(reason)
        if len(reasons) >= _SAME_REASON and len(set(reasons)) == 1:
            break
    raise ConfigError(
        f"hpo.space: {len(reasons)} draws were tried and none is a configuration, "
        f"the last: {reasons[-1]}"
    )


def _draw(plan: StudyPlan, number: int) -> str | None:
    """Return why a random draw is no configuration, None if it is one.

    Raises:
        ConfigError: The space itself is wrong.
    """
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=number))
    try:
        overrides = plan.draw(study.ask())
    except optuna.TrialPruned as error:
        return str(error) or f"{plan.hpo.custom} pruned it."
    try:
        plan.trial_config(overrides, 0, "trials/0000")
    except ConfigError as error:
        return str(error)
    return None
