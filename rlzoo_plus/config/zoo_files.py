"""The files of an import from rl_zoo3: what is written where, all of it or nothing."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.literals import dump_plain
from rlzoo_plus.config.zoo_import import ConvertedEntry, convert_entry, read_zoo_file
from rlzoo_plus.errors import ConfigError

# Entries for no particular environment: tuned=<algorithm>/<entry> chooses them.
GENERIC_ENTRIES = ("default", "atari")
# Ids of rl_zoo3 that the packages no longer register.
RENAMED = {
    **{f"Panda{t}-v1": f"Panda{t}-v3" for t in ("Reach", "Push", "Slide", "PickAndPlace", "Stack")},
    **{f"LunarLander{kind}NoVel-v2": f"LunarLander{kind}NoVel-v3" for kind in ("", "Continuous")},
}
# Settings of a new environment file besides the id, by the pattern of the id.
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
# Hydra reads the first ones as values; the shipped conf/ has files of the others.
_NO_NAMES = ("null", "none", "true", "false", "nan", "inf", "gym", *GENERIC_ENTRIES)


@dataclass(frozen=True)
class EnvFile:
    """An environment file: its name without .yaml, and the wrappers it sets."""

    name: str
    wrappers: list[Any] = field(default_factory=list)

    def with_own(self, wrappers: list[Any]) -> list[Any]:
        """Return wrappers of an entry after the file's own, which such a list would replace."""
        return [own for own in self.wrappers if own not in wrappers] + wrappers


@dataclass
class ZooImport:
    """An import: `add` converts the entries of a file, and `write` writes all files at the end."""

    out: Path  # The configuration folder that gets tuned/ and env/
    # Environment files by environment id, those that will be written included
    env_files: dict[str, EnvFile]
    only: list[str] | None = None  # Ids to convert; None converts all
    # New ids of environments by their former id
    renamed: Mapping[str, str] = field(default_factory=dict)
    # Whether an id without an environment file gets one; else it and generic entries are left out
    create_env_files: bool = True
    texts: dict[Path, str] = field(default_factory=dict)  # Of each file that will be written
    written: list[Path] = field(default_factory=list)  # Paths in the order written
    # Paths of files that had this content already
    unchanged: list[Path] = field(default_factory=list)
    # Entries that could not be converted, and why
    left_out: list[tuple[str, str]] = field(default_factory=list)
    # Entries, and what could not be expressed
    warnings: list[tuple[str, str]] = field(default_factory=list)
    converted: int = 0  # Number of converted entries

    def add(
        self, entries: Mapping[str, object], algorithm: str, source: str, label: str = ""
    ) -> None:
        """Convert the entries of a file.

        Args:
            entries: Its content, see `read_zoo_file`.
            algorithm: The name in conf/algo.
            source: Where the values come from, one line for the head of each file.
            label: Prefix of the entries' names in `left_out` and `warnings`.

        Raises:
            ConfigError: There is no such algorithm.
        """
        get_algorithm(algorithm)
        for entry_id, entry in entries.items():
            if self.only is not None and entry_id not in self.only:
                continue
            env_id = self.renamed.get(entry_id, entry_id)
            try:
                if reason := self._reason_to_leave_out(entry_id, env_id, entries):
                    raise ConfigError(reason)
                converted = convert_entry(algorithm, entry)
            except ConfigError as error:
                self.left_out.append((label + entry_id, str(error)))
                continue
            if env_id != entry_id:
                converted.warnings.append(f"The values were tuned on {entry_id}, an older version.")
            name = entry_id
            if entry_id not in GENERIC_ENTRIES:
                env_file = self._env_file(env_id)
                name = env_file.name
                section = converted.values.get("env", {})
                if "wrappers" in section:
                    section["wrappers"] = env_file.with_own(section["wrappers"])
            path = self.out / "tuned" / algorithm / f"{name}.yaml"
            if path in self.texts:
                reason = f"another file has an entry of {algorithm} for it, which was taken"
                self.left_out.append((label + entry_id, reason))
                continue
            origin = f"{source}, entry {entry_id}"
            self.texts[path] = _render_tuned(converted, algorithm, origin, env_id, name)
            self.warnings += [(label + entry_id, warning) for warning in converted.warnings]
            self.converted += 1

    def write(self, *, overwrite: bool = False) -> None:
        """Write the files; none of them if there is one with other content.

        Raises:
            ConfigError: A file with other content exists and `overwrite` is false.
        """
        changed = {}
        for path, text in self.texts.items():
            if path.exists() and path.read_text(encoding="utf-8") == text:
                self.unchanged.append(path)
            else:
                changed[path] = text
        existing = [str(path) for path in changed if path.exists()]
        if existing and not overwrite:
            raise ConfigError(
                f"{len(existing)} files exist with other content, the first is {existing[0]}. "
                "Nothing was written. Add --overwrite to replace them, or choose another --out."
            )
        for path, text in changed.items():
            write_atomic(path, text)
            self.written.append(path)

    def _env_file(self, env_id: str) -> EnvFile:
        """Return an id's environment file, a new one if there is none yet."""
        if env_id not in self.env_files:
            folder = self.out / "env"
            taken = {*_NO_NAMES, *(env_file.name for env_file in self.env_files.values())}
            candidates = (n for n in _names(env_id) if n not in taken)
            name = next(n for n in candidates if not (folder / f"{n}.yaml").exists())
            stated = stated_settings(env_id)
            self.env_files[env_id] = EnvFile(name, stated.get("wrappers", []))
            self.texts[folder / f"{name}.yaml"] = _render_env({"id": env_id, **stated}, name)
        return self.env_files[env_id]

    def _reason_to_leave_out(
        self, entry_id: str, env_id: str, entries: Mapping[str, object]
    ) -> str | None:
        if env_id != entry_id and env_id in entries:
            return f"{env_id} has an entry of its own"
        if self.create_env_files:
            return None
        if entry_id in GENERIC_ENTRIES:
            return "it is for no particular environment"
        return None if env_id in self.env_files else "no environment file has this id"


