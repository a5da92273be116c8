"""What launchers that start machines in AWS share: settings, the project, budgets, launches."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.launch_plan import deal, least_share, measure, plan_lines, vcpus_of
from rlzoo_plus.cloud.prices import VARIABLE, load_prices
from rlzoo_plus.cloud.project import Project, read_project
from rlzoo_plus.cloud.settings import CloudSettings
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.launches import Launch, Launches
from rlzoo_plus.sweeps.estimate import JobTime
from rlzoo_plus.sweeps.launchers.launcher import LauncherOptions
from rlzoo_plus.sweeps.launchers.workers import WorkersLauncher
from rlzoo_plus.sweeps.submitting import needs_trust

log = logging.getLogger(__name__)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Where runs would go if nobody is asked which project.
UNKNOWN_STORE = "s3://the-bucket-of-your-project"


class CloudLauncher(WorkersLauncher):
    """Submits runs to the store of a project, and starts machines whose workers train them.

    No process of ours watches them: workers claim, send and end by themselves. A subclass says what
    kind of machines.
    """

    starts_machines = True
    Settings: type[CloudSettings] = CloudSettings
    settings: CloudSettings
    # Its name in `infra.name`, and what starts its machines, for people.
    name: ClassVar[str]
    title: ClassVar[str] = "AWS"
    # Runs of one launch at most.
    most_runs: ClassVar[int] = 10_000

    def __init__(self, options: LauncherOptions) -> None:
        self.settings, self.options = options.settings, options
        if not options.store:
            store = UNKNOWN_STORE if self.settings.dry_run else self.project.store
            options = replace(options, store=store)
        super().__init__(options)
        # What is to be told when machines are started.
        self.notes: list[str] = []
        # Whether workers import code that is not ours, as the runs of the user's own command need.
        self.trust = bool(self.settings.code)
        self._budgets: dict[str, float] = {}
        self._prepared: set[str] = set()

    @cached_property
    def project(self) -> Project:
        """The project whose machines are used."""
        return read_project(self.settings.project)

    @property
    def vcpus(self) -> int:
        """VCPUs of a machine for one run."""
        return vcpus_of(self.settings, self.options.threads_per_job)

    @property
    def bid(self) -> float:
        """The highest Spot price that is paid, in percent of the on-demand price."""
        return 100.0

    @cached_property
    def launches(self) -> Launches:
        """The launches of the sweep."""
        return Launches(self.submitter.store, self.sweep)

    def prepare(self, configs: Mapping[str, RunConfig]) -> list[str]:
        """Print the plan of a dry run, or check everything and deal out the budget."""
        if self.settings.dry_run:
            return self.plan(configs)
        if not set(configs) <= self._prepared:
            self.check_store()
            self.check(configs)
            self.trust |= any(map(needs_trust, configs.values()))
            if self.settings.max_usd is not None:
                least = least_share(self.usd_per_hour or 0.0)
                self._budgets = deal(
                    self.settings.max_usd, self.spent(), [*configs], least_usd=least
                )
            self._prepared = set(configs)
        return []

    def prepare_study(self, config: RunConfig) -> None:
        """Check all that the machines of a study's trials will need; each trial is a launch."""
        for key, given in (("max_usd", self.settings.max_usd), ("dry_run", self.settings.dry_run)):
            if given:
                raise ConfigError(
                    f"infra.{key} is for sweeps: nobody knows what trials a study will have. Leave "
                    "it out, and bound the study by hpo.n_trials and infra.time_limit_minutes."
                )
        self.prepare({"trial": config})

    def more_of(self, key: str) -> dict[str, Any]:
        """Return the budget of a run over all its attempts [$], None for no limit."""
        return {"max_usd": self._budgets.get(key)}

    def start_machines(self, keys: Sequence[str]) -> list[str]:
        """Start machines for the runs that no machine is started for, or at work for."""
        covered = self.covered()
        missing = [key for key in keys if key not in covered]
        lines, self.notes = self.notes, []
        if not missing:
            return [*lines, "machines are started for all of these runs already"]
        if len(missing) < len(keys):
            n_there = len(keys) - len(missing)
            lines.append(f"machines are started for {n_there:,} of these runs already")
        for begin in range(0, len(missing), self.most_runs):
            part = missing[begin : begin + self.most_runs]
            lines += self.start(self.launches.add(part, self.as_stored()))
        return lines

    def as_stored(self) -> dict[str, Any]:
        """Return what a launch keeps: the section `infra` that starts the same machines again."""
        limits = self.options.limits
        return {
            **self.settings.model_dump(),
            "name": self.name,
            "project": self.project.name,
            "memory_gib": limits.memory_gib,
            "time_limit_minutes": None if limits.time_s is None else limits.time_s / 60.0,
        }

    @cached_property
    def usd_per_hour(self) -> float | None:
        """The most that an hour of a run can cost [$], None if no price is known.

        That is its whole machine, the dearest that it may get: the last run on one pays for all.
        """
        prices, region, spot = load_prices(), aws.region(), self.settings.spot
        highest = 0.0
        for kind, vcpus in self.types.items():
            price = prices.known_usd_per_hour(kind, vcpus, spot=spot, bid=self.bid, region=region)
            if price is None:
                unknown = f"no price of {printable(kind)} in {region} is known"
                if self.settings.max_usd is not None:
                    raise ConfigError(f"infra.max_usd: {unknown}. Give it: {VARIABLE}=FILE.")
                log.warning("no costs are counted: %s", unknown)
                return None
            highest = max(highest, price.highest)
        return highest

    def worker_words(self, launch: Launch, usd_per_hour: float | None, slots: int = 1) -> list[str]:
        """Return what follows `rlzoo-plus worker` on a machine of a launch."""
        words = [self.place, "--slots", str(slots), "--launch", launch.name]
        words += ["--spot"] if self.settings.spot else []
        if usd_per_hour is not None:
            # Rounded up: what is counted is never below what is paid.
            words += ["--usd-per-hour", f"{math.ceil(usd_per_hour * 1e6) / 1e6:.6f}"]
        return [*words, "--trust"] if self.trust else words

    def check_store(self) -> None:
        """Check that the machines may use the store."""
        if self.url.rstrip("/") != self.project.store.rstrip("/"):
            raise ConfigError(
                f"store={self.url}: the machines of project {self.project.name} may use no store "
                f"but {self.project.store}. Leave store=... out."
            )

    def check_secrets(self) -> None:
        """Check that secrets are named, and that the machines may read them."""
        # No other parameter may be read by the roles of the project.
        parameter = rf"/rlzoo/{self.project.name}(/[A-Za-z0-9_.-]+)+"
        for name, source in self.settings.secrets.items():
            if not _VARIABLE.fullmatch(name) or not re.fullmatch(parameter, source):
                raise ConfigError(
                    f"infra.secrets.{printable(name)} must be the name of a parameter of SSM below "
                    f"/rlzoo/{self.project.name}/; its value is never written here."
                )

    def spent(self) -> dict[str, float]:
        """Return what each run of the sweep has cost so far [$], as the store says."""
        live = self.submitter.live()
        return {key: _spent(each.record.get("spent")) for key, each in live.items()}

    def plan(
        self, configs: Mapping[str, RunConfig], spent: Mapping[str, float] | None = None
    ) -> list[str]:
        """Return what would be started, and what it would cost, as lines; asks nobody.

        `spent` is what each run of the sweep has cost so far [$].
        """
        # First without a measurement, which takes long: a mistake is told at once.
        threads = self.options.threads_per_job
        self.plan_of(self.settings, configs, [], threads, spent)
        times = measure([*configs.values()])
        return self.plan_of(self.settings, configs, times, threads, spent)

    @classmethod
    def plan_of(
        cls,
        settings: CloudSettings,
        configs: Mapping[str, RunConfig],
        times: Sequence[JobTime],
        threads: int,
        spent: Mapping[str, float] | None = None,
    ) -> list[str]:
        """Return the plan of runs whose times are known; see `plan_lines`."""
        vcpus = vcpus_of(settings, threads)
        return plan_lines(configs, times, settings, vcpus, cls.title, spent)

    # What a subclass says; a ConfigError tells what is wrong, and what helps.

    @property
    def types(self) -> Mapping[str, int]:
        """The types of machines that a run may get, with their vCPUs."""
        raise NotImplementedError

    def check(self, configs: Mapping[str, RunConfig]) -> None:
        """Check that the machines can be started: credentials, project, quota, families, image."""
        raise NotImplementedError

    def covered(self) -> set[str]:
        """Return the keys of the runs that machines are started for, or at work for."""
        raise NotImplementedError

    def start(self, launch: Launch) -> list[str]:
        """Start machines for the runs of a launch; return lines that say so."""
        raise NotImplementedError

    def stop_machines(self) -> list[str]:
        """Stop what is no longer needed of a sweep that was cancelled; return lines that say so.

        The workers were asked to stop already: machines that are at work are left to them.
        """
        return []

    def explain(self, unbegun: Collection[str], sweep: str) -> list[str]:
        """Return lines for `sweep status`: how the machines are, and what helps.

        `unbegun` are the keys of the runs that wait, and that nobody has cancelled; `sweep` is what
        commands call it.
        """
        return []


def _spent(spent: object) -> float:
    """Return what a run has cost [$], as its untrusted record says."""
    usd = finite(spent.get("usd")) if isinstance(spent, Mapping) else None
    return max(0.0, usd or 0.0)
