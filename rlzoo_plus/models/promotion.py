"""Promotes a version after its gate, and tells two versions apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.envs.environment_version import differences
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models.gate import DEFAULT_GATE, Check, read_gate, run_gate
from rlzoo_plus.models.model_copies import Resolved, resolved_version
from rlzoo_plus.models.model_records import PROMOTE, AliasRecord, check_alias
from rlzoo_plus.models.model_store import ModelStore
from rlzoo_plus.runs.run import Run


@dataclass(frozen=True)
class Promotion:
    """What became of a promotion."""

    record: AliasRecord | None  # None if the gate said no
    checks: list[Check]


def promote(
    store: ModelStore,
    name: str,
    version: int,
    alias: str,
    *,
    why: str = "",
    gate: Path | None = None,
    force: str | None = None,
    trust: bool = False,
    other_env: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Promotion:
    """Let an alias name a version if it passes a gate.

    Args:
        store: The registry.
        name: The model.
        version: The number of the version.
        alias: The alias.
        why: A note of the user.
        gate: The YAML file of the gate; None for the shipped one.
        force: Why to promote it whatever the gate says; it is recorded with what that said.
        trust: Import the runs' own packages and wrappers.
        other_env: Play though the environment is not that of the training any more.
        say: Called with what is done next, which can take a while.

    Raises:
        ConfigError: There is no such version, it is retired, or the gate is none.
        MovedError: Another one moved the alias while the gate was checked against what it named.
    """
    if force is not None and not force.strip():
        raise ConfigError("--force '' gives no reason, and it is recorded. Write one.")
    checks_of = read_gate(gate or DEFAULT_GATE)
    store.require_writable()
    if store.is_retired(name, version):
        raise ConfigError(f"{name}@{version} is retired. Name another version.")
    newest = store.newest(name, alias) if check_alias(alias) in store.aliases(name) else None
    if newest is not None and newest.version == version:
        raise ConfigError(f"{name}@{alias} names version {version} already.")
    candidate = resolved_version(store, name, version)
    present = None if newest is None else resolved_version(store, name, newest.version)
    checks = run_gate(checks_of, candidate, present, trust=trust, other_env=other_env, say=say)
    has_passed = all(check.holds for check in checks)
    if not has_passed and force is None:
        return Promotion(None, checks)
    record = store.move(
        name,
        alias,
        version,
        action=PROMOTE,
        why=why,
        expected=0 if newest is None else newest.number,
        forced=None if has_passed else force,
        gate=[check.data() for check in checks],
    )
    return Promotion(record, checks)


def changes(first: Resolved, second: Resolved) -> dict[str, tuple[Any, Any]]:
    """Return what differs between two versions: settings, environment, packages and scores."""
    runs = [Run.open(found.path) for found in (first, second)]
    found = {k: v for k, v in runs[0].compare(runs[1]).items() if v[0] != v[1]}
    pairs = [(each.version.environment or {}) for each in (first, second)]
    for text in differences(*pairs) if all(pairs) else []:
        found[f"environment: {text}"] = (pairs[0].get("version"), pairs[1].get("version"))
    known = [run.run_dir.read_provenance().get("packages") for run in runs]
    packages = [each if isinstance(each, dict) else {} for each in known]
    evaluations = [each.version.evaluation for each in (first, second)]
    for key, facts in (("package", packages), ("evaluation", evaluations)):
        for each in dict.fromkeys([*facts[0], *facts[1]]):
            if facts[0].get(each) != facts[1].get(each):
                found[f"{key} {each}"] = (facts[0].get(each), facts[1].get(each))
    return found
