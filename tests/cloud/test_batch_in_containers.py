"""A sweep through moto's AWS Batch in real containers, from the command to the best policy."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from support.aws import ask_moto, deployed_project
from support.containers import make_image, podman

import rlzoo_plus as rz
from rlzoo_plus.agents.policy import load_policy
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.cloud import aws, batch, quota
from rlzoo_plus.cloud.image import WorkerImage
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.envs.seeding import evaluation_seeds
from rlzoo_plus.training.evaluation import evaluate

pytestmark = [pytest.mark.training, pytest.mark.slow]
IMAGE = "localhost/rlzoo-worker:test"
SWEEP = (
    *("env=cartpole_bullet", "algo=ppo", "tuned=none", "n_envs=2", "vec_env=dummy"),
    *("n_timesteps=2048", "algo.hyperparams.n_steps=128", "algo.hyperparams.batch_size=64"),
    *("eval.every_steps=1024", "eval.episodes=5", "checkpoint.every_steps=1024"),
    *("log.tensorboard=false", "report.video=false", "report.plot=false"),
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Yield a project whose jobs are containers of podman."""
    (tmp_path / "podman").mkdir()
    with (
        podman(tmp_path / "podman", monkeypatch),
        deployed_project(monkeypatch, server=True) as project,
    ):
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        ask_moto(endpoint, "config", {"batch": {"use_docker": True}})
        # moto gives jobs no credentials of their role.
        names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        environ = {name: os.environ[name] for name in (*names, "AWS_EC2_METADATA_DISABLED")}
        worker = [str(Path(sys.prefix) / "bin" / "rlzoo-plus"), "worker"]
        make_image(IMAGE, worker, OMP_NUM_THREADS="1", **environ)
        monkeypatch.setattr(batch, "worker_image", lambda *_, **__: WorkerImage(IMAGE, (), ""))
        monkeypatch.setattr(quota, "vcpu_quota", lambda **kind: 64)
        yield project


def _go(tmp_path, monkeypatch, name):
    """Let the following commands be typed on another machine."""
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name / "cache"))


def _say(capsys, *words):
    code = run_verb(words[0], list(words[1:]))
    out, err = capsys.readouterr()
    return code, out, err


def _wait_for_jobs(timeout_s=900):
    """Wait until Batch's jobs have ended; return the children of the array."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = aws.client("batch").describe_jobs(jobs=[])["jobs"]
        children = [job for job in found if ":" in job["jobId"]]
        if children and all(job["status"] in ("SUCCEEDED", "FAILED") for job in children):
            return children
        assert time.monotonic() < deadline, [job["status"] for job in children]
        time.sleep(1)


def test_four_runs_train_in_containers_and_the_best_is_what_its_record_says(
    project, tmp_path, monkeypatch, capsys
):
    _go(tmp_path, monkeypatch, "first")
    words = ("-m", *SWEEP, "seed=range(0,4)", "infra=aws_batch", "sweep=first")
    code, out, err = _say(capsys, "train", *words)
    assert code == 0, err
    assert "started an array job of 4 runs in AWS Batch" in out

    children = _wait_for_jobs()
    logs = aws.client("logs")
    for job in children:
        stream = {
            "logGroupName": "/aws/batch/job",
            "logStreamName": job["container"]["logStreamName"],
        }
        events = logs.get_log_events(**stream)["events"]
        assert job["status"] == "SUCCEEDED", [event["message"] for event in events]

    _go(tmp_path, monkeypatch, "second")
    url = f"{project.store}/first"
    code, out, err = _say(capsys, "sweep", "status", url, "--json")
    assert code == 0, err
    # moto itself prints a warning first.
    status = json.loads(out.splitlines()[-1])
    assert [job["state"] for job in status["jobs"]] == ["done"] * 4
    assert len({job["worker"] for job in status["jobs"]}) == 4
    code, out, _ = _say(capsys, "sweep", "status", url)
    assert (code, "4 done" in out) == (0, True), out

    code, out, err = _say(
        *(capsys, "pull", url, "--best", "--episodes", "20", "--json", "--to", "best")
    )
    assert code == 0, err
    assert json.loads(out[out.index("{") :])["path"].endswith("best")
    run_dir, config = RunDir(Path("best")), rz.Run.open("best").config
    venv = make_eval_env(config.env, int(config.eval.n_envs))
    seen = evaluate(load_policy(run_dir.best), venv, evaluation_seeds(5))
    venv.close()
    assert seen.mean_return == run_dir.read_result()["best"]["mean_return"]
