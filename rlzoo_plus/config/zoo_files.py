"""Owns the files of an import from rl_zoo3: what is written where, and never half of it."""

from __future__ import annotations

import itertools
import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.literals import dump_plain
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments
from rlzoo_plus.config.zoo_import import ConvertedEntry, convert_entry, read_zoo_file
from rlzoo_plus.errors import ConfigError

ALGORITHM_OF_STEM = {"ppo_lstm": "recurrent_ppo"}
# Entries that stand for no single environment: tuned=<algorithm>/<entry> chooses them.
GENERIC_ENTRIES = ("default", "atari")
# Ids that rl_zoo3 still lists and the packages no longer register.
RENAMED = {
    **{f"Panda{t}-v1": f"Panda{t}-v3" for t in ("Reach", "Push", "Slide", "PickAndPlace", "Stack")},
    **{f"LunarLander{kind}NoVel-v2": f"LunarLander{kind}NoVel-v3" for kind in ("", "Continuous")},
}
# What a new environment file states besides the id, by the beginning or the end of the id.
_STATED: dict[str, dict[str, Any]] = {
    r"MiniGrid-.*": {"packages": ["minigrid"]},
    r"donkey-.*": {"packages": ["gym_donkeycar"]},
    r"ALE/.*|.*NoFrameskip-v\d": {"packages": ["ale_py"]},
    r"(Fetch|Hand|AntMaze|PointMaze|Adroit|FrankaKitchen).*": {"packages": ["gymnasium_robotics"]},
    r"(parking|highway|merge|roundabout|intersection|racetrack)-.*": {"packages": ["highway_env"]},
    r"RocketLander-.*": {"packages": ["rocket_lander_gym"]},
    r"Panda.*": {"packages": ["panda_gym"], "wrappers": ["reproducible_resets"]},
}
_GENERIC = {"default": "environments without tuned values", "atari": "Atari games"}
# Hydra reads these as values; the shipped conf/ has files of the other names.
_NO_NAMES = ("null", "none", "true", "false", "nan", "inf", "gym", *GENERIC_ENTRIES)


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
        create_env_files: Whether an id without an environment file gets one, or is left out, as
            generic entries are then.
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
    converted: int = 0


@dataclass
class PlannedFiles:
    """What conversions will write, see `plan_tuned_files`.

    Attributes:
        texts: The content of each file.
        env_files: Environment files by environment id, those that will be written included.
    """

    env_files: dict[str, EnvFile]
    texts: dict[Path, str] = field(default_factory=dict)


def load_env_files(folder: Path) -> dict[str, EnvFile]:
    """Return the environment files of a folder such as conf/env, by environment id."""
    found: dict[str, EnvFile] = {}
    for path in sorted(folder.glob("[!_]*.yaml")):
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
    planned = PlannedFiles(dict(request.env_files))
    report = plan_tuned_files(entries, request, planned)
    write_planned(planned, report, overwrite=request.overwrite)
    return report


def plan_tuned_files(
    entries: Mapping[str, object], request: ImportRequest, planned: PlannedFiles
) -> ImportReport:
    """Convert entries, and add the files of those that can be converted to `planned`."""
    algorithm = get_algorithm(request.algorithm)
    arguments = constructor_arguments(algorithm.entry_point)
    settable = None if arguments is None else arguments - MANAGED.keys()
    report = ImportReport()
    for entry_id, entry in entries.items():
        if request.only is not None and entry_id not in request.only:
            continue
        env_id = request.renamed.get(entry_id, entry_id)
        if reason := _reason_to_leave_out(entry_id, env_id, entries, request, planned):
            report.left_out.append((entry_id, reason))
            continue
        try:
            converted = convert_entry(request.algorithm, entry, settable)
        except ConfigError as error:
            report.left_out.append((entry_id, str(error)))
            continue
        if env_id != entry_id:
            converted.warnings.append(f"The values were tuned on {entry_id}, an older version.")
        if entry_id in GENERIC_ENTRIES:
            name = entry_id
        else:
            env_file = _env_file(env_id, request, planned)
            _keep_wrappers(converted, env_file)
            name = env_file.name
        path = request.out / "tuned" / request.algorithm / f"{name}.yaml"
        planned.texts[path] = _render_tuned(converted, request, entry_id, env_id, name)
        report.warnings += [(entry_id, warning) for warning in converted.warnings]
        report.converted += 1
    return report


