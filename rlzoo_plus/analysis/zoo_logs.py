"""Reads the log folders of rl_zoo3 as runs, without importing or running anything of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.run_list import DAMAGED, RunSummary
from rlzoo_plus.analysis.series import Evaluation
from rlzoo_plus.analysis.variants import variant_key
from rlzoo_plus.artifacts.arrays import read_arrays
from rlzoo_plus.artifacts.run_dir import FINISHED
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_YAML_BYTES,
    PlainLoader,
    one_line,
    open_plain,
    parse_yaml,
    printable,
    read_plain_file,
)
from rlzoo_plus.errors import ConfigError

_EVALUATIONS = "evaluations.npz"
# Of all arrays unpacked.
_LARGEST_BYTES = 2**27
# `HalfCheetahBulletEnv-v0_1`: the environment, and the number of the run.
_FOLDER = re.compile(r"(?P<env>.+)_(?P<number>\d+)$")
# What does not make a variant: places, logging, and the seed.
_ARGUMENTS = ("n_timesteps", "env_kwargs", "eval_episodes", "n_eval_envs")


class _ZooLoader(PlainLoader):
    """Loader of plain YAML that reads rl_zoo3's OrderedDict as a mapping, other objects as text."""


def _ordered(loader: PlainLoader, node: yaml.Node) -> Any:
    (pairs,) = loader.construct_sequence(node, deep=True) or ([],)
    return {str(key): value for key, value in pairs}


def _opaque(_: PlainLoader, suffix: str, node: yaml.Node) -> str:
    return f"{suffix}{node.value if isinstance(node, yaml.ScalarNode) else ''}"


_PYTHON = "tag:yaml.org,2002:python/"
_ZooLoader.add_constructor(f"{_PYTHON}object/apply:collections.OrderedDict", _ordered)
_ZooLoader.add_multi_constructor(_PYTHON, _opaque)


def load_zoo_runs(folder: Path) -> list[RunEntry]:
    """Return the runs below rl_zoo3's log folder, sorted by path.

    A run is a folder with evaluations.npz, as `--eval-freq` leaves it. One that cannot be read is
    `damaged`, with its reason.
    """
    if not folder.is_dir():
        raise ConfigError(f"--zoo {printable(folder)}: no such folder. Name rl_zoo3's log folder.")
    found = [_load(path) for path in _folders(folder)]
    if not found:
        raise ConfigError(
            f"--zoo {printable(folder)}: no {_EVALUATIONS} in it or below it. rl_zoo3 writes it in "
            "LOGS/ALGO/ENV_N if it evaluates (--eval-freq)."
        )
    return found


def _folders(folder: Path) -> Iterator[Path]:
    for here, children, files in os.walk(folder):
        children.sort()
        if _EVALUATIONS in files:
            yield Path(here)


def _load(path: Path) -> RunEntry:
    named = _FOLDER.fullmatch(path.name)
    env = named["env"] if named else path.name
    algo = f"{path.parent.name} (rl_zoo3)"
    try:
        evaluations = _evaluations(path / _EVALUATIONS)
        config = _yaml(path / env / "config.yml")
        arguments = _yaml(path / env / "args.yml")
    except (OSError, ValueError, KeyError) as error:
        return RunEntry(RunSummary(path, DAMAGED, algo, env), f"cannot be read: {one_line(error)}")
    seed = arguments.get("seed")
    values: dict[str, Any] = {"algo.name": algo, "env.name": env, "env.id": env}
    values |= {f"algo.hyperparams.{key}": value for key, value in config.items()}
    values |= {key: arguments[key] for key in _ARGUMENTS if arguments.get(key) is not None}
    summary = RunSummary(
        path=path,
        state=FINISHED,
        algo=algo,
        env=env,
        seed=seed if isinstance(seed, int) else None,
        steps=evaluations[-1].step,
        best=max(each.mean_return for each in evaluations),
        final=evaluations[-1].mean_return,
    )
    return RunEntry(summary, "", values, variant_key(values), None, evaluations)


def _yaml(file: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(read_plain_file(file, LARGEST_YAML_BYTES), _ZooLoader)
    except FileNotFoundError:
        return {}
    return data if isinstance(data, dict) else {}


def _evaluations(file: Path) -> tuple[Evaluation, ...]:
    with open_plain(file) as raw:
        arrays = read_arrays(raw, _LARGEST_BYTES, ("timesteps", "results"))
    steps = np.asarray(arrays["timesteps"], dtype=np.int64)
    results = np.asarray(arrays["results"], dtype=np.float64)
    if results.ndim == 3 and results.shape[2] == 1:
        # An environment whose rewards are arrays of one number.
        results = results[..., 0]
    if steps.ndim != 1 or results.ndim != 2 or len(steps) != len(results) or not results.size:
        raise ValueError(f"{file.name} has arrays of other shapes")
    by_step = {
        int(step): Evaluation(int(step), row.mean(), row.std())
        for step, row in zip(steps, results, strict=True)
        if np.isfinite(row).all()
    }
    if not by_step:
        raise ValueError(f"{file.name} has no finite returns")
    return tuple(by_step[step] for step in sorted(by_step))
