"""What training would refuse only after composing: environment, device, callbacks, tracker, store.

Environments are tried in a process of their own, which they may crash or leave.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ON_WORKERS
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.launcher import JobEnd, JobSpec
from rlzoo_plus.infra.node import make_ticket, spawn

# Their jobs run on this machine; what another machine has is not known here.
ON_THIS_MACHINE = ("local", "debug")
_TARGET = "rlzoo_plus.diagnosis.refusals:try_all"
_POLL_S = 0.02


class Refusals:
    """The reasons why runs cannot begin; each check runs once for all runs that share its input.

    torch is imported only for a device other than auto and cpu, and for callbacks.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def try_environments(self, configs: Iterable[RunConfig]) -> None:
        """Try the environments of all these runs at once, which is faster than one by one."""
        new = {key: c for c in configs if (key := _environment_key(c)) not in self._known}
        if new:
            self._known.update(zip(new, env_refusals(list(new.values())), strict=True))

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
    deciding = {"env": True, "vec_env": True, "algo": {"name", "packages", "replay_buffer"}}
    return f"environment {config.model_dump_json(include=deciding)}"


def _check_infra(config: RunConfig) -> None:
    from rlzoo_plus.infra.launcher import make_launcher

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
        from rlzoo_plus.agents.factory import check_device

        check_device(config.device)


def _check_callbacks(config: RunConfig) -> None:
    if config.callbacks:
        from rlzoo_plus.callbacks import check_user_callbacks

        check_user_callbacks(config)


def _check_tracker(config: RunConfig) -> None:
    if config.tracker is not None:
        from rlzoo_plus.tracking import check_tracker

        check_tracker(config.tracker, installed_here=config.infra.name in ON_THIS_MACHINE)


def _check_store(config: RunConfig) -> None:
    from rlzoo_plus.runs.store_sync import check_store

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


def env_refusals(configs: list[RunConfig]) -> list[list[str]]:
    """Return for each configuration why a run cannot begin in its environment, if it cannot.

    One process tries them all. If an environment ends it, that is the reason, and another process
    tries the rest.
    """
    found: list[list[str]] = []
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
            found.append([reason])
    return found


def _attempt(configs: list[RunConfig], place: Path) -> tuple[list[list[str]], JobEnd, str]:
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
    return [json.loads(line) for line in lines], end, last_line(log)


def last_line(log: Path) -> str:
    """Return the last line that a process printed, empty if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    printed = [line for line in lines if line.strip() and not line.startswith("--- ")]
    return printable(printed[-1]) if printed else ""


def try_all(data: dict[str, Any]) -> int:
    """Try the environments of `configs`; append a line with the reasons of each to `answers`."""
    from rlzoo_plus.config.own_code import import_packages
    from rlzoo_plus.config.resolve import validate_config
    from rlzoo_plus.envs.checks import inspect_env

    with Path(data["answers"]).open("a", encoding="utf-8") as answers:
        for values in data["configs"]:
            reasons = []
            try:
                config = validate_config(values)
                import_packages(config)
                inspect_env(config)
            except ConfigError as error:
                reasons.append(str(error))
            answers.write(json.dumps(reasons) + "\n")
            answers.flush()
    return 0