def _env_file(env_id: str, request: ImportRequest, planned: PlannedFiles) -> EnvFile:
    """Return an id's environment file, a new one if there is none yet."""
    if env_id not in planned.env_files:
        folder = request.out / "env"
        taken = {*_NO_NAMES, *(env_file.name for env_file in planned.env_files.values())}
        free = (n for n in _names(env_id) if n not in taken and not (folder / f"{n}.yaml").exists())
        stated = next((v for form, v in _STATED.items() if re.fullmatch(form, env_id)), {})
        env_file = EnvFile(next(free), stated.get("wrappers", []))
        planned.env_files[env_id] = env_file
        text = _render_env({"id": env_id, **stated}, env_file.name)
        planned.texts[folder / f"{env_file.name}.yaml"] = text
    return planned.env_files[env_id]


def _reason_to_leave_out(
    entry_id: str,
    env_id: str,
    entries: Mapping[str, object],
    request: ImportRequest,
    planned: PlannedFiles,
) -> str | None:
    if env_id != entry_id and env_id in entries:
        return f"{env_id} has an entry of its own"
    if request.create_env_files:
        return None
    if entry_id in GENERIC_ENTRIES:
        return "it stands for no single environment"
    return None if env_id in planned.env_files else "no environment file has this id"


def _keep_wrappers(converted: ConvertedEntry, env_file: EnvFile) -> None:
    # A list in a tuned file replaces the environment's: without this its wrappers would be lost.
    section = converted.values.get("env", {})
    if "wrappers" in section:
        own = [wrapper for wrapper in env_file.wrappers if wrapper not in section["wrappers"]]
        section["wrappers"] = own + section["wrappers"]


def _names(env_id: str) -> Iterator[str]:
    """Yield file names for an id without end: my_arm for MyArm-v1, my_arm_v1, my_arm_v1_2, ..."""
    for candidate in (re.sub(r"-v\d+$", "", env_id), env_id):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", candidate)
        name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
        # Hydra takes a name that begins with a digit for a number.
        yield name if name[:1].isalpha() else f"env_{name}".rstrip("_")
    yield from (f"{name}_{number}" for number in itertools.count(2))


def _render_tuned(
    converted: ConvertedEntry, request: ImportRequest, entry_id: str, env_id: str, name: str
) -> str:
    algorithm = request.algorithm
    is_generic = name in GENERIC_ENTRIES
    chosen = f"tuned={algorithm}/{name} env.id=ID" if is_generic else f"env={name}"
    comments = [
        f"Hyperparameters of {algorithm} for {_GENERIC.get(name, env_id)}.",
        f"Use: python train.py algo={algorithm} {chosen}",
        "Extend: set single values on the command line; tuned=none ignores this file.",
        f"Source of all values: {request.source}, entry {entry_id}.",
        *(f"Note: {warning}" for warning in converted.warnings),
    ]
    blocks = ["\n".join(["# @package _global_", *map(_comment, comments)]) + "\n"]
    scalars = {key: v for key, v in converted.values.items() if not isinstance(v, dict)}
    sections = [{key: v} for key, v in converted.values.items() if isinstance(v, dict)]
    return "\n".join([*blocks, *map(dump_plain, [scalars, *sections])])


def _render_env(values: dict[str, Any], name: str) -> str:
    lines = [
        _comment(f"{values['id']}, as named in an imported hyperparameter file."),
        _comment(f"Use: rlzoo-plus train --config-dir DIR env={name} (DIR holds env/)"),
        _comment("Extend: add what differs from the shipped conf/env/_base.yaml."),
        "",
        dump_plain(values).rstrip(),
    ]
    return "\n".join([*lines, ""])


def _comment(text: str) -> str:
    # Wrapped anew: a line break inside an id must not become configuration.
    lines = textwrap.wrap(text, 96, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)


def write_planned(planned: PlannedFiles, report: ImportReport, *, overwrite: bool) -> None:
    """Write planned files; none if any file stands in the way.

    Raises:
        ConfigError: If a file with other content exists and `overwrite` is false.
    """
    changed = {}
    for path, text in planned.texts.items():
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
