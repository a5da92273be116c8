"""What this machine has seen of aliases: the newest record of each, which must not be gone again.

A series of records cannot say that its end was cut off. Whoever has seen the end can.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from filelock import FileLock, Timeout

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.models.model_records import FOLDER, LARGEST_RECORD_BYTES, file_of, now
from rlzoo_plus.store.cache import cache_of, hash_of, read_cached
from rlzoo_plus.store.contract import ArtifactStore

log = logging.getLogger(__name__)
_PATIENCE_S = 10.0


class AliasMark:
    """The newest record of one alias that was seen here: its number and its hash."""

    def __init__(self, store: ArtifactStore, name: str, alias: str) -> None:
        """Read it; records are listed afterwards, so that what was seen must be among them.

        Args:
            store: The store of the registry.
            name: The model.
            alias: The alias.
        """
        self._store, self._start = store, f"{FOLDER}/{name}/aliases/{alias}/"
        seen = cache_of(store.url) / FOLDER / "seen"
        self._file: Path = seen / f"{hash_of(self._start)}.json"
        self._known, self._sha256, self._time = self._read()

    def problem(self, number: int, sha256: str) -> str | None:
        """Return what is wrong with the newest record that is there now, None if nothing is.

        Args:
            number: Its number, 0 for none.
            sha256: Its hash.

        Raises:
            StoreError: A request failed.
        """
        if not self._known:
            return None
        path = self._start + file_of(self._known)
        if number > self._known:
            found = self._store.get(path, LARGEST_RECORD_BYTES)
            sha256 = "" if found is None else hashlib.sha256(found[0]).hexdigest()
        if number >= self._known and sha256 == self._sha256:
            return None
        what = "was replaced" if number >= self._known else "is gone, so an older version is named"
        return (
            f"{path} {what}: {printable(self._file)} notes that it was seen on "
            f"{printable(self._time, 40)}. Bring it back; or remove that note, if the registry was "
            "made anew"
        )

    def keep(self, number: int, sha256: str) -> None:
        """Note a record that is newer than what was seen before."""
        if number <= self._known:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._file.with_suffix(".lock"), timeout=_PATIENCE_S):
                if number > self._read()[0]:
                    about = {"registry": self._store.url, "alias": self._start, "time": now()}
                    write_json(self._file, {**about, "number": number, "sha256": sha256})
        except (OSError, Timeout) as error:
            log.warning("%s: what was seen cannot be noted: %s", self._start, error)

    def _read(self) -> tuple[int, str, str]:
        """Return number, hash and time of what was seen, 0 for nothing."""
        found = read_cached(self._file)
        number, sha256, time = (found.get(key) for key in ("number", "sha256", "time"))
        if type(number) is not int or not isinstance(sha256, str) or not isinstance(time, str):
            return 0, "", ""
        return number, sha256, time
