"""Which trials keep what their runs have made; what was measured always stays."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.tuning.plan import StudyPlan
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.trials import TrialState, TrialView

log = logging.getLogger(__name__)
_OVER = (TrialState.DONE, TrialState.PRUNED, TrialState.FAILED)


def drop_artifacts(plan: StudyPlan, study: Study) -> list[int]:
    """Remove the policies, checkpoints and logs of trials that need not keep them.

    Configurations, evaluations, metrics, results and the output of the jobs stay.

    Returns:
        The numbers of the trials that lost something.
    """
    keep = plan.hpo.keep
    if keep == "all":
        return []
    best = study.best(max(plan.hpo.retrain.best, 1)) if keep == "best" else []
    kept = {view.number for view in best}
    views = [view for view in study.trials() if view.state in _OVER and view.number not in kept]
    return [view.number for view in views if _drop(plan, view)]


def _drop(plan: StudyPlan, view: TrialView) -> bool:
    dropped = False
    for index in range(plan.hpo.seeds):
        run = RunDir(plan.run_path(view.folder, index))
        for folder in (run.checkpoints().root, run.best, run.final, run.tensorboard, run.monitor):
            if folder.is_dir() and _is_inside(plan.folder, folder):
                shutil.rmtree(folder, ignore_errors=True)
                dropped = True
    return dropped


def _is_inside(study: Path, folder: Path) -> bool:
    try:
        check_inside(study, folder)
    except OutsideError as error:
        log.warning("left alone: %s", error)
        return False
    return True
