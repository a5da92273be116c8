"""A project in a real account of AWS: made, used, removed. Costs a few cents, takes half an hour.

RLZOO_AWS_LIVE=1 pytest tests/live, with AWS_PROFILE and AWS_REGION set; it needs an administrator.
"""

import contextlib
import json
import os
import secrets

import pytest
from support.processes import PLUS, commands_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.training,
    pytest.mark.skipif(
        os.environ.get("RLZOO_AWS_LIVE") != "1",
        reason="starts machines in your account of AWS: set RLZOO_AWS_LIVE=1",
    ),
]
SWEEP = "smoke"
TRAIN = (
    *("train", "-m", "seed=0,1", "algo=ppo", "env=cartpole_bullet", "n_timesteps=8192"),
    *("report.video=false", f"sweep={SWEEP}", "infra=aws_batch", "infra.wait=true"),
)


@pytest.fixture
def say(tmp_path):
    """Return a function: words of a command to its output; it must end well."""
    with commands_in(tmp_path) as start:

        def say_it(*words, timeout=900):
            process = start(*PLUS, *words)
            out, _ = process.communicate(timeout=timeout)
            assert process.returncode == 0, out
            return out

        yield say_it


@pytest.fixture
def project(say, monkeypatch, tmp_path):
    """A project of its own, removed in the end with its bucket; yields its store."""
    from rlzoo_plus.cloud.project import read_project

    name = f"live-{secrets.token_hex(4)}"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("RLZOO_PROJECT", name)
    store = ""
    try:
        say("cloud", "deploy", "--project", name, "--max-vcpus", "4", "--yes")
        store = read_project(name).store
        yield store
    finally:
        try:
            say("cloud", "destroy", name, "--yes")
        finally:
            # Last, when nothing writes any more.
            if store:
                _remove_bucket(store.removeprefix("s3://"))


def _remove_bucket(bucket):
    from rlzoo_plus.cloud import aws

    s3 = aws.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", ()):
            s3.delete_object(Bucket=bucket, Key=found["Key"])
    with contextlib.suppress(s3.exceptions.NoSuchBucket):
        s3.delete_bucket(Bucket=bucket)


def test_two_runs_train_on_spot_machines_and_nothing_is_left(say, project):
    say(*TRAIN, "infra.dry_run=true")
    say(*TRAIN, "infra.max_usd=0.5", timeout=3600)
    status = json.loads(say("sweep", "status", f"{project}/{SWEEP}", "--json"))
    assert [job["state"] for job in status["jobs"]] == ["done", "done"]
    items = json.loads(say("cloud", "status", "--json"))["items"]
    assert "bucket" in {item["kind"] for item in items}
    say("pull", f"{project}/{SWEEP}", "--best", "env=cartpole_bullet", "--episodes", "10")
