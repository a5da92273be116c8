"""Reads and writes a registry of models: objects that are created once, in a folder or in S3."""

from __future__ import annotations

import getpass
import hashlib
import os
import random
import secrets
import socket
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from rlzoo_plus.artifacts.untrusted import one_line, parse_json, printable, read_plain_file
from rlzoo_plus.errors import ConfigError, RunError, unknown_name
from rlzoo_plus.models.alias_marks import AliasMark
from rlzoo_plus.models.model_records import (
    FOLDER,
    LARGEST_RECORD_BYTES,
    MOST_NUMBER,
    AliasRecord,
    FileEntry,
    RetiredRecord,
    VersionRecord,
    as_bytes,
    check_alias,
    check_model_name,
    content_of,
    file_of,
    now,
    number_in,
    problem_with_files,
)
from rlzoo_plus.store.contract import ArtifactStore, StoreError, honours_conditions, open_store

# The registry where none is named: a store's URL.
VARIABLE, DEFAULT = "RLZOO_MODELS", "registry"
_WAIT_S = 0.05
R = TypeVar("R", VersionRecord, AliasRecord, RetiredRecord)


class DamagedModelError(RunError):
    """A record or a file of a registry that is not what was written; safe to print."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


class MovedError(RunError):
    """Another one moved the alias meanwhile; nothing was written."""


def default_url() -> str:
    """Return the URL of the store that has the registry."""
    return os.environ.get(VARIABLE) or DEFAULT


def who_am_i() -> str:
    """Return the user and the machine, for records."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return printable(f"{user}@{socket.gethostname()}", 200)