def stated_settings(env_id: str) -> dict[str, Any]:
    """Return what an environment of a known package needs besides its id."""
    return next((v for form, v in _STATED.items() if re.fullmatch(form, env_id)), {})


def load_env_files(folder: Path) -> dict[str, EnvFile]:
    """Return the environment files of a folder such as conf/env, by environment id.

    Of several with one id, it is the one that sets the fewest arguments.
    """
    found: dict[str, EnvFile] = {}
    contents = [(path, read_zoo_file(path)) for path in sorted(folder.glob("[!_]*.yaml"))]
    for path, content in sorted(contents, key=lambda pair: len(pair[1].get("kwargs") or {})):
        env_id = content.get("id")
        if isinstance(env_id, str) and env_id != "???":
            found.setdefault(env_id, EnvFile(path.stem, content.get("wrappers") or []))
    return found


def _names(env_id: str) -> Iterator[str]:
    """Yield file names for an id without end: my_arm for MyArm-v1, my_arm_v1, my_arm_v1_2, ..."""
    for candidate in (re.sub(r"-v\d+$", "", env_id), env_id):
        parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", candidate)
        name = re.sub(r"[^a-z0-9]+", "_", parts.lower()).strip("_")
        # Hydra takes a name that begins with a digit for a number.
        yield name if name[:1].isalpha() else f"env_{name}".rstrip("_")
    yield from (f"{name}_{number}" for number in itertools.count(2))


def _render_tuned(
    converted: ConvertedEntry, algorithm: str, origin: str, env_id: str, name: str
) -> str:
    chosen = f"tuned={algorithm}/{name} env.id=ID" if name in GENERIC_ENTRIES else f"env={name}"
    comments = [
        f"Hyperparameters of {algorithm} for {_GENERIC.get(name, env_id)}.",
        f"Use: python train.py algo={algorithm} {chosen}",
        "Extend: set single values on the command line; tuned=none ignores this file.",
        f"Source of all values: {origin}.",
        *(f"Note: {warning}" for warning in converted.warnings),
    ]
    head = "\n".join(["# @package _global_", *map(_comment, comments)]) + "\n"
    scalars = {key: v for key, v in converted.values.items() if not isinstance(v, dict)}
    sections = [{key: v} for key, v in converted.values.items() if isinstance(v, dict)]
    return "\n".join([head, *map(dump_plain, [scalars, *sections])])


def _render_env(values: dict[str, Any], name: str) -> str:
    comments = [
        f"{values['id']}, as named in an imported hyperparameter file.",
        f"Use: rlzoo-plus train --config-dir DIR env={name} (DIR holds env/)",
        "Extend: add what differs from the shipped conf/env/_base.yaml.",
    ]
    return "\n".join([*map(_comment, comments), "", dump_plain(values)])


def _comment(text: str) -> str:
    # Wrapped anew: a line break inside an id must not become configuration.
    lines = textwrap.wrap(text, 96, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)
