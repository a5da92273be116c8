"""Verifies a policy by its recorded episodes: hashes, every step played again, and the score.

`evaluation.json` beside the episodes says what played them, where, and what they scored. In place
of episodes, which are large, it may have a hash of every step of each. It may come from others:
what it says is compared with what happens here, and decides nothing else.
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
from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.atomic import finite, write_json
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_plain_file,
)
from rlzoo_plus.envs.engine import is_same_engine
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
# As `Run.evaluate` does.
AT_ONCE = 10
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
    n_envs: int = Field(AT_ONCE, ge=1, le=1000)  # Episodes at a time, which decides how sums round
    overrides: list[str]
    returns: list[float] = Field(min_length=1)
    mean_return: float
    std_return: float
    fingerprint: dict[str, str]  # of the machine, the versions and the code
    files: dict[str, str]  # SHA-256 of each file of the episodes
    hashes: list[str] = []  # In place of files: `episode_hash` of each


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


def episode_hash(episode: Episode) -> str:
    """Return a hash of every step of an episode: what was seen, done and earned, and its end."""
    found = hashlib.sha256(repr([episode.seed, *_end(episode)]).encode())
    last = as_parts(episode.last_observation)
    parts = {**_rows(episode), **{f"last/{name}": last[name] for name in sorted(last)}}
    for name, part in parts.items():
        array = np.asarray(part)
        found.update(f"{name}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def record_evaluation(
    run: Run, folder: Path, episodes: int, *, named: str = "", hashed: bool = False, **options: Any
) -> dict[str, Any]:
    """Play held-out episodes, keep them with `evaluation.json`, and return the evaluation.

    Args:
        run: The run, or the bundle.
        folder: Where they are kept.
        episodes: How many.
        named: Where the run is, for each episode's file.
        hashed: Keep hashes of the episodes, not the episodes.
        **options: Of `Run.evaluate`.

    Returns:
        What `Run.evaluate` returns.

    Raises:
        ConfigError: They cannot be played, or the folder cannot be written.
    """
    options = {"seed": 0, "n_envs": AT_ONCE, **options}
    record, policy, made = _played(run, episodes, options)
    names = ("which", "step", "deterministic", "overrides")
    said = {name: record[name] for name in names}
    about = {"run": named, "env": run.config.env.id, **said}
    files = [] if hashed else save_episodes(folder, made, about)
    files += [file.with_suffix(".npz") for file in files]
    # An earlier evaluation of this process may have imported it.
    idle = {"mujoco"} if is_same_engine(record["engine"], "bullet") else set()
    scores = ("returns", "mean_return", "std_return", "iqm_return", "success_rate")
    facts = {
        "format": 1,
        "policy": policy_hash(policy),
        **said,
        "which": said["which"] or "best",
        **{name: options[name] for name in ("seed", "n_envs")},
        **{name: record[name] for name in (*scores, "episode_lengths", "metrics", "environment")},
        "fingerprint": _fingerprint(
            d for m, d in _ENGINES.items() if m in sys.modules and m not in idle
        ),
        "files": {file.name: _sha256(file.read_bytes()) for file in sorted(files)},
        **({"hashes": [episode_hash(episode) for episode in made]} if hashed else {}),
    }
    try:
        write_json(folder / EVALUATION, finite(facts))
    except OSError as error:
        raise ConfigError(f"{printable(folder)} cannot be written: {error.strerror}.") from error
    return record


def _played(
    run: Run, count: int, options: dict[str, Any]
) -> tuple[dict[str, Any], Policy, list[Episode]]:
    """Return what `Run.evaluate` does, the policy that played, and the episodes."""
    recorders: list[EpisodeRecorder] = []

    def watching(*about: Any) -> EpisodeRecorder:
        recorders.append(EpisodeRecorder(*about))
        return recorders[-1]

    record = run.evaluate(count, watching=watching, **options)
    return record, recorders[0].policy, recorders[0].episodes()


def verify(
    run: Run,
    folder: Path | None = None,
    which: str | None = None,
    tolerance: float = TOLERANCE,
    first: int | None = None,
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
        first: Play only so many of the episodes, but as many as were played at a time.

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
    # Fewer at a time are rounded otherwise.
    first = len(said.returns) if first is None else max(first, said.n_envs)
    if first < len(said.returns):
        mean = float(np.mean(said.returns[:first]))
        cut = {"returns": said.returns[:first], "mean_return": mean, "hashes": said.hashes[:first]}
        episodes, said = episodes[:first], said.model_copy(update=cut)
    options = {"which": policy, "seed": said.seed, "overrides": said.overrides}
    record, _, now = _played(run, len(said.returns), {**options, "n_envs": said.n_envs})
    difference = _first_difference(episodes or said.hashes, now)
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
        are = "is" if count == 1 else "are"
        text = f"{counted(count, 'episode')} {are} the same bit for bit, and all hashes match"
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
    """Return the recorded episodes, and what is wrong with their files, empty if nothing is.

    Of hashes, no episodes.
    """
    paths = [*folder.glob("episode-*.json")] if said.hashes else episode_files(folder)
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
    mean = float(np.mean(said.returns))
    is_mean = abs(mean - said.mean_return) <= _ROUNDING * max(1.0, abs(mean))
    if said.hashes:
        fits = is_mean and not there and len(said.hashes) == len(said.returns)
        return [], "" if fits else "its hashes, returns and their mean do not fit each other"
    if [episode.seed for episode in episodes] != held_out_seeds(len(episodes), said.seed):
        return [], f"its seeds are not those of the held-out episodes of set {said.seed}"
    summed = [episode.episode_return for episode in episodes]
    sizes = [max(1.0, float(np.abs(episode.rewards).sum())) for episode in episodes]
    fits = len(summed) == len(said.returns) and all(
        abs(a - b) <= _ROUNDING * size
        for a, b, size in zip(summed, said.returns, sizes, strict=True)
    )
    if not fits or not is_mean:
        return [], "the recorded returns are not those of the episodes"
    return episodes, ""


def _first_difference(before: Sequence[Episode | str], now: Sequence[Episode]) -> str:
    """Return the first of the episodes that differs from its recorded one or its hash, and how."""
    for number, (said, played) in enumerate(zip(before, now, strict=True)):
        if isinstance(said, str):
            if episode_hash(played) != said:
                return f"episode {number} is another one: the hash of its steps differs"
        elif difference := _difference(said, played):
            return f"episode {number}, {difference}"
    return ""


def _rows(episode: Episode) -> dict[str, np.ndarray]:
    """Return what an episode has of each step."""
    return {
        "the observation": episode.digests,
        "the action": episode.actions,
        "the reward": episode.rewards,
        **{f"the reward term {name}": episode.terms[name] for name in sorted(episode.terms)},
    }


def _end(episode: Episode) -> tuple[str, bool, bool | None]:
    return (episode.end_reason, episode.terminated, episode.success)


def _difference(before: Episode, now: Episode) -> str:
    """Return the first step in which two episodes differ, and in what; empty if in none."""
    rows, others = _rows(before), _rows(now)
    found = [
        (step, name)
        for name in {**rows, **others}
        if (step := _first_step(rows.get(name), others.get(name))) is not None
    ]
    if found:
        step, name = min(found, key=lambda pair: pair[0])
        return f"step {step + 1}: {name} is another one"
    last, here = as_parts(before.last_observation), as_parts(now.last_observation)
    same = last.keys() == here.keys() and all(
        np.array_equal(last[key], here[key], equal_nan=np.asarray(here[key]).dtype.kind == "f")
        for key in last
    )
    return "" if same and _end(before) == _end(now) else f"step {now.n_steps}: it ends otherwise"


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
