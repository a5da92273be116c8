"""The notice of a Spot instance, from a server that answers as the instance metadata do."""

import json
import logging
import math
import socket
from datetime import UTC, datetime

import pytest
from support.imds import instance_metadata
from support.processes import wait_for

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.workers.host import BatchJob, this_batch_job, worker_name
from rlzoo_plus.workers.spot_notice import (
    VARIABLE,
    Metadata,
    MetadataError,
    SpotWatch,
    instance_type,
    notice_s,
)

NOW = datetime(2026, 1, 31, 8, 20, tzinfo=UTC)


@pytest.fixture
def instance():
    with instance_metadata() as made:
        yield made


def _notice(**more):
    return json.dumps({"action": "terminate", "time": "2026-01-31T08:21:30Z"} | more)


def test_entries_are_read_with_one_token(instance):
    metadata = Metadata(instance.environ)
    assert instance_type(metadata) == "c7a.large"
    assert metadata.get("spot/instance-action") is None
    assert [method for method, _ in instance.requests] == ["PUT", "GET", "GET"]


def test_a_token_that_is_no_longer_valid_is_replaced(instance):
    metadata = Metadata(instance.environ)
    metadata.get("instance-type")
    instance.tokens.clear()
    with pytest.raises(MetadataError, match="401"):
        metadata.get("instance-type")
    assert metadata.get("instance-type") == "c7a.large"


def test_a_notice_is_seen_by_the_next_look(instance, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.workers.spot_notice.LOOK_S", 0.01)
    watch = SpotWatch(Metadata(instance.environ))
    assert (watch.is_noticed, watch.left_s) == (False, math.inf)
    instance.interrupt(in_s=60.0)
    wait_for(lambda: watch.is_noticed)
    assert 10.0 < watch.left_s <= 60.0


def test_a_machine_without_metadata_is_told_once(caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metadata = Metadata({VARIABLE: f"http://127.0.0.1:{free.getsockname()[1]}"})
        watch = SpotWatch.__new__(SpotWatch)
        watch._metadata, watch._is_told = metadata, False
        with caplog.at_level(logging.WARNING):
            assert [watch.look(), watch.look()] == [None, None]
        assert instance_type(metadata) is None
    assert caplog.text.count("no notice of a Spot instance can be seen, but SIGTERM is") == 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "169.254.169.254", "ftp://a"])
def test_an_endpoint_that_is_no_url_is_a_mistake(url):
    with pytest.raises(ConfigError, match=VARIABLE):
        Metadata({VARIABLE: url})


@pytest.mark.parametrize(
    ("text", "left_s"),
    [
        (_notice(), 90.0),
        (_notice(action="hibernate"), 90.0),
        (_notice(time="2026-01-31T08:19:00Z"), 0.0),
        (_notice(time="2027-01-31T08:19:00Z"), 120.0),
        ("\x1b[2J", 120.0),
        (_notice(time=7), 120.0),
        (_notice(time="2026-01-31T08:21:30"), 120.0),
        ("[]", 120.0),
        ("[" * 4000, 120.0),
    ],
)
def test_a_notice_gives_at_most_two_minutes(text, left_s, caplog):
    assert notice_s(text, lambda: NOW) == left_s
    assert "\x1b" not in caplog.text


# The job of Batch.

_UUID = "0d9d7a5e-6bd2-4a61-9cbb-6e5fc6e2a7d1"


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"AWS_BATCH_JOB_ID": _UUID}, BatchJob(_UUID)),
        ({"AWS_BATCH_JOB_ID": f"{_UUID}:7"}, BatchJob(_UUID, 7)),
        ({"AWS_BATCH_JOB_ID": f"{_UUID}:7", "AWS_BATCH_JOB_ARRAY_INDEX": "7"}, BatchJob(_UUID, 7)),
        ({"AWS_BATCH_JOB_ID": _UUID, "AWS_BATCH_JOB_ARRAY_INDEX": "0"}, BatchJob(_UUID, 0)),
    ],
)
def test_a_job_is_known_by_its_variables_and_by_its_worker(environ, job):
    assert this_batch_job(environ) == job
    assert job is None or worker_name(job).startswith(f"batch-{job.name.replace(':', '_')}_")
    assert worker_name(job) != worker_name(job)


@pytest.mark.parametrize(
    "environ",
    [
        {"AWS_BATCH_JOB_ID": "../x"},
        {"AWS_BATCH_JOB_ID": ""},
        {"AWS_BATCH_JOB_ID": _UUID, "AWS_BATCH_JOB_ARRAY_INDEX": "-1"},
    ],
)
def test_variables_that_are_none_of_batch_are_a_mistake(environ):
    with pytest.raises(ConfigError, match="no job of AWS Batch"):
        this_batch_job(environ)
