"""What training would refuse only after composing: environment, device, callbacks, tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.diagnosis.env_trial import env_refusals
from rlzoo_plus.errors import ConfigError

# Their jobs run on the machine of the command; what another machine has is not known here.
ON_THIS_MACHINE = ("local", "debug")


class Refusals:
    """Why runs cannot begin; what decides on a reason is tried once.

    Environments are tried in a process of their own, since they may end it. torch is imported only
    for a device other than auto and cpu, and for callbacks.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def try_environments(self, configs: Iterable[RunConfig]) -> None:
        """Try the environments of all these runs at once, which is faster than one by one."""
        new = {key: c for c in configs if (key := _environment_key(c)) not in self._known}
        if new:
            self._known.update(zip(new, env_refusals(list(new.values())), strict=True))

    def of(self, config: RunConfig) -> list[str]:
        """Return why a run cannot begin: at most one reason of each kind."""
        self.try_environments([config])
        found = list(self._known[_environment_key(config)])
        for check, deciding in _CHECKS:
            key = f"{check.__name__} {config.model_dump_json(include=deciding)}"
            if key not in self._known:
                self._known[key] = _reason(check, config)
            found += self._known[key]
        return found


def refusals(configs: Iterable[RunConfig]) -> list[str]:
    """Return why jobs cannot begin, each reason once."""
    known, configs = Refusals(), list(configs)
    known.try_environments(configs)
    return list(dict.fromkeys(reason for config in configs for reason in known.of(config)))


def infra_refusals(config: RunConfig) -> list[str]:
    """Return why the jobs of a sweep cannot be placed; nothing is started."""
    return _reason(_check_infra, config)


def _reason(check: Callable[[RunConfig], None], config: RunConfig) -> list[str]:
    try:
        check(config)
    except ConfigError as error:
        return [str(error)]
    return []


def _environment_key(config: RunConfig) -> str:
    """Return what decides whether a run can begin in its environment."""
    deciding = {"env": True, "vec_env": True, "algo": {"name", "packages", "replay_buffer"}}
    return f"environment {config.model_dump_json(include=deciding)}"


def _check_device(config: RunConfig) -> None:
    if config.device in ("auto", "cpu") or config.infra.name not in ON_THIS_MACHINE:
        return
    from rlzoo_plus.agents.factory import check_device

    check_device(config.device)


def _check_callbacks(config: RunConfig) -> None:
    if config.callbacks:
        from rlzoo_plus.callbacks import check_user_callbacks

        check_user_callbacks(config)


def _check_infra(config: RunConfig) -> None:
    from rlzoo_plus.infra.launcher import make_launcher

    if config.infra.name == "debug":
        make_launcher(config.infra, 1, ())


def _check_tracker(config: RunConfig) -> None:
    if config.tracker is not None:
        from rlzoo_plus.tracking import check_tracker

        check_tracker(config.tracker, installed_here=config.infra.name in ON_THIS_MACHINE)


# Each check, and the part of a configuration that decides.
_CHECKS: tuple[tuple[Callable[[RunConfig], None], dict[str, Any]], ...] = (
    (_check_device, {"device": True, "infra": {"name"}}),
    (_check_callbacks, {"callbacks": True}),
    (_check_tracker, {"tracker": True, "infra": {"name"}}),
)
