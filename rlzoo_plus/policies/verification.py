"""Verifies a policy by its recorded episodes: hashes, every step played again, and the score.

`evaluation.json` beside the episodes says what played them, where, and what they scored. It may
come from others: what it says is compared with what happens here, and decides nothing else.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.atomic import finite, write_json
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_plain_file,
)
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.entries import as_parts
from rlzoo_plus.policies.episode import Episode, episode_files, load_episode, save_episodes
from rlzoo_plus.policies.recorder import EpisodeRecorder
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.resume.fingerprint import differences, numeric_fingerprint

EPISODES, EVALUATION = "episodes", "evaluation.json"
# How far the mean return may be from the recorded one on another machine, of its size or spread.
TOLERANCE = 0.05
# Modules that may step an environment besides those every fingerprint has, and what installs them.
_ENGINES = {"mujoco": "mujoco", "ale_py": "ale-py", "panda_gym": "panda-gym"}
_FILE = re.compile(r"episode-\d{4,6}\.(json|npz)")
_LARGEST_BYTES = 2**28
# Monitors round returns, and sum them in single precision.
_ROUNDING = 1e-4
_HOW = "`rlzoo-plus evaluate RUN --save-episodes DIR` writes it."


class _Evaluation(BaseModel):
    """What `evaluation.json` says."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    format: Literal[1]
    policy: str  # `policy_hash` of what played
    which: str = Field(max_length=100)
    step: int = Field(ge=0)
    deterministic: bool
    seed: int = Field(ge=0, lt=2**32)  # of the set of held-out episodes
    overrides: list[str]
    returns: list[float] = Field(min_length=1)
    mean_return: float
    std_return: float
    fingerprint: dict[str, str]  # of the machine, the versions and the code
    files: dict[str, str]  # SHA-256 of each file of the episodes


@dataclass(frozen=True)
class Verdict:
    """What a verification has found."""

    holds: bool  # Whether the policy does what was recorded
    is_exact: bool  # Whether every step is the same, bit for bit
    text: str  # One line about it
    mean_return: float | None  # As played now; None if nothing was played
    recorded: float  # As recorded
    n_episodes: int


def policy_hash(policy: Policy) -> str:
    """Return a hash of the weights and statistics that a policy acts with."""
    state = {k: v.detach().cpu().numpy() for k, v in policy.network.state_dict().items()}
    statistics = None if policy.normalizer is None else policy.normalizer.state()
    files = pack([[[name, state[name]] for name in sorted(state)], statistics])
    return hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()


def save_evaluation(
    folder: Path,
    episodes: Sequence[Episode],
    policy: Policy,
    record: dict[str, Any],
    *,
    seed: int,
    about: dict[str, Any],
) -> list[Path]:
    """Write episodes with `evaluation.json`; return all files.

    Args:
        folder: Where to.
        episodes: As an `EpisodeRecorder` kept them.
        policy: What played them.
        record: What `Run.evaluate` returned.
        seed: Which set of held-out episodes it is.
        about: Where the policy is, and the id of its environment, for each episode's file.

    Raises:
        ConfigError: The folder cannot be written.
    """
    names = ("which", "step", "deterministic", "overrides")
    said = {name: record[name] for name in names}
    files = save_episodes(folder, episodes, {**about, **said})
    files += [file.with_suffix(".npz") for file in files]
    scores = ("returns", "mean_return", "std_return", "iqm_return", "success_rate")
    facts = {
        "format": 1,
        "policy": policy_hash(policy),
        **said,
        "which": said["which"] or "best",
        "seed": seed,
        **{name: record[name] for name in (*scores, "episode_lengths", "metrics")},
        "fingerprint": _fingerprint(d for m, d in _ENGINES.items() if m in sys.modules),
        "files": {file.name: _sha256(file.read_bytes()) for file in sorted(files)},
    }
    try:
        write_json(folder / EVALUATION, finite(facts))
    except OSError as error:
        raise ConfigError(f"{printable(folder)} cannot be written: {error.strerror}.") from error
    return [*files, folder / EVALUATION]


