"""Makes a version out of a run: its policy, ONNX, an evaluation, and what says where it is from."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.agents.policy import save_weights
from rlzoo_plus.analysis.find_run import LATEST
from rlzoo_plus.artifacts.atomic import MANIFEST, DamagedFolderError, finite, read_folder
from rlzoo_plus.artifacts.run_dir import LARGEST_OF_RUN
from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_file
from rlzoo_plus.deploy.bundle_export import write_deployed
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models.model_records import VersionRecord, largest_of
from rlzoo_plus.models.model_store import ModelStore
from rlzoo_plus.policies.verification import EPISODES, record_evaluation
from rlzoo_plus.runs.run import Run

_SCORES = ("mean_return", "std_return", "iqm_return", "success_rate", "episodes")


@dataclass
class Registered:
    """A version that was registered."""

    record: VersionRecord
    is_new: bool  # False if these very files were registered before
    notes: list[str] = field(default_factory=list)  # What it is without, and why


def split_run(text: str) -> tuple[str, str | None]:
    """Return a run and which of its policies: `RUN@best`, `RUN@final` or `RUN@STEP`."""
    run, separator, which = text.rpartition("@")
    if not separator or os.path.lexists(text):
        return text, None
    is_step = which.isascii() and which.isdigit() and (os.path.lexists(run) or run == LATEST)
    return (run, which) if which in ("best", "final") or is_step else (text, None)


def register(
    run: Run,
    which: str | None,
    store: ModelStore,
    name: str,
    *,
    origin: str,
    why: str = "",
    episodes: int = 20,
    onnx: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Registered:
    """Register a policy of a run as the next version of a model.

    Args:
        run: The run; a bundle alone does not say enough.
        which: `best`, `final` or a step; None for the one that was named, or the best.
        store: The registry.
        name: The model.
        origin: How the run was named, for the record.
        why: A note of the user.
        episodes: How many held-out episodes are played and hashed.
        onnx: Add the policy as ONNX, and the folder that `rlzoo-plus deploy` writes, where they can
            be written.
        say: Called with what is done next, which can take a while.

    Raises:
        ConfigError: The run cannot be registered, or needs trust.
        StoreError, DamagedModelError: As `ModelStore.put_version`.
    """
    if run.status == "bundle":
        raise ConfigError(
            f"{printable(run.path)} is a bundle, without env.kwargs and provenance. Name its run."
        )
    run.require_trust()
    # Before what takes a while.
    store.require_writable()
    notes: list[str] = []
    which = which or run.which
    with tempfile.TemporaryDirectory(prefix="rlzoo-model-") as made:
        folder = Path(made) / name
        folder.mkdir()
        _copy_run(run, folder)
        step = _copy_policy(run, which, folder / "best")
        # From here on the copy acts: what is evaluated is what is registered.
        copy = Run.open(folder, trust=run.is_trusted, other_env=run.allows_other_env)
        say(f"playing {episodes} held-out episodes")
        evaluation = record_evaluation(copy, folder / EPISODES, episodes, hashed=True)
        if onnx:
            say("writing ONNX")
            _try(notes, "ONNX", lambda: copy.export("onnx", folder / "policy.onnx"))
            _try(
                notes,
                "folder for a robot",
                lambda: _write_deployed(copy, which, folder / "deploy"),
            )
        files = [
            file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
        ]
        left = [file for file in files if largest_of(file) is None]
        notes += [f"left out: {', '.join(sorted(left))}"] if left else []
        about_it = {
            "origin": printable(origin),
            "which": which,
            "step": step,
            "algo": copy.config.algo.name,
            "env": copy.config.env.id,
            "why": why,
            "environment": copy.trained_environment,
            "evaluation": finite({key: evaluation[key] for key in _SCORES}),
        }
        record, is_new = store.put_version(name, folder, sorted(set(files) - set(left)), about_it)
    return Registered(record, is_new, notes)


def _write_deployed(run: Run, which: str, folder: Path) -> None:
    policy = run.policy()
    about = run.facts(which, policy)
    write_deployed(policy, run.config, folder, about, with_runtime=False)


def _try(notes: list[str], what: str, make: Callable[[], Any]) -> None:
    """Make a part that not every policy can have; note why there is none."""
    try:
        make()
    except ConfigError as error:
        notes.append(f"no {what}: {error}")


def _copy_run(run: Run, folder: Path) -> None:
    for name, largest in LARGEST_OF_RUN.items():
        source = run.run_dir.path / name
        if not os.path.lexists(source):
            continue
        try:
            (folder / name).write_bytes(read_plain_file(source, largest))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{printable(source)} cannot be registered: it {one_line(error)}."
            ) from error


def _copy_policy(run: Run, which: str, folder: Path) -> int:
    """Write the bundle of a policy; return its step."""
    policy = run.policy(which)
    source = run.run_dir.path / which
    if which in ("best", "final") and source.is_dir():
        try:
            names = read_folder(source)[0]
        except DamagedFolderError as error:
            raise ConfigError(f"no usable policy: {error}.") from error
        folder.mkdir()
        for name in (*names, MANIFEST):
            shutil.copyfile(source / name, folder / name)
    else:
        state = policy.network.state_dict().items()
        weights = {name: value.detach().cpu().numpy().copy() for name, value in state}
        about = {**policy.about, "step": policy.step, "environment": run.trained_environment}
        agent: Any = policy.network
        save_weights(folder, agent, run.config, about, weights, policy.normalizer)
    return int(policy.step or 0)
