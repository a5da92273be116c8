"""Registers the tiny environments, starts commands, and makes stores."""

import pytest
import support.tiny_envs  # noqa: F401
from support.processes import call, start  # noqa: F401
from support.stores import KINDS, store_of


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Keep what commands cache in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=KINDS)
def store(request, tmp_path, monkeypatch, cache):
    """Return an empty store, of each kind."""
    with store_of(request.param, tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def folder(tmp_path, monkeypatch, cache):
    """Return an empty store in a folder, where the kind is all the same."""
    with store_of("folder", tmp_path, monkeypatch) as made:
        yield made
