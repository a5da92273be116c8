"""The floors of the package: no string reaches up, and light modules stay light."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULE = re.compile(r"(?P<module>(rlzoo_plus|robots)(\.\w+)*)(:\w+)?")
# Tables of shipped extension points, and what imports an optional room, where they are used.
TABLES = (
    *("rlzoo_plus.config.catalog", "rlzoo_plus.accelerators"),
    *("rlzoo_plus.analysis.find_run", "rlzoo_plus.envs.single"),
)
LIGHT = (
    *("rlzoo_plus", "rlzoo_plus.config.resolve", "rlzoo_plus.artifacts.run_dir"),
    *(
        "rlzoo_plus.sweeps.launchers.local",
        "rlzoo_plus.sweeps.controller",
        "rlzoo_plus.analysis.run_list",
    ),
    *("rlzoo_plus.sweeps.multirun", "rlzoo_plus.sweeps.sweep_job", "rlzoo_plus.doctor.check_jobs"),
    *("rlzoo_plus.workers.worker_loop", "rlzoo_plus.commands.worker"),
    *("rlzoo_plus.runs.load", "rlzoo_plus.runs.plan", "rlzoo_plus.analysis.find_run"),
    *("rlzoo_plus.runs.train_job", "rlzoo_plus.runs.printing", "rlzoo_plus.envs.fit"),
    *("rlzoo_plus.runs.store_sync", "rlzoo_plus.runs.store_sender", "rlzoo_plus.commands.push"),
    "rlzoo_plus.commands.train",
)


def floors():
    """Return packages and their floor, the highest first, as import-linter knows them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    return {
        package.strip("( )"): floor
        for floor, row in enumerate(layers)
        for package in re.split(r"[:|]", row)
    }


def floor_of(module, known):
    """Return the floor of a module, None for one that stands on none."""
    names = [name for name in known if module == name or module.startswith(f"{name}.")]
    return known[max(names, key=len)] if names else None


def strings_that_reach_up(source, module, known):
    """Return the strings of a module that name a module of a higher floor."""
    own = floor_of(module, known)
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = MODULE.fullmatch(node.value)
            floor = floor_of(named["module"], known) if named else None
            if floor is not None and own is not None and floor < own:
                found.append(node.value)
    return found


def test_no_string_names_a_module_of_a_higher_floor():
    known = floors()
    found = {}
    for file in sorted((ROOT / "rlzoo_plus").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module not in TABLES:
            found[module] = strings_that_reach_up(file.read_text(), module, known)
    assert {module: names for module, names in found.items() if names} == {}


def test_a_string_that_reaches_up_is_found():
    source = 'TARGET = "rlzoo_plus.commands.train:main"\nDOWN = "rlzoo_plus.config.schema"\n'
    found = strings_that_reach_up(source, "rlzoo_plus.sweeps.controller", floors())
    assert found == ["rlzoo_plus.commands.train:main"]


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_imports_no_learning_library(module):
    heavy = ("torch", "stable_baselines3", "sb3_contrib", "matplotlib", "optuna")
    code = f"import sys, {module}; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
