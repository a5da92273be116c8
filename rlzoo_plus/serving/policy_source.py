"""Where the served policy comes from: a run, a folder of `deploy`, or a name that may move."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_plain_file,
)
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models.model_copies import alias_moved, resolve

DESCRIPTION = "deploy.json"
_LONGEST_EXPORT_S, _KEPT = 600.0, 4


@dataclass(frozen=True)
class Allowed:
    """What may be done with a run that is exported."""

    trust: bool = False  # Import its own packages and wrappers
    other_env: bool = False  # Though the environment here is not that of its training


_NOTHING = Allowed()


class PolicySource(Protocol):
    """What may be served."""

    name: str  # What clients call it
    moves: bool  # Whether its version can change

    def version(self) -> str:
        """Return the version that counts now."""

    def folder(self, version: str) -> Path:
        """Return the folder of a version, as `deploy` writes it."""


class FixedSource:
    """A run, which is exported now, or a folder that `deploy` wrote."""

    moves = False

    def __init__(self, run: str, which: str | None = None, allowed: Allowed = _NOTHING) -> None:
        """Export what is none yet, in a process that ends: the server needs no torch.

        Raises:
            ConfigError: There is no such run, or it cannot be exported.
        """
        self._kept: tempfile.TemporaryDirectory[str] | None = None
        self._folder = Path(run)
        if not (self._folder / DESCRIPTION).is_file():
            self._kept = tempfile.TemporaryDirectory(prefix="rlzoo-serve-")
            self._folder = exported(run, Path(self._kept.name) / "policy", which, allowed)
        elif which is not None:
            raise ConfigError(f"--which {printable(which)}: {printable(run)} holds one policy.")
        data = read_plain_file(self._folder / DESCRIPTION, LARGEST_MANIFEST_BYTES)
        try:
            self.name = str(parse_json(data)["name"])
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"{printable(run)}/{DESCRIPTION}: {one_line(error)}.") from None
        self._version = hashlib.sha256(data).hexdigest()[:12]

    def version(self) -> str:
        """Return the hash of what is served."""
        return self._version

    def folder(self, version: str) -> Path:
        """Return the folder."""
        del version
        return self._folder


class RegisteredSource:
    """A version of the registry of models; one that an alias names is followed."""

    def __init__(self, text: str, which: str | None = None, allowed: Allowed = _NOTHING) -> None:
        """Find what is named.

        Raises:
            ConfigError: There is no such model, version or alias.
            RunError: The registry is away or damaged.
        """
        if which is not None:
            raise ConfigError(f"--which {printable(which)}: a version holds one policy.")
        self._text, self._allowed = text, allowed
        self._found = resolve(text)
        self.name, self.moves = self._found.name, self._found.alias is not None
        self._exported: OrderedDict[str, tempfile.TemporaryDirectory[str]] = OrderedDict()

    def version(self) -> str:
        """Return the number of the version that is named now."""
        if alias_moved(self._found):
            self._found = resolve(self._text)
        return str(self._found.version.number)

    def folder(self, version: str) -> Path:
        """Return its folder: what was registered with it, or an export."""
        whole = self._found.path / "deploy"
        if (whole / DESCRIPTION).is_file():
            return whole
        if version not in self._exported:
            kept = tempfile.TemporaryDirectory(prefix="rlzoo-serve-")
            exported(str(self._found.path), Path(kept.name) / "policy", None, self._allowed)
            self._exported[version] = kept
            if len(self._exported) > _KEPT:
                self._exported.popitem(last=False)[1].cleanup()
        return Path(self._exported[version].name) / "policy"


def source_of(run: str, which: str | None = None, allowed: Allowed = _NOTHING) -> PolicySource:
    """Return what a user means by RUN, which may be the name of a model with its alias.

    Raises:
        ConfigError: There is no such thing.
    """
    is_model = "@" in run and not run.startswith("hf://") and not Path(run).exists()
    made = RegisteredSource if is_model else FixedSource
    return made(run, which, allowed)


def exported(run: str, folder: Path, which: str | None, allowed: Allowed) -> Path:
    """Export a policy, in a process that ends: the server itself needs no torch.

    Raises:
        ConfigError: There is no such run, or it cannot be exported.
    """
    words = [sys.executable, "-m", "rlzoo_plus", "deploy", run, "--out", str(folder)]
    words += ["--which", which] if which is not None else []
    words += ["--trust"] if allowed.trust else []
    words += ["--other-env"] if allowed.other_env else []
    made = subprocess.run(
        words, capture_output=True, text=True, timeout=_LONGEST_EXPORT_S, check=False
    )
    if made.returncode:
        told = made.stderr.strip().splitlines() or ["it ended without a word"]
        raise ConfigError(told[-1].removeprefix("error: "))
    return folder
