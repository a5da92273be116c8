"""What launchers that start machines in AWS share: settings, the project, budgets, launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from rlzoo_plus.cloud.plan import measure, plan_lines, vcpus_of
from rlzoo_plus.cloud.project import Project, read_project
from rlzoo_plus.config.schema import Count, Line, NonNegative, PositiveFloat, RunConfig
from rlzoo_plus.infra.launcher import LauncherOptions
from rlzoo_plus.infra.workers import WorkersLauncher, WorkersSettings
from rlzoo_plus.store.launches import Launch, Launches

# Where runs would go if nobody is asked which project.
UNKNOWN_STORE = "s3://the-bucket-of-your-project"


class CloudSettings(WorkersSettings):
    """The keys of `infra=aws_batch` and `infra=ec2_spot`; conf/infra/ explains them."""

    wait: bool = False
    project: Line | None = None
    spot: bool = True
    families: list[Line] = Field(default_factory=list)
    vcpus: Count | Literal["auto"] = "auto"
    max_usd: PositiveFloat | None = None
    attempts: Annotated[Count, Field(le=10)] = 10
    gpus: NonNegative = 0
    secrets: dict[str, Line] = Field(default_factory=dict)
    dry_run: bool = False


class CloudLauncher(WorkersLauncher):
    """Submits runs to the store of a project, and starts machines whose workers train them.

    No process of ours watches them: workers claim, send and end by themselves. A subclass says what
    kind of machines.
    """

    starts_machines = True
    Settings: type[CloudSettings] = CloudSettings
    settings: CloudSettings

    def __init__(self, options: LauncherOptions) -> None:
        settings: CloudSettings = options.settings
        self._options = options
        if not options.store:
            store = UNKNOWN_STORE if settings.dry_run else read_project(settings.project).store
            options = replace(options, store=store)
        super().__init__(options)
        self._budgets: dict[str, float] = {}

    @cached_property
    def project(self) -> Project:
        """The project whose machines are used.

        Raises:
            ConfigError: There is none, or AWS cannot be asked.
        """
        return read_project(self.settings.project)

    @property
    def vcpus(self) -> int:
        """VCPUs of a machine for one run."""
        return vcpus_of(self.settings, self._options.threads_per_job)

    @cached_property
    def launches(self) -> Launches:
        """The launches of the sweep."""
        return Launches(self.submitter.store, self.sweep)

    def prepare(self, configs: Mapping[str, RunConfig]) -> list[str]:
        """Print the plan of a dry run, or check everything and deal out the budget."""
        if self.settings.dry_run:
            return self.plan(configs)
        self.check(configs)
        return []

    def more_of(self, key: str) -> dict[str, Any]:
        """Return the budget of a run [$], if there is one."""
        return {"max_usd": self._budgets[key]} if key in self._budgets else {}

    def start_machines(self, keys: Sequence[str]) -> list[str]:
        """Start machines for the runs that no machine is at work for."""
        covered = self.covered()
        missing = [key for key in keys if key not in covered]
        if not missing:
            return ["machines are at work for all of these runs already"]
        launch = self.launches.add(missing, self.settings.model_dump() | {"name": self.name})
        return self.start(launch)

    # What starts its machines, for people.
    title = "AWS"

    # What a subclass says.

    # Its name in `infra.name`.
    name: str

    def plan(self, configs: Mapping[str, RunConfig]) -> list[str]:
        """Return what would be started, and what it would cost, as lines; asks nobody."""
        times = measure([*configs.values()])
        return plan_lines(configs, times, self.settings, self.vcpus, self.title)

    def check(self, configs: Mapping[str, RunConfig]) -> None:
        """Check that the machines can be started: credentials, project, quota, families, image.

        Raises:
            ConfigError: What is wrong, and what helps; nothing was started.
        """
        raise NotImplementedError

    def covered(self) -> set[str]:
        """Return the keys of the runs that machines are started for, or at work for.

        Raises:
            ConfigError: AWS cannot be asked.
        """
        raise NotImplementedError

    def start(self, launch: Launch) -> list[str]:
        """Start machines for the runs of a launch; return lines that say so.

        Raises:
            ConfigError: They cannot be started.
        """
        raise NotImplementedError
