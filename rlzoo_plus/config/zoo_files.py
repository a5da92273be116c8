"""Owns the files of an import from rl_zoo3: what is written where, and never half of it."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.literals import dump_plain
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments
from rlzoo_plus.config.zoo_import import ConvertedEntry, convert_entry, read_zoo_file

ALGORITHM_OF_STEM = {"ppo_lstm": "recurrent_ppo"}
# Entries that stand for no single environment.
GENERIC_ENTRIES = ("default", "atari")


@dataclass(frozen=True)
class EnvFile:
    """An environment file: its name without .yaml, and the wrappers it sets."""

    name: str
    wrappers: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class ImportRequest:
    """What to convert and where to write it.

    Attributes:
        algorithm: The name in conf/algo.
        out: The configuration folder that gets tuned/ and env/.
        source: Where the values come from, one line for the head of each file.
        env_files: Environment files by environment id.
        only: Ids to convert; None converts all.
        renamed: Ids that go by another id now.
        create_env_files: Whether an id without an environment file gets one, or is left out.
        overwrite: Whether a file with other content may be replaced.
    """

    algorithm: str
    out: Path
    source: str
    env_files: Mapping[str, EnvFile]
    only: list[str] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    create_env_files: bool = True
    overwrite: bool = False


@dataclass
class ImportReport:
    """What an import did: paths in the order written; the other lists start with the entry."""

    written: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)


def load_env_files(folder: Path) -> dict[str, EnvFile]:
    """Return the environment files of a folder such as conf/env, by environment id."""
    found: dict[str, EnvFile] = {}
    for path in sorted(folder.glob("*.yaml")):
        content = read_zoo_file(path)
        env_id = content.get("id")
        if isinstance(env_id, str) and env_id != "???":
            found.setdefault(env_id, EnvFile(path.stem, content.get("wrappers") or []))
    return found


def write_tuned_files(entries: Mapping[str, object], request: ImportRequest) -> ImportReport:
    """Convert entries and write their files; nothing is written if any file stands in the way.

    Args:
        entries: The content of an rl_zoo3 file, see `read_zoo_file`.
        request: What to convert and where to write it.

    Raises:
        ConfigError: If a file with other content exists and `overwrite` is false.
    """
    algorithm = get_algorithm(request.algorithm)
    arguments = constructor_arguments(algorithm.entry_point)
    settable = None if arguments is None else arguments - MANAGED.keys()
    report, texts = ImportReport(), dict[Path, str]()
    env_files = dict(request.env_files)
    for entry_id, entry in entries.items():
        if request.only is not None and entry_id not in request.only:
            continue
        env_id = request.renamed.get(entry_id, entry_id)
        if reason := _reason_to_leave_out(entry_id, env_id, entries, request):
            report.left_out.append((entry_id, reason))
            continue
        try:
            converted = convert_entry(request.algorithm, entry, settable)
        except ConfigError as error:
            report.left_out.append((entry_id, str(error)))
            continue
        if env_id not in env_files:
            env_files[env_id] = EnvFile(_free_name(env_id, env_files, request.out))
            env_path = request.out / "env" / f"{env_files[env_id].name}.yaml"
            texts[env_path] = _render_env(env_id, env_files[env_id].name)
        if env_id != entry_id:
            converted.warnings.append(f"The values were tuned on {entry_id}, an older version.")
        env_file = env_files[env_id]
        _keep_wrappers(converted, env_file)
        path = request.out / "tuned" / request.algorithm / f"{env_file.name}.yaml"
        texts[path] = _render_tuned(converted, request, entry_id, env_id, env_file.name)
        report.warnings += [(entry_id, warning) for warning in converted.warnings]
    _write_all(texts, request.overwrite, report)
    return report


def _reason_to_leave_out(
    entry_id: str, env_id: str, entries: Mapping[str, object], request: ImportRequest
) -> str | None:
    if entry_id in GENERIC_ENTRIES:
        return "it stands for no single environment"
    if env_id != entry_id and env_id in entries:
        return f"{env_id} has an entry of its own"
    if env_id not in request.env_files and not request.create_env_files:
        return "no environment file has this id"
    return None


def _keep_wrappers(converted: ConvertedEntry, env_file: EnvFile) -> None:
    # A list in a tuned file replaces the environment's: without this its wrappers would be lost.
    section = converted.values.get("env", {})
    if "wrappers" in section:
        own = [wrapper for wrapper in env_file.wrappers if wrapper not in section["wrappers"]]
        section["wrappers"] = own + section["wrappers"]


def _free_name(env_id: str, env_files: Mapping[str, EnvFile], out: Path) -> str:
    """Return a file name for an id: MyArm-v1 becomes my_arm, or my_arm_v1 if that is taken."""
    stem = re.sub(r"-v\d+$", "", env_id)
    taken = {env_file.name for env_file in env_files.values()} | {"none", "gym"}
    for candidate in (stem, env_id):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", candidate)
        name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
        if name and name not in taken and not (out / "env" / f"{name}.yaml").exists():
            return name
    raise ConfigError(
        f"There is no free file name for {env_id!r}. Write an environment file with that id first."
    )


def _render_tuned(
    converted: ConvertedEntry, request: ImportRequest, entry_id: str, env_id: str, name: str
) -> str:
    algorithm = request.algorithm
    comments = [
        f"Hyperparameters of {algorithm} for {env_id}.",
        f"Use: python train.py algo={algorithm} env={name}",
        "Extend: set single values on the command line; tuned=none leaves this file out.",
        f"Source of all values: {request.source}, entry {entry_id}.",
        *(f"Note: {warning}" for warning in converted.warnings),
    ]
    blocks = ["\n".join(["# @package _global_", *map(_comment, comments)]) + "\n"]
    scalars = {key: v for key, v in converted.values.items() if not isinstance(v, dict)}
    sections = [{key: v} for key, v in converted.values.items() if isinstance(v, dict)]
    return "\n".join([*blocks, *map(dump_plain, [scalars, *sections])])


def _render_env(env_id: str, name: str) -> str:
    lines = [
        _comment(f"{env_id}, as named in an imported hyperparameter file."),
        _comment(f"Use: python train.py env={name} --config-dir DIR (the folder that holds env/)"),
        _comment("Extend: add what differs from the shipped conf/env/_base.yaml."),
        "",
        dump_plain({"id": env_id}).rstrip(),
    ]
    return "\n".join([*lines, ""])


def _comment(text: str) -> str:
    # Wrapped anew: a line break inside an id must not become configuration.
    lines = textwrap.wrap(text, 96, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)


def _write_all(texts: Mapping[Path, str], overwrite: bool, report: ImportReport) -> None:
    changed = {}
    for path, text in texts.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            report.unchanged.append(path)
        else:
            changed[path] = text
    existing = [str(path) for path in changed if path.exists()]
    if existing and not overwrite:
        raise ConfigError(
            f"{len(existing)} files exist with other content, the first is {existing[0]}. "
            "Nothing was written. Add --overwrite to replace them, or choose another --out."
        )
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
        report.written.append(path)
