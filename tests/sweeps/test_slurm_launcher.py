"""What is particular to SLURM: the options of sbatch, the queue, time that ends, lost jobs."""

import json
import os
import subprocess
import time

import pytest
from support import fake_slurm

from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.launchers import slurm
from rlzoo_plus.sweeps.launchers.launcher import JobSpec, Limits, make_launcher
from rlzoo_plus.sweeps.launchers.slurm import CLUSTER_WORKERS, Slurm
from rlzoo_plus.testing.launcher_contract import end_of, wait_for

pytest.importorskip("submitit")
pytestmark = pytest.mark.training


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Put commands like SLURM's into the path, and return the folder of their state."""
    fake_slurm.install(tmp_path / "bin", tmp_path / "state")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path / "state"))
    monkeypatch.setattr(Slurm, "look_s", 0.1)
    monkeypatch.setattr(Slurm, "grace_s", 0.5)
    monkeypatch.setattr(slurm, "_NEWS_S", 3.0)
    return tmp_path / "state"


@pytest.fixture
def launch(state, tmp_path):
    """Return a function: the name of a job's function to a launcher and the job's handle."""
    started = []

    def launch_it(function, limits=None, data=None, **infra):
        config = InfraConfig(name="slurm", folder=str(tmp_path / "slurm"), **infra)
        launcher = make_launcher(config, 3, ())
        target = f"rlzoo_plus.testing.jobs:{function}"
        spec = JobSpec(
            "ppo on x, seed 0", target, data or {}, tmp_path / "log.txt", limits or Limits()
        )
        started.append((launcher, launcher.submit(spec)))
        return started[-1]

    yield launch_it
    for launcher, handle in started:
        handle.kill()
        end_of(launcher, handle)


def script(state):
    return sorted(state.glob("*.sh"))[-1].read_text().splitlines()


def test_settings_become_options_of_sbatch(launch, state):
    infra = {
        "partition": "gpu", "account": "lab", "qos": "low", "gpus_per_node": 2, "workers": 5,
        "setup": ["export MARK=1"], "sbatch": {"constraint": "avx2"},
    }  # fmt: skip
    launcher, _ = launch("say", Limits(2.0, 3600.0), {"word": "x"}, **infra)
    lines = script(state)
    for option in (
        "--partition=gpu", "--account=lab", "--qos=low", "--gpus-per-node=2", "--constraint=avx2",
        "--cpus-per-task=3", "--mem=2560M", "--time=67", "--signal=USR2@120", "--no-requeue",
        "--job-name=ppo-on-x-seed-0",
    ):  # fmt: skip
        assert f"#SBATCH {option}" in lines
    assert "export MARK=1" in lines
    assert launcher.slots == 5


def test_what_is_not_set_is_left_to_the_cluster(launch, state):
    launcher, _ = launch("say", None, {"word": "x"})
    text = "\n".join(script(state))
    for option in ("partition", "account", "qos", "time", "mem", "gpus-per-node"):
        assert f"--{option}=" not in text
    assert launcher.slots == CLUSTER_WORKERS


def test_what_slurm_refuses_is_told(launch):
    with pytest.raises(ConfigError, match="invalid partition specified: nowhere"):
        launch("say", None, {"word": "x"}, partition="nowhere")


def test_a_job_that_waits_leaves_the_queue_when_it_is_stopped(launch, state, tmp_path):
    (state / "hold").touch()
    launcher, handle = launch("wait", None, {"file": str(tmp_path / "file")})
    assert handle.poll() is None
    handle.stop()
    assert end_of(launcher, handle).code == 75
    assert not list(state.glob("*.job"))
    assert not (tmp_path / "file").exists()


def _end_of_time(state):
    number = next(state.glob("*.job")).stem
    subprocess.run(["scancel", "--signal=USR2", number], check=True)


def test_at_the_end_of_its_time_on_the_cluster_a_job_is_stopped(launch, state, tmp_path):
    file = tmp_path / "file"
    launcher, handle = launch("wait", None, {"file": str(file)})
    wait_for(file.exists)
    _end_of_time(state)
    end = end_of(launcher, handle)
    assert end.code == 75
    assert "end of its time" in end.limit
    assert file.read_text() == "stopped"


def test_with_resubmit_it_is_submitted_again(launch, state, tmp_path):
    file = tmp_path / "file"
    launcher, handle = launch("wait", None, {"file": str(file)}, resubmit=1)
    for _ in range(2):
        wait_for(lambda: file.exists() and file.read_text() not in ("", "stopped"))
        _end_of_time(state)
        wait_for(lambda: file.read_text() == "stopped")
        launcher.wait([handle], 1.0)
    assert end_of(launcher, handle).code == 75
    assert len(list(state.glob("*.sh"))) == 2
    assert "submitted again" in (tmp_path / "log.txt").read_text()


def test_a_job_that_the_cluster_loses_has_an_end_too(launch, state, tmp_path):
    (state / "hold").touch()
    launcher, handle = launch("wait", None, {"file": str(tmp_path / "file")})
    next(state.glob("*.job")).unlink()
    end = end_of(launcher, handle)
    assert end.code == -9
    assert "is gone" in end.limit


def test_a_queue_that_does_not_answer_loses_no_job(launch, state, tmp_path):
    launcher, handle = launch("wait", None, {"file": str(tmp_path / "file")})
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        assert handle.poll() is None
        launcher.wait([handle], 0.1)


def test_nothing_is_left_of_the_jobs_folder(launch, tmp_path):
    launcher, handle = launch("say", None, {"word": "x"})
    folder = handle.folder
    assert folder.stat().st_mode & 0o077 == 0
    assert end_of(launcher, handle).code == 0
    wait_for(lambda: not folder.exists())


def test_an_end_is_read_as_data_and_damage_is_no_end(launch, tmp_path):
    _, handle = launch("wait", None, {"file": str(tmp_path / "file")})
    for text in ("", "{", "[]", '{"code": "0"}', json.dumps({"code": 0, "limit": 3})):
        (handle.folder / "end.json").write_text(text)
        handle._look_at = 0.0
        assert handle.poll() is None
    (handle.folder / "end.json").unlink()
