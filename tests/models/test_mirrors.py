"""What MLflow's registry and the Hub get of a registry of models."""

import json
import sys

import pytest
from support.registered import put

from rlzoo_plus.commands import dispatch
from rlzoo_plus.models.model_store import ModelStore

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path, monkeypatch, cache, files):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLZOO_MODELS", raising=False)
    store = ModelStore()
    put(store, files)
    store.move("cart", "production", 1, action="promote", why="first")
    return store


def test_mlflow_has_the_same_versions_and_aliases(store, files, tmp_path, monkeypatch, capsys):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    pytest.importorskip("sqlalchemy", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert dispatch.run("model", ["mirror", "cart"]) == 0
    assert "production names version 1" in capsys.readouterr().out
    other = tmp_path / "other"
    other.mkdir()
    for file in files.rglob("*"):
        if file.is_file():
            target = other / file.relative_to(files)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    (other / "command.txt").write_text("another\n")
    put(store, other)
    store.move("cart", "production", 2, action="promote", why="better")
    for said in ("version 2 is version 2 there", "is as it should be"):
        assert dispatch.run("model", ["mirror", "cart"]) == 0
        assert said in capsys.readouterr().out
    client = mlflow.MlflowClient()
    there = client.get_model_version_by_alias("cart", "production")
    record = store.version("cart", 2)
    assert there.tags["rlzoo_plus.content"] == record.content
    assert there.source == f"{store.url}/models/cart/content/{record.content}"
    # Another registry with the same name is not mixed with it.
    strange = ModelStore(str(tmp_path / "strange"))
    put(strange, other)
    name = f"{tmp_path}/strange/models/cart"
    assert dispatch.run("model", ["mirror", name]) != 0
    assert "is of another registry" in capsys.readouterr().err


def test_without_a_server_it_says_what_to_set(store, monkeypatch, capsys):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.delenv(name, raising=False)
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    assert dispatch.run("model", ["mirror", "cart"]) == 2
    assert "Set MLFLOW_TRACKING_URI" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert dispatch.run("model", ["mirror", "cart"]) == 2
    assert "rlzoo-plus[mlflow]" in capsys.readouterr().err.replace("_", "-")


def test_a_version_can_be_sent_to_the_hub(store, tmp_path):
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    words = ["push", "cart@production", "somebody/cart", "--dry-run", "sent", "--no-video"]
    assert dispatch.run("hub", [*words, "--episodes", "1"]) == 0
    sent = json.loads((tmp_path / "sent/episodes/evaluation.json").read_text())
    assert sent["step"] > 0
    assert (tmp_path / "sent/README.md").is_file()
