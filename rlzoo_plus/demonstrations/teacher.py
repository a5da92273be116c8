"""A teacher: a trained policy that says what it would do in the world where another one learns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlzoo_plus.agents.policy import Policy, load_run_bundle, policy_from_bundle
from rlzoo_plus.analysis.find_run import find_place
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import Bundle, load_bundle
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.schema import RunConfig, TeacherConfig
from rlzoo_plus.demonstrations.dataset import Rows, is_alike
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError

HASH_DIGITS = 16


@dataclass(frozen=True)
class Teacher:
    """A policy, and what it sees of the observations of an environment."""

    policy: Policy
    entry: str | None  # The one entry of a dictionary that it sees; None: what its space names
    about: Mapping[str, Any]  # For the provenance of the run

    def actions(self, observations: Rows) -> np.ndarray:
        """Return what it does in each environment, without exploration.

        Args:
            observations: As the environments give them, not normalized.
        """
        space = self.policy.observation_space
        if self.entry is not None:
            observations = observations[self.entry]
        elif isinstance(space, spaces.Dict):
            observations = {key: observations[key] for key in space.spaces}
        chosen, _ = self.policy.predict(observations)
        return chosen


def read_teacher(given: TeacherConfig) -> tuple[Path, Bundle]:
    """Return where a teacher is, and its bundle: data, of which nothing is executed.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    name = str(given.run)
    try:
        # pathlib would take one of the slashes of hf://.
        place = find_place(name if "://" in name else Path(name).expanduser(), str(given.which))
        which = str(given.which) if place.which == "best" else place.which
        if place.is_bundle:
            return place.path.absolute(), load_bundle(place.path)
        return place.path.absolute(), load_run_bundle(RunDir(place.path), which, "teacher.which=")
    except (ConfigError, DamagedFolderError) as error:
        raise ConfigError(f"teacher={printable(name)}: {one_line(error)}") from error


def sha256_of(bundle: Bundle) -> str:
    """Return a hash of what decides how a teacher acts."""
    weights = [[name, bundle.weights[name]] for name in sorted(bundle.weights)]
    shape = json.dumps([bundle.config.get("algo"), bundle.config.get("network")], sort_keys=True)
    files = pack([weights, bundle.normalization, bundle.spaces, shape])
    whole = hashlib.sha256(b"".join(files[name] for name in sorted(files)))
    return whole.hexdigest()[:HASH_DIGITS]


def with_teacher(config: RunConfig) -> RunConfig:
    """Return a configuration that names its teacher by an absolute path and a hash.

    Raises:
        ConfigError: There is no such teacher, or it is not that of `teacher.sha256`.
    """
    given = config.teacher
    path, bundle = read_teacher(given)
    found = sha256_of(bundle)
    if given.sha256 is not None and given.sha256 != found:
        raise ConfigError(
            f"teacher={given.run}: its content is {found}, and this run learns from "
            f"{printable(given.sha256)}. It was changed, perhaps by a training in progress: name "
            "a step with teacher.which=STEP, or a copy in teacher.run."
        )
    update = {"run": str(path), "sha256": found}
    return config.model_copy(update={"teacher": given.model_copy(update=update)})


def load_teacher(
    config: RunConfig, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> Teacher:
    """Return the teacher of a run, for environments with these spaces.

    Raises:
        ConfigError: It is damaged, was changed, does not fit them, or needs code that is not ours.
    """
    given = with_teacher(config).teacher
    path, bundle = read_teacher(given)
    try:
        # What its networks draw before they have their weights is none of the run's numbers.
        with torch.random.fork_rng(devices=[]):
            policy = policy_from_bundle(bundle)
    except ConfigError as error:
        raise ConfigError(f"teacher={given.run}: {error}") from error
    assert policy.config is not None
    spec = get_algorithm(policy.config.algo.name)
    if spec.recurrent or spec.maskable:
        raise ConfigError(
            f"teacher={given.run}: {spec.name} needs more than one observation to act. Use a "
            "teacher without memory and action masks."
        )
    if not is_alike(policy.action_space, action_space, bounds=True):
        raise _misfit(given, "actions", policy.action_space, action_space)
    entry = _entry(given, policy.observation_space, observation_space)
    about = {"path": str(path), "sha256": given.sha256, "step": policy.step}
    about |= {"algo": policy.config.algo.name, "env": printable(policy.config.env.id)}
    return Teacher(policy, entry, about)


def _entry(given: TeacherConfig, theirs: spaces.Space[Any], ours: spaces.Space[Any]) -> str | None:
    """Return the entry that a teacher sees; None for one that sees what its space names.

    Raises:
        ConfigError: What it was trained with is not there.
    """
    parts = parts_of(ours)
    if given.observation is not None:
        seen = parts.get(given.observation)
        if seen is None or not given.observation:
            known = ", ".join(filter(None, parts)) or "none"
            what = f"teacher.observation={printable(given.observation)}: the observation has"
            raise ConfigError(f"{what} no such entry. It has: {known}.")
        if not is_alike(theirs, seen, bounds=False):
            where = f"the entry {given.observation} is"
            raise _misfit(given, "observations", theirs, seen, where=where)
        return given.observation
    named = {key: parts[key] for key in parts_of(theirs) if key in parts}
    seen = spaces.Dict(named) if isinstance(theirs, spaces.Dict) else parts.get("", ours)
    if is_alike(theirs, seen, bounds=False):
        return None
    fitting = [key for key, part in parts.items() if key and is_alike(theirs, part, bounds=False)]
    fix = {"fix": f"Set teacher.observation={fitting[0]}"} if fitting else {}
    raise _misfit(given, "observations", theirs, ours, **fix)


def _misfit(
    given: TeacherConfig,
    what: str,
    theirs: spaces.Space[Any],
    ours: spaces.Space[Any],
    *,
    where: str = "those of the environment are",
    fix: str = "Use the environment and the wrappers that it was trained with",
) -> ConfigError:
    return ConfigError(
        f"teacher={printable(given.run)}: its {what} are {printable(theirs)}, and {where} "
        f"{printable(ours)}. {fix}."
    )