class ModelStore:
    """The registry in one store."""

    def __init__(self, url: str | None = None, store: ArtifactStore | None = None) -> None:
        """Name the store; nothing is requested yet.

        Raises:
            ConfigError: It is no store.
        """
        self.store = open_store(url or default_url()) if store is None else store
        self.url = self.store.url
        self._is_checked = False

    # Reading

    def names(self) -> list[str]:
        """Return the models that have a version."""
        found = set()
        for entry in self.store.list(f"{FOLDER}/"):
            parts = entry.name.split("/")
            if len(parts) == 4 and parts[2] == "versions" and number_in(parts[3]):
                found.add(parts[1])
        return sorted(found)

    def versions(self, name: str) -> list[int]:
        """Return the numbers of a model's versions, in order."""
        return self._numbers(f"{_of(name)}/versions/")

    def require(self, name: str) -> None:
        """Raise a ConfigError if there is no such model."""
        if not self.versions(name):
            raise self._missing(name, "no version")

    def version(self, name: str, number: int) -> VersionRecord:
        """Read the record of a version.

        Raises:
            ConfigError: There is none.
            DamagedModelError: It was changed.
        """
        path = f"{_of(name)}/versions/{file_of(number)}"
        found = self._read(path, VersionRecord, number)
        if found is None:
            raise self._missing(name, f"no version {number}")
        record = found[0]
        if problem := problem_with_files(record):
            raise DamagedModelError(f"{self.url}/{path}: {problem}")
        return record

    def aliases(self, name: str) -> list[str]:
        """Return the aliases of a model."""
        start = f"{_of(name)}/aliases/"
        found = (entry.name.removeprefix(start).split("/") for entry in self.store.list(start))
        return sorted({parts[0] for parts in found if len(parts) == 2 and number_in(parts[1])})

    def newest(self, name: str, alias: str) -> AliasRecord:
        """Read what an alias names now.

        Raises:
            ConfigError: There is no such alias.
            DamagedModelError: Its newest record was changed.
        """
        record = self._newest(name, alias)[0]
        if record is None:
            known = self.aliases(name)
            if known:
                listed_by = f"rlzoo-plus model show {name}"
                raise ConfigError(unknown_name(f"alias of {name}", alias, known, listed_by))
            raise self._missing(name, f"no alias {alias}; `rlzoo-plus model promote {name} VERSION "
                                      f"--to {alias}` makes it")  # fmt: skip
        return record

    def has_moved(self, record: AliasRecord, name: str) -> bool:
        """Return whether an alias was moved since a record of it: two small requests.

        Raises:
            DamagedModelError: The record is gone, or another one.
            StoreError: A request failed.
        """
        start = f"{_of(name)}/aliases/{record.alias}/"
        path = start + file_of(record.number + 1)
        if self.store.get(path, LARGEST_RECORD_BYTES) is not None:
            return True
        found = self._move(start, record.alias, record.number)
        if found is None or found[0] != record:
            where = f"{self.url}/{start}{file_of(record.number)}"
            raise DamagedModelError(f"{where} is gone or changed, and was read before")
        return False

    def history(self, name: str, alias: str) -> list[AliasRecord]:
        """Return all records of an alias, in order, after checking that none was changed.

        Raises:
            DamagedModelError: One was changed, or is missing.
        """
        start = f"{_of(name)}/aliases/{check_alias(alias)}/"
        mark, numbers = AliasMark(self.store, name, alias), self._numbers(start)
        records, before = [], ""
        for expected, number in enumerate(numbers, start=1):
            found = self._move(start, alias, number)
            if number != expected or found is None:
                where = f"{self.url}/{start}{file_of(expected)}"
                raise DamagedModelError(f"{where} is missing, and one with a higher number exists")
            record, sha256 = found
            if record.previous != before:
                where = f"{self.url}/{start}{file_of(number)}"
                raise DamagedModelError(
                    f"{where}: the record before it is not the one that it was written after"
                )
            records.append(record)
            before = sha256
        self._check_end(mark, len(records), before)
        return records

    def end_of(self, name: str, alias: str) -> tuple[int, str]:
        """Return number and hash of the newest record of an alias: to be noted elsewhere."""
        record, sha256 = self._newest(name, alias)
        return 0 if record is None else record.number, sha256

    def named(self, name: str) -> dict[str, AliasRecord]:
        """Return what each alias of a model names now."""
        return {alias: self.newest(name, alias) for alias in self.aliases(name)}

    def is_retired(self, name: str, number: int) -> bool:
        """Return whether a version was retired."""
        path = f"{_of(name)}/retired/{file_of(number)}"
        return self.store.get(path, LARGEST_RECORD_BYTES) is not None

    def retired(self, name: str) -> set[int]:
        """Return the numbers of all versions that were retired."""
        return set(self._numbers(f"{_of(name)}/retired/"))

    # Writing

    def put_version(
        self, name: str, folder: Path, files: list[str], about: Mapping[str, Any]
    ) -> tuple[VersionRecord, bool]:
        """Send the files of a version, and then take its number.

        Args:
            name: The model.
            folder: What has the files.
            files: Their names below it.
            about: The entries of `VersionRecord` besides number, files, time and who.

        Returns:
            The record, and whether it is new: the same files are not registered twice.

        Raises:
            ConfigError: A file is none of a version, or too large.
            StoreError: A request failed, or the store has no create-only writes.
            DamagedModelError: The store has other bytes in the place of a file.
        """
        self.require_writable()
        read = {file: read_plain_file(folder / file, 2**33) for file in files}
        entries = {file: FileEntry(size=len(data), sha256=_sha256(data))
                   for file, data in sorted(read.items())}  # fmt: skip
        content = content_of(entries)
        numbers = self.versions(name)
        for number in reversed(numbers):
            if (known := self.version(name, number)).content == content:
                return known, False
        facts = {**about, "files": entries, "content": content, "who": who_am_i()}
        record = VersionRecord(number=1, time=now(), nonce=_nonce(), **facts)
        if problem := problem_with_files(record):
            raise ConfigError(f"{folder} cannot be registered: {problem}.")
        if len(as_bytes(record)) > LARGEST_RECORD_BYTES:
            raise ConfigError(f"{folder} cannot be registered: its record would be too large.")
        for file, data in read.items():
            self._create_file(f"{_of(name)}/content/{content}/{file}", data)
        number = max(numbers, default=0) + 1
        while True:
            record = record.model_copy(update={"number": _checked(number)})
            path = f"{_of(name)}/versions/{file_of(number)}"
            if self.store.put_if_absent(path, as_bytes(record)) is not None:
                return record, True
            number = max(number, *self.versions(name)) + 1

    def move(
        self,
        name: str,
        alias: str,
        version: int,
        *,
        why: str,
        expected: int | None = None,
        **about: Any,
    ) -> AliasRecord:
        """Let an alias name another version: one more record.

        Args:
            name: The model.
            alias: The alias.
            version: What it is to name.
            why: The reason.
            expected: The number of its newest record, 0 for none, if another one must not move it
                meanwhile; None to move it whatever others do.
            about: Further entries of `AliasRecord`.

        Raises:
            ConfigError: There is no such version, or it is retired.
            MovedError: It was moved meanwhile; nothing was written.
        """
        self.require_writable()
        self.version(name, version)
        if self.is_retired(name, version):
            raise ConfigError(f"{name}@{version} is retired. Name another version.")
        for attempt in count():
            # Of those that another one was faster than, few come back at once.
            time.sleep(random.uniform(0, min(_WAIT_S * attempt, 1)))
            newest, sha256 = self._newest(name, alias)
            number = 0 if newest is None else newest.number
            if expected is not None and number != expected:
                by = "" if newest is None else f" to version {newest.version} by {newest.who}"
                raise MovedError(
                    f"{name}@{alias} was moved{printable(by)} meanwhile; nothing was written. Look "
                    f"at `rlzoo-plus model show {name}`, and try again"
                )
            record = AliasRecord(
                number=_checked(number + 1),
                time=now(),
                who=who_am_i(),
                why=why,
                nonce=_nonce(),
                alias=alias,
                before=None if newest is None else newest.version,
                version=version,
                previous=sha256,
                **about,
            )
            path = f"{_of(name)}/aliases/{alias}/{file_of(record.number)}"
            if self.store.put_if_absent(path, as_bytes(record)) is not None:
                mark = AliasMark(self.store, name, alias)
                mark.keep(record.number, _sha256(as_bytes(record)))
                return record
        raise AssertionError

    def retire(self, name: str, number: int, why: str) -> None:
        """Let a version not be promoted any more; its files stay.

        Raises:
            ConfigError: There is no such version, or an alias names it.
        """
        self.require_writable()
        self.version(name, number)
        by = [alias for alias, record in self.named(name).items() if record.version == number]
        if by:
            raise ConfigError(
                f"{name}@{number} is what {name}@{by[0]} names. Promote another version first, or "
                f"`rlzoo-plus model rollback {name} --alias {by[0]}`."
            )
        record = RetiredRecord(number=number, time=now(), who=who_am_i(), why=why, nonce=_nonce())
        path = f"{_of(name)}/retired/{file_of(number)}"
        self.store.put_if_absent(path, as_bytes(record))

    def _newest(self, name: str, alias: str) -> tuple[AliasRecord | None, str]:
        """Return the newest record of an alias and its hash; None and no hash without any."""
        start = f"{_of(name)}/aliases/{check_alias(alias)}/"
        mark, numbers = AliasMark(self.store, name, alias), self._numbers(start)
        if not numbers:
            self._check_end(mark, 0, "")
            return None, ""
        found = self._move(start, alias, numbers[-1])
        if found is None:
            raise StoreError(f"{self.url}/{start}: a record was removed while it was read")
        self._check_end(mark, numbers[-1], found[1])
        return found

    def _check_end(self, mark: AliasMark, number: int, sha256: str) -> None:
        """Refuse a series whose end was cut off since this machine saw it; note a new end."""
        if problem := mark.problem(number, sha256):
            raise DamagedModelError(f"{self.url}/{problem}")
        mark.keep(number, sha256)

    def _move(self, start: str, alias: str, number: int) -> tuple[AliasRecord, str] | None:
        found = self._read(start + file_of(number), AliasRecord, number)
        if found is not None and found[0].alias != alias:
            where = f"{self.url}/{start}{file_of(number)}"
            raise DamagedModelError(f"{where}: it is a record of another alias")
        return found

    def _numbers(self, start: str) -> list[int]:
        files = (entry.name.removeprefix(start) for entry in self.store.list(start))
        return sorted(number for file in files if (number := number_in(file)))

    def _read(self, path: str, kind: type[R], number: int) -> tuple[R, str] | None:
        """Return a record and the hash of its bytes, None if there is none."""
        found = self.store.get(path, LARGEST_RECORD_BYTES)
        if found is None:
            return None
        try:
            record = kind.model_validate(parse_json(found[0]))
        except ValueError as error:
            raise DamagedModelError(f"{self.url}/{path}: {one_line(error)}") from error
        if record.number != number:
            raise DamagedModelError(f"{self.url}/{path}: it says that it is {record.number}")
        return record, _sha256(found[0])

    def _create_file(self, path: str, data: bytes) -> None:
        if self.store.put_if_absent(path, data) is not None:
            return
        found = self.store.get(path, len(data))
        if found is None or found[0] != data:
            raise DamagedModelError(
                f"{self.url}/{path} has other bytes than its name says. Remove it, and try again"
            )

    def _missing(self, name: str, what: str) -> ConfigError:
        if not self.versions(name):
            known = self.names()
            hint = f"It has {', '.join(known[:10])}" if known else "It has none yet"
            return ConfigError(
                f"there is no model {name} in {printable(self.url)}. {hint}; `rlzoo-plus model "
                f"register RUN --name {name}` makes one, and {VARIABLE} names another store."
            )
        return ConfigError(f"{name} in {printable(self.url)} has {what}.")

    def require_writable(self) -> None:
        """Check that the store can be written, with objects that are created once.

        Raises:
            ConfigError: A folder cannot be written, or there are no credentials.
            StoreError: The server ignores the condition of a write, or cannot be reached.
        """
        if self._is_checked:
            return
        self.store.check_settings()
        if self.url.startswith("s3://") and not honours_conditions(
            self.store, f"models-{_nonce()}"
        ):
            raise StoreError(
                f"{self.url}: this server replaces objects that are to be created once, so two "
                "promotions at a time could both win. Use another one"
            )
        self._is_checked = True


def _of(name: str) -> str:
    return f"{FOLDER}/{check_model_name(name)}"


def _checked(number: int) -> int:
    if number > MOST_NUMBER:
        raise ConfigError(f"there are {MOST_NUMBER:,} records, and no more are kept.")
    return number


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _nonce() -> str:
    return secrets.token_hex(8)
