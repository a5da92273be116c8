"""Which store a sweep of this machine was submitted to."""

import pytest

from rlzoo_plus.store.cache import forget_store, remember_store, store_of


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_a_sweep_is_found_by_any_way_to_write_its_directory(tmp_path):
    remember_store(tmp_path / "sweeps" / "a", "s3://bucket/lab/a")
    assert store_of((tmp_path / "sweeps" / "a").relative_to(tmp_path)) == "s3://bucket/lab/a"
    assert store_of(tmp_path / "sweeps" / "b") is None
    assert not (tmp_path / "sweeps").exists()


def test_a_folder_is_remembered_for_every_working_directory(tmp_path):
    remember_store(tmp_path / "a", "share/a")
    assert store_of(tmp_path / "a") == str(tmp_path / "share" / "a")


def test_a_sweep_that_runs_here_again_is_forgotten(tmp_path):
    remember_store(tmp_path / "a", "s3://bucket/a")
    forget_store(tmp_path / "a")
    forget_store(tmp_path / "a")
    assert store_of(tmp_path / "a") is None
