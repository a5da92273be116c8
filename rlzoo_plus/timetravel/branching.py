"""Begins a run at an exact checkpoint of another one, with some settings changed."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlzoo_plus import accelerators
from rlzoo_plus.artifacts.atomic import DamagedFolderError, write_folder, write_synced
from rlzoo_plus.artifacts.bundle import Bundle, load_bundle, save_bundle
from rlzoo_plus.artifacts.checkpoint import CHUNK_FOLDER, MILESTONE, Checkpoint, packed
from rlzoo_plus.artifacts.encryption import cipher_of
from rlzoo_plus.artifacts.inside import check_plain
from rlzoo_plus.artifacts.run_dir import INTERRUPTED, RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_file
from rlzoo_plus.config.compare import outcome_values
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.environment_version import environment_version
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.plan import Plan, plan_run, with_overrides
from rlzoo_plus.runs.run import Run
from rlzoo_plus.runs.train_job import begin_run
from rlzoo_plus.timetravel.branch_rules import Changes, changes_of, check_changes
from rlzoo_plus.training.resume.log_rows import copy_logs

# Settings whose change makes earlier evaluations incomparable.
_OF_EVALUATIONS = ("env.", "eval.episodes", "eval.deterministic", "eval.max_episode_steps")


@dataclass(frozen=True)
class Branch:
    """A run that is to begin at a checkpoint of another."""

    parent: RunDir
    checkpoint: Checkpoint
    config: RunConfig  # of the new run
    changes: Changes  # old and new value by key
    parent_hash: str  # of the parent's configuration

    def begin(self, command: str) -> Plan:
        """Make the run directory with the checkpoint; return how to train on from there.

        Raises:
            ConfigError: `run_dir` holds a run, or the parent cannot be read.
        """
        keeps_best = not any(key.startswith(_OF_EVALUATIONS) for key in self.changes)

        def save(run_dir: RunDir) -> None:
            about = {
                "parent": str(self.parent.path.absolute()),
                "step": self.checkpoint.step,
                "parent_config_hash": self.parent_hash,
                "changed": {key: list(values) for key, values in self.changes.items()},
            }
            # A branch that is killed before it has its checkpoint must not start from nothing.
            steps = {"num_timesteps": self.checkpoint.step, "n_timesteps": self.config.n_timesteps}
            run_dir.write_status(INTERRUPTED, message="begun as a branch", **steps)
            run_dir.add_provenance("branch", about)
            try:
                copy_logs(self.parent, run_dir, self.checkpoint.about["logs"])
                copy_checkpoint(self.parent, self.checkpoint, run_dir, self.config, best=keeps_best)
            except BaseException:
                for folder in (run_dir.checkpoints().root, run_dir.best):
                    shutil.rmtree(folder, ignore_errors=True)
                run_dir.evaluations_file.unlink(missing_ok=True)
                raise

        try:
            run_dir = begin_run(self.config, command, save)
        except ConfigError:
            raise
        # Any part of the checkpoint may be forged.
        except Exception as error:
            where = printable(self.parent.path)
            raise ConfigError(f"{where}: cannot be copied: {one_line(error)}.") from error
        return plan_run(self.config.model_copy(update={"run_dir": str(run_dir.path)}))


def plan_branch(name: str, overrides: list[str], *, trust: bool = False) -> Branch:
    """Check what is asked for; nothing is written.

    Args:
        name: `RUN@STEP`; STEP is a checkpoint, `latest` or `best`.
        overrides: `KEY=VALUE` each.
        trust: Import what the run names and this project does not ship.

    Raises:
        ConfigError: There is no such checkpoint, it needs trust, or a key may not change.
    """
    where, at, wanted = name.rpartition("@")
    if not at or not where:
        raise ConfigError(
            f"{printable(name)}: must be RUN@STEP, e.g. latest@latest or RUN@4096, the run and "
            "one of its checkpoints."
        )
    run = Run.open(where, trust=trust)
    parent = source_of(run)
    run.require_trust(to_train=True, without_store=True)
    before, now = _configs(run.config, overrides)
    changes = changes_of(before, now)
    check_changes(changes, before, now)
    checkpoint = load_checkpoint(parent, wanted)
    if checkpoint.step >= now.n_timesteps:
        raise ConfigError(
            f"{printable(name)}: step {checkpoint.step:,} is the end of n_timesteps="
            f"{now.n_timesteps}. Choose an earlier checkpoint, or a larger n_timesteps."
        )
    # torch is imported here, when what is asked for is known to be right.
    accelerators.before_torch(run.config)
    from rlzoo_plus.timetravel.growth import fitting

    try:
        # Before anything is written.
        checkpoint = fitting(checkpoint, now, changes)
    except ConfigError as error:
        if not changes:
            raise
        raise ConfigError(
            f"{', '.join(changes)}: cannot change in the middle of a run: {error} Leave out what "
            "does not fit, or begin a new run with these weights: train ... init_from=RUN."
        ) from error
    return Branch(parent, checkpoint, now, changes, config_hash(before))


def _configs(config: RunConfig, overrides: list[str]) -> tuple[RunConfig, RunConfig]:
    """Return the parent's configuration, without its place and stores, and that of the branch."""
    here = {"run_dir": None, "store": None, "sweep": None, "restart": False, "resume": "auto"}
    before = config.model_copy(update=here)
    now = with_overrides(before.model_dump(), overrides, None)
    typed = [word.partition("=")[2] for word in overrides if word.startswith("run_dir=")]
    return before, now.model_copy(update={"run_dir": typed[-1]} if typed else {})


