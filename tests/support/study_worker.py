"""A controller without training: takes trials of a study and ends them, until there are no more.

Use: python -m support.study_worker FOLDER SETTINGS_FILE
"""

import json
import os
import sys
import time
from pathlib import Path

from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.trials import TrialState

OPEN = (TrialState.RUNNING, TrialState.WAITING, TrialState.REQUEUED)


def is_dead(owner: str) -> bool:
    """Tell whether the process of that number is no more."""
    return not Path(f"/proc/{owner}").exists()


def is_over(study: Study) -> bool:
    """Tell whether no trial is in anybody's hands, or lost."""
    views = study.trials()
    taken_up = {view.retry_of for view in views}
    return all(view.state not in OPEN or view.number in taken_up for view in views)


def work(folder: Path, hpo: HpoConfig) -> None:
    """Take trials until the study is full and nobody works on it."""
    study = Study.open("swing", folder, hpo, {"base": []})
    study.enqueue({"x": 0.5})
    owner = str(os.getpid())
    print("open", flush=True)
    while True:
        study.requeue_orphans(is_dead)
        asked = study.ask(owner)
        if asked is None:
            if is_over(study):
                return
            time.sleep(0.05)
            continue
        x = study.draw(asked, lambda trial: trial.suggest_float("x", 0, 1))
        study.set_overrides(asked.number, [f"x={x}"])
        reporter = study.reporter(asked.number)
        for rung in (5, 10, 15):
            reporter.report(x, rung)
        told = study.done(asked.number, [x], {"late_return": x})
        print(json.dumps({"number": asked.number, "told": told}), flush=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]), HpoConfig.model_validate_json(Path(sys.argv[2]).read_text()))
