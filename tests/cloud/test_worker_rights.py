"""What the role of workers may do, with IAM enforced by moto.

moto ignores the conditions of policies (`Condition`): test_stack_text.py reads those in the text.
"""

import contextlib
import json
import math
import os
import secrets
import sys
from subprocess import PIPE, STDOUT, run

import pytest
from support.aws import ask_moto, deployed_project
from support.processes import environ_of_tests
from support.training import tiny_config
from support.workers import SWEEP, run_record, state_of, submit

from rlzoo_plus.cloud import aws
from rlzoo_plus.store.contract import StoreError, open_store

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@pytest.fixture
def project(monkeypatch):
    """A project on a server, with what a worker would find in its bucket."""
    with deployed_project(monkeypatch, server=True) as deployed:
        store = open_store(deployed.store)
        for name in ("submissions/a", "code/a", "runs/a", "state/a", "live/a.json", "elsewhere/a"):
            store.put(name, b"first")
        yield deployed


@contextlib.contextmanager
def enforced(monkeypatch, role):
    """Enforce IAM, and be a role."""
    answer = aws.client("sts").assume_role(RoleArn=role, RoleSessionName="worker")
    found = answer["Credentials"]
    values = (found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    with monkeypatch.context() as patch:
        for name, value in zip(KEYS, values, strict=True):
            patch.setenv(name, value)
        aws.forget_clients()
        ask_moto(endpoint, "reset-auth", 0)
        try:
            yield
        finally:
            ask_moto(endpoint, "reset-auth", math.inf)
    aws.forget_clients()


def _refused(act):
    with pytest.raises(StoreError, match=r"AccessDenied|Forbidden|403"):
        act()


@pytest.mark.parametrize("role", ["worker", "machine"])
def test_worker_reads_and_writes_what_it_needs_and_nothing_else(project, monkeypatch, role):
    other = f"s3://other-{secrets.token_hex(4)}"
    aws.client("s3").create_bucket(Bucket=other[5:])
    open_store(other).put("runs/a", b"secret")
    arn = project.worker_role if role == "worker" else _role_of(project.instance_profile)
    with enforced(monkeypatch, arn):
        store = open_store(project.store)
        assert [entry.name for entry in store.list("runs/")] == ["runs/a"]
        for name in ("submissions/a", "code/a", "runs/a", "state/a", "live/a.json"):
            assert store.get(name, 100)[0] == b"first"
        for name in ("runs/a", "state/a", "live/a.json"):
            store.put(name, b"second")
        # A lease: only one of two writers makes it.
        assert store.put_if_absent("live/b.json", b"1") is not None
        assert store.put_if_absent("live/b.json", b"2") is None
        for name in ("submissions/a", "submissions/b", "code/a", "code/b", "elsewhere/b"):
            _refused(lambda name=name: store.put(name, b"second"))
        _refused(lambda: store.get("elsewhere/a", 100))
        _refused(lambda: open_store(other).get("runs/a", 100))
        _refused(lambda: list(open_store(other).list("runs/")))
        _refused(lambda: open_store(other).put("runs/b", b"second"))
        for name in ("runs/a", "state/a", "live/a.json", "code/a"):
            with pytest.raises(aws.CloudError, match="AccessDenied"), aws.errors("delete"):
                aws.client("s3").delete_object(Bucket=project.store[5:], Key=name)
    store = open_store(project.store)
    assert store.get("code/a", 100)[0] == store.get("submissions/a", 100)[0] == b"first"
    assert store.get("runs/a", 100)[0] == b"second"


def _role_of(profile):
    """Return the ARN of the role in an instance profile."""
    found = aws.client("iam").get_instance_profile(InstanceProfileName=profile.rpartition("/")[2])
    return found["InstanceProfile"]["Roles"][0]["Arn"]


def test_worker_may_ask_no_other_service(project, monkeypatch):
    with enforced(monkeypatch, project.worker_role):
        for service, call, words in (
            ("batch", "describe_job_queues", {}),
            ("ec2", "describe_instances", {}),
            ("iam", "list_roles", {}),
            ("ssm", "get_parameters", {"Names": ["/rlzoo/lab/KEY"]}),
        ):
            with pytest.raises(aws.CloudError) as error, aws.errors(call):
                getattr(aws.client(service), call)(**words)
            assert "not authorized" in str(error.value), service


@pytest.mark.slow
@pytest.mark.training
def test_worker_trains_a_run_with_the_rights_of_its_role(project, monkeypatch, tmp_path):
    store = open_store(project.store)
    (key,) = submit(store, run_record(tiny_config()))
    words = [sys.executable, "-m", "rlzoo_plus", "worker", f"{project.store}/{SWEEP}", "--trust"]
    with enforced(monkeypatch, project.worker_role):
        done = run(
            [*words, "--slots", "1"],
            cwd=tmp_path,
            env=environ_of_tests(),
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert "AccessDenied" not in done.stdout
    assert state_of(store, key)["state"] == "finished"
    result = json.loads(store.get(f"runs/{SWEEP}/{key}/result.json", 2**20)[0])
    assert result["state"] == "finished"
    names = [entry.name for entry in store.list(f"runs/{SWEEP}/{key}/")]
    assert any(name.endswith("final.zip") for name in names)
    assert list(store.list(f"state/{SWEEP}/{key}/"))
