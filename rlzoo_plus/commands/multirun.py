"""`rlzoo-plus train -m`: run the jobs that the command line stands for, or the study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlzoo_plus.commands.console import make_console
from rlzoo_plus.sweeps import multirun
from rlzoo_plus.sweeps.sweep_view import SweepView, print_summary

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed


def main(arguments: list[str]) -> int:
    """Run the sweep; return 0, 1 if a job failed, 75 or 130 if it was stopped."""

    def tune(compose: Callable[[Sequence[str]], Composed]) -> int:
        from rlzoo_plus.commands.tuning import run_study

        return run_study(arguments, compose)

    if multirun.is_search(arguments):
        from rlzoo_plus.tuning.trial_job import PRELOAD

        multirun.start_early(arguments, PRELOAD)
    else:
        multirun.start_early(arguments)
    view = SweepView(make_console)
    sweep = multirun.Multirun(arguments, view, tune)
    sweep.execute()
    if sweep.jobs:
        from rlzoo_plus.sweeps.ledger import Ledger

        print_summary(Ledger(sweep.jobs[0].sweep), sweep.jobs, view.console)
    return sweep.code
