from __future__ import annotations

import hashlib
import json
from dataclasses import fields

import boto3
import pytest
from moto import mock_aws

from rlzoo_plus.cloud import aws, image
from rlzoo_plus.cloud.project import Project
from rlzoo_plus.cloud.wheel import WHEEL, make_wheel

ACCOUNT, REGION = "123456789012", "us-east-1"


@pytest.fixture
def project(monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }.items():
        monkeypatch.setenv(name, value)
    aws.forget_clients()
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="lab")
        uri = boto3.client("ecr").create_repository(repositoryName="rlzoo")["repository"]
        values = {"store": "s3://lab", "repository": uri["repositoryUri"]}
        yield Project(**{f.name: values.get(f.name, "") for f in fields(Project)})
    aws.forget_clients()


def _push(tag: str, content: str) -> str:
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"digest": f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"},
            "layers": [],
        }
    )
    pushed = boto3.client("ecr").put_image(
        repositoryName="rlzoo", imageManifest=manifest, imageTag=tag
    )
    return pushed["image"]["imageId"]["imageDigest"]


def test_jobs_use_the_image_of_this_very_package_by_its_digest(project):
    _push("cpu-0123456789abcdef-00000000", "another version")
    _push(f"{image.tag_prefix(gpu=True)}00000000", "for CUDA")
    digest = _push(f"{image.tag_prefix(gpu=False)}00000000", "ours")

    found = image.worker_image(project)

    assert found == image.WorkerImage(f"{project.repository}@{digest}", (), "")
    assert not boto3.client("s3").list_objects_v2(Bucket="lab")["KeyCount"]


def test_without_an_image_machines_install_the_package_that_was_sent(project):
    found = image.worker_image(project)
    again = image.worker_image(project)

    assert found == again
    assert found.uri.startswith("public.ecr.aws/")
    assert "cloud build" in found.note
    how = json.loads(found.entry[-1])
    stored = boto3.client("s3").list_objects_v2(Bucket="lab")["Contents"]
    assert [entry["Key"] for entry in stored] == [how["object"]]
    data = boto3.client("s3").get_object(Bucket=how["bucket"], Key=how["object"])["Body"].read()
    assert hashlib.sha256(data).hexdigest() == how["sha256"]
    assert data == make_wheel()
    assert how["object"].endswith(WHEEL)


def test_the_command_of_a_machine_has_nothing_that_batch_would_replace(project):
    command = " ".join(image.worker_image(project).entry)
    assert "$" not in command
    assert "Ref::" not in command
    # ECS takes 8,192 bytes of overrides, the arguments of the worker and its variables included.
    assert len(command) < 4096
