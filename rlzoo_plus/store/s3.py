"""A store in S3, or on a server that speaks it; the only module that imports boto3."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import re
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import (
    CONNECTIONS,
    Check,
    Entry,
    StoreError,
    check_name,
    is_name,
    open_source,
)

# In one listing; each takes memory here.
MOST_OBJECTS = 2_000_000
MULTIPART_BYTES = 64 * 2**20
# Files up to this size are sent from memory, several at once.
_SMALL_BYTES = 2**23
_CHUNK_BYTES = 2**20
_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")
_MISSING, _CONFLICT, _CHANGED, _NO_SUCH_RANGE = 404, 409, 412, 416
_LARGEST_COMPARED = 2**28
# Of a conditional write that another one was in the way of.
_ATTEMPTS = 5
# Of a body that broke off: what comes before it, botocore asks for again.
_BODY_ATTEMPTS = 3
# A server that hangs must not hold a beat until its lease expires: four attempts of these.
_QUICK = Config(connect_timeout=5, read_timeout=10)
# Of an object's content; the checksums of servers differ from one to the next.
_SHA256 = "sha256"
_CHECK, _CHECKED = "rlzoo_plus_check", ("PutObject", "UploadPart", "CompleteMultipartUpload")
_LOG_IN = "log in again, for instance by `aws sso login`"
_REGION = "the bucket is in another region: set AWS_REGION to that"
_MENDS = {
    "AccessDenied": "it takes s3:GetObject, s3:PutObject and s3:ListBucket; see AWS_PROFILE",
    "AuthorizationHeaderMalformed": _REGION,
    "ExpiredToken": _LOG_IN,
    "ExpiredTokenException": _LOG_IN,
    "IllegalLocationConstraintException": _REGION,
    "InvalidAccessKeyId": "this server does not know the key: see AWS_PROFILE, AWS_ENDPOINT_URL",
    "InvalidToken": _LOG_IN,
    "NoSuchBucket": "create the bucket, or correct its name",
    "PermanentRedirect": _REGION,
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "SignatureDoesNotMatch": "the secret does not belong to the key: see AWS_PROFILE",
}


class _WrongBytesError(StoreError):
    """What came is not what was sent."""


class _Start:
    """The first bytes of an open file, which may grow meanwhile."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def read(self, amount: int | None = None) -> bytes:
        left = max(self._size - self._file.tell(), 0)
        return self._file.read(left if amount is None or amount < 0 else min(amount, left))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            return self._file.seek(self._size + offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        """Leave it to whoever opened the file."""

    def sha256(self) -> str:
        self.seek(0)
        digest = hashlib.sha256()
        while part := self.read(_CHUNK_BYTES):
            digest.update(part)
        self.seek(0)
        return digest.hexdigest()


class S3Store:
    """Objects below a prefix of a bucket.

    Region, profile, credentials and endpoint come from the environment variables and files that
    all of AWS's tools read.
    """

    def __init__(self, url: str) -> None:
        """Make a client for `s3://bucket/prefix`; nothing is requested yet.

        Raises:
            ConfigError: It is no such URL, or AWS's settings are wrong.
        """
        found = _URL.fullmatch(url)
        prefix = "" if found is None else (found["prefix"] or "").strip("/")
        if found is None or (prefix and not is_name(prefix)):
            raise ConfigError(
                f"store {printable(url)!r} is no URL of S3. Write s3://bucket or s3://bucket/prefix."
            )
        self.url = url.rstrip("/")
        self._bucket = found["bucket"]
        self._prefix = f"{prefix}/" if prefix else ""
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 4},
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=CONNECTIONS,
            # Older servers take no checksum at a body's end; what we read has hashes of our own.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            # Its own: two threads may not make clients of boto3's at once.
            session = _session()
            self._client = session.client("s3", config=config)
            if "amazonaws.com" not in self._client.meta.endpoint_url:
                # Other servers have no name in DNS for each bucket.
                config = config.merge(Config(s3={"addressing_style": "path"}))
                self._client = session.client("s3", config=config)
            self._quick = session.client("s3", config=config.merge(_QUICK))
        except (BotoCoreError, Boto3Error, ValueError) as error:
            raise ConfigError(
                f"{printable(url)} cannot be used with AWS's settings here: {printable(error)} "
                "See AWS_PROFILE, AWS_REGION and AWS_ENDPOINT_URL."
            ) from None
        # Of what is being sent, by key.
        self._checks: dict[str, Check] = {}
        events = self._client.meta.events
        for operation in _CHECKED:
            events.register(f"provide-client-params.s3.{operation}", self._add_check)
            events.register(f"request-created.s3.{operation}", _check_attempt)

    def get(self, name: str, largest: int) -> tuple[bytes, str] | None:
        """Return content and tag of an object; see `ArtifactStore`."""
        with self._errors(name):
            answer = self._open(self._quick, name, largest)
            if answer is None:
                return None
            into = io.BytesIO()
            answer = self._receive(self._quick, name, answer, into, largest)
            return into.getvalue(), _tag(answer)
        raise AssertionError

    def get_tail(self, name: str, most: int) -> bytes | None:
        """Return the last bytes of an object; see `ArtifactStore`."""
        with self._errors(name):
            try:
                answer = self._open(self._client, name, most, Range=f"bytes=-{most}")
            except ClientError as error:
                if _status(error) != _NO_SUCH_RANGE:
                    raise
                # It is empty.
                return b""
            if answer is None:
                return None
            into = io.BytesIO()
            self._receive_once(name, answer, into, most)
            return into.getvalue()
        raise AssertionError

    def get_file(self, name: str, path: Path, largest: int) -> bool:
        """Write an object to a new file; see `ArtifactStore`."""
        with self._errors(name):
            answer = self._open(self._client, name, largest)
            if answer is None:
                return False
            with path.open("xb") as file:
                try:
                    self._receive(self._client, name, answer, file, largest)
                except BaseException:
                    path.unlink(missing_ok=True)
                    raise
        return True

    def put(self, name: str, data: bytes | Path, check: Check | None = None) -> None:
        """Write an object, or replace it; see `ArtifactStore`."""
        with self._errors(name), self._checked(self._key(name), check):
            if isinstance(data, bytes):
                self._put(self._client, name, data)
                return
            with open_source(data) as file:
                size = os.fstat(file.fileno()).st_size
                if size <= _SMALL_BYTES:
                    self._put(self._client, name, file.read(size))
                    return
                start = _Start(file, size)
                sha256 = start.sha256()
                self._upload(name, start, {_SHA256: sha256})
                if start.sha256() != sha256:
                    # It was rewritten meanwhile: a wrong hash would make the object useless.
                    self._upload(name, start, {})

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """Write an object that does not exist; see `ArtifactStore`."""
        return self._put_if(name, data, {"IfNoneMatch": "*"})

    def put_if_unchanged(self, name: str, data: bytes, tag: str) -> str | None:
        """Replace the content that has this tag; see `ArtifactStore`."""
        return self._put_if(name, data, {"IfMatch": tag})

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield the objects below a prefix, by name; see `ArtifactStore`."""
        wanted, n_found = f"{self._key(prefix.removesuffix('/'))}/", 0
        with self._errors(prefix.removesuffix("/")):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=wanted):
                contents = page.get("Contents", ())
                # A page that is empty counts, too: a hostile server has more and more of them.
                n_found += max(len(contents), 1)
                if n_found > MOST_OBJECTS:
                    raise StoreError(f"{self.url}/{prefix} has more than {MOST_OBJECTS:,} objects")
                now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
                for found in contents:
                    name = found["Key"][len(self._prefix) :]
                    if found["Key"].startswith(wanted) and is_name(name):
                        age = (now - found["LastModified"]).total_seconds()
                        size, tag = max(found["Size"], 0), found["ETag"].strip('"')
                        yield Entry(name, size, tag, max(age, 0.0))

    def check_settings(self) -> None:
        """Get credentials, as the first request would; see `ArtifactStore`."""
        try:
            credentials = _session().get_credentials()
            if credentials is not None:
                credentials.get_frozen_credentials()
                return
            problem = "there are no credentials"
        except (EndpointConnectionError, HTTPClientError):
            # Single sign-on cannot be asked now; the requests to come try again.
            return
        except (BotoCoreError, Boto3Error, ClientError, ValueError) as error:
            problem = one_line(error).rstrip(".")
        raise ConfigError(
            f"store={printable(self.url)} cannot be used: {problem}. Set AWS_PROFILE, or "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with `aws sso login`."
        )

    def _put_if(self, name: str, data: bytes, condition: dict[str, str]) -> str | None:
        with self._errors(name):
            for attempt in range(_ATTEMPTS):
                try:
                    return self._put(self._quick, name, data, **condition)
                except ClientError as error:
                    status = _status(error)
                    if status not in (_CHANGED, _MISSING, _CONFLICT):
                        raise
                # Ours, if the answer to this very write was lost and it was sent again.
                found = self.get(name, _LARGEST_COMPARED)
                if found is not None and found[0] == data:
                    return found[1]
                if status != _CONFLICT:
                    return None
                time.sleep(0.1 * 2**attempt)
            raise StoreError(f"{self.url}/{name}: other writers were in the way each time")
        raise AssertionError

    def _put(self, client: Any, name: str, data: bytes, **condition: str) -> str:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        answer = client.put_object(
            Bucket=self._bucket,
            Key=self._key(name),
            Body=data,
            # Buckets with Object Lock demand it; all servers know it.
            ContentMD5=base64.b64encode(md5).decode(),
            Metadata={_SHA256: hashlib.sha256(data).hexdigest()},
            **condition,
        )
        return _tag(answer)

    def _upload(self, name: str, file: _Start, metadata: dict[str, str]) -> None:
        self._client.upload_fileobj(
            file,
            self._bucket,
            self._key(name),
            ExtraArgs={"Metadata": metadata},
            Config=TransferConfig(multipart_threshold=MULTIPART_BYTES, max_concurrency=8),
        )

    def _open(self, client: Any, name: str, largest: int, **part: str) -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = client.get_object(
                Bucket=self._bucket, Key=self._key(name), **part
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        # A server need not tell the size before the end.
        size = answer.get("ContentLength", 0)
        if size > largest:
            answer["Body"].close()
            self._refuse_size(name, size, largest)
        return answer

    def _receive(
        self, client: Any, name: str, answer: dict[str, Any], file: BinaryIO, largest: int
    ) -> dict[str, Any]:
        """Write a body to an empty file; return the answer that it came with.

        One that breaks off, or is not what was sent, is asked for again.
        """
        for attempt in range(_BODY_ATTEMPTS):
            try:
                self._receive_once(name, answer, file, largest)
                return answer
            except (HTTPClientError, IncompleteReadError, _WrongBytesError):
                if attempt == _BODY_ATTEMPTS - 1:
                    raise
            file.seek(0)
            file.truncate()
            again = self._open(client, name, largest)
            if again is None:
                break
            answer = again
        raise StoreError(f"{self.url}/{name}: it was removed while it was read")

    def _receive_once(
        self, name: str, answer: dict[str, Any], file: BinaryIO, largest: int
    ) -> None:
        size, digest = 0, hashlib.sha256()
        with contextlib.closing(answer["Body"]) as body:
            for part in body.iter_chunks(_CHUNK_BYTES):
                size += len(part)
                if size > largest:
                    self._refuse_size(name, size, largest)
                digest.update(part)
                file.write(part)
        # Objects that other tools wrote have none.
        sent = answer.get("Metadata", {}).get(_SHA256)
        if "ContentRange" not in answer and sent not in (None, digest.hexdigest()):
            raise _WrongBytesError(f"{self.url}/{name}: its bytes are not those that were sent")

    def _refuse_size(self, name: str, size: int, largest: int) -> NoReturn:
        raise StoreError(f"{self.url}/{name} has {size} bytes, more than the {largest} allowed")

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    @contextlib.contextmanager
    def _checked(self, key: str, check: Check | None) -> Iterator[None]:
        if check is not None:
            self._checks[key] = check
        try:
            yield
        finally:
            self._checks.pop(key, None)

    def _add_check(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context[_CHECK] = self._checks.get(params["Key"])

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        where = f"{self.url}/{name}"
        check_name(name)
        try:
            yield
        except ClientError as error:
            said = error.response.get("Error", {})
            code = str(said.get("Code", _status(error)))
            text = f"{code}: {said.get('Message') or ''}".rstrip(": .")
            mend = f"; {_MENDS[code]}" if code in _MENDS else ""
            raise StoreError(f"{where}: {text}{mend}") from error
        except (
            NoCredentialsError,
            CredentialRetrievalError,
            SSOError,
            TokenRetrievalError,
        ) as error:
            raise StoreError(f"{where}: {one_line(error)}; {_LOG_IN}") from error
        except RecursionError:
            # botocore follows a redirection that names no region for ever.
            raise StoreError(f"{where}: PermanentRedirect: {_REGION}") from None
        # OSError: a local file, or a socket below botocore.
        except (BotoCoreError, Boto3Error, HTTPClientError, OSError) as error:
            raise StoreError(f"{where}: {error}") from error
        # Something that answers, and is no S3: a proxy's page, or an answer without its fields.
        except (LookupError, TypeError, ValueError, OverflowError, ResponseParserError) as error:
            raise StoreError(f"{where}: no answer as S3 gives it ({error!r})") from error


def _session() -> boto3.Session:
    # boto3 itself reads AWS_DEFAULT_REGION only.
    return boto3.Session(region_name=os.environ.get("AWS_REGION") or None)


def _tag(answer: dict[str, Any]) -> str:
    # Ceph compares a tag without the quotes only.
    return str(answer["ETag"]).strip('"')


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _check_attempt(request: Any, **_: Any) -> None:
    """Call the check of what is sent; botocore makes a request for each attempt."""
    check = request.context.get(_CHECK)
    if check is not None:
        check()