def verify(
    run: Run, folder: Path | None = None, which: str | None = None, tolerance: float = TOLERANCE
) -> Verdict:
    """Play recorded episodes again with their policy, and compare.

    Every step must be the same bit for bit, unless the machine, a version or this package's code
    differs from what was recorded: then the mean return must be within the tolerance.

    Args:
        run: The run, or the bundle.
        folder: Of the episodes; by default `episodes/` in the run, or beside the bundle.
        which: The policy; by default the one that was recorded.
        tolerance: How far the mean return may be off, as a part of the recorded one, or of its
            standard deviation if that is larger.

    Raises:
        ConfigError: There are no episodes, they cannot be read, or the run needs trust.
    """
    folder = folder or _episodes_of(run)
    said = _read(folder)
    run.require_trust()
    policy = run.policy(None if run.status == "bundle" else which or said.which)
    episodes, problem = _recorded(folder, said)
    if not problem and policy_hash(policy) != said.policy:
        problem = "its weights are not those that were recorded: their hashes differ"
    if problem:
        return _verdict(run, said, None, problem)
    recorders: list[EpisodeRecorder] = []

    def watching(*about: Any) -> EpisodeRecorder:
        recorders.append(EpisodeRecorder(*about))
        return recorders[-1]

    record = run.evaluate(
        len(episodes), which=policy, seed=said.seed, overrides=said.overrides, watching=watching
    )
    now = recorders[0].episodes()
    found = (
        f"episode {number}, {difference}"
        for number, pair in enumerate(zip(episodes, now, strict=True))
        if (difference := _difference(*pair))
    )
    difference = next(found, "")
    if not difference and record["returns"] != said.returns:
        difference = "the recorded returns are not those of the episodes"
    if not difference:
        return _verdict(run, said, record["mean_return"], "", is_exact=True)
    engines = [name for name in _ENGINES.values() if name in said.fingerprint]
    elsewhere = differences(said.fingerprint, _fingerprint(engines))
    most = tolerance * max(abs(said.mean_return), said.std_return)
    if not elsewhere:
        return _verdict(run, said, record["mean_return"], difference)
    changed = f"not bit for bit, since {printable('; '.join(elsewhere), 200)}"
    off = abs(record["mean_return"] - said.mean_return)
    far = "" if off <= most else f"the mean return is off by {off:.4g}, more than {most:.4g}"
    text = f"{far}; {changed}" if far else f"within {100 * tolerance:g}%; {changed}"
    return _verdict(run, said, record["mean_return"], text, holds=not far)


def _verdict(
    run: Run,
    said: _Evaluation,
    mean_return: float | None,
    text: str,
    *,
    holds: bool = False,
    is_exact: bool = False,
) -> Verdict:
    """Return a verdict whose line begins with what was verified."""
    count = len(said.returns)
    what = f"{said.which} of {run.path}, step {said.step:,}"
    if is_exact:
        text = f"{count} episodes are the same bit for bit, and all hashes match"
    played = "" if mean_return is None else f"; mean return {mean_return:.2f}"
    if played and not is_exact:
        played += f", recorded {said.mean_return:.2f}"
    shown = "verified" if holds or is_exact else "NOT verified"
    line = printable(f"{shown}: {what}: {text}{played}", 700)
    return Verdict(holds or is_exact, is_exact, line, mean_return, said.mean_return, count)


def _episodes_of(run: Run) -> Path:
    """Return the folder of a run's recorded episodes."""
    assert run.path is not None
    places = [run.path / EPISODES, run.path.parent / EPISODES]
    places = places if run.status == "bundle" else places[:1]
    found = next((place for place in places if (place / EVALUATION).is_file()), None)
    if found is None:
        shown = printable(run.path)
        raise ConfigError(
            f"{shown} has no recorded episodes. `rlzoo-plus evaluate {shown} --save-episodes "
            f"{printable(places[-1])}` records some; --episodes DIR names others."
        )
    return found


