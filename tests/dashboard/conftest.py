"""Runs to show, and a server of the pages."""

import json
import os
import threading
import time

import pytest
import yaml

from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.dashboard.web_server import DashboardServer


def write_run(folder, algo="ppo", seed=0, state="finished", gamma=0.99, env="reach", **status):
    """Write the records of a run with two evaluations and a metric."""
    folder.mkdir(parents=True)
    config = {
        **{"algo": {"name": algo, "hyperparams": {"gamma": gamma}}, "env": {"name": env}},
        **{"seed": seed, "n_timesteps": 100},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "status.json").write_text(json.dumps({"state": state, **status}))
    rows = [{"step": step, "mean_return": step / 10 + seed} for step in (20, 60)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    logged = [{"ts": 1e9 + k, "step": 10 * k, "key": "train/loss", "value": 1 / k} for k in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in logged))


@pytest.fixture(name="write_run")
def fixture_write_run():
    """Return the function that writes the records of a run."""
    return write_run


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a sweep of two variants, a failed, a running and a damaged run."""
    now, root = time.time(), tmp_path / "outputs"
    for number, (gamma, seed) in enumerate([(0.99, 1), (0.99, 2), (0.9, 1), (0.9, 2)]):
        path = root / "sweeps" / "first" / f"r{number}"
        write_run(path, "sac", seed, gamma=gamma, started_at=now - 100 + number)
    (root / "sweeps" / "first" / "ledger.jsonl").write_text("")
    write_run(root / "c", state="failed", message="NaN in the weights", started_at=now - 30)
    alive = {"pid": os.getpid(), "started_at": now - 20, "updated_at": now}
    write_run(root / "d", state="running", **alive)
    (root / "e").mkdir()
    (root / "e" / "config.yaml").write_text("*")
    (root / "e" / "status.json").write_text("{}")
    return root


@pytest.fixture
def source(folder):
    found = Source(folder)
    found.runs(all_of_them=True)
    return found


@pytest.fixture
def server(source, tmp_path):
    plotly = tmp_path / "plotly.min.js"
    plotly.write_text("// plotly")
    with DashboardServer(source, 0, plotly) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()
