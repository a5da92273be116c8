"""The training of one job of a sweep, in a process of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import printable_lines
from rlzoo_plus.config.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rlzoo_plus.commands.train import Watcher

USER_ERROR, RUN_ERROR = 2, 1


def run_job(data: dict[str, Any], watch: Watcher | None = None) -> int:
    """Train as a job's configuration says; return the exit code of `train`, or `EXIT_BUSY`.

    Args:
        data: `config`, checked once already and complete, and `command`, for the run's records.
        watch: Follows the evaluations.
    """
    from rlzoo_plus.artifacts.secrets import redact
    from rlzoo_plus.commands.console import make_console, set_up_logging
    from rlzoo_plus.commands.continuing import BusyError, Start, plan_run
    from rlzoo_plus.commands.train import check_before_building, run_plan
    from rlzoo_plus.config.catalog import import_algorithm_packages
    from rlzoo_plus.config.resolve import validate_config
    from rlzoo_plus.infra.job import EXIT_BUSY

    try:
        config = validate_config(data["config"])
        import_algorithm_packages(config.algo.packages)
        console = make_console()
        set_up_logging(config.log.level, console)
        plan = plan_run(config)
        if plan.start is Start.DONE:
            return 0
        problem = check_before_building(plan)
        return run_plan(plan, problem, console, data["command"], is_sweep=True, watch=watch)
    except BusyError:
        return EXIT_BUSY
    except (ConfigError, RunError) as error:
        print(f"error: {printable_lines(redact(str(error)))}", file=sys.stderr)
        return RUN_ERROR if isinstance(error, RunError) else USER_ERROR
