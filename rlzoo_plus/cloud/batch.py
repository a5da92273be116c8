"""`infra=aws_batch`: a sweep as an array job of AWS Batch, each child the worker of one run."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.account import sizes_of
from rlzoo_plus.cloud.batch_jobs import BatchJobs, job_name
from rlzoo_plus.cloud.cloud_launcher import CloudLauncher
from rlzoo_plus.cloud.image import WorkerImage, worker_image
from rlzoo_plus.cloud.project import project_tags
from rlzoo_plus.cloud.quota import check_quota
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import EXIT_SIGTERM, ConfigError
from rlzoo_plus.store.launches import Launch

# What a container gets for each vCPU: of the 2 GiB of a compute-optimized machine the system and
# the agent of ECS need some [MiB].
_MIB_PER_VCPU = 1792
# The worker and the server of its processes, beside what `infra.memory_gib` bounds [GiB].
_WORKER_GIB = 0.75
# The first that fits decides; without one that fits, Batch would retry.
_RETRY_RULES = (
    {"onExitCode": str(EXIT_SIGTERM), "action": "RETRY"},
    # SIGTERM before the worker took it: the machine went while its container started.
    {"onExitCode": "143", "action": "RETRY"},
    {"onStatusReason": "Host EC2*", "action": "RETRY"},
    {"onStatusReason": "Task failed to start*", "action": "RETRY"},
    # There may be five; by AWS's documentation this one is true of all others.
    {"onReason": "*", "action": "EXIT"},
)
# A worker ends a run when its budget is spent; Batch ends one that does not so much later [s].
_LATER_S = 900.0


class BatchLauncher(CloudLauncher):
    """Submits jobs to the project's queues; each launch is an array job, or a lone one."""

    name = "aws_batch"
    title = "AWS Batch"

    @cached_property
    def queue(self) -> str:
        """The queue that the settings choose."""
        settings, project = self.settings, self.project
        asked = set(settings.families)
        if settings.gpus:
            if not project.gpu_queue:
                raise ConfigError(
                    f"infra.gpus={settings.gpus}: project {project.name} has no machines with "
                    "GPUs. Add them with `rlzoo-plus cloud deploy`, or leave infra.gpus out."
                )
            if asked or not settings.spot:
                raise ConfigError(
                    "infra.gpus: the project has one queue with GPUs, of Spot machines. Leave "
                    "infra.families and infra.spot out."
                )
            return project.gpu_queue
        if asked <= {project.family}:
            return project.spot_queue if settings.spot else project.on_demand_queue
        if asked != set(project.families):
            given = printable(",".join(settings.families))
            raise ConfigError(
                f"infra.families=[{given}]: project {project.name} has machines of "
                f"{project.family}, or of all of [{','.join(project.families)}]. Take one of the "
                "two, or change them with `rlzoo-plus cloud deploy`."
            )
        if not settings.spot:
            raise ConfigError(
                "infra.spot=false: on-demand machines are of one family. Leave infra.families out."
            )
        return project.wide_queue

    @cached_property
    def types(self) -> dict[str, int]:
        """The types that the queue's machines may be of, with their vCPUs."""
        project, queue = self.project, self.queue
        kinds = {project.gpu_queue: project.gpu_types, project.wide_queue: project.wide_types}
        sizes = sizes_of(kinds.get(queue, project.types))
        return {kind: vcpus for family in sizes.values() for kind, vcpus in family.items()}

    @property
    def bid(self) -> float:
        """The bid of the project's compute environments, in percent of the on-demand price."""
        return float(self.project.bid_percentage)

    @cached_property
    def image(self) -> WorkerImage:
        """What the jobs start."""
        return worker_image(self.project, gpu=self.settings.gpus > 0)

    @cached_property
    def jobs(self) -> BatchJobs:
        """The jobs of the sweep."""
        return BatchJobs(self.project, self.launches)

    def check(self, configs: Mapping[str, RunConfig]) -> None:
        """Check project, queue, size, secrets, quota and image; notes what cannot be known."""
        project, queue = self.project, self.queue
        if self.vcpus > project.max_vcpus:
            raise ConfigError(
                f"a run of {self.vcpus} vCPUs does not fit into project {project.name}, which may "
                f"use {project.max_vcpus} at once. Lower infra.vcpus or num_threads, or raise them "
                "with `rlzoo-plus cloud deploy`."
            )
        largest = max(self.types.values())
        if self.vcpus > largest:
            raise ConfigError(
                f"a run of {self.vcpus} vCPUs fits no machine of project {project.name}: the "
                f"largest has {largest}. Lower infra.vcpus or num_threads, or allow larger ones "
                f"with `rlzoo-plus cloud deploy --largest-vcpus {self.vcpus}`."
            )
        self._check_hours()
        self.check_secrets()
        with aws.errors("look for the queue"):
            found = aws.client("batch").describe_job_queues(jobQueues=[queue])["jobQueues"]
        if not found or found[0]["state"] != "ENABLED":
            what = "is disabled" if found else "is missing"
            raise ConfigError(
                f"queue {queue} of project {project.name} {what}. `rlzoo-plus cloud deploy` mends "
                "the stack."
            )
        spot, gpu = self.settings.spot, self.settings.gpus > 0
        notes = (check_quota(self.vcpus, spot=spot, gpu=gpu), self.image.note)
        self.notes += [note for note in notes if note]

    def covered(self) -> set[str]:
        """Return the runs whose jobs wait or run; those that wait elsewhere are cancelled."""
        return self.jobs.covered(in_queue=self.queue)

    def start(self, launch: Launch) -> list[str]:
        """Submit the job of a launch."""
        count, project = len(launch.jobs), self.project
        price = self.usd_per_hour
        command = [*self.image.entry, *self.worker_words(launch, price)]
        job: dict[str, Any] = {
            "jobName": job_name(self.sweep, launch.name),
            "jobQueue": self.queue,
            "jobDefinition": self._definition(),
            "containerOverrides": {"command": command},
            "tags": {**project_tags(project.name), "Sweep": self.sweep[:256]},
            "propagateTags": True,
        }
        if count > 1:
            job["arrayProperties"] = {"size": count}
        time_s = self._attempt_s(launch, price)
        job["timeout"] = {"attemptDurationSeconds": max(60, math.ceil(time_s))}
        with aws.errors("start the jobs"):
            aws.client("batch").submit_job(**job)
        which = f"an array job of {count:,} runs" if count > 1 else "a job"
        queue = self.queue.rpartition("/")[2]
        hours = f"{self.settings.max_hours:g} hours at most"
        return [f"started {which} in AWS Batch, queue {queue}, {hours}: {job['jobName']}"]

    def stop_machines(self) -> list[str]:
        """Cancel the jobs that have not begun; the workers of the others end by themselves."""
        count = len(self.jobs.cancel_waiting("rlzoo-plus sweep cancel"))
        told = f"cancelled {counted(count, 'job')} of AWS Batch that had not begun"
        return [told] if count else []

    def explain(self, unbegun: Collection[str], sweep: str) -> list[str]:
        """Return how the jobs are in Batch, and what helps those that wait or have failed."""
        return self.jobs.explain(unbegun, sweep, 1000.0 * time.time())

    def environment(self) -> dict[str, str]:
        """Return the variables of the containers."""
        region = aws.region()
        # A public image has no user of ours, and so no home.
        home = {"HOME": "/tmp"} if self.image.entry else {}
        return {"AWS_REGION": region, "AWS_DEFAULT_REGION": region, **home}

    @property
    def _mib(self) -> int:
        """Memory of a container [MiB]."""
        limit = self.options.limits.memory_gib
        if limit is None:
            return _MIB_PER_VCPU * self.vcpus
        return math.ceil(1024 * (limit + _WORKER_GIB))

    def _check_hours(self) -> None:
        limit_s, hours = self.options.limits.time_s or 0.0, self.settings.max_hours
        if limit_s > 3600.0 * hours:
            raise ConfigError(
                f"infra.time_limit_minutes={limit_s / 60:g} is longer than infra.max_hours="
                f"{hours:g}, after which AWS Batch ends a job. Set infra.max_hours="
                f"{math.ceil(limit_s / 3600) + 1}."
            )

    def _attempt_s(self, launch: Launch, usd_per_hour: float | None) -> float:
        """Return after what time Batch ends an attempt, however it is [s]."""
        longest_s = 3600.0 * self.settings.max_hours
        shares = [self.more_of(key).get("max_usd") for key in launch.jobs]
        if usd_per_hour is None or not all(shares):
            return longest_s
        share = max(share or 0.0 for share in shares)
        return min(longest_s, 3600.0 * share / usd_per_hour + _LATER_S)

    def _definition(self) -> str:
        """Return the ARN of the job definition that these settings need; registers a new one."""
        definition = self._definition_values()
        digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
        # What a policy allows to begin with one project's name must not be another one's.
        name = f"rlzoo-{self.project.name}_{digest[:16]}"
        batch = aws.client("batch")
        with aws.errors("look for the job definition"):
            known = batch.describe_job_definitions(jobDefinitionName=name, status="ACTIVE")
        for each in known["jobDefinitions"]:
            return str(each["jobDefinitionArn"])
        tags = project_tags(self.project.name)
        with aws.errors("register the job definition"):
            made = batch.register_job_definition(jobDefinitionName=name, tags=tags, **definition)
            return str(made["jobDefinitionArn"])

    def _definition_values(self) -> dict[str, Any]:
        project, settings = self.project, self.settings
        needs = {"VCPU": self.vcpus, "MEMORY": self._mib, "GPU": settings.gpus}
        container: dict[str, Any] = {
            "image": self.image.uri,
            "jobRoleArn": project.worker_role,
            "executionRoleArn": project.execution_role,
            "resourceRequirements": [
                {"type": kind, "value": str(value)} for kind, value in needs.items() if value
            ],
            "environment": [{"name": k, "value": v} for k, v in self.environment().items()],
            "secrets": [
                {"name": name, "valueFrom": source}
                for name, source in sorted(settings.secrets.items())
            ],
            "logConfiguration": {
                "logDriver": "awslogs",
                "options": {
                    "awslogs-group": project.log_group,
                    "awslogs-region": aws.region(),
                    "awslogs-stream-prefix": "worker",
                },
            },
            "user": "10001",
            # It reaps what a training leaves.
            "linuxParameters": {"initProcessEnabled": True},
        }
        return {
            "type": "container",
            "platformCapabilities": ["EC2"],
            "propagateTags": True,
            "containerProperties": container,
            "retryStrategy": {
                "attempts": settings.attempts,
                "evaluateOnExit": [dict(rule) for rule in _RETRY_RULES],
            },
        }
