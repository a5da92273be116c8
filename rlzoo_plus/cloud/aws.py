"""Clients of AWS, and its errors as one line with a mend.

Whatever asks AWS may raise a `CloudError`, which is a `ConfigError`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    import boto3

_CREDENTIALS = (
    "there are no credentials of AWS. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or log in with `aws sso login`"
)
_LOG_IN = "log in again, for instance with `aws sso login`"
_DENIED = (
    "this identity may not do that: an administrator attaches the policy that `rlzoo-plus cloud "
    "deploy` prints, see docs/cloud.md"
)
_MENDS = {
    "AccessDenied": _DENIED,
    "AccessDeniedException": _DENIED,
    "UnauthorizedOperation": _DENIED,
    "AuthFailure": "the credentials are not valid: see AWS_PROFILE",
    "ExpiredToken": _LOG_IN,
    "ExpiredTokenException": _LOG_IN,
    "InvalidClientTokenId": "AWS does not know the key: see AWS_PROFILE",
    "SignatureDoesNotMatch": "the secret does not belong to the key: see AWS_PROFILE",
    "RepositoryNotFoundException": "somebody has removed it: `rlzoo-plus cloud destroy`, then "
    "`rlzoo-plus cloud deploy`, makes the project again and keeps its bucket",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "UnrecognizedClientException": "AWS does not know the key: see AWS_PROFILE",
}


class CloudError(ConfigError):
    """AWS refused a request, or cannot be reached.

    `code` is AWS's own name of the error, empty if it gave none.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


@cache
def session() -> boto3.Session:
    """Return the session of this process; profile, region and credentials are AWS's usual ones."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise ConfigError("AWS needs boto3: pip install 'rlzoo-plus[aws]'.") from None
    try:
        return boto3.Session()
    except BotoCoreError as error:
        raise ConfigError(f"AWS's settings cannot be used: {one_line(error)}") from None


def region() -> str:
    """Return the region that AWS's settings name."""
    # boto3 itself reads AWS_DEFAULT_REGION only.
    found = os.environ.get("AWS_REGION") or session().region_name
    if found is None:
        raise ConfigError(
            "no region of AWS is set. Set AWS_REGION, for instance AWS_REGION=us-east-1, or give "
            "your profile one with `aws configure`."
        )
    return str(found)


@cache
def client(service: str) -> Any:
    """Return a client of a service, such as `batch`; nothing is requested yet."""
    from botocore.config import Config

    settings = Config(
        retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=5, read_timeout=60
    )
    return session().client(service, region_name=region(), config=settings)


@contextlib.contextmanager
def errors(doing: str) -> Iterator[None]:
    """Turn AWS's errors into a `CloudError`: what was tried, why it failed, what helps.

    `doing` is what is tried, as in "cannot {doing}": `start the jobs`.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {})
        code = str(said.get("Code", ""))
        text = printable(f"{code}: {said.get('Message') or ''}".rstrip(": ."))
        mend = f"; {_MENDS[code]}" if code in _MENDS else ""
        raise CloudError(f"cannot {doing}: {text}{mend}.", code) from error
    except NoCredentialsError as error:
        raise CloudError(f"cannot {doing}: {_CREDENTIALS}.") from error
    except (BotoCoreError, OSError) as error:
        raise CloudError(f"cannot {doing}: {one_line(error).rstrip('.')}.") from error
    except ResponseParserError as error:
        # Of a proxy, for instance, that wants a password.
        raise CloudError(
            f"cannot {doing}: the answer is not one of AWS: {one_line(error)}"
        ) from error
    except (LookupError, TypeError) as error:
        raise CloudError(f"cannot {doing}: AWS's answer lacks {error!r}.") from error


def mend_of(said: str, mends: Sequence[tuple[Sequence[str], str]]) -> str:
    """Return the first mend of which one of the words is in what AWS said; empty if none is."""
    text = said.lower()
    return next((mend for words, mend in mends if any(word in text for word in words)), "")


def forget_clients() -> None:
    """Let the next client read AWS's settings again."""
    session.cache_clear()
    client.cache_clear()
