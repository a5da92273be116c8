"""What every tracker promises, and the checks and conversions that trackers share."""

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

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import Line, Section
from rlzoo_plus.errors import ConfigError, unknown_name


class ServiceSettings(Section):
    """The keys of `tracker=wandb` and `tracker=mlflow`; see conf/tracker."""

    project: Line = "rlzoo_plus"
    offline: bool = False
    kwargs: dict[str, Any] = Field(default_factory=dict)


class Tracker(Protocol):
    """A service that follows one run, also after it was stopped and goes on.

    One of the user's own is a class with these methods, anywhere: `tracker.name=my_module.Mine`. It
    is made from its settings: its keys below `tracker` are the fields of a pydantic model, its
    attribute `Settings`.

    One object serves one run, from one thread: `start`, any number of `log`, then `finish` or
    `fail`. A tracker raises what goes wrong; `SafeTracker` decides what that means for the run.
    """

    def start(self, config: dict[str, Any], run_dir: Path) -> None:
        """Open the run at the service: the same one as before if this one goes on.

        Args:
            config: The resolved configuration as plain data.
            run_dir: The run's directory; whatever the tracker writes lies below it.

        Raises:
            ConfigError: The user's settings can not work, e.g. no key was found.
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
            files: Plots, films, the configuration; what is no file is left out.
        """

    def fail(self, message: str) -> None:
        """Close the run as interrupted or broken; allowed even when `start` broke.

        Args:
            message: Why, in one line.
        """


def load_package(tracker: str, package: str, extra: str, environment: dict[str, str]) -> ModuleType:
    """Import a tracker's library on first use.

    Args:
        tracker: Name the user chose.
        package: The module to import.
        extra: The extra of rlzoo-plus that brings it.
        environment: Variables set before the import, because the library reads them there.

    Raises:
        ConfigError: The package is not installed.
    """
    os.environ.update(environment)
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        raise ConfigError(
            f"tracker={tracker} needs the package {missing}. "
            f"Install it: pip install 'rlzoo-plus[{extra}]'"
        ) from error


def check_kwargs(
    where: str, kwargs: Mapping[str, Any], known: Iterable[str], taken: Mapping[str, str]
) -> None:
    """Refuse arguments that the service does not know, or that are set elsewhere.

    Args:
        where: The key that holds them, e.g. `tracker.kwargs`.
        kwargs: What the user wrote.
        known: The names that the service takes.
        taken: Names that belong to another place, and that place.

    Raises:
        ConfigError: A name is unknown or taken.
    """
    free = set(known) - set(taken)
    for name in kwargs:
        if name in taken:
            raise ConfigError(f"{where}.{name} can not be set here. Use {taken[name]} instead.")
        if name not in free:
            raise ConfigError(unknown_name(f"{where} key", str(name), free))


def known_run(run_dir: Path, tracker: str, place: str) -> str | None:
    """Return the id that a run has at a service already, None if it is new there.

    Args:
        run_dir: The run's directory.
        tracker: Name of the tracker.
        place: Where at the service: entity, project and the like.
    """
    known = RunDir(run_dir).read_tracker()
    run_id = known.get("id")
    is_same = (known.get("tracker"), known.get("place")) == (tracker, place)
    # It becomes part of an address, and may be a stranger's.
    is_id = isinstance(run_id, str) and re.fullmatch(r"[\w-]{1,128}", run_id) is not None
    return run_id if is_same and is_id else None


def remember_run(run_dir: Path, tracker: str, place: str, run_id: str) -> None:
    """Keep the id that a run has at a service; see `known_run`."""
    RunDir(run_dir).write_tracker({"tracker": tracker, "place": place, "id": run_id})


def flatten(data: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one level; lists and empty mappings stay values.

    Args:
        data: Nested plain data.
        separator: What joins the keys of two levels.
        prefix: What every key starts with.
    """
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, separator, f"{prefix}{key}{separator}")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def as_text(value: Any, limit: int) -> str:
    """Return a value as the text a YAML file would hold, cut to a length.

    Args:
        value: Plain data.
        limit: Longest text allowed [characters].
    """
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def attachments(files: Iterable[Path], run_dir: Path) -> list[tuple[Path, Path]]:
    """Return each existing file with the relative path it is attached under."""
    return [
        (file, file.relative_to(run_dir) if file.is_relative_to(run_dir) else Path(file.name))
        for file in files
        if file.is_file()
    ]
