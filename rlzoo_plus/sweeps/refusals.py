"""What training would refuse only after composing: environment, device, callbacks, tracker, store.

Environments are tried in a process of their own, which they may crash or leave.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ON_WORKERS
from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.store_sync import check_store
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, make_launcher
from rlzoo_plus.sweeps.launchers.node import make_ticket, spawn
from rlzoo_plus.sweeps.sweep_job import ON_THIS_MACHINE as ON_THIS_MACHINE
from rlzoo_plus.tracking import check_tracker

_TARGET = "rlzoo_plus.sweeps.refusals:try_all"
_POLL_S = 0.02


class Refusals:
    """The reasons why runs cannot begin; each check runs once for all runs that share its input.

    torch is imported only for a device other than auto and cpu, and for callbacks.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}
        self._doubts: dict[str, list[str]] = {}

    def try_environments(self, configs: Iterable[RunConfig]) -> None:
        """Try the environments of all these runs at once, which is faster than one by one."""
        new = {key: c for c in configs if (key := _environment_key(c)) not in self._known}
        if new:
            for key, found in zip(new, try_environments(list(new.values())), strict=True):
                self._known[key], self._doubts[key] = found.errors, found.warnings

    def doubts_of(self, config: RunConfig) -> list[str]:
        """Return what is doubtful about the environment of a run that can begin."""
        self.try_environments([config])
        return self._doubts[_environment_key(config)]

    def of(self, config: RunConfig) -> list[str]:
        """Return why a run cannot begin: at most one reason of each kind."""
        self.try_environments([config])
        found = list(self._known[_environment_key(config)])
        for check, deciding in _CHECKS:
            key = f"{check.__name__} {config.model_dump_json(include=deciding)}"
            if key not in self._known:
                try:
                    check(config)
                    self._known[key] = []
                except ConfigError as error:
                    self._known[key] = [str(error)]
            found += self._known[key]
        return found


def refusals(configs: Iterable[RunConfig]) -> list[str]:
    """Return why jobs cannot begin, each reason once."""
    known, configs = Refusals(), list(configs)
    known.try_environments(configs)
    return list(dict.fromkeys(reason for config in configs for reason in known.of(config)))


def _environment_key(config: RunConfig) -> str:
    deciding: dict[str, Any] = {
        "env": True,
        "vec_env": True,
        "algo": {"name", "packages", "replay_buffer"},
        "eval": {"max_episode_steps"},
        "network": {"policy", "features_extractor"},
        "curriculum": {"__all__": {"set"}},
    }
    return f"environment {config.model_dump_json(include=deciding)}"


def _check_infra(config: RunConfig) -> None:
    if config.infra.name in ("debug", *ON_WORKERS):
        make_launcher(config.infra, 1, (), store=config.store)
    is_far = config.infra.name in ON_WORKERS and "://" in str(config.store)
    if is_far and config.init_from is not None:
        raise ConfigError(
            f"init_from={config.init_from} is a path of this machine, which workers of "
            f"{config.store} may not have. Train these runs with infra=local, or keep them in a "
            "folder that the machines share: store=FOLDER."
        )


def _check_device(config: RunConfig) -> None:
    if config.device not in ("auto", "cpu") and config.infra.name in ON_THIS_MACHINE:
        from rlzoo_plus.agents.devices import check_device

        check_device(config.device)


def _check_callbacks(config: RunConfig) -> None:
    if config.callbacks:
        from rlzoo_plus.training.callbacks import check_user_callbacks

        check_user_callbacks(config)


def _check_tracker(config: RunConfig) -> None:
    if config.tracker is not None:
        check_tracker(config.tracker, installed_here=config.infra.name in ON_THIS_MACHINE)


def _check_store(config: RunConfig) -> None:
    if config.infra.name in (*ON_THIS_MACHINE, *ON_WORKERS):
        check_store(config)


# Each check, and the part of a configuration that decides.
_CHECKS: tuple[tuple[Callable[[RunConfig], None], dict[str, Any]], ...] = (
    (_check_infra, {"infra": True, "store": True, "init_from": True}),
    (_check_device, {"device": True, "infra": {"name"}}),
    (_check_callbacks, {"callbacks": True}),
    (_check_tracker, {"tracker": True, "infra": {"name"}}),
    (_check_store, {"store": True, "infra": {"name"}}),
)


@dataclass(frozen=True)
class Tried:
    """What became of an environment that was made, reset and stepped."""

    errors: list[str] = field(default_factory=list)  # why a run cannot begin in it; at most one
    warnings: list[str] = field(default_factory=list)  # what is doubtful about it


def try_environments(configs: list[RunConfig]) -> list[Tried]:
    """Try the environment of each configuration.

    One process tries them all. If an environment ends it, that is the reason, and another process
    tries the rest.
    """
    found: list[Tried] = []
    with tempfile.TemporaryDirectory(prefix="rlzoo-environments-") as folder:
        while len(found) < len(configs):
            answers, end, said = _attempt(configs[len(found) :], Path(folder) / str(len(found)))
            found += answers
            if len(found) == len(configs):
                break
            how = f"ended with exit code {end.code}"
            if end.code < 0:
                how = f"was killed by {signal.Signals(-end.code).name}"
            last = f" Its last output: {said}" if said else ""
            reason = (
                f"env.id={configs[len(found)].env.id}: the process in which it was made, reset "
                f"and stepped {how}.{last}"
            )
            found.append(Tried([reason]))
    return found


def _attempt(configs: list[RunConfig], place: Path) -> tuple[list[Tried], JobEnd, str]:
    """Try environments in one process; return the answers, how it ended, and its last output."""
    log, answers = place.with_suffix(".log"), place.with_suffix(".jsonl")
    values = [config.model_dump() for config in configs]
    data = {"configs": values, "answers": str(answers)}
    handle = spawn(make_ticket(JobSpec("environments", _TARGET, data, log)))
    try:
        while (end := handle.poll()) is None:
            time.sleep(_POLL_S)
    finally:
        handle.kill()
    lines = answers.read_text(encoding="utf-8").splitlines() if answers.is_file() else []
    return [Tried(**json.loads(line)) for line in lines], end, last_line(log)


def last_line(log: Path) -> str:
    """Return the last line that a process printed, empty if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    printed = [line for line in lines if line.strip() and not line.startswith("--- ")]
    return printable(printed[-1]) if printed else ""


def try_all(data: dict[str, Any]) -> int:
    """Try the environments of `configs`; append a line with what was found to `answers`."""
    from rlzoo_plus.envs.fit import inspect_env

    with Path(data["answers"]).open("a", encoding="utf-8") as answers:
        for values in data["configs"]:
            tried = Tried()
            try:
                config = validate_config(values)
                import_packages(config)
                tried.warnings.extend(inspect_env(config).all_warnings)
            except ConfigError as error:
                tried.errors.append(str(error) + _traceback_of(error, values))
            answers.write(json.dumps(asdict(tried)) + "\n")
            answers.flush()
    return 0


def _traceback_of(error: ConfigError, values: dict[str, Any]) -> str:
    """Return the traceback of what a user's environment raised, with `log.level=debug`."""
    is_wanted = values.get("log", {}).get("level") == "debug" and error.__cause__ is not None
    return "\n" + "".join(traceback.format_exception(error.__cause__)) if is_wanted else ""
