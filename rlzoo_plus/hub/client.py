"""Asks the Hugging Face Hub, and turns what it answers into plain data or one line.

Tokens are those of `hf auth login` or of `HF_TOKEN`: they are never taken, kept or shown here.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    RepoFile,
    get_token,
)
from huggingface_hub import errors as hub_errors
from huggingface_hub.file_download import http_get
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils.logging import set_verbosity_error
from huggingface_hub.utils.tqdm import disable_progress_bars

from rlzoo_plus.artifacts.atomic import MOST_FILES, DamagedFolderError
from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError, RunError

SCHEME = "hf://"
_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@(?P<revision>[\w./-]{1,200}))?",
    re.ASCII,
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HOW_TO_LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN"


class HubError(RunError):
    """A request to the Hub that failed; safe to print."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(redact(str(reason))))


class UnreachableError(HubError):
    """The Hub was not asked: there is no network, or it is not to be used."""


@dataclass(frozen=True)
class Repository:
    """A repository at a revision, as a user names it: `org/name` or `org/name@revision`."""

    repo: str
    revision: str | None = None  # A branch, a tag or a commit; None for the newest

    @classmethod
    def parse(cls, name: str) -> Repository:
        """Read a name, with `hf://` or without.

        Raises:
            ConfigError: It is none.
        """
        match = _NAME.fullmatch(name.removeprefix(SCHEME).rstrip("/"))
        if match is None or ".." in name or "--" in match["repo"]:
            raise ConfigError(
                f"{printable(name)} names no repository of the Hub. Write org/name, or "
                "org/name@revision with a branch, a tag or a commit."
            )
        return cls(match["repo"], match["revision"])

    @property
    def commit(self) -> str | None:
        """The commit, if the revision is one; it never changes."""
        return self.revision if _COMMIT.fullmatch(self.revision or "") else None

    def __str__(self) -> str:
        return f"{SCHEME}{self.repo}" + ("" if self.revision is None else f"@{self.revision}")


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository, as the Hub lists it."""

    name: str
    size: int  # [bytes]
    git_hash: str  # Of its content as a blob of Git
    sha256: str | None  # Of a large file; its `git_hash` is that of a pointer


class Client:
    """The Hub at `HF_ENDPOINT`, by default huggingface.co."""

    def __init__(self) -> None:
        # The library reads the variable once, when something first imports it.
        self.endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        self._api = HfApi(endpoint=self.endpoint)
        # What it tells of its retries would stand between our own lines.
        disable_progress_bars()
        set_verbosity_error()  # type: ignore[no-untyped-call]

    def commit_of(self, place: Repository) -> str:
        """Return the commit that a revision is now.

        Raises:
            HubError: There is no such repository or revision, or the Hub cannot be reached.
        """
        with self._asking(place):
            found = self._api.model_info(place.repo, revision=place.revision).sha
        if _COMMIT.fullmatch(found or "") is None:
            raise HubError(f"{place}: the Hub names no commit of it")
        return str(found)

    def files(self, place: Repository) -> dict[str, RemoteFile]:
        """Return the files of a repository by name; names are not checked.

        Raises:
            HubError: They are too many, or a request failed.
        """
        found = {}
        with self._asking(place):
            tree = self._api.list_repo_tree(place.repo, recursive=True, revision=place.revision)
            for entry in islice(tree, MOST_FILES + 1):
                if isinstance(entry, RepoFile) and type(entry.size) is int and entry.size >= 0:
                    sha256 = None if entry.lfs is None else str(entry.lfs.sha256)
                    file = RemoteFile(entry.path, entry.size, str(entry.blob_id), sha256)
                    found[file.name] = file
        if len(found) > MOST_FILES:
            raise HubError(f"{place} has more than {MOST_FILES} files")
        return found

    def download(self, place: Repository, file: RemoteFile, path: Path) -> None:
        """Write a file of a repository to a new file, and check size and hash.

        Raises:
            HubError: A request failed.
            DamagedFolderError: The content is not what the Hub lists.
        """
        url = f"{self.endpoint}/{place.repo}/resolve/{place.revision}/{quote(file.name)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._asking(place), _Bounded(path, file.size) as target:
                http_get(url, target, headers=build_hf_headers(), expected_size=file.size)
            _check_content(place, file, path)
        except BaseException as error:
            path.unlink(missing_ok=True)
            # What the library raises for a download of another size has no number.
            if isinstance(error, OSError) and error.errno is None:
                reason = f"{place}: {file.name} has not the {file.size} bytes it is said to have"
                raise DamagedFolderError(reason) from None
            raise

    def push(
        self, repo: str, files: Mapping[str, Path], obsolete: Sequence[str], message: str
    ) -> str:
        """Send files as one commit, which removes the obsolete ones; return the commit.

        Raises:
            HubError: A request failed; then nothing is changed.
        """
        adds = [CommitOperationAdd(name, path) for name, path in files.items()]
        removes = [CommitOperationDelete(name) for name in obsolete]
        with self._asking(Repository(repo), to_write=True):
            return str(self._api.create_commit(repo, [*adds, *removes], commit_message=message).oid)

    def require_login(self) -> None:
        """Check that there is a token, without asking the Hub whether it is good.

        Raises:
            ConfigError: There is none.
        """
        if get_token() is None:
            raise ConfigError(f"to send something to the Hub you must be known. {_HOW_TO_LOG_IN}.")

    def create(self, repo: str, *, private: bool) -> None:
        """Create a repository unless it exists; what exists stays as public as it is.

        Raises:
            HubError: It is not allowed, or a request failed.
        """
        with self._asking(Repository(repo), to_write=True):
            self._api.create_repo(repo, private=private, exist_ok=True)

    def search(self, tags: Sequence[str], author: str | None, limit: int) -> list[Any]:
        """Return the models that have all of these tags, the most downloaded first.

        Raises:
            HubError: A request failed.
        """
        wanted: Any = ["downloads", "lastModified", "tags", "model-index"]
        with self._asking(None):
            found = self._api.list_models(
                filter=list(tags), author=author, sort="downloads", limit=limit, expand=wanted
            )
            return list(islice(found, limit))

    @contextmanager
    def _asking(self, place: Repository | None, *, to_write: bool = False) -> Iterator[None]:
        """Turn what a request raises into one line.

        Raises:
            HubError: A request inside failed.
        """
        shown = f"{place}: " if place else ""
        try:
            yield
        except hub_errors.OfflineModeIsEnabled:
            why = "HF_HUB_OFFLINE is set, so the Hub is not asked"
            raise UnreachableError(f"{shown}{why}.") from None
        except hub_errors.GatedRepoError:
            terms = "its owner wants its terms accepted, on its page"
            raise HubError(f"{shown}{terms}. {_HOW_TO_LOG_IN} then") from None
        except hub_errors.RevisionNotFoundError:
            raise HubError(f"{shown}it has no such revision") from None
        except hub_errors.RepositoryNotFoundError:
            why = "it does not exist, or you may not read it"
            raise HubError(f"{shown}{why}. {_HOW_TO_LOG_IN} if it is private") from None
        except hub_errors.HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                act = "write" if to_write else "read"
                raise HubError(f"{shown}you may not {act} there. {_HOW_TO_LOG_IN}") from None
            said = printable(error.server_message or "", 200)
            raise HubError(f"{shown}the Hub answered with {status} {said}".rstrip()) from None
        except (httpx2.TransportError, httpx2.InvalidURL, ConnectionError) as error:
            why = f"cannot be reached ({type(error).__name__}). Is this machine online?"
            address = re.sub(r"//[^/@]*@", "//", self.endpoint)  # Without a login
            raise UnreachableError(f"{shown}{address} {why}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise HubError(f"{shown}the answer cannot be read: {one_line(error)}") from None


class _Bounded(io.FileIO):
    """A new file that refuses to become larger than it was said to be."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "x+")
        self._most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._most:
            raise DamagedFolderError(
                f"{Path(str(self.name)).name} has more than the {self._most} bytes listed"
            )
        return super().write(data)


def _check_content(place: Repository, file: RemoteFile, path: Path) -> None:
    """Compare a file with the hash that the Hub lists.

    Raises:
        DamagedFolderError: It is another one.
    """
    with path.open("rb") as content:
        if file.sha256 is not None:
            is_same = hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
            is_same = is_same and _SHA256.fullmatch(file.sha256) is not None
        else:
            blob = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
            while part := content.read(2**20):
                blob.update(part)
            is_same = blob.hexdigest() == file.git_hash
    if not is_same:
        raise DamagedFolderError(f"{place}: {file.name} is not what the Hub lists: hashes differ")
