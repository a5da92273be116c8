"""`rlzoo-plus import-zoo`: convert rl_zoo3 hyperparameter files to files of conf/tuned."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM, ALGORITHMS
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.config.zoo_files import RENAMED, ZooImport, load_env_files
from rlzoo_plus.config.zoo_import import read_zoo_file
from rlzoo_plus.errors import ConfigError, unknown_name

_PYTHON = re.compile(rb"^hyperparams\b.*=", re.MULTILINE)


def main(argv: list[str]) -> int:
    """Convert and report; return the exit code."""
    options = _parse(argv)
    files = {path: read_zoo_file(path) for source in options.sources for path in _files_in(source)}
    known_ids = {env_id for entries in files.values() for env_id in entries}
    for env_id in options.only or []:
        if env_id not in known_ids:
            raise ConfigError(unknown_name("environment id in these files", env_id, known_ids))
    known = load_env_files(conf_dir() / "env") | load_env_files(options.out / "env")
    total = ZooImport(options.out, known, options.only, RENAMED | dict(options.rename))
    for path, entries in files.items():
        # A file is named after the algorithm, or its folder is.
        names = (ALGORITHM_OF_STEM.get(n, n) for n in (path.stem, path.absolute().parent.name))
        algorithm = options.algo or next((n for n in names if n in ALGORITHMS), path.stem)
        shown = next((path.relative_to(s) for s in options.sources if s in path.parents), path.name)
        if algorithm not in ALGORITHMS and path not in options.sources:
            total.left_out.append((f"{shown}", f"there is no algorithm {algorithm}; give --algo"))
            continue
        total.add(entries, algorithm, f"{shown}", label=f"{shown}: ")
    total.write(overwrite=options.overwrite)
    print_report(total)
    of_files = counted(len(files), "file")
    tell(
        f"{total.converted} entries of {of_files} converted, {len(total.left_out)} left "
        f"out. Use them with: rlzoo-plus train --config-dir {shlex.quote(str(options.out))} "
        "algo=... env=..."
    )
    return 0


def _files_in(source: Path) -> list[Path]:
    """Return the hyperparameter files of a source: itself, or those of a folder and its folders."""
    if not source.is_dir():
        return [source]
    within = [*sorted(source.iterdir()), *sorted(source.glob("[!.]*/*"))]
    paths = [path for path in within if path.is_file()]
    found = [path for path in paths if path.suffix in (".yml", ".yaml")]
    # Other code may lie beside a configuration in Python.
    found += [p for p in paths if p.suffix == ".py" and _PYTHON.search(p.read_bytes())]
    if not found:
        raise ConfigError(f"{source} holds no .yml or .yaml file. Give rl_zoo3's hyperparams/.")
    return found


def print_report(report: ZooImport) -> None:
    """Print what an import wrote, and on stderr what it could not convert."""
    for path in report.written:
        print(f"wrote {path}")
    if report.unchanged:
        print(f"up to date: {counted(len(report.unchanged), 'file')}")
    for entry, text in report.warnings:
        print(f"warning: {entry}: {text}", file=sys.stderr)
    for entry, reason in report.left_out:
        print(f"left out: {entry}: {reason}", file=sys.stderr)


def _parse(argv: list[str]) -> argparse.Namespace:
    description = "Convert rl_zoo3 hyperparameter files to files of conf/tuned."
    parser = command_parser("import-zoo", description, "hyperparams/ppo.yml --out my_conf")
    add = parser.add_argument
    sources_help = "a file of rl_zoo3 (YAML, or Python with literals), or a folder of them"
    add("sources", nargs="+", type=Path, metavar="FILE", help=sources_help)
    add("--out", type=Path, required=True, metavar="CONF_DIR", help="where tuned/ and env/ go")
    add("--algo", metavar="NAME", help="algorithm (default: the name of the file or its folder)")
    add("--only", nargs="+", metavar="ENV_ID", help="convert these environment ids only")
    add("--rename", nargs="+", default=[], type=_renaming, metavar="OLD=NEW", help="ids to rename")
    add("--overwrite", action="store_true", help="replace files that exist")
    return parser.parse_args(argv)


def _renaming(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if not (old and separator and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new
