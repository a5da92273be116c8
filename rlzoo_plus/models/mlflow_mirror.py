"""Mirrors a model to MLflow's registry: its versions as links to ours, and its aliases."""

from __future__ import annotations

import os
from typing import Any

from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.models.model_records import FOLDER
from rlzoo_plus.models.model_store import ModelStore
from rlzoo_plus.tracking.mlflow_tracker import ENVIRONMENT, RETRIES
from rlzoo_plus.tracking.tracker import load_package

# What tells which of our versions one of MLflow's is: it numbers its own.
_VERSION, _CONTENT = "rlzoo_plus.version", "rlzoo_plus.content"
_MOST_VERSIONS = 10_000
SERVERS = ("MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_URI")


def mirror(store: ModelStore, name: str) -> list[str]:
    """Let MLflow's registry have every version of a model, and name what our aliases name.

    The files stay in our store, which each version's source names. Aliases that MLflow has and we
    do not are left alone.

    Returns:
        What was changed there, a line each.

    Raises:
        ConfigError: MLflow is not installed, or no server is known.
        RunError: The server refused.
    """
    store.require(name)
    for variable, value in RETRIES.items():
        os.environ.setdefault(variable, value)
    mlflow = load_package("mlflow", "mlflow", ENVIRONMENT)
    if not any(os.environ.get(variable) for variable in SERVERS):
        raise ConfigError(
            f"no server of MLflow is known. Set {SERVERS[1]}, or {SERVERS[0]} for the registry."
        )
    try:
        return _mirror(mlflow.MlflowClient(), store, name)
    except mlflow.exceptions.MlflowException as error:
        raise RunError(f"MLflow refused: {redact(one_line(error))}") from error


def _mirror(client: Any, store: ModelStore, name: str) -> list[str]:
    found, query = [], f"name='{name}'"
    if not client.search_registered_models(filter_string=query):
        client.create_registered_model(name, description=f"{store.url}/{FOLDER}/{name}")
        found.append(f"made the model {name}")
    known = {}
    for each in client.search_model_versions(filter_string=query, max_results=_MOST_VERSIONS):
        known[each.tags.get(_VERSION)] = each
    for number in store.versions(name):
        record = store.version(name, number)
        there = known.get(str(number))
        if there is not None and there.tags.get(_CONTENT) != record.content:
            raise RunError(f"MLflow's version {there.version} of {name} is of another registry")
        if there is None:
            tags = {_VERSION: str(number), _CONTENT: record.content, "algo": record.algo}
            tags |= {"env": record.env, "step": str(record.step), "who": record.who}
            tags |= {key: str(value) for key, value in record.evaluation.items()}
            source = f"{store.url}/{FOLDER}/{name}/content/{record.content}"
            known[str(number)] = client.create_model_version(
                name, source, tags=tags, description=printable(record.why)
            )
            found.append(f"version {number} is version {known[str(number)].version} there")
    aliases = client.get_registered_model(name).aliases
    for alias, moved in store.named(name).items():
        version = known[str(moved.version)].version
        if str(aliases.get(alias)) != str(version):
            client.set_registered_model_alias(name, alias, version)
            found.append(f"{alias} names version {moved.version}")
    return found
