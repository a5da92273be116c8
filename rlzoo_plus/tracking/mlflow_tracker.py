"""Tracker that records runs at an MLflow server, or in the run directory."""

from __future__ import annotations

import logging
import os
import re
import time
from numbers import Real
from pathlib import Path
from typing import Any

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tracking import tracker as base

logger = logging.getLogger(__name__)

# MLflow's telemetry uses the network even offline, from threads that outlive the run.
ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true"}
# MLflow's default retries can block a run for minutes at each call; the user's settings win.
RETRIES = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
TAKEN = {"experiment_name": "tracker.project", "experiment_id": "tracker.project"}
# Limits of MLflow's REST interface; a value may be longer there, but no page shows it.
KEY_LENGTH, VALUE_LENGTH, PARAMS_PER_CALL = 250, 500, 100


class MlflowTracker:
    """One MLflow run; `tracker.kwargs` takes `run_name` and `tags`.

    It uses a client of its own and leaves MLflow's process-wide active run to the user.
    """

    Settings = base.ServiceSettings

    def __init__(self, settings: base.ServiceSettings) -> None:
        """Import MLflow and check the settings.

        Raises:
            ConfigError: A package is missing, an argument is unknown, or no server is known.
        """
        for name, value in RETRIES.items():
            os.environ.setdefault(name, value)
        self._mlflow = base.load_package("mlflow", "mlflow", ENVIRONMENT)
        base.check_kwargs("tracker.kwargs", settings.kwargs, ("run_name", "tags"), TAKEN)
        if settings.offline:
            for package in ("sqlalchemy", "alembic"):
                base.load_package("mlflow", package, {})
        elif not os.environ.get("MLFLOW_TRACKING_URI"):
            raise ConfigError(
                "tracker=mlflow knows no server: the variable MLFLOW_TRACKING_URI is not set. "
                "Set it, or keep the run on disk with tracker.offline=true."
            )
        self._settings = settings
        self._client: Any = None
        self._run_id: str | None = None
        self._run_dir = Path()

    def start(self, config: dict[str, Any], run_dir: Path) -> None:
        """Open the run; see `Tracker.start`."""
        self._run_dir = run_dir
        store = artifacts = None
        if self._settings.offline:
            folder = (run_dir / "mlflow").resolve()
            folder.mkdir(parents=True, exist_ok=True)
            # SQLite: MLflow 3 refuses to write its older store of plain files.
            store, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
        self._client = self._mlflow.MlflowClient(tracking_uri=store)
        experiment_id = self._experiment_id(artifacts)
        known = self._reopened(experiment_id)
        if self._run_id is None:
            arguments = {"run_name": run_dir.name, **self._settings.kwargs}
            self._run_id = str(self._client.create_run(experiment_id, **arguments).info.run_id)
            base.remember_run(run_dir, "mlflow", experiment_id, self._run_id)
        # MLflow never changes a parameter: a resumed run keeps the values that it began with.
        values = {_valid_key(key): value for key, value in base.flatten(config, ".").items()}
        params = [
            self._mlflow.entities.Param(key, base.as_text(value, VALUE_LENGTH))
            for key, value in values.items()
            if key not in known
        ]
        for first in range(0, len(params), PARAMS_PER_CALL):
            batch = params[first : first + PARAMS_PER_CALL]
            self._client.log_batch(self._run_id, params=batch, synchronous=True)
        if store:
            see = f"mlflow ui --backend-store-uri {store}"
            logger.info("MLflow keeps the run offline; with the package mlflow, see it by: %s", see)
        else:
            logger.info("MLflow records the run as %s", self._run_id)

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Record numbers; see `Tracker.log`."""
        now_ms = int(time.time() * 1000)
        entities = [
            self._mlflow.entities.Metric(_valid_key(name), float(value), now_ms, step)
            for name, value in metrics.items()
        ]
        self._client.log_batch(self._run_id, metrics=entities, synchronous=True)

    def finish(self, result: dict[str, Any], files: list[Path]) -> None:
        """Record the outcome: numbers as metrics, the rest as tags; see `Tracker.finish`."""
        try:
            flat = base.flatten(result, "/", "result/")
            reals = {key: value for key, value in flat.items() if isinstance(value, Real)}
            numbers = {k: float(v) for k, v in reals.items() if not isinstance(v, bool)}
            self.log(numbers, step=0)
            for key in flat.keys() - numbers.keys():
                text = base.as_text(flat[key], VALUE_LENGTH)
                self._client.set_tag(self._run_id, _valid_key(key), text)
            for file, name in base.attachments(files, self._run_dir):
                folder = None if name.parent == Path() else name.parent.as_posix()
                self._client.log_artifact(self._run_id, str(file), folder)
        finally:
            self._close("FINISHED")

    def fail(self, message: str) -> None:
        """Close the run as failed; see `Tracker.fail`."""
        if self._run_id is None:
            return
        try:
            self._client.set_tag(self._run_id, "error", base.as_text(message, VALUE_LENGTH))
        finally:
            self._close("FAILED")

    def _close(self, status: str) -> None:
        run_id, self._run_id = self._run_id, None
        self._client.set_terminated(run_id, status)

    def _experiment_id(self, artifacts: str | None) -> str:
        name = self._settings.project
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name, artifact_location=artifacts))
            except self._mlflow.exceptions.MlflowException:
                # Another run may have created it in between.
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _reopened(self, experiment_id: str) -> dict[str, str]:
        """Open the earlier run of a resumed one; return its parameters, empty for a new run."""
        known = base.known_run(self._run_dir, "mlflow", experiment_id)
        if known is None:
            return {}
        try:
            run = self._client.get_run(known)
            self._client.update_run(known, status="RUNNING")
        except self._mlflow.exceptions.MlflowException:
            logger.info("MLflow no longer has the run %s: a new one is created", known)
            return {}
        self._run_id = known
        if "error" in run.data.tags:
            self._client.delete_tag(known, "error")
        return dict(run.data.params)


def _valid_key(key: str) -> str:
    """Return a key with only the characters and the length that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", key).strip("/")[:KEY_LENGTH]
