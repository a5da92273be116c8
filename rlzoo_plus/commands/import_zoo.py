"""Owns `rlzoo-plus import-zoo`: rl_zoo3 hyperparameter files become files of conf/tuned."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.suggest import unknown_name
from rlzoo_plus.config.zoo_files import (
    ALGORITHM_OF_STEM,
    ImportReport,
    ImportRequest,
    load_env_files,
    write_tuned_files,
)
from rlzoo_plus.config.zoo_import import read_zoo_file


def main(argv: list[str]) -> int:
    """Run `rlzoo-plus import-zoo` and return the exit code.

    Raises:
        ConfigError: If a file, an id or the algorithm is wrong.
    """
    options = _parse(argv)
    files = {path: read_zoo_file(path) for path in options.files}
    known_ids = {env_id for entries in files.values() for env_id in entries}
    for env_id in options.only or []:
        if env_id not in known_ids:
            raise ConfigError(unknown_name("environment id in these files", env_id, known_ids))
    for path, entries in files.items():
        algorithm = options.algo or ALGORITHM_OF_STEM.get(path.stem, path.stem)
        request = ImportRequest(
            algorithm=algorithm,
            out=options.out,
            source=path.name,
            env_files=load_env_files(_shipped_conf() / "env") | load_env_files(options.out / "env"),
            only=options.only,
            renamed=dict(options.rename),
            overwrite=options.overwrite,
        )
        print_report(path.name, write_tuned_files(entries, request))
    print(f"Use them with: python train.py algo=... env=... --config-dir {options.out}")
    return 0


def print_report(name: str, report: ImportReport) -> None:
    """Print what an import wrote, and on stderr what it could not express."""
    for path in report.written:
        print(f"wrote {path}")
    if report.unchanged:
        print(f"{name}: {len(report.unchanged)} files were up to date")
    for entry, text in report.warnings:
        print(f"warning: {name}: {entry}: {text}", file=sys.stderr)
    for entry, reason in report.left_out:
        print(f"left out: {name}: {entry}: {reason}", file=sys.stderr)


def _shipped_conf() -> Path:
    package = Path(__file__).resolve().parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rlzoo-plus import-zoo",
        description="Write conf/tuned files from rl_zoo3 hyperparameter files.",
    )
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="an rl_zoo3 YAML file, e.g. ppo.yml")
    add("--out", type=Path, required=True, metavar="CONF_DIR", help="gets tuned/ and env/")
    add("--algo", metavar="NAME", help="algorithm (default: the file's name)")
    add("--only", nargs="+", metavar="ENV_ID", help="convert these environment ids only")
    add("--rename", nargs="+", default=[], type=_renaming, metavar="OLD=NEW", help="ids to rename")
    add("--overwrite", action="store_true", help="replace files that exist")
    return parser.parse_args(argv)


def _renaming(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if not (old and separator and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new
