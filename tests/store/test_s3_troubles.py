"""What S3 refuses is one line with its mend; a server that hangs holds no beat for long."""

import socket
import time

import pytest

from rlzoo_plus.store import s3
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.lease import EXPIRES_S, RunLease, list_leases
from rlzoo_plus.store.sync import BEAT_S

_ERROR = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>Said by the server.</Message></Error>"""


@pytest.fixture
def refusing(liar):
    """Return a function: status and code of an error to a store whose server gives no other."""

    def refuse(status, code):
        # As AWS tells where a bucket is; here the same server answers for all regions.
        region = {"x-amz-bucket-region": "eu-central-1"}
        liar.answer = (status, region, _ERROR.format(code=code).encode())
        return open_store("s3://bucket/lab")

    return refuse


@pytest.mark.parametrize(
    ("status", "code", "mend"),
    [
        (403, "AccessDenied", "s3:ListBucket"),
        (400, "ExpiredToken", "aws sso login"),
        (403, "InvalidAccessKeyId", "AWS_PROFILE"),
        (403, "SignatureDoesNotMatch", "AWS_PROFILE"),
        (404, "NoSuchBucket", "create the bucket"),
        (301, "PermanentRedirect", "AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "AWS_REGION"),
        (403, "RequestTimeTooSkewed", "clock"),
    ],
)
def test_a_refusal_is_one_line_with_its_mend(refusing, tmp_path, status, code, mend):
    store = refusing(status, code)
    calls = [
        lambda: store.get("live/a.json", 99),
        lambda: store.get_file("runs/a", tmp_path / "a", 99),
        lambda: store.put("runs/a", b""),
        lambda: store.put_if_absent("live/a.json", b""),
        lambda: list(store.list("runs/")),
    ]
    for call in calls:
        with pytest.raises(StoreError) as raised:
            call()
        said = str(raised.value)
        assert code in said
        assert mend in said
        assert "\n" not in said
    assert not (tmp_path / "a").exists()


def test_without_credentials_the_mend_is_to_log_in(refusing, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="log in") as raised:
        refusing(403, "AccessDenied").put("runs/a", b"")
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_server_that_hangs_lets_a_beat_fail_before_the_lease_expires(s3, monkeypatch):
    lease = RunLease(s3, "sweep/a", "worker")
    assert lease.claim(list_leases(s3, "sweep"))
    # It accepts connections, and never answers.
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hung:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{hung.getsockname()[1]}")
        lease._store = open_store(s3.url)
        began = time.monotonic()
        with pytest.raises(StoreError, match="timeout"):
            lease.beat(step=1)
        # Two such beats, and a third that succeeds, fit into the life of a lease.
        assert 2 * (time.monotonic() - began) + BEAT_S < EXPIRES_S


def test_the_attempts_of_a_beat_fit_into_the_life_of_a_lease(liar):
    config = open_store("s3://bucket/lab")._quick.meta.config
    attempt_s = config.connect_timeout + config.read_timeout
    # botocore waits 1, 2 and 4 s at most between four attempts.
    assert 2 * (config.retries["total_max_attempts"] * attempt_s + 7) < EXPIRES_S - BEAT_S / 3
    assert config.max_pool_connections <= s3.CONNECTIONS
