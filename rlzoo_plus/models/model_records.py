"""What a registry of models holds: records of versions and of aliases, and where each is.

    models/NAME/content/CONTENT/...            the files of a version, by a hash of their hashes
    models/NAME/versions/000001.json           that version: what it is, and its files
    models/NAME/aliases/production/000001.json  what the alias names since then, and why
    models/NAME/retired/000001.json            that this version is not to be promoted any more

Every object is created once and never replaced. A version's files come before its record, so what
a killed process leaves is no version. What is read may come from others: names, sizes and hashes
are checked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from rlzoo_plus.artifacts.run_dir import LARGEST_OF_BUNDLE, LARGEST_OF_RUN
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError

FOLDER = "models"
PROMOTE, ROLLBACK = "promote", "rollback"
LARGEST_RECORD_BYTES = 2**20
# Of all files of a version.
LARGEST_BYTES = 2**33
MOST_NUMBER = 999_999
_MIB = 2**20
# The files that a version may have, as in a run directory; each with its largest size.
_LARGEST = {
    **LARGEST_OF_RUN,
    "episodes/evaluation.json": 4 * _MIB,
    "policy.onnx": 1024 * _MIB,
    **{f"best/{name}": size for name, size in LARGEST_OF_BUNDLE.items()},
}
_DEPLOYED = re.compile(r"deploy/[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)
_LARGEST_DEPLOYED = 1024 * _MIB
_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,62}[A-Za-z0-9_])?", re.ASCII)
_ALIAS = re.compile(r"[a-z](?:[a-z0-9_-]{0,30}[a-z0-9])?")
_VERSION = re.compile(r"[1-9][0-9]{0,5}")
_NUMBERED = re.compile(r"([0-9]{6})\.json")
_Number = Annotated[int, Field(ge=1, le=MOST_NUMBER)]
_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Text = Annotated[str, StringConstraints(max_length=4000)]


class _Record(BaseModel):
    """Something that was written once: its number, by whom, when and why."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)

    format: Literal[1] = 1
    number: _Number
    time: _Text  # ISO 8601, UTC
    who: _Text
    why: _Text
    # Of this writing: two records of two writers are never the same bytes.
    nonce: _Text


class FileEntry(BaseModel):
    """A file of a version."""

    model_config = ConfigDict(strict=True, frozen=True)

    size: int = Field(ge=0)  # [bytes]
    sha256: _Sha256


class VersionRecord(_Record):
    """A version: a policy with all that says what it is; never changed."""

    content: _Sha256  # `content_of` its files
    files: dict[str, FileEntry]
    origin: _Text  # The run that was registered, as it was named
    which: _Text  # `best`, `final` or a step
    step: int = Field(ge=0)
    algo: _Text
    env: _Text
    environment: dict[str, Any] | None = None  # Version of the environment; None if unknown
    evaluation: dict[str, Any] = {}  # Mean return and the like, over held-out episodes


class AliasRecord(_Record):
    """One move of an alias; the one with the highest number counts."""

    alias: _Text
    action: Literal["promote", "rollback"]
    before: _Number | None = Field(alias="from")  # The version it named before
    version: _Number = Field(alias="to")  # The version it names since
    previous: str  # SHA-256 of the record before; empty for the first
    forced: _Text | None = None  # Why although the gate said no
    gate: list[dict[str, Any]] = []  # What the gate has found: `check`, `holds`, `text`


class RetiredRecord(_Record):
    """A version that is not to be promoted any more."""


def now() -> str:
    """Return the time, as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def as_bytes(record: BaseModel) -> bytes:
    """Return a record as it is stored."""
    return (json.dumps(record.model_dump(by_alias=True), indent=1) + "\n").encode()


def content_of(files: Mapping[str, FileEntry]) -> str:
    """Return the hash that names the files of a version."""
    listed = sorted((name, entry.size, entry.sha256) for name, entry in files.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def problem_with_files(record: VersionRecord) -> str | None:
    """Return what is wrong with the files that a version's record lists, None if nothing is."""
    for name, entry in record.files.items():
        largest = largest_of(name)
        if largest is None:
            return f"it lists {printable(name, 100)!r}, which is no file of a version"
        if entry.size > largest:
            return f"{name} has {entry.size} bytes, more than the {largest} allowed"
    if sum(entry.size for entry in record.files.values()) > LARGEST_BYTES:
        return f"its files have more than {LARGEST_BYTES} bytes"
    missing = [name for name in ("config.yaml", "best/MANIFEST.json") if name not in record.files]
    if missing:
        return f"it lists no {missing[0]}"
    if content_of(record.files) != record.content:
        return "its list of files was changed: its hash is another one"
    return None


def largest_of(name: str) -> int | None:
    """Return how many bytes a file of a version may have; None if none is called so."""
    return _LARGEST_DEPLOYED if _DEPLOYED.fullmatch(name) else _LARGEST.get(name)


def number_in(file: str) -> int | None:
    """Return the number that a record's file name has, None if it is none of a record."""
    found = _NUMBERED.fullmatch(file)
    return int(found[1]) or None if found else None


def file_of(number: int) -> str:
    """Return the file name of a record."""
    return f"{number:06d}.json"


def is_version(text: str) -> bool:
    """Return whether a text is the number of a version."""
    return _VERSION.fullmatch(text) is not None


def check_model_name(name: str) -> str:
    """Return the name of a model.

    Raises:
        ConfigError: It is none.
    """
    if _NAME.fullmatch(name) is None or ".." in name:
        raise ConfigError(
            f"{printable(name, 100)!r} is no name of a model. Use up to 64 letters, digits, -, _ "
            "and dots, such as a1-walk."
        )
    return name


def check_alias(alias: str) -> str:
    """Return an alias.

    Raises:
        ConfigError: It is none.
    """
    if _ALIAS.fullmatch(alias) is None:
        raise ConfigError(
            f"{printable(alias, 100)!r} is no alias. Use up to 32 small letters, digits, - and _ "
            "after a letter, such as production."
        )
    return alias


def version_number(text: str) -> int:
    """Return the number of a version that a user typed.

    Raises:
        ConfigError: It is none.
    """
    if not is_version(text):
        raise ConfigError(
            f"{printable(text, 100)!r} is no version. Versions are numbers from 1; `rlzoo-plus "
            "model list NAME` shows them."
        )
    return int(text)
