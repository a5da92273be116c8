"""The page of exact resume names every part of a checkpoint, and every module that takes part."""

import re
from pathlib import Path

import pytest
from support.training import tiny_config, train_run

import rlzoo_plus.training.resume

FOLDER = Path(rlzoo_plus.training.resume.__file__).parent
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
# Of the folder, whatever it holds.
OF_THE_FOLDER = {"files", "schema", "step", "kept_as", "chunks", "sha256"}


def _named(where):
    """Return what the table of parts has in one place, e.g. `state`."""
    cells = re.findall(rf"\| {where}:? ([^|]+)\|", PAGE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.training
def test_the_page_names_what_a_checkpoint_holds_and_nothing_else(tmp_path):
    env = ("env.kwargs.discrete=false", "n_timesteps=64")
    run_dir, _ = train_run(tmp_path / "run", tiny_config("sac", "tests/TinyReach-v0", *env))
    checkpoint = run_dir.checkpoints().load_newest()
    assert _named("state") == checkpoint.state.keys()
    assert _named("manifest") == checkpoint.about.keys() - OF_THE_FOLDER
    assert checkpoint.chunks.keys() <= _named("chunks")


def test_the_page_names_every_module_of_the_package():
    modules = {file.name for file in FOLDER.glob("*.py")} - {"__init__.py"}
    assert modules == set(re.findall(r"^\| `(\w+\.py)` \|", PAGE, re.MULTILINE))
