"""The interface of trackers, and the checks and conversions that they share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pydantic import Field

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import read_json
from rlzoo_plus.config.section import Line, Section
from rlzoo_plus.errors import ConfigError, unknown_name


class ServiceSettings(Section):
    """The keys of `tracker=wandb` and `tracker=mlflow`; see conf/tracker."""

    project: Line = "rlzoo_plus"
    offline: bool = False
    kwargs: dict[str, Any] = Field(default_factory=dict)


class Tracker(Protocol):
    """Interface of a service that records one run, also after a stop and a resume.

    A user's own tracker is any class with these methods: `tracker.name=my_module.Mine`. Its
    attribute `Settings` is a pydantic model of its keys below `tracker`; it is created with one.

    One object serves one run, from one thread: `start`, any number of `log`, then `finish` or
    `fail`. A tracker raises its errors; `SafeTracker` keeps them away from the run.
    """

    def start(self, config: dict[str, Any], run_dir: Path) -> None:
        """Open the run at the service; a resumed run continues its earlier one.

        Args:
            config: The resolved configuration as plain data.
            run_dir: The run's directory; the tracker writes nowhere else.

        Raises:
            ConfigError: The user's settings cannot work, e.g. no key was found.
        """

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Record numbers; called often.

        Args:
            metrics: Name to value, e.g. `rollout/ep_rew_mean`.
            step: Environment steps so far. It may repeat, and it may go back.
        """

    def finish(self, result: dict[str, Any], files: list[Path]) -> None:
        """Record the outcome below `result/`, attach files and close the run.

        Args:
            result: The summary; nested values are flattened.
            files: Plots, videos, the configuration; those that do not exist are left out.
        """

    def fail(self, message: str) -> None:
        """Close the run as interrupted or failed; allowed even when `start` failed.

        Args:
            message: Why, in one line.
        """


def load_package(tracker: str, package: str, environment: Mapping[str, str]) -> ModuleType:
    """Import a tracker's library on first use.

    Raises:
        ConfigError: The package is not installed.
    """
    os.environ.update(environment)
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        how = f"Install it: pip install 'rlzoo-plus[{tracker}]'"
        raise ConfigError(f"tracker={tracker} needs the package {missing}. {how}") from error


def check_kwargs(
    where: str, kwargs: Mapping[str, Any], known: Iterable[str], taken: Mapping[str, str]
) -> None:
    """Refuse arguments that the service does not know, or that are set elsewhere.

    Raises:
        ConfigError: A name is unknown or taken.
    """
    free = set(known) - set(taken)
    for name in kwargs:
        if name in taken:
            raise ConfigError(f"{where}.{name} cannot be set here. Use {taken[name]} instead.")
        if name not in free:
            raise ConfigError(unknown_name(f"{where} key", str(name), free))


def known_run(run_dir: Path, tracker: str, place: str) -> str | None:
    """Return the id of a run at a place (entity, project) of a service, None if it is new there."""
    known = read_json(RunDir(run_dir).tracker_file)
    run_id = known.get("id")
    is_same = (known.get("tracker"), known.get("place")) == (tracker, place)
    # The file is untrusted, and the id becomes part of an address.
    is_id = isinstance(run_id, str) and re.fullmatch(r"[\w-]{1,128}", run_id) is not None
    return run_id if is_same and is_id else None


def remember_run(run_dir: Path, tracker: str, place: str, run_id: str) -> None:
    """Write the id that a run has at a service; see `known_run`."""
    known = {"tracker": tracker, "place": place, "id": run_id}
    write_json(RunDir(run_dir).tracker_file, known)


def flatten(data: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one level of joined keys; lists and empty mappings stay values."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, separator, f"{prefix}{key}{separator}")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def as_text(value: Any, limit: int) -> str:
    """Return plain data as text: JSON, cut to a length [characters]."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def attachments(files: Iterable[Path], run_dir: Path) -> list[tuple[Path, Path]]:
    """Return each existing file with the relative path it is attached under."""
    return [
        (file, file.relative_to(run_dir) if file.is_relative_to(run_dir) else Path(file.name))
        for file in files
        if file.is_file()
    ]
