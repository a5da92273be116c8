"""The account behind AWS's settings: who asks, its network, the roles of AWS's services."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.errors import ConfigError

# Each family has some of them.
_SIZES = ("large", "xlarge", "2xlarge", "4xlarge")
# Of the services that start machines for a project; AWS makes each once an account.
_SERVICE_ROLES = {
    "batch.amazonaws.com": "AWSServiceRoleForBatch",
    "ecs.amazonaws.com": "AWSServiceRoleForECS",
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
    "ec2fleet.amazonaws.com": "AWSServiceRoleForEC2Fleet",
}


@dataclass(frozen=True)
class Account:
    """Who AWS takes us for."""

    number: str  # The account's number
    user: str  # ARN of the user or role
    profile: str  # Name of the profile in AWS's settings
    region: str  # The region in use


@dataclass(frozen=True)
class Network:
    """Where machines start."""

    vpc: str  # Id of the VPC
    subnets: tuple[str, ...]  # Ids of its subnets, one in each zone that has the instance family


def find_account() -> Account:
    """Return who AWS takes us for."""
    region = aws.region()
    with aws.errors("ask AWS whose credentials these are"):
        found = aws.client("sts").get_caller_identity()
        number, user = str(found["Account"]), str(found["Arn"])
    return Account(number, user, aws.session().profile_name, region)


def find_network(family: str, subnets: Sequence[str] = ()) -> Network:
    """Return the network that machines of an instance family start in.

    `subnets` are ids of those to use; none for those of the default VPC.
    """
    ec2 = aws.client("ec2")
    with aws.errors("look for the network of the machines"):
        if subnets:
            found = ec2.describe_subnets(SubnetIds=list(subnets))["Subnets"]
        else:
            default = [{"Name": "default-for-az", "Values": ["true"]}]
            found = ec2.describe_subnets(Filters=default)["Subnets"]
        types = [f"{family}.{size}" for size in _SIZES]
        offered = ec2.describe_instance_type_offerings(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": types}]
        )["InstanceTypeOfferings"]
        zones = {offer["Location"] for offer in offered}
        vpcs = sorted({subnet["VpcId"] for subnet in found})
        usable = {s["AvailabilityZone"]: s["SubnetId"] for s in found}
    if not found:
        raise ConfigError(
            f"region {aws.region()} has no default VPC. Make one with `aws ec2 "
            "create-default-vpc`, or name subnets that reach the internet: --subnets ID,ID."
        )
    if len(vpcs) > 1:
        raise ConfigError(
            f"the subnets are in several VPCs: {', '.join(vpcs)}. Name those of one: --subnets."
        )
    if not zones:
        raise ConfigError(
            f"region {aws.region()} has no instance family {printable(family)!r}. Choose another "
            "one, such as --family c6a, or another region."
        )
    chosen = tuple(usable[zone] for zone in sorted(usable) if zone in zones)
    if not chosen:
        raise ConfigError(
            f"{printable(family)} is offered in {', '.join(sorted(zones))} only, where none of the "
            "subnets is. Choose others with --subnets, or another --family."
        )
    return Network(vpcs[0], chosen)


def sizes_of(names: Collection[str]) -> dict[str, dict[str, int]]:
    """Return the types of each family in this region, with their vCPUs; x86 processors only.

    Names are families, such as `c7a`, or single types, such as `g6.12xlarge`.
    """
    values = [name if "." in name else f"{name}.*" for name in names]
    sizes: dict[str, dict[str, int]] = {}
    with aws.errors("list the types of machines"):
        pages = aws.client("ec2").get_paginator("describe_instance_types")
        for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": values}]):
            for each in page["InstanceTypes"]:
                kind, processor = str(each["InstanceType"]), each["ProcessorInfo"]
                if not each["BareMetal"] and "x86_64" in processor["SupportedArchitectures"]:
                    vcpus = int(each["VCpuInfo"]["DefaultVCpus"])
                    sizes.setdefault(kind.partition(".")[0], {})[kind] = vcpus
    return sizes


def small_types(names: Collection[str], largest_vcpus: int) -> dict[str, int]:
    """Return the types of families with at most so many vCPUs, or a family's smallest one.

    Returns:
        The vCPUs of each type.
    """
    found: dict[str, int] = {}
    for kinds in sizes_of(names).values():
        most = max(largest_vcpus, min(kinds.values()))
        found |= {
            kind: kinds[kind]
            for kind in sorted(kinds, key=kinds.__getitem__)
            if kinds[kind] <= most
        }
    if not found:
        raise ConfigError(
            f"region {aws.region()} has no machines of {printable(', '.join(names))} with x86 "
            "processors. Choose other families, or another region."
        )
    return found


def missing_service_roles() -> list[str]:
    """Return the services whose role this account lacks, such as `batch.amazonaws.com`."""
    iam, missing = aws.client("iam"), []
    for service, role in _SERVICE_ROLES.items():
        try:
            with aws.errors("look for the roles of AWS's services"):
                iam.get_role(RoleName=role)
        except aws.CloudError as error:
            if error.code != "NoSuchEntity":
                raise
            missing.append(service)
    return missing


def make_service_role(service: str) -> None:
    """Let AWS make the role of one of its services."""
    try:
        with aws.errors(f"make the role of {service}"):
            aws.client("iam").create_service_linked_role(AWSServiceName=service)
    except aws.CloudError as error:
        # Somebody else was faster.
        if error.code != "EntityAlreadyExists" and "has been taken" not in str(error):
            raise


def detach_policy(policy: str) -> list[str]:
    """Detach a policy from all that it was attached to, since IAM deletes no policy in use.

    Returns:
        The names of the users, groups and roles that had it.
    """
    iam, names = aws.client("iam"), []
    with aws.errors(f"detach {policy}"):
        found = iam.list_entities_for_policy(PolicyArn=policy)
        for kind, detach in (
            ("User", iam.detach_user_policy),
            ("Group", iam.detach_group_policy),
            ("Role", iam.detach_role_policy),
        ):
            for each in found[f"Policy{kind}s"]:
                name = f"{kind}Name"
                detach(PolicyArn=policy, **{name: each[name]})
                names.append(each[name])
    return names


def show_costs_by_project() -> bool:
    """Let the bills of the account know the tag `Project`; return whether they do.

    Bills know a tag only some hours after it was first used, so the first deployment cannot.
    """
    try:
        with aws.errors("let bills know the tag Project"):
            answer = aws.client("ce").update_cost_allocation_tags_status(
                CostAllocationTagsStatus=[{"TagKey": "Project", "Status": "Active"}]
            )
            return not answer.get("Errors")
    except aws.CloudError:
        return False
