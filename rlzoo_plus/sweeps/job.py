"""A job of a sweep: its configuration, and the directory that its content names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import check_inside, check_plain
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, one_line, printable
from rlzoo_plus.config.resolve import config_hash, load_stored
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.sections import check_types
from rlzoo_plus.errors import ConfigError

SWEEPS = Path("outputs") / "sweeps"
DEFAULT_NAME = "default"


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep.

    Attributes:
        sweep: The sweep's directory.
        path: The run's directory, below the sweep's.
        config: What it trains, `run_dir` included.
        command: The command line that runs it alone.
    """

    sweep: Path
    path: Path
    config: RunConfig
    command: str

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
        """Return whether all its steps were taken."""
        status = self.run_dir.read_status()
        total = status.get("n_timesteps")
        is_long_enough = isinstance(total, int) and total >= self.config.n_timesteps
        return status.get("state") == FINISHED and is_long_enough

    def record(self) -> dict[str, Any]:
        """Return it as plain data, without the place of the sweep."""
        config = self.config.model_dump(exclude={"run_dir", "sweep"})
        return {"job": self.key, "config": config, "command": self.command}


def sweep_dir(name: str | None) -> Path:
    """Return the directory of a sweep: a name is one below outputs/sweeps, a path is itself."""
    if name is None:
        return SWEEPS / DEFAULT_NAME
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
    """Make a job from what `SweepJob.record` returned.

    Raises:
        ConfigError: It is no job, or names a place outside the sweep.
    """
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
        config = load_stored(placed, check_types)
    except ValueError as error:
        damage = f"the configuration of {printable(key)} is damaged: {one_line(error)}."
        raise ConfigError(f"{sweep}: {damage}") from error
    return SweepJob(sweep, path, config, printable(record.get("command", ""), LONGEST_LINE))


def busy_cores(config: RunConfig) -> int:
    """Return the number of cores that a job of a sweep keeps busy."""
    threads = 1 if config.num_threads == "auto" else int(config.num_threads)
    return max(threads, config.n_envs if config.vec_env == "subproc" else 1)
