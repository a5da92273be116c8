"""The launcher and the tracker of examples/ keep to the suites, and the command uses them."""

import csv
import json
import os
from pathlib import Path

import pytest

from rlzoo_plus.sweeps.launchers.launcher import LauncherOptions
from rlzoo_plus.testing import LauncherContract, TrackerContract
from rlzoo_plus.testing.run_contract import ON_POLICY, SHORT, run_command

pytestmark = pytest.mark.training
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PPO = (*SHORT, *ON_POLICY)


class TestNiceLauncher(LauncherContract):
    @pytest.fixture(scope="class")
    @classmethod
    def launcher(cls):
        from nice_launcher import NiceLauncher

        settings = NiceLauncher.Settings(nice=5)
        return NiceLauncher.from_options(LauncherOptions(settings, workers=2))

    def test_jobs_have_the_priority_that_was_asked_for(self, launcher, submit, tmp_path):
        handle = submit("wait", file=str(tmp_path / "file"))
        assert os.getpriority(os.PRIO_PROCESS, handle.pid) == 5

    @pytest.mark.slow
    def test_a_small_sweep_trains(self, launcher, workplace):
        super().test_a_small_sweep_trains(launcher, workplace)


class TestCsvTracker(TrackerContract):
    @pytest.fixture
    def tracker(self):
        from csv_tracker import CsvTracker

        return CsvTracker(CsvTracker.Settings(folder="table"))

    def read(self, run_dir):
        filed = {"summary": {}, "files": [], "error": None, "metrics": []}
        filed |= json.loads((run_dir / "table" / "run.json").read_text())
        if (run_dir / "table" / "metrics.csv").exists():
            with (run_dir / "table" / "metrics.csv").open(newline="") as file:
                rows = list(csv.reader(file))
            filed["metrics"] = [(name, float(value), int(step)) for step, name, value in rows]
        return filed | {"files": set(filed["files"])}


@pytest.mark.slow
def test_the_command_runs_a_sweep_with_the_launcher(tmp_path):
    own = ["infra.name=nice_launcher.NiceLauncher", "infra.nice=7", "infra.workers=2"]
    words = [*PPO, *own, "seed=1,2", f"sweep={tmp_path / 'sweep'}"]
    run_command("train", "-m", *words, folder=EXAMPLES)
    states = [json.loads(f.read_text())["state"] for f in tmp_path.glob("sweep/**/status.json")]
    assert states == ["finished"] * 2


def test_the_command_tracks_a_run_and_its_resuming_asks_for_trust(tmp_path):
    run = tmp_path / "run"
    own = ["tracker.name=csv_tracker.CsvTracker", "tracker.folder=table", f"run_dir={run}"]
    run_command("train", *PPO, *own, folder=EXAMPLES)
    assert json.loads((run / "table" / "run.json").read_text())["state"] == "finished"
    assert "rollout/ep_rew_mean" in (run / "table" / "metrics.csv").read_text()
    text = run_command("resume", str(run), "n_timesteps=512", folder=EXAMPLES, code=2)
    assert "csv_tracker.CsvTracker" in text
    assert "--trust" in text


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ["tracker.name=csv_tracker.CsvTracker", "tracker.fodler=x"],
            ["Did you mean 'tracker.folder'"],
        ),
        (["infra.name=nice_launcher.NiceLauncher", "infra.nice=40"], ["infra.nice=40", "19"]),
        (["infra.name=nice_launcher.Nicest"], ["nice_launcher.Nicest is not in its module"]),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(words, parts):
    text = run_command("train", *PPO, *words, folder=EXAMPLES, code=2)
    assert len(text.strip().splitlines()) == 1
    assert all(part in text for part in parts), text
