"""Warm starts: a new run begins from the weights of an earlier one.

The source is read as data: a run's bundle or checkpoint, or a zip of Stable-Baselines3. Nothing in
it is executed or imported. The run's first checkpoint, at step 0, holds what was taken, so that the
run resumes without the source.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlzoo_plus.agents.policy import load_run_bundle, misfits, with_old_names
from rlzoo_plus.analysis.find_run import find_place, stored_config
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import Bundle, load_bundle
from rlzoo_plus.artifacts.checkpoint import Checkpoint
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.config.schema import InitConfig, RunConfig
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.envs.plain_state import to_plain
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.sb3_archive import read_archive, read_statistics
from rlzoo_plus.export.zoo_agent import find_files
from rlzoo_plus.training.resume import replay_rows
from rlzoo_plus.training.resume.agent_state import take_over_optimizers

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

log = logging.getLogger(__name__)
# Raised where a part of a source is damaged, or does not fit the agent.
_MISFITS = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, DamagedFolderError)
_SHOWN, HASH_DIGITS = 6, 16


@dataclass(frozen=True)
class Source:
    """What a warm start takes from an earlier run."""

    about: dict[str, Any]  # its path, step and algorithm
    weights: dict[str, np.ndarray]  # the policy's parameters by name
    normalization: dict[str, Any] | None  # statistics of the observations
    agent: dict[str, Any] = field(default_factory=dict)  # optimizers and learned tensors, if wanted
    checkpoint: Checkpoint | None = None  # holds the replay buffer, if one of both is wanted

    def sha256(self, parts: Iterable[str]) -> str:
        """Return a hash of the content of some parts."""
        chunks = {} if self.checkpoint is None else self.checkpoint.chunks
        content: dict[str, Any] = {
            "policy": [[name, self.weights[name]] for name in sorted(self.weights)],
            "normalization": self.normalization,
            "optimizer": [self.agent.get("parameters"), self.agent.get("tensors")],
            "buffer": [[name, list(index.names)] for name, index in sorted(chunks.items())],
        }
        files = pack([[part, content[part]] for part in sorted(set(parts))])
        return hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()


def with_source(config: RunConfig) -> RunConfig:
    """Return a configuration that names its initial weights by an absolute path and their hash.

    Raises:
        ConfigError: They are missing, damaged, or not those of `init.sha256`.
    """
    if config.init_from is None:
        return config
    if config.init_from.startswith("s3://"):
        raise ConfigError(
            f"init_from={printable(config.init_from)}: what a run starts from is on this machine. "
            f"Bring it here with `rlzoo-plus pull {printable(config.init_from)}`, and name its "
            "directory."
        )
    path = Path(config.init_from).expanduser()
    # pathlib would take one of the slashes of hf://.
    name = config.init_from if "://" in config.init_from else path
    try:
        place = find_place(name, str(config.init.which))
    except ConfigError as error:
        if config.run_dir is not None:
            # A run that has started no longer needs its source.
            with contextlib.suppress(ConfigError):
                before = stored_config(RunDir(Path(config.run_dir)))
                if before.init_from == str(path.absolute()):
                    update = {"init_from": before.init_from, "init": before.init}
                    return config.model_copy(update=update)
        raise ConfigError(f"init_from={config.init_from}: {error}") from error
    path = place.path.absolute()
    named = {} if place.which == "best" else {"which": place.which}
    init = config.init.model_copy(update=named)
    # The files that decide the hash of the source.
    files = [path, *sorted(path.glob("*/MANIFEST.json")), path / "MANIFEST.json"]
    changed_at = tuple(file.stat().st_mtime_ns for file in files if file.exists())
    known = _hash_of(str(path), init.model_dump_json(), changed_at)
    _check_hash(config, known)
    init = init.model_copy(update={"sha256": known[:HASH_DIGITS]})
    return config.model_copy(update={"init_from": str(path), "init": init})


def begin_from_source(
    agent: BaseAlgorithm, config: RunConfig, run_dir: RunDir | None = None
) -> None:
    """Load the source of a warm start into a new agent, and record it in the run's provenance.

    Raises:
        ConfigError: The source is missing, was changed, or does not fit; the text names the layers.
    """
    init = config.init
    source = read_source(config.init_from, init)
    sha256 = source.sha256(init.parts)
    _check_hash(config, sha256)
    take = {
        "normalization": lambda: _take_normalization(agent, source),
        "optimizer": lambda: take_over_optimizers(agent, source.agent),
        "buffer": lambda: _take_buffer(agent, source.checkpoint),
    }
    left = _take_policy(agent, source, config) if "policy" in init.parts else []
    for part in [name for name in take if name in init.parts]:
        try:
            take[part]()
        except _MISFITS as error:
            reason = f"{part}: {one_line(error)}"
            if not init.partial:
                raise _misfit(config, [reason]) from error
            left.append(reason)
    log.info("begins from %s, step %s", source.about["path"], f"{source.about['step']:,}")
    for text in left:
        log.warning("begins fresh: %s", text)
    if starts := config.algo.hyperparams.get("learning_starts"):
        advice = "algo.hyperparams.learning_starts=0 begins with the policy"
        log.info("its first %s steps act at random: %s", f"{starts:,}", advice)
    if run_dir is not None:
        run_dir.add_provenance("init", {**source.about, "sha256": sha256, "left_out": left})


def read_source(path: str | None, init: InitConfig) -> Source:
    """Read the parts of a source that are asked for.

    Raises:
        ConfigError: They are missing or damaged.
    """
    assert path is not None
    place = Path(path)
    needs_checkpoint = {"optimizer", "buffer"} & set(init.parts)
    names: list[str] = []
    no_zip = (OSError, ValueError, zipfile.BadZipFile, NotImplementedError)
    with contextlib.suppress(*no_zip), zipfile.ZipFile(place) as archive:
        names = archive.namelist()
    of_sb3 = "policy.pth" in names
    held = ["policy", *(["optimizer"] if of_sb3 else []), "normalization"]
    if place.is_file() and (more := needs_checkpoint - set(held)):
        raise ConfigError(
            f"init_from={printable(path)}: this zip holds no {' and no '.join(sorted(more))}. Set "
            f"init.parts=[{','.join(held)}]."
        )
    if of_sb3:
        return _read_zip(place, optimizers=bool(needs_checkpoint))
    run = RunDir(place)
    is_run = run.config_file.is_file()
    try:
        which = str(init.which)
        bundle = load_run_bundle(run, which, "init.which=") if is_run else load_bundle(place)
        checkpoint, agent = None, {}
        if needs_checkpoint:
            checkpoint = _checkpoint_of(run, bundle, init)
            weights = checkpoint.state["agent"]["parameters"]["policy"]
            agent, statistics = checkpoint.state["agent"], checkpoint.state["normalizer"]
            bundle = replace(bundle, weights=weights, normalization=statistics)
        if not all(isinstance(value, np.ndarray) for value in bundle.weights.values()):
            raise TypeError("its weights are no arrays")
    except _MISFITS as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"init_from={printable(path)}: {one_line(error)}.") from error
    about = {"path": str(place), "step": bundle.about["step"], "algo": None}
    algo: Any = bundle.config.get("algo")
    if isinstance(algo, Mapping) and isinstance(algo.get("name"), str):
        about["algo"] = printable(algo["name"])
    if is_run:
        about["which"] = str(init.which)
    return Source(about, bundle.weights, bundle.normalization, agent, checkpoint)


def _checkpoint_of(run: RunDir, bundle: Bundle, init: InitConfig) -> Checkpoint:
    """Return the checkpoint at the step of a bundle."""
    step, store = bundle.about["step"], run.checkpoints()
    if step not in store.steps():
        shown = ", ".join(map(str, store.steps())) or "none"
        raise ConfigError(
            f"init.parts={init.parts}: {run.path} has no checkpoint at step {step}, which alone "
            f"holds optimizer and buffer. Checkpoints: {shown}. Choose one with init.which=STEP."
        )
    return store.load(step)


def _read_zip(path: Path, *, optimizers: bool) -> Source:
    archive = read_archive(path, optimizers=optimizers)
    file = find_files(path).statistics
    normalizer = None if file is None else read_statistics(file).normalizer
    steps = archive.facts.get("num_timesteps")
    about = {"path": str(path), "step": steps if type(steps) is int else 0}
    weights = to_plain(archive.weights)
    agent = {"parameters": archive.optimizers, "tensors": archive.learned} if optimizers else {}
    statistics = None if normalizer is None else normalizer.state()
    return Source(about, weights, statistics, to_plain(agent))


def _take_policy(agent: BaseAlgorithm, source: Source, config: RunConfig) -> list[str]:
    """Load the layers that fit; return a text for each that does not."""
    own = agent.policy.state_dict()
    given = with_old_names(source.weights, own)
    lines = misfits(own, given)
    fitting = own.keys() & given.keys() - lines.keys()
    if not fitting or (lines and not config.init.partial):
        raise _misfit(config, list(lines.values()), len(fitting))
    bad = [name for name in fitting if not np.isfinite(given[name]).all()]
    if bad:
        raise ConfigError(f"init_from={config.init_from}: {printable(bad[0])} is not finite.")
    agent.policy.load_state_dict(
        {**own, **{name: torch.from_numpy(np.array(given[name])) for name in fitting}}
    )
    if hasattr(agent, "weights"):
        # Augmented random search keeps a second copy, and trains that one.
        agent.weights = torch.nn.utils.parameters_to_vector(agent.policy.parameters()).detach()
    return list(lines.values())


def _take_normalization(agent: BaseAlgorithm, source: Source) -> None:
    venv = agent.get_vec_normalize_env()
    normalizer = ObservationNormalizer.from_state(source.normalization)
    if normalizer is None or venv is None or not venv.norm_obs:
        if normalizer is not None:
            raise ValueError("it has statistics of observations; set normalize=true to use them")
        if venv is not None and venv.norm_obs:
            raise ValueError("its policy saw raw observations; set normalize=false")
        return
    normalizer.check_fits(venv.observation_space)
    for key, mean in normalizer.mean.items():
        rms = venv.obs_rms[key] if isinstance(venv.obs_rms, dict) else venv.obs_rms
        rms.mean, rms.var = mean.astype(np.float64), normalizer.var[key].astype(np.float64)
        rms.count = normalizer.count[key]


def _take_buffer(agent: Any, checkpoint: Checkpoint | None) -> None:
    assert checkpoint is not None
    buffer, state = agent.replay_buffer, checkpoint.state["buffer"]
    if state is None:
        raise ValueError("it has none")
    for name in replay_rows.CONSTANT:
        if name in state and state[name] != getattr(buffer, name):
            raise ValueError(f"{name} is {state[name]} there, {getattr(buffer, name)} here")
    for name, group in replay_rows.row_groups(buffer).items():
        checkpoint.read_rows(name, group.columns)
    replay_rows.restore_buffer_state(buffer, state)
    replay_rows.end_running_episodes(buffer)


def _misfit(config: RunConfig, lines: list[str], n_fitting: int | None = None) -> ConfigError:
    shown = "".join(f"\n  {printable(line)}" for line in lines[:_SHOWN])
    more = f"\n  ... and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    rest = "what fits" if n_fitting is None else f"the {n_fitting} layers that fit"
    fix = f", or take {rest}: init.partial=true" if n_fitting != 0 else "; no layer fits"
    return ConfigError(
        f"init_from={config.init_from} does not fit this run:{shown}{more}\nChoose algorithm, "
        f"network, environment and normalize as they were there{fix}."
    )


def _check_hash(config: RunConfig, sha256: str) -> None:
    """Raise a ConfigError if a source is not the one of `init.sha256`."""
    wanted = config.init.sha256
    if wanted is not None and wanted[:HASH_DIGITS] != sha256[:HASH_DIGITS]:
        raise ConfigError(
            f"init_from={config.init_from}: its content is {sha256[:HASH_DIGITS]}, and this run "
            f"begins from {printable(wanted)[:HASH_DIGITS]}. It was changed, perhaps by a training "
            "in progress: name a step with init.which=STEP, or a copy."
        )


@functools.lru_cache(maxsize=16)
def _hash_of(path: str, init: str, _changed_at: tuple[int, ...]) -> str:
    """Return the hash of a source, computed once for all jobs of a sweep."""
    asked = InitConfig.model_validate_json(init)
    return read_source(path, asked).sha256(asked.parts)
