"""Owns the renewal of conf/tuned from a checkout of rl_zoo3.

Use: python scripts/import_zoo_hyperparams.py PATH_TO_hyperparams --commit SHA
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlzoo_plus.commands.import_zoo import print_report
from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM, ALGORITHMS
from rlzoo_plus.config.zoo_files import RENAMED, ZooImport, load_env_files
from rlzoo_plus.config.zoo_import import read_zoo_file
from rlzoo_plus.errors import ConfigError

CONF = Path(__file__).resolve().parents[1] / "conf"
# rl_zoo3 keeps her.yml for reference only, in a format that it no longer reads.
SKIPPED = ("her",)


def main(argv: list[str]) -> int:
    """Convert every file of a folder for the environments of conf/env."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="rl_zoo3's folder hyperparams")
    parser.add_argument("--commit", required=True, help="the commit of rl_zoo3 it comes from")
    options = parser.parse_args(argv)
    try:
        convert_folder(options.folder, options.commit[:7])
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def convert_folder(folder: Path, commit: str) -> None:
    """Write conf/tuned for all algorithms and environments known here.

    Raises:
        ConfigError: If the folder holds no file of a known algorithm.
    """
    files = {path: ALGORITHM_OF_STEM.get(path.stem, path.stem) for path in folder.glob("*.yml")}
    known = {p: name for p, name in files.items() if name in ALGORITHMS and name not in SKIPPED}
    if not known:
        raise ConfigError(f"{folder} holds no hyperparameter files. Give rl_zoo3's hyperparams/.")
    for path, algorithm in sorted(known.items()):
        done = ZooImport(
            CONF, load_env_files(CONF / "env"), renamed=RENAMED, create_env_files=False
        )
        source = f"rl_zoo3 (MIT licence, commit {commit}), hyperparams/{path.name}"
        done.add(read_zoo_file(path), algorithm, source)
        done.write(overwrite=True)
        print(f"{path.name}:")
        print_report(done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
