"""Continuing a stored sweep: which of its jobs may run again, and where; which may be removed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.job import SweepJob

# The keys of a stored `infra` that can neither run anything nor connect to another machine.
_LIMITS = ("workers", "memory_gib", "time_limit_minutes")


def placed_again(jobs: list[SweepJob], overrides: Sequence[str], *, trust: bool) -> list[SweepJob]:
    """Return jobs of a stored sweep as they may run again.

    Args:
        jobs: The jobs.
        overrides: Where they run: `infra.KEY=VALUE`.
        trust: Whether the sweep may import code and name a launcher.

    Raises:
        ConfigError: An untrusted sweep needs code that this package does not ship, or a launcher on
            other machines; or an override is wrong.
    """
    from rlzoo_plus.config.references import refuse_secrets
    from rlzoo_plus.config.resolve import infra_of
    from rlzoo_plus.runs.open import foreign_code_of

    foreign = dict.fromkeys(name for job in jobs for name in foreign_code_of(job.config))
    if foreign and not trust:
        raise ConfigError(
            f"{jobs[0].sweep} needs code that is not ours: {printable(', '.join(foreign))}. If you "
            "know where the sweep comes from, add --trust to import it."
        )
    given = dict(map(_parse, overrides))
    refuse_secrets({"infra": given})
    placed = []
    for job in jobs:
        values = {**_stored(job, given, trust=trust), **given}
        try:
            config = job.config.model_copy(update={"infra": infra_of(values)})
        except ConfigError as error:
            reason = "; ".join(str(error).splitlines())
            raise ConfigError(f"{' '.join(overrides)}: {reason}") from error
        placed.append(replace(job, config=config))
    return placed


def remove_unfinished(job: SweepJob) -> bool:
    """Remove a run that is not finished; return False if another process trains in it by now.

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


def _stored(job: SweepJob, given: dict[str, Any], *, trust: bool) -> dict[str, Any]:
    """Return the keys of `infra` that may be used from the ledger, beside those that are given.

    The settings of a launcher run commands and connect to other machines. Without trust, only the
    number of workers and the limits are used, and a launcher on this machine.
    """
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE

    stored = job.config.infra.model_dump()
    name = given.get("name", stored["name"])
    if not trust and "name" not in given and name not in ON_THIS_MACHINE:
        raise ConfigError(
            f"{job.sweep} ran with infra={name}, whose settings can run commands and connect to "
            "other machines. If you know where the sweep comes from, add --trust. Otherwise say "
            "where it is to run: infra.name=local, or the same `train -m` command again."
        )
    if trust and name == stored["name"]:
        return stored
    return {"name": name, **{key: stored[key] for key in _LIMITS}}


def _parse(override: str) -> tuple[str, Any]:
    """Return key and value of `infra.KEY=VALUE`."""
    import yaml

    key, equals, text = override.partition("=")
    if not equals or not key.startswith("infra."):
        raise ConfigError(f"{override}: must be infra.KEY=VALUE, e.g. infra.memory_gib=4.")
    try:
        return key.removeprefix("infra."), yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{override}: not a value: {' '.join(str(error).split())}.") from error
