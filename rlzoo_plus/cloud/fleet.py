"""`infra=ec2_spot`: an EC2 Fleet whose machines are workers; AWS replaces those that it takes."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.account import sizes_of
from rlzoo_plus.cloud.cloud_launcher import CloudLauncher
from rlzoo_plus.cloud.fleets import (
    LAUNCH,
    SLOTS,
    SWEEP,
    VCPUS,
    Fleet,
    delete_fleets,
    find_fleets,
    why_waiting,
)
from rlzoo_plus.cloud.image import WorkerImage, worker_image
from rlzoo_plus.cloud.project import project_tags
from rlzoo_plus.cloud.quota import check_quota
from rlzoo_plus.cloud.settings import FleetSettings
from rlzoo_plus.cloud.user_data import MachineScript, user_data
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.launches import Launch

# Amazon Linux 2023 as it is now; a fleet that is maintained takes no name of a parameter.
_AMI_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
_DISK_GB = 40
_DEFAULT_SLOTS = 4


@dataclass(frozen=True)
class Ami:
    """What the disk of a machine is made from."""

    id: str  # AWS's id
    device: str = "/dev/xvda"  # Name of the root device
    disk_gb: int = _DISK_GB  # Size of its disk [GB]


class FleetLauncher(CloudLauncher):
    """Starts a fleet of type `maintain` for each launch; its machines take any run of the sweep."""

    name = "ec2_spot"
    title = "EC2"
    most_runs = 100_000
    Settings = FleetSettings
    settings: FleetSettings
    # Of the command's runs, as far as it is known.
    _n_runs: int | None = None

    @property
    def slots_per_machine(self) -> int:
        """Runs at once of a machine."""
        if self.settings.slots != "auto":
            return self.settings.slots
        if self.settings.max_usd is not None:
            # A slot without a run costs, too, and no run would count that.
            return 1
        fitting = max(1, self.project.max_vcpus // self.vcpus)
        return min(_DEFAULT_SLOTS, fitting, self._n_runs or _DEFAULT_SLOTS)

    @cached_property
    def types(self) -> dict[str, int]:
        """The types that a machine may be of, with their vCPUs: of each family the smallest."""
        wanted = self.slots_per_machine * self.vcpus
        families = self.settings.families or [self.project.family]
        sizes, chosen = sizes_of(families), {}
        for family in dict.fromkeys(families):
            known = sizes.get(family, {})
            if not known:
                raise ConfigError(
                    f"infra.families: {aws.region()} has no machines of {printable(family)!r} with "
                    "x86 processors. Families have names such as c7a, m7a or c7i."
                )
            enough = [(vcpus, kind) for kind, vcpus in known.items() if vcpus >= wanted]
            if not enough:
                raise ConfigError(
                    f"infra.slots={self.slots_per_machine} with {self.vcpus} vCPUs each: the "
                    f"largest machine of {family} has {max(known.values())}. Lower infra.slots."
                )
            vcpus, kind = min(enough)
            chosen[kind] = vcpus
        return chosen

    @cached_property
    def image(self) -> WorkerImage | None:
        """The image that the machines pull, None if their own disk has rlzoo_plus."""
        return None if self.settings.ami else worker_image(self.project)

    @cached_property
    def ami(self) -> Ami:
        """What the machines start from."""
        return _own_ami(self.settings.ami) if self.settings.ami else _amazon_linux()

    def check(self, configs: Mapping[str, RunConfig]) -> None:
        """Check families, size, prices, quota, AMI, image and secrets; notes what costs time."""
        self._n_runs = len(configs)
        if self.settings.gpus:
            raise ConfigError("infra.gpus: infra=ec2_spot has none. Take infra=aws_batch.")
        self.check_secrets()
        vcpus = max(self.types.values())
        if vcpus > self.project.max_vcpus:
            raise ConfigError(
                f"a machine of {vcpus} vCPUs does not fit into project {self.project.name}, which "
                f"may use {self.project.max_vcpus} at once. Lower infra.slots or infra.vcpus, or "
                "raise them with `rlzoo-plus cloud deploy`."
            )
        if not self._fleets():
            self._check_room()
        _ = self._slot_usd
        note = check_quota(vcpus, spot=self.settings.spot)
        self._script("000000-00000000", 0, None)
        _ = self.ami
        self.notes += [each for each in (note, self.image.note if self.image else "") if each]

    def covered(self) -> set[str]:
        """Return all runs of the sweep if its fleets are large enough for those that are open."""
        fleets = self._fleets()
        if not fleets or _capacity(fleets) < self.submitter.n_open():
            return set()
        return self.submitter.keys()

    def start(self, launch: Launch) -> list[str]:
        """Start the fleet of a launch: as many machines as the open runs still need."""
        there = self._fleets()
        n_missing = max(1, self.submitter.n_open() - _capacity(there))
        wanted = math.ceil(n_missing / self.slots_per_machine)
        room = self._room()
        if room < 1 and there:
            return [f"{counted(_size(there), 'machine')} at work; the project has room for no more"]
        if room < 1:
            self._check_room()
        count = min(wanted, room)
        fleet = self._create(launch, count)
        kind = "Spot machine" if self.settings.spot else "on-demand machine"
        more = "" if count == wanted else f", for which there is room, of {wanted:,}"
        return [
            f"started {fleet}: {counted(count, kind)} of {'|'.join(self.types)}{more}, "
            f"{counted(self.slots_per_machine, 'run')} at once on each, for "
            f"{self.settings.max_hours:g} hours at most"
        ]

    def stop_machines(self) -> list[str]:
        """Delete the sweep's fleets; their machines end once their workers have sent all."""
        fleets = find_fleets(self.project.name, sweep=self.place)
        delete_fleets(fleets)
        machines = counted(_size(fleets), "machine")
        return [f"no more machines are started; {machines} end by themselves"] if fleets else []

    def as_stored(self) -> dict[str, Any]:
        """Return what a launch keeps; what machines start from is the user's to say each time."""
        return {key: value for key, value in super().as_stored().items() if key != "ami"}

    def explain(self, unbegun: Collection[str], sweep: str) -> list[str]:
        """Return how many machines each fleet of the sweep has, and why it has no more."""
        lines = []
        for fleet in find_fleets(self.project.name, sweep=self.place):
            why = why_waiting(fleet) if unbegun and fleet.running < fleet.target else ""
            has = f"{fleet.id}: {fleet.running:g} of {counted(fleet.target, 'machine')}"
            lines.append(f"{has}; {why}" if why else has)
        return lines

    def _fleets(self) -> list[Fleet]:
        """Return the fleets of the sweep whose machines are of the kind that is wanted."""
        found = find_fleets(self.project.name, sweep=self.place)
        return [fleet for fleet in found if fleet.spot == self.settings.spot]

    def _room(self) -> int:
        """Return how many machines more the project may have."""
        used = sum(fleet.target * fleet.vcpus for fleet in find_fleets(self.project.name))
        return (self.project.max_vcpus - used) // max(self.types.values())

    def _check_room(self) -> None:
        if self._room() < 1:
            raise ConfigError(
                f"the fleets of project {self.project.name} use the {self.project.max_vcpus} vCPUs "
                "that it may use at once. Wait until they have ended, cancel a sweep with "
                "`rlzoo-plus sweep cancel`, or raise them with `rlzoo-plus cloud deploy`."
            )

    @property
    def _slot_usd(self) -> float | None:
        """The most that an hour of a slot can cost [$], None if no price is known."""
        whole = self.usd_per_hour
        # With a budget, the last run of a machine pays for all of it.
        slots = self.slots_per_machine if self.settings.max_usd is None else 1
        return None if whole is None else whole / slots

    def _script(self, launch: str, deadline: int, usd_per_hour: float | None) -> str:
        """Return what a machine of a launch runs."""
        words = self.worker_words(Launch(launch, (), {}), usd_per_hour, self.slots_per_machine)
        image = self.image
        return user_data(
            MachineScript(
                worker=[*words, "--no-wait"],
                leave=[self.place, "--project", self.project.name, "--launch", launch],
                launch=launch,
                region=aws.region(),
                deadline=deadline,
                image=None if image is None else image.uri,
                install=() if image is None else image.entry,
                secrets=self.settings.secrets,
            )
        )

    def _create(self, launch: Launch, count: int) -> str:
        """Create the fleet of a launch; return its id."""
        project, spot = self.project, self.settings.spot
        deadline = int(time.time() + 3600.0 * self.settings.max_hours)
        tags = project_tags(project.name) | {SWEEP: self.place[:256], LAUNCH: launch.name}
        script = self._script(launch.name, deadline, self._slot_usd)
        own = {SLOTS: str(self.slots_per_machine), VCPUS: str(max(self.types.values()))}
        options: dict[str, Any] = {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
        if spot:
            options = {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}
        with aws.errors("start the machines"):
            version = aws.client("ec2").create_launch_template_version(
                LaunchTemplateId=project.launch_template,
                VersionDescription=f"{self.sweep} {launch.name}"[:255],
                LaunchTemplateData=self._template(script, tags),
                ClientToken=launch.name,
            )["LaunchTemplateVersion"]["VersionNumber"]
            made = aws.client("ec2").create_fleet(
                Type="maintain",
                ClientToken=launch.name,
                LaunchTemplateConfigs=[
                    {
                        "LaunchTemplateSpecification": {
                            "LaunchTemplateId": project.launch_template,
                            "Version": str(version),
                        },
                        "Overrides": [
                            {"InstanceType": kind, "SubnetId": subnet}
                            for kind in self.types
                            for subnet in project.subnets
                        ],
                    }
                ],
                TargetCapacitySpecification={
                    "TotalTargetCapacity": count,
                    "DefaultTargetCapacityType": "spot" if spot else "on-demand",
                },
                # Machines that train stay when others leave.
                ExcessCapacityTerminationPolicy="no-termination",
                ReplaceUnhealthyInstances=True,
                TerminateInstancesWithExpiration=True,
                ValidUntil=datetime.fromtimestamp(deadline, UTC),
                TagSpecifications=[{"ResourceType": "fleet", "Tags": _tag_list(tags | own)}],
                **options,
            )
            return str(made["FleetId"])

    def _template(self, script: str, tags: Mapping[str, str]) -> dict[str, Any]:
        """Return the whole of what a machine is: the version has nothing from others."""
        disk = {"VolumeSize": self.ami.disk_gb, "VolumeType": "gp3"}
        safe = {"Encrypted": True, "DeleteOnTermination": True}
        named = {"Name": f"rlzoo {self.sweep}"[:256], **tags}
        return {
            "ImageId": self.ami.id,
            "UserData": base64.b64encode(script.encode()).decode(),
            "IamInstanceProfile": {"Arn": self.project.instance_profile},
            "SecurityGroupIds": [self.project.security_group],
            "InstanceInitiatedShutdownBehavior": "terminate",
            # Two hops: the worker is in a container.
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 2,
                "HttpEndpoint": "enabled",
            },
            "BlockDeviceMappings": [{"DeviceName": self.ami.device, "Ebs": {**disk, **safe}}],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": _tag_list(named)} for kind in ("instance", "volume")
            ],
        }


def _amazon_linux() -> Ami:
    with aws.errors("look for the AMI of Amazon Linux"):
        found = aws.client("ssm").get_parameter(Name=_AMI_PARAMETER)
        return Ami(str(found["Parameter"]["Value"]))


def _own_ami(ami: str) -> Ami:
    with aws.errors(f"look for infra.ami={printable(ami)}"):
        image = aws.client("ec2").describe_images(ImageIds=[ami])["Images"][0]
        device = str(image["RootDeviceName"])
        disks = [
            int(disk["Ebs"].get("VolumeSize", 0))
            for disk in image.get("BlockDeviceMappings", ())
            if disk["DeviceName"] == device and "Ebs" in disk
        ]
    if image["Architecture"] != "x86_64":
        raise ConfigError(f"infra.ami={ami} is for {image['Architecture']}. Take one for x86_64.")
    return Ami(ami, device, max([_DISK_GB, *disks]))


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _capacity(fleets: Collection[Fleet]) -> int:
    """Return how many runs the machines of fleets train at once."""
    return sum(fleet.target * fleet.slots for fleet in fleets)


def _size(fleets: Collection[Fleet]) -> int:
    return sum(fleet.target for fleet in fleets)
