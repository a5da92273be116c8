"""Tags, a note and a star of a run: a hidden file beside it that takes part in nothing.

Hidden files are not sent to stores, and are in no hash, digest or resume.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rlzoo_plus.analysis.shipped_runs import refuse_to_change
from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import has_control_characters, printable, read_json
from rlzoo_plus.errors import ConfigError

NAME = ".notes.json"
_MOST_TAGS, _LONGEST_TAG, _LONGEST_NOTE = 20, 40, 4000


@dataclass(frozen=True)
class Annotations:
    """What somebody noted about a run."""

    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""


def read_annotations(run: RunDir) -> Annotations:
    """Return what is noted about a run; what is not as we write it is left out."""
    file = run.path / NAME
    if not file.is_file():
        return Annotations()
    try:
        return checked(read_json(file))
    except ConfigError:
        return Annotations()


def write_annotations(run: RunDir, annotations: Annotations) -> None:
    """Write the notes of a run.

    Raises:
        ConfigError: The file is a link, or the run comes with the package.
    """
    refuse_to_change(run.path)
    file = run.path / NAME
    check_inside(run.path, file)
    write_json(file, asdict(annotations))


def checked(data: Any) -> Annotations:
    """Return annotations from plain data; a ConfigError if they are none."""
    if not isinstance(data, dict) or not data.keys() <= {"star", "tags", "note"}:
        raise ConfigError("notes are a mapping of star, tags and note.")
    star, tags, note = data.get("star", False), data.get("tags", []), data.get("note", "")
    if not isinstance(star, bool):
        raise ConfigError(f"star={printable(star)}: must be true or false.")
    is_list = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
    if not is_list or len(tags) > _MOST_TAGS:
        raise ConfigError(f"tags={printable(tags)}: must be at most {_MOST_TAGS} texts.")
    kept = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    for tag in kept:
        if len(tag) > _LONGEST_TAG or not tag.isprintable() or "," in tag:
            limit = f"at most {_LONGEST_TAG} characters, without commas"
            raise ConfigError(f"tag {printable(tag)}: must have {limit}.")
    if not isinstance(note, str) or len(note) > _LONGEST_NOTE or has_control_characters(note):
        raise ConfigError(f"note: must be a text of at most {_LONGEST_NOTE} characters.")
    return Annotations(star, kept, note)
