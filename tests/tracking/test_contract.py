"""Shipped trackers keep to the suite that one of a user's own is given, and to more."""

import math
import shutil
from typing import Any

import pytest
from wandb_file import read_run

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import read_json
from rlzoo_plus.testing import TrackerContract
from rlzoo_plus.testing.tracker_contract import CONFIG, make_run_dir
from rlzoo_plus.tracking.tracker import ServiceSettings, attachments, flatten, known_run


class FakeTracker:
    """A tracker in memory."""

    def __init__(self):
        self.filed: dict[str, Any] = {"metrics": [], "state": None}

    def start(self, config, run_dir):
        self.filed |= {"config": config, "state": "running"}
        self.run_dir = run_dir

    def log(self, metrics, step):
        self.filed["metrics"] += [(name, value, step) for name, value in metrics.items()]

    def finish(self, result, files):
        names = {name.as_posix() for _, name in attachments(files, self.run_dir)}
        summary = flatten(result, "/", "result/")
        self.filed |= {"summary": summary, "files": names, "state": "finished"}

    def fail(self, message):
        self.filed |= {"error": message, "state": "failed"}


class Fake:
    """Reads a `FakeTracker`."""

    def __init__(self):
        self.tracker = FakeTracker()

    def read(self, run_dir):
        return {"files": set(), "summary": {}, "error": None} | self.tracker.filed


class Wandb:
    """Reads the file that an offline W&B run leaves."""

    def __init__(self):
        pytest.importorskip("wandb", reason="needs the extra wandb")
        from rlzoo_plus.tracking.wandb_tracker import WandbTracker

        config = {"project": "test", "offline": True, "kwargs": {"tags": ["a"]}}
        self.tracker = WandbTracker(ServiceSettings(**config))

    def read(self, run_dir):
        run = read_run(run_dir / "wandb")
        (files,) = (run_dir / "wandb").glob("offline-run-*/files")
        attached = {file.relative_to(files / "attachments") for file in files.rglob("attach*/**/*")}
        names = {path.as_posix() for path in attached if (files / "attachments" / path).is_file()}
        pictures = {file.name.split("_")[0] for file in files.glob("media/images/**/*.png")}
        return {
            "config": run["config"],
            "metrics": [
                (name, value, row["global_step"])
                for row in run["history"]
                for name, value in row.items()
                if "/" in name and not name.startswith("plots/")
            ],
            "summary": run["summary"],
            "files": names | {f"plots/{name}.png" for name in pictures},
            "error": run["summary"].get("error"),
            "state": {0: "finished", 1: "failed", None: "running"}[run["exit_code"]],
        }


class Mlflow:
    """Reads MLflow's offline store through its client."""

    def __init__(self):
        for package in ("mlflow", "sqlalchemy", "alembic"):
            pytest.importorskip(package, reason="needs the extra mlflow")
        from rlzoo_plus.tracking.mlflow_tracker import MlflowTracker

        config = {"project": "test", "offline": True, "kwargs": {"tags": {"team": "a"}}}
        self.tracker = MlflowTracker(ServiceSettings(**config))

    def read(self, run_dir):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=f"sqlite:///{run_dir / 'mlflow' / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("test")
        (run,) = client.search_runs([experiment.experiment_id])
        history = [
            (point.key, point.value, point.step)
            for name in run.data.metrics
            for point in client.get_metric_history(run.info.run_id, name)
        ]
        folders = [None, "plots"]
        listed = [item for path in folders for item in client.list_artifacts(run.info.run_id, path)]
        return {
            "config": run.data.params,
            "metrics": [point for point in history if not point[0].startswith("result/")],
            "summary": run.data.metrics | run.data.tags,
            "files": {item.path for item in listed if not item.is_dir},
            "error": run.data.tags.get("error"),
            "state": run.info.status.lower(),
        }


@pytest.fixture(params=[Fake, Wandb, Mlflow], ids=["fake", "wandb", "mlflow"])
def service(request, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_DIR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return request.param()


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """MLflow's tables, made once: that takes seconds."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def ready_run_dir(tmp_path, service, request):
    """A run directory where MLflow need not make its tables first."""
    run_dir = make_run_dir(tmp_path)
    if isinstance(service, Mlflow):
        (run_dir / "mlflow").mkdir()
        shutil.copy(request.getfixturevalue("empty_store"), run_dir / "mlflow")
    return run_dir


@pytest.fixture
def run_dir(tmp_path):
    return make_run_dir(tmp_path)


@pytest.mark.training
class TestEveryTracker(TrackerContract):
    @pytest.fixture
    def tracker(self, service):
        self.service = service
        return service.tracker

    @pytest.fixture
    def run_dir(self, ready_run_dir):
        return ready_run_dir

    def read(self, run_dir):
        return self.service.read(run_dir)


@pytest.mark.training
def test_the_configuration_of_a_run_is_kept(service, run_dir):
    service.tracker.start(CONFIG, run_dir)
    service.tracker.log({"train/loss": math.nan}, step=1)
    service.tracker.fail("interrupted by SIGTERM")

    filed = service.read(run_dir)
    assert filed["state"] == "failed"
    assert filed["error"] == "interrupted by SIGTERM"
    config = filed["config"]
    if "algo.name" in config:
        config = {"algo": {"name": config["algo.name"]}, "many": {"key119": 119}}
        assert filed["config"]["algo.hyperparams.net_arch"] == "[64, 64]"
        assert filed["config"]["normalize"] == "null"
        assert filed["config"]["many.key119"] == "119"
        assert len(filed["config"]["long"]) == 500
    assert config["algo"]["name"] == "ppo"
    assert config["many"]["key119"] == 119


@pytest.mark.training
def test_a_run_that_goes_on_is_the_same_one(service, ready_run_dir):
    if isinstance(service, Fake):
        pytest.skip("it has no ids")
    service.tracker.start({"n_timesteps": 10}, ready_run_dir)
    service.tracker.log({"train/loss": 1.0}, step=1)
    service.tracker.fail("interrupted by SIGTERM")
    known = read_json(RunDir(ready_run_dir).tracker_file)

    again = type(service)().tracker
    again.start({"n_timesteps": 20, "seed": 3}, ready_run_dir)
    again.log({"train/loss": 0.5}, step=2)
    again.finish({}, [])
    assert read_json(RunDir(ready_run_dir).tracker_file) == known
    if isinstance(service, Wandb):
        # offline-run-<time>-<id>, with -1 behind it when both began within one second
        runs = sorted((ready_run_dir / "wandb").glob("offline-run-*"))
        assert {run.name.split("-")[3] for run in runs} == {known["id"]}
        return
    filed = service.read(ready_run_dir)  # which takes one run only
    assert filed["state"] == "finished"
    assert filed["error"] is None
    assert [step for _, _, step in filed["metrics"]] == [1, 2]
    assert (filed["config"]["n_timesteps"], filed["config"]["seed"]) == ("10", "3")


@pytest.mark.parametrize("known", [{"id": "../x"}, {"id": 3}, {}, {"place": "other"}])
def test_an_id_that_is_none_or_of_elsewhere_is_not_taken(tmp_path, known):
    stored = {"tracker": "wandb", "place": "me/p", "id": "abc", **known}
    write_json(RunDir(tmp_path).tracker_file, stored)
    expected = "abc" if known == {} else None
    assert known_run(tmp_path, "wandb", "me/p") == expected
    assert known_run(tmp_path, "mlflow", "me/p") is None