def _read(folder: Path) -> _Evaluation:
    file = folder / EVALUATION
    try:
        found = _Evaluation.model_validate(parse_json(read_plain_file(file, _LARGEST_BYTES)))
    except FileNotFoundError:
        raise ConfigError(f"{printable(file)}: no such file. {_HOW}") from None
    except (OSError, ValueError, ValidationError) as error:
        raise ConfigError(f"{printable(file)} is damaged: {one_line(error)}.") from error
    if not found.deterministic:
        raise ConfigError(
            f"{printable(folder)} was recorded with --stochastic, so its episodes differ each "
            "time. Record it without."
        )
    if any("${" in override for override in found.overrides):
        raise ConfigError(f"{printable(file)}: its overrides read variables of this machine.")
    return found


def _recorded(folder: Path, said: _Evaluation) -> tuple[list[Episode], str]:
    """Return the recorded episodes, and what is wrong with their files, empty if nothing is."""
    paths = episode_files(folder)
    there = {path.name for file in paths for path in (file, file.with_suffix(".npz"))}
    if there != said.files.keys() or not all(map(_FILE.fullmatch, there)):
        return [], f"{EVALUATION} lists other files than there are"
    episodes = []
    for path in paths:
        for file in (path, path.with_suffix(".npz")):
            largest = LARGEST_MANIFEST_BYTES if file is path else _LARGEST_BYTES
            try:
                if _sha256(read_plain_file(file, largest)) != said.files[file.name]:
                    return [], f"{file.name} was changed: its hash differs"
            except (OSError, ValueError) as error:
                return [], f"{file.name}: {one_line(error)}"
        episodes.append(load_episode(path)[0])
    if [episode.seed for episode in episodes] != held_out_seeds(len(episodes), said.seed):
        return [], f"its seeds are not those of the held-out episodes of set {said.seed}"
    summed = [episode.episode_return for episode in episodes]
    sizes = [max(1.0, float(np.abs(episode.rewards).sum())) for episode in episodes]
    fits = len(summed) == len(said.returns) and all(
        abs(a - b) <= _ROUNDING * size
        for a, b, size in zip(summed, said.returns, sizes, strict=True)
    )
    mean = float(np.mean(said.returns))
    if not fits or abs(mean - said.mean_return) > _ROUNDING * max(1.0, abs(mean)):
        return [], "the recorded returns are not those of the episodes"
    return episodes, ""


def _difference(before: Episode, now: Episode) -> str:
    """Return the first step in which two episodes differ, and in what; empty if in none."""
    rows: dict[str, tuple[np.ndarray | None, np.ndarray | None]] = {
        "the observation": (before.digests, now.digests),
        "the action": (before.actions, now.actions),
        "the reward": (before.rewards, now.rewards),
    }
    rows |= {
        f"the reward term {name}": (before.terms.get(name), now.terms.get(name))
        for name in {**before.terms, **now.terms}
    }
    found = [
        (step, name) for name, pair in rows.items() if (step := _first_step(*pair)) is not None
    ]
    if found:
        step, name = min(found, key=lambda pair: pair[0])
        return f"step {step + 1}: {name} is another one"
    last, here = as_parts(before.last_observation), as_parts(now.last_observation)
    same = last.keys() == here.keys() and all(
        np.array_equal(last[key], here[key], equal_nan=np.asarray(here[key]).dtype.kind == "f")
        for key in last
    )
    ends = [(e.end_reason, e.terminated, e.success) for e in (before, now)]
    return "" if same and ends[0] == ends[1] else f"step {now.n_steps}: it ends otherwise"


def _first_step(before: np.ndarray | None, now: np.ndarray | None) -> int | None:
    """Return the first row in which two arrays differ, None if they are the same."""
    if before is None or now is None or before.shape[1:] != now.shape[1:]:
        return 0
    if before.dtype != now.dtype:
        return 0
    common = min(len(before), len(now))
    left, right = before[:common], now[:common]
    same = (left == right) | ((left != left) & (right != right))
    differs = ~same.reshape(common, -1).all(axis=1)
    if differs.any():
        return int(np.argmax(differs))
    return None if len(before) == len(now) else common


def _fingerprint(engines: Iterable[str]) -> dict[str, str]:
    """Return what the numbers depend on here, with the versions of further engines."""
    found = numeric_fingerprint("cpu", engines)
    # Evaluations play with one thread, whatever this process has.
    return {name: value for name, value in found.items() if name != "threads"}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