def source_of(run: Run) -> RunDir:
    """Return the directory of a run whose checkpoints can be read.

    Raises:
        ConfigError: It is a bundle, a copy without checkpoints, or has a link in it.
    """
    run_dir = run.run_dir
    if run.is_copy:
        raise ConfigError(
            f"{printable(run_dir.path)} is a copy without checkpoints. Bring the run here with "
            "`rlzoo-plus pull`, or resume it here first, and name its directory."
        )
    check_plain(run_dir.path)
    return run_dir


def load_checkpoint(run: RunDir, wanted: str) -> Checkpoint:
    """Load the checkpoint of a step, the newest (`latest`) or that of the best evaluation.

    Raises:
        ConfigError: There is no such checkpoint, or it is damaged.
    """
    store = run.checkpoints()
    steps = store.steps()
    there = f"It has: {', '.join(map(str, steps))}." if steps else "It has none."
    mend = f"{there} checkpoint.every_steps and checkpoint.milestone_steps make a run keep more."
    step = None
    if wanted == "latest" and steps:
        step = steps[-1]
    elif wanted == "best":
        found = run.read_result().get("best") or _best_of_bundle(run)
        step = found.get("step") if isinstance(found, dict) else None
    elif wanted.isascii() and wanted.isdecimal() and len(wanted) <= 18:
        step = int(wanted)
    if step not in steps:
        shown = printable(wanted, 40)
        raise ConfigError(f"{printable(run.path)} has no checkpoint {shown}. {mend}")
    try:
        checkpoint = store.load(step)
    except DamagedFolderError as error:
        raise ConfigError(f"{error}. {there}") from error
    if checkpoint.schema < 2 or not isinstance(checkpoint.about.get("logs"), dict):
        raise ConfigError(f"{checkpoint.path}: is of an earlier version, without everything.")
    return checkpoint


def _best_of_bundle(run: RunDir) -> dict[str, Any]:
    try:
        return load_bundle(run.best).about
    except (DamagedFolderError, OSError):
        return {}


def copy_checkpoint(
    parent: RunDir, checkpoint: Checkpoint, run: RunDir, config: RunConfig, *, best: bool
) -> None:
    """Copy a checkpoint, so that another run resumes from it with its own configuration.

    Args:
        parent: The run that has it.
        checkpoint: What is copied, with the rows of its replay buffer.
        run: Gets it, never to be pruned.
        config: What it is resumed with: a difference from the parent is meant.
        best: Take over the best evaluation, and its policy; otherwise none is known yet.

    Raises:
        OSError: It cannot be read or written.
        ValueError: A chunk is larger than it should be.
    """
    folder = run.checkpoints().root / CHUNK_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for index in checkpoint.chunks.values():
        for name, size in zip(index.names, index.sizes, strict=True):
            data = read_plain_file(checkpoint.path.parent / CHUNK_FOLDER / name, size)
            write_synced(folder / name, data)
    state = copy.copy(checkpoint.state)
    state["callbacks"] = {
        path: value if not path.endswith(":EvaluationCallback") else _evaluation(
            parent, value, run, config, best=best
        )
        for path, value in state.get("callbacks", {}).items()
    }  # fmt: skip
    about = {
        **checkpoint.about,
        **{"branch": outcome_values(config), "config_hash": config_hash(config)},
        **{"n_timesteps": config.n_timesteps, "ended": None, "kept_as": MILESTONE},
    }
    files = packed(state, cipher_of(config.encryption))
    write_folder(run.checkpoints().root / checkpoint.path.name, files, about)


def _evaluation(
    parent: RunDir, state: Mapping[str, Any], run: RunDir, config: RunConfig, *, best: bool
) -> dict[str, Any]:
    """Return the state of the evaluations for the copy, and write its best policy."""
    account = dict(state["account"])
    record = account.get("best")
    bundle = _best_bundle(parent, record) if best and isinstance(record, dict) else None
    if bundle is None:
        account |= {"best": None, "since_best": 0} | ({} if best else {"last": None})
    else:
        about = {**dict(record or {}), "environment": environment_version(config.env)}
        save_bundle(run.best, replace(bundle, about=about))
    return {**state, "account": account}


def _best_bundle(parent: RunDir, record: Mapping[str, Any]) -> Bundle | None:
    """Return the policy of an evaluation, from best/ or from its checkpoint; None if it is gone."""
    step = record.get("step")
    try:
        bundle = load_bundle(parent.best)
        if bundle.about.get("step") == step:
            return bundle
        if step not in parent.checkpoints().steps():
            return None
        kept = parent.checkpoints().load(int(step or 0))
        return replace(
            bundle,
            weights=kept.state["agent"]["parameters"]["policy"],
            normalization=kept.state["normalizer"],
        )
    except (DamagedFolderError, OSError, KeyError, TypeError):
        return None
