"""A job of a sweep: its configuration, the directory that its content names, its continuation."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from rlzoo_plus.analysis.find_run import foreign_code_of
from rlzoo_plus.artifacts.inside import check_inside, check_plain
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, one_line, printable
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.resolve import config_hash, infra_of, load_stored
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.shares import share_of
from rlzoo_plus.errors import ConfigError

# Their jobs run on this machine; what another machine has is not known here.
ON_THIS_MACHINE = ("local", "debug")
SWEEPS = Path("outputs") / "sweeps"
# The keys of a stored `infra` that can neither run anything nor connect to another machine.
_LIMITS = ("workers", "memory_gib", "time_limit_minutes")


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep."""

    sweep: Path  # the sweep's directory
    path: Path  # the run's directory, below the sweep's
    config: RunConfig  # what it trains, `run_dir` included
    command: str  # the command line that runs it alone

    @property
    def key(self) -> str:
        """Its path below the sweep: `<env>/<algo>/<hash>-s<seed>`."""
        return self.path.relative_to(self.sweep).as_posix()

    @property
    def run_dir(self) -> RunDir:
        """Its directory."""
        return RunDir(self.path)

    @property
    def title(self) -> str:
        """Its name in messages."""
        config = self.config
        return f"{config.algo.name} on {config.env.name}, seed {config.seed}"

    def check_place(self) -> None:
        """Check that its directory is in the sweep, and that nothing in it leads elsewhere.

        Raises:
            OutsideError: A link leads elsewhere.
        """
        check_inside(self.sweep, self.path)
        check_plain(self.path)

    def is_finished(self) -> bool:
        """Return whether all its steps were taken, or one of `stop.*` has ended it."""
        return self.run_dir.is_finished(self.config.n_timesteps)

    def record(self) -> dict[str, Any]:
        """Return it as plain data, without the place of the sweep."""
        config = self.config.model_dump(exclude={"run_dir", "sweep"})
        return {"job": self.key, "config": config, "command": self.command}


def sweep_dir(name: str | None) -> Path:
    """Return the directory of a sweep: a name is one below outputs/sweeps, a path is itself."""
    if name is None:
        return SWEEPS / "default"
    path = Path(name).expanduser()
    return path if "/" in name or len(path.parts) > 1 or name in (".", "..") else SWEEPS / path


def make_job(config: RunConfig, command: str = "") -> SweepJob:
    """Make the job of a configuration; its directory depends on the content only.

    The number of threads is fixed here: it changes the last bits of a result.
    """
    sweep = sweep_dir(config.sweep)
    if config.num_threads == "auto":
        config = config.model_copy(update={"num_threads": 1})
    name = f"{config_hash(config)}-s{config.seed}"
    path = sweep / str(config.env.name) / config.algo.name / name
    placed = {"run_dir": str(path), "sweep": str(sweep)}
    return SweepJob(sweep, path, config.model_copy(update=placed), command)


def load_job(sweep: Path, record: dict[str, Any]) -> SweepJob:
    """Make a job from what `SweepJob.record` returned."""
    key, data = record.get("job"), record.get("config")
    # A run that is named here may be removed: it must be a folder of this sweep.
    parts = key.split("/") if isinstance(key, str) else []
    if len(parts) != 3 or any(p in ("", ".", "..") or "\\" in p or "\0" in p for p in parts):
        raise ConfigError(
            f"{sweep}: the ledger names {printable(repr(key))}, which is no run of this sweep."
        )
    path = sweep.joinpath(*parts)
    if not isinstance(data, dict):
        raise ConfigError(f"{sweep}: the ledger has no configuration of {printable(key)}.")
    placed = {**data, "run_dir": str(path), "sweep": str(sweep)}
    try:
        config = load_stored(placed)
    except ValueError as error:
        damage = f"the configuration of {printable(key)} is damaged: {one_line(error)}."
        raise ConfigError(f"{sweep}: {damage}") from error
    return SweepJob(sweep, path, config, printable(record.get("command", ""), LONGEST_LINE))


def busy_cores(config: RunConfig) -> int:
    """Return the number of cores that a job of a sweep keeps busy."""
    threads = 1 if config.num_threads == "auto" else int(config.num_threads)
    own = max(threads, share_of(config).n_envs if config.vec_env == "subproc" else 1)
    return own * config.distributed + bool(config.asynchronous)


def placed_again(jobs: list[SweepJob], overrides: Sequence[str], *, trust: bool) -> list[SweepJob]:
    """Return jobs of a stored sweep as they may run again.

    Overrides are `infra.KEY=VALUE`; with `trust`, the sweep may import code and name a launcher.
    """
    foreign = dict.fromkeys(name for job in jobs for name in foreign_code_of(job.config))
    if foreign and not trust:
        raise ConfigError(
            f"{jobs[0].sweep} needs code that is not ours: {printable(', '.join(foreign))}. If you "
            "know where the sweep comes from, add --trust to import it."
        )
    given = parse_infra(overrides)
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


def parse_infra(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the values of `infra.KEY=VALUE` by their keys."""
    values = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.startswith("infra."):
            raise ConfigError(f"{override}: must be infra.KEY=VALUE, e.g. infra.memory_gib=4.")
        try:
            values[key.removeprefix("infra.")] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"{override}: not a value: {reason}.") from error
    return values
