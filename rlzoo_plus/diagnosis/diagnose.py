"""Looks at one configuration: what training would refuse, and what is doubtful."""

from __future__ import annotations

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.diagnosis.findings import Finding, error, warning
from rlzoo_plus.diagnosis.refusals import Refusals, infra_refusals
from rlzoo_plus.diagnosis.rules import advice

# Making an environment takes up to a second.
_refusals = Refusals()


def try_environments(configs: list[RunConfig]) -> None:
    """Try the environments of all these runs at once; `diagnose` knows the outcome then."""
    _refusals.try_environments(configs)


def diagnose(config: RunConfig) -> list[Finding]:
    """Return what is wrong with a configuration, or doubtful about it; nothing is written.

    The environment is made once for all configurations that share it. The agent is built, on the
    CPU and with a small replay buffer, for each that differs in what it is built from: this finds
    what only the constructors of the library refuse.

    Args:
        config: The run, as `resolve` returns it.
    """
    try:
        found = [warning(text) for text in resolve(config.model_dump()).warnings]
    except ConfigError as mistake:
        return [error(str(mistake))]
    refused = [*infra_refusals(config), *_refusals.of(config)]
    found += [error(text) for text in refused]
    if refused:
        return found
    # Importing torch takes a second.
    from rlzoo_plus.diagnosis.building import agent_facts

    try:
        return found + [warning(text) for text in advice(config, agent_facts(config))]
    except ConfigError as mistake:
        return [*found, error(str(mistake))]
