"""Tries environments in a process of their own, which they may crash or leave."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.launcher import JobEnd, JobSpec
from rlzoo_plus.infra.node import make_ticket, spawn

_TARGET = "rlzoo_plus.diagnosis.env_trial:try_all"
_LOOK_S = 0.02


def env_refusals(configs: list[RunConfig]) -> list[list[str]]:
    """Return for each configuration why a run cannot begin in its environment, if it cannot.

    All are tried in one process. One that ends it is told, and another process tries the rest.
    """
    found: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="rlzoo-environments-") as folder:
        while len(found) < len(configs):
            answers, end, said = _attempt(configs[len(found) :], Path(folder) / str(len(found)))
            found += answers
            if len(found) < len(configs):
                found.append([_tell_death(configs[len(found)], end, said)])
    return found


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


def _attempt(configs: list[RunConfig], place: Path) -> tuple[list[list[str]], JobEnd, str]:
    """Try environments in one process; return the answers, how it ended, and what it said last."""
    log, answers = place.with_suffix(".log"), place.with_suffix(".jsonl")
    values = [config.model_dump() for config in configs]
    data = {"configs": values, "answers": str(answers)}
    handle = spawn(make_ticket(JobSpec("environments", _TARGET, data, log)))
    try:
        while (end := handle.poll()) is None:
            time.sleep(_LOOK_S)
    finally:
        handle.kill()
    lines = answers.read_text(encoding="utf-8").splitlines() if answers.is_file() else []
    said = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    last = [line for line in said if line.strip() and not line.startswith("--- ")]
    return [json.loads(line) for line in lines], end, printable(last[-1]) if last else ""


def _tell_death(config: RunConfig, end: JobEnd, said: str) -> str:
    if end.code < 0:
        how = f"was killed by {signal.Signals(-end.code).name}"
    else:
        how = f"ended with exit code {end.code}"
    last = f" Its last words: {said}" if said else ""
    return (
        f"env.id={config.env.id}: the process in which it was made, reset and stepped {how}.{last}"
    )
