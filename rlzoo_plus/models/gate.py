"""The gate before a promotion: what a version must pass, from a YAML file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.analysis.statistics import stratified_bootstrap_ci
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_YAML_BYTES,
    one_line,
    parse_yaml,
    printable,
    read_plain_file,
)
from rlzoo_plus.envs.environment_version import differences
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.models.model_copies import Resolved
from rlzoo_plus.policies.audit import audit, play_baselines
from rlzoo_plus.policies.recorder import record_episodes
from rlzoo_plus.policies.robustness import DEFAULT_GRID, measure, read_grid
from rlzoo_plus.policies.verification import verify
from rlzoo_plus.runs.run import Run

DEFAULT_GATE = Path(__file__).with_name("gate.yaml")
_MOST_EPISODES = 10_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RobustnessFloor(_Strict):
    """How much of its return a policy must keep in the worst changed world."""

    min_share: float = Field(ge=0, le=1)
    episodes: int = Field(10, ge=1, le=_MOST_EPISODES)
    grid: str | None = None


class Gate(_Strict):
    """The checks of a gate; see gate.yaml."""

    episodes: int = Field(50, ge=1, le=_MOST_EPISODES)
    seed: int = Field(1, ge=0, lt=2**32)
    min_return: float | None = None
    min_success: float | None = Field(None, ge=0, le=1)
    same_environment: bool | None = True
    not_worse: float | None = Field(0.05, ge=0)
    exact: bool | None = True
    robustness: RobustnessFloor | None = None
    reward_audit: int | None = Field(None, ge=1, le=_MOST_EPISODES)


@dataclass(frozen=True)
class Check:
    """What one check has found."""

    check: str
    holds: bool
    text: str

    def data(self) -> dict[str, Any]:
        """Return it for a record."""
        return {"check": self.check, "holds": self.holds, "text": self.text}


def read_gate(file: Path) -> Gate:
    """Read a gate.

    Raises:
        ConfigError: There is no such file, or it is none.
    """
    where = f"--gate {printable(file)}"
    try:
        data = parse_yaml(read_plain_file(file, LARGEST_YAML_BYTES)) or {}
        unknown = [key for key in data if key not in Gate.model_fields]
    except FileNotFoundError as error:
        raise ConfigError(f"{where}: no such file.") from error
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {one_line(error)}. See {DEFAULT_GATE}.") from error
    if unknown:
        raise ConfigError(f"{where}: {unknown_name('check', str(unknown[0]), Gate.model_fields)}")
    try:
        return Gate.model_validate(data)
    except ValueError as error:
        raise ConfigError(f"{where}: {one_line(error)}. See {DEFAULT_GATE}.") from error


def run_gate(
    gate: Gate,
    candidate: Resolved,
    present: Resolved | None,
    *,
    trust: bool = False,
    other_env: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> list[Check]:
    """Run every check of a gate; a check that cannot be made does not hold.

    Args:
        gate: The gate.
        candidate: The version that is to be promoted.
        present: The version that the alias names now, None if it names none.
        trust: Import the runs' own packages and wrappers.
        other_env: Go on where the environment here is another one.
        say: Called with what is done next, which can take a while.

    Raises:
        ConfigError: The candidate cannot be opened, or needs trust.
    """
    run = Run.open(candidate.path, trust=trust, other_env=other_env)
    run.require_trust()
    found: list[Check] = []
    if gate.same_environment:
        found.append(_same_environment(run, candidate, present))
        if not found[0].holds:
            # The checks after it would play in the other one.
            run = Run.open(candidate.path, trust=trust, other_env=True)
    with _checked(found, "episodes"):
        say(f"playing {counted(gate.episodes, 'episode')}")
        record = run.evaluate(gate.episodes, seed=gate.seed)
        found += _thresholds(gate, record)
        if gate.not_worse is not None:
            found.append(_not_worse(gate, gate.not_worse, record["returns"], present, trust, say))
    if gate.exact:
        with _checked(found, "exact"):
            say("playing the recorded episodes again")
            found.append(_exact(run, candidate))
    if gate.robustness is not None:
        with _checked(found, "robustness"):
            say("playing in changed worlds")
            found.append(_robust(run, gate.robustness, gate.seed))
    if gate.reward_audit is not None:
        with _checked(found, "reward audit"):
            say("auditing the reward")
            found.append(_audited(run, gate.reward_audit, gate.seed))
    return found


@contextmanager
def _checked(found: list[Check], name: str) -> Iterator[None]:
    """Add a check that does not hold where one inside cannot be made."""
    try:
        yield
    except ConfigError as error:
        found.append(Check(name, False, f"cannot be checked: {one_line(error)}"))


def _same_environment(run: Run, candidate: Resolved, present: Resolved | None) -> Check:
    name, own = "environment", candidate.version.environment
    here = run.environment_differences()
    if here:
        return Check(name, False, f"here it is another one than in training: {'; '.join(here)}")
    if present is not None and (found := differences(present.version.environment, own)):
        text = f"version {present.version.number} has another one: {'; '.join(found)}"
        return Check(name, False, printable(text))
    if own is None:
        # Nothing to compare; one that has a version is not replaced by one that may be another.
        is_first = present is None or present.version.environment is None
        return Check(name, is_first, "its training recorded no version: nothing was compared")
    return Check(name, True, f"{own.get('id')}, version {own.get('version')}")


def _thresholds(gate: Gate, record: dict[str, Any]) -> Iterator[Check]:
    mean, success = record["mean_return"], record["success_rate"]
    episodes = counted(gate.episodes, "episode")
    if gate.min_return is not None:
        text = f"mean {mean:.4g} over {episodes}, at least {gate.min_return:g}"
        yield Check("return", mean >= gate.min_return, text)
    if gate.min_success is not None:
        if success is None:
            yield Check("success", False, "the environment reports no success")
            return
        text = f"{100 * success:.0f}% of {episodes}, at least "
        holds = success >= gate.min_success
        yield Check("success", holds, f"{text}{100 * gate.min_success:g}%")


def _not_worse(
    gate: Gate,
    margin: float,
    returns: list[float],
    present: Resolved | None,
    trust: bool,
    say: Callable[[str], None],
) -> Check:
    name = "not worse"
    if present is None:
        return Check(name, True, "the alias names no version yet")
    say(f"playing them with version {present.version.number}")
    other = Run.open(present.path, trust=trust, other_env=True)
    theirs = other.evaluate(gate.episodes, seed=gate.seed)["returns"]
    # Of the same episodes: differences have less spread than returns.
    gained = np.asarray(returns) - np.asarray(theirs)
    low, high = stratified_bootstrap_ci([gained], lambda each: each.mean(axis=0))
    least = -margin * abs(float(np.mean(theirs)))
    text = (
        f"mean {np.mean(returns):.4g}, and {np.mean(theirs):.4g} of version "
        f"{present.version.number} over the same {gate.episodes} episodes; the difference is from "
        f"{low:+.4g} to {high:+.4g}, and its lower end at least {least:.4g}"
    )
    return Check(name, low >= least, text)


def _exact(run: Run, candidate: Resolved) -> Check:
    verdict = verify(run)
    named = f"{candidate.name}@{candidate.version.number}"
    return Check("exact", verdict.holds, printable(verdict.text.replace(str(run.path), named)))


def _robust(run: Run, floor: RobustnessFloor, seed: int) -> Check:
    changes = read_grid(Path(floor.grid) if floor.grid else DEFAULT_GRID)
    found = measure(run, None, changes, episodes=floor.episodes, seed=seed)
    nominal, worst = found.nominal.mean_return, found.worst
    # Of a negative return, less is lost the nearer to it.
    least = nominal - (1 - floor.min_share) * abs(nominal)
    text = f"worst: {worst}, mean {worst.mean_return:.4g} of {nominal:.4g}, at least {least:.4g}"
    return Check("robustness", worst.mean_return >= least, text)


def _audited(run: Run, episodes: int, seed: int) -> Check:
    policy, seeds = run.policy(), held_out_seeds(episodes, seed)
    played, _ = record_episodes(run, policy, seeds, observations=False)
    warnings = [f for f in audit(played, play_baselines(run, policy, seeds)) if f.is_warning]
    text = "; ".join(finding.text for finding in warnings) or "nothing pays without being the task"
    return Check("reward audit", not warnings, printable(text, 2000))
