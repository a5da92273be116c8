"""Registries of models in a folder and in S3, with versions of a shipped policy."""

import pytest
from support.stores import cache, s3, store  # noqa: F401

from rlzoo_plus.analysis.shipped_runs import trained_dir
from rlzoo_plus.models.model_store import ModelStore


@pytest.fixture
def files():
    """Return a folder laid out as a version is."""
    return trained_dir() / "cartpole_bullet"


@pytest.fixture
def registry(store, cache, monkeypatch):  # noqa: F811
    """Return an empty registry that names are looked up in."""
    monkeypatch.setenv("RLZOO_MODELS", store.url)
    return ModelStore(store=store)
