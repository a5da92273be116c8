"""Tracker that records runs at Weights & Biases, or in the run directory for `wandb sync`."""

from __future__ import annotations

import inspect
import logging
import shutil
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tracking import tracker as base

logger = logging.getLogger(__name__)

# wandb's error reports use the network even offline, from threads that outlive the run.
ENVIRONMENT = {"WANDB_ERROR_REPORTING": "false"}
TAKEN = {
    "project": "tracker.project",
    "mode": "tracker.offline",
    "dir": "run_dir",
    "config": "the configuration",
}
TAKEN_SETTINGS = {
    "api_key": "`wandb login` or the variable WANDB_API_KEY",
    "base_url": "the variable WANDB_BASE_URL",
    "mode": "tracker.offline",
}
# Time-outs, so that a dead network cannot block a finished run; `wandb sync` sends the rest.
SETTINGS = {"quiet": True, "use_dot_wandb": False, "init_timeout": 60.0, "finish_timeout": 300.0}
IMAGES, VIDEOS = (".png", ".jpg", ".jpeg"), (".mp4", ".gif", ".webm")

# The service process is shared by all runs of this process: the last one ends it.
_open_trackers: set[WandbTracker] = set()


class WandbTracker:
    """One W&B run; `tracker.kwargs` are further arguments of `wandb.init`.

    The x-axis is the metric `global_step`, because W&B drops values whose own step goes back.
    """

    Settings = base.ServiceSettings

    def __init__(self, settings: base.ServiceSettings) -> None:
        """Import wandb and check the settings.

        Raises:
            ConfigError: wandb is missing, or an argument is unknown.
        """
        self._wandb = base.load_package("wandb", "wandb", ENVIRONMENT)
        known = inspect.signature(self._wandb.init).parameters
        base.check_kwargs("tracker.kwargs", settings.kwargs, known, TAKEN)
        own = settings.kwargs.get("settings") or {}
        fields = self._wandb.Settings.model_fields
        base.check_kwargs("tracker.kwargs.settings", own, fields, TAKEN_SETTINGS)
        self._settings = settings
        self._own = SETTINGS | own
        self._run: Any = None
        self._run_dir = Path()

    def start(self, config: dict[str, Any], run_dir: Path) -> None:
        """Open the run; see `Tracker.start`."""
        if not self._settings.offline:
            self._require_key()
        arguments: dict[str, Any] = {"name": run_dir.name, "reinit": "create_new"}
        arguments |= self._settings.kwargs | {"settings": self._own}
        if self._settings.offline:
            arguments["mode"] = "offline"
        place = f"{arguments.get('entity') or ''}/{self._settings.project}"
        known = base.known_run(run_dir, "wandb", place)
        if known is not None and "id" not in self._settings.kwargs:
            arguments |= {"id": known, "resume": "allow"}
        _open_trackers.add(self)
        self._run_dir = run_dir
        arguments |= {"project": self._settings.project, "dir": run_dir, "config": config}
        try:
            self._run = self._wandb.init(**arguments)
        except self._user_errors() as error:
            self._close(exit_code=1)
            raise ConfigError(
                f"tracker=wandb: wandb.init refused its arguments: {error}"
            ) from error
        base.remember_run(run_dir, "wandb", place, self._run.id)
        if known is not None:
            self._run.summary["error"] = None
        self._run.define_metric("*", step_metric="global_step")
        if self._run.offline:
            folder = Path(self._run.dir).parent
            logger.info("W&B keeps the run offline; send it with: wandb sync %s", folder)
        else:
            logger.info("W&B records the run at %s", self._run.url)

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Record numbers; see `Tracker.log`."""
        self._run.log({**metrics, "global_step": step})

    def finish(self, result: dict[str, Any], files: list[Path]) -> None:
        """Record the outcome; see `Tracker.finish`."""
        try:
            self._run.summary.update(base.flatten(result, "/", "result/"))
            for file, name in base.attachments(files, self._run_dir):
                self._attach(file, name)
        finally:
            self._close(exit_code=0)

    def fail(self, message: str) -> None:
        """Close the run as failed; see `Tracker.fail`."""
        try:
            if self._run is not None:
                self._run.summary["error"] = message
        finally:
            self._close(exit_code=1)

    def _attach(self, file: Path, name: Path) -> None:
        if file.suffix in (*IMAGES, *VIDEOS):
            kind = self._wandb.Image if file.suffix in IMAGES else self._wandb.Video
            self._run.log({name.with_suffix("").as_posix(): kind(str(file))})
        else:
            # A folder of its own: W&B writes a config.yaml beside it.
            root = Path(self._run.dir)
            copy = root / "attachments" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            self._run.save(str(copy), base_path=str(root), policy="now")

    def _close(self, exit_code: int) -> None:
        run, self._run = self._run, None
        _open_trackers.discard(self)
        try:
            if run is not None:
                run.finish(exit_code=exit_code)
        finally:
            if not _open_trackers and self._wandb.run is None:
                self._wandb.teardown()

    def _require_key(self) -> None:
        """Check that there is a key: `wandb.init` would ask for it at a prompt."""
        if self._wandb.setup().settings.mode in ("offline", "disabled"):
            return
        try:
            found, reason = self._wandb.login(prompt=False, verify=False), "no key was found"
        except self._user_errors() as error:
            found, reason = False, str(error).rstrip(".")
        if not found:
            self._close(exit_code=1)
            raise ConfigError(
                f"tracker=wandb cannot log in: {reason}. Run `wandb login`, set the variable "
                "WANDB_API_KEY, or keep the run on disk with tracker.offline=true."
            )

    def _user_errors(self) -> tuple[type[Exception], ...]:
        errors = self._wandb.errors
        return (errors.AuthenticationError, errors.UsageError, ValidationError)
