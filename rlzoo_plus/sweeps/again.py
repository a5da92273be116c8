"""Going on with a sweep that is stored: which of its jobs may run, and where; what may go."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import InfraConfig, RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.job import SweepJob

# Of a stored `infra`, what can neither run anything nor reach another machine.
_LIMITS = ("workers", "memory_gib", "time_limit_minutes")


def placed_again(jobs: list[SweepJob], overrides: Sequence[str], *, trust: bool) -> list[SweepJob]:
    """Return jobs of a stored sweep as they may run again.

    Args:
        jobs: The jobs.
        overrides: Where they run: `infra.KEY=VALUE`.
        trust: Whether the sweep may import code and name a launcher.

    Raises:
        ConfigError: The jobs need code that is not ours or a launcher on other machines, and are
            not trusted; or an override is wrong.
    """
    from rlzoo_plus.runs.open import foreign_code_of

    foreign = dict.fromkeys(name for job in jobs for name in foreign_code_of(job.config))
    if foreign and not trust:
        raise ConfigError(
            f"{jobs[0].sweep} needs code that is not ours: {printable(', '.join(foreign))}. If you "
            "know where the sweep comes from, add --trust to import it."
        )
    placed = []
    for job in jobs:
        infra = _infra(job, overrides, trust=trust)
        placed.append(replace(job, config=job.config.model_copy(update={"infra": infra})))
    return placed


def remove_unfinished(job: SweepJob) -> bool:
    """Remove a run that is not finished; return False if somebody trains in it by now.

    Raises:
        OutsideError: A link leads out of the sweep.
    """
    check_inside(job.sweep, job.path)
    if not job.path.is_dir():
        return True
    with job.run_dir.lock as lock:
        if not lock.acquire() or job.is_finished():
            return False
        shutil.rmtree(job.path)
    return True


def _infra(job: SweepJob, overrides: Sequence[str], *, trust: bool) -> InfraConfig:
    """Return where a job runs: what is typed, on top of what of the ledger may count.

    A launcher's own settings run commands and connect elsewhere. Without trust only the number of
    workers and the limits of a stored `infra` count, and a launcher that stays on this machine.
    """
    from rlzoo_plus.config.references import refuse_secrets
    from rlzoo_plus.config.resolve import infra_of
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE

    config: RunConfig = job.config
    typed = dict(map(_typed, overrides))
    refuse_secrets({"infra": typed})
    before = config.infra.model_dump()
    name = typed.get("name", config.infra.name)
    if not trust and "name" not in typed and name not in ON_THIS_MACHINE:
        raise ConfigError(
            f"{job.sweep} ran with infra={name}, whose settings can run commands and connect to "
            "other machines. If you know where the sweep comes from, add --trust. Otherwise say "
            "where it is to run: infra.name=local, or the same `train -m` command again."
        )
    if not trust or name != config.infra.name:
        before = {key: before[key] for key in _LIMITS}
    try:
        return infra_of({**before, "name": name, **typed})
    except ConfigError as error:
        said = "; ".join(str(error).splitlines())
        raise ConfigError(f"{' '.join(overrides)}: {said}") from error


def _typed(override: str) -> tuple[str, Any]:
    import yaml

    key, equals, text = override.partition("=")
    name = key.removeprefix("infra.")
    if not equals or not key.startswith("infra."):
        raise ConfigError(f"{override}: must be infra.KEY=VALUE, e.g. infra.memory_gib=4.")
    try:
        return name, yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{override}: is no value: {' '.join(str(error).split())}.") from error
