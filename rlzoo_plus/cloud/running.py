"""What a project has in AWS now that costs money, found by its tags; and the end of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.batch_jobs import ACTIVE, list_jobs
from rlzoo_plus.cloud.fleets import described_fleets
from rlzoo_plus.cloud.prices import HOURS_A_MONTH, Prices, load_prices
from rlzoo_plus.cloud.project import has_tags, project_tags, stack_name
from rlzoo_plus.errors import ConfigError

Tell = Callable[[str], None]
_QUEUES = ("spot", "wide", "on-demand", "gpu")
_REASON = "ended by rlzoo-plus cloud destroy"
_GB = 1e9


@dataclass(frozen=True)
class Item:
    """One thing that is there now."""

    kind: str  # `instance`, `disk`, `fleet`, `jobs`, `bucket` or `images`
    name: str  # Its id or name
    about: str  # What is worth knowing of it
    usd_per_day: float | None  # What a day of it costs [$]; None if no price is known


def find_items(project: str, bucket: str = "") -> list[Item]:
    """Return what a project has now that costs money, or starts what does.

    The stack need not exist. The size of the bucket is asked for, if it is known.
    """
    prices = load_prices()
    with aws.errors(f"look for what project {project!r} has"):
        found = [
            *_instances(project, prices),
            *_disks(project, prices),
            *(Item("fleet", f["FleetId"], f["FleetState"], 0.0) for f in described_fleets(project)),
            *_jobs(project),
            *_images(project, prices),
        ]
        if bucket:
            found.append(_bucket(bucket, prices))
    return found


def end_all(project: str, tell: Tell) -> None:
    """End the jobs, fleets and instances of a project; the bucket and the stack stay."""
    batch, ec2 = aws.client("batch"), aws.client("ec2")
    with aws.errors(f"end what project {project!r} has running"):
        # First: AWS Batch starts machines as long as there are jobs.
        for job in _active_jobs(project):
            batch.terminate_job(jobId=job["jobId"], reason=_REASON)
            tell(f"  ended job {printable(job['jobName'])}")
        fleets = [fleet["FleetId"] for fleet in described_fleets(project)]
        if fleets:
            ec2.delete_fleets(FleetIds=fleets, TerminateInstances=True)
            tell(f"  ended fleets {', '.join(fleets)}")
        instances = [instance["InstanceId"] for instance in _found_instances(project)]
        if instances:
            ec2.terminate_instances(InstanceIds=instances)
            tell(f"  ended instances {', '.join(instances)}")


def forget_definitions(project: str) -> int:
    """Deregister the job definitions of a project, which cost nothing; return how many."""
    batch, count = aws.client("batch"), 0
    with aws.errors(f"remove the job definitions of project {project!r}"):
        pages = batch.get_paginator("describe_job_definitions").paginate(status="ACTIVE")
        for definition in [d for page in pages for d in page["jobDefinitions"]]:
            if has_tags(definition.get("tags", {}), project):
                batch.deregister_job_definition(jobDefinition=definition["jobDefinitionArn"])
                count += 1
    return count


def _instances(project: str, prices: Prices) -> Iterator[Item]:
    instances = _found_instances(project)
    kinds = sorted({str(found["InstanceType"]) for found in instances})
    types = aws.client("ec2").describe_instance_types(InstanceTypes=kinds) if kinds else {}
    vcpus = {
        t["InstanceType"]: t["VCpuInfo"]["DefaultVCpus"] for t in types.get("InstanceTypes", ())
    }
    for found in instances:
        kind, spot = str(found["InstanceType"]), found.get("InstanceLifecycle") == "spot"
        price = prices.known_usd_per_hour(kind, vcpus[kind], spot=spot, region=aws.region())
        usd = None
        if price is not None:
            address = 24.0 * prices.ipv4_hour if found.get("PublicIpAddress") else 0.0
            usd = 24.0 * price.expected + address
        state, since = found["State"]["Name"], found["LaunchTime"]
        about = f"{kind}{' Spot' if spot else ''}, {state}, since {since:%Y-%m-%d %H:%M}"
        yield Item("instance", str(found["InstanceId"]), about, usd)


def _found_instances(project: str) -> list[dict[str, Any]]:
    states = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping"]}
    pages = aws.client("ec2").get_paginator("describe_instances")
    found = pages.paginate(Filters=[*_filters(project), states])
    return [i for page in found for group in page["Reservations"] for i in group["Instances"]]


def _disks(project: str, prices: Prices) -> Iterator[Item]:
    pages = aws.client("ec2").get_paginator("describe_volumes")
    for page in pages.paginate(Filters=_filters(project)):
        for disk in page["Volumes"]:
            usd = _usd_per_day(prices.gp3_gb_month, disk["Size"])
            yield Item("disk", str(disk["VolumeId"]), f"{disk['Size']} GB, {disk['State']}", usd)


def _jobs(project: str) -> Iterator[Item]:
    by_state: dict[str, int] = {}
    for job in _active_jobs(project):
        size = int(job.get("arrayProperties", {}).get("size", 1))
        by_state[job["status"]] = by_state.get(job["status"], 0) + size
    for state, count in by_state.items():
        yield Item("jobs", str(count), state.lower(), 0.0)


def _active_jobs(project: str) -> list[dict[str, Any]]:
    """Return the jobs that have not ended, arrays as one."""
    # Not from the stack: it may be half gone.
    names = [f"{stack_name(project)}-{kind}" for kind in _QUEUES]
    queues = aws.client("batch").describe_job_queues(jobQueues=names)["jobQueues"]
    return [
        job
        for queue in queues
        for status in ACTIVE
        for job in list_jobs(jobQueue=queue["jobQueueArn"], jobStatus=status)
    ]


def _images(project: str, prices: Prices) -> Iterator[Item]:
    name, ecr = stack_name(project), aws.client("ecr")
    try:
        with aws.errors("look at the images"):
            pages = ecr.get_paginator("describe_images").paginate(repositoryName=name)
            images = [image for page in pages for image in page["imageDetails"]]
    except aws.CloudError as error:
        if error.code != "RepositoryNotFoundException":
            raise
        return
    if images:
        size = sum(image.get("imageSizeInBytes", 0) for image in images) / _GB
        about = f"{len(images)}, {size:.1f} GB"
        yield Item("images", name, about, _usd_per_day(prices.ecr_gb_month, size))


def _bucket(bucket: str, prices: Prices) -> Item:
    """Return a bucket with its size, which AWS measures once a day; it is not listed for that."""
    now = datetime.datetime.now(datetime.UTC)
    try:
        with aws.errors("ask for the size of the bucket"):
            points = aws.client("cloudwatch").get_metric_statistics(
                Namespace="AWS/S3",
                MetricName="BucketSizeBytes",
                Dimensions=[
                    {"Name": "BucketName", "Value": bucket},
                    {"Name": "StorageType", "Value": "StandardStorage"},
                ],
                StartTime=now - datetime.timedelta(days=3),
                EndTime=now,
                Period=86_400,
                Statistics=["Average"],
            )["Datapoints"]
    except ConfigError:
        points = []
    if not points:
        return Item("bucket", bucket, "its size is not known yet: AWS measures once a day", None)
    size = max(points, key=lambda point: point["Timestamp"])["Average"] / _GB
    return Item("bucket", bucket, f"{size:.1f} GB", _usd_per_day(prices.s3_gb_month, size))


def _usd_per_day(usd_gb_month: float, gb: float) -> float:
    return usd_gb_month * gb * 24.0 / HOURS_A_MONTH


def _filters(project: str) -> list[dict[str, Any]]:
    tags = project_tags(project).items()
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags]
