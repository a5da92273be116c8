"""The jobs of a sweep in AWS Batch: what runs they are for, how they are, and why they wait."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.project import Project
from rlzoo_plus.store.launches import Launches

WAITING = ("SUBMITTED", "PENDING", "RUNNABLE")
_ENDED = ("SUCCEEDED", "FAILED")
# An array of jobs whose children run is PENDING.
ACTIVE = (*WAITING, "STARTING", "RUNNING")
_STATES = (*ACTIVE, *_ENDED)
_LONGEST_NAME = 128
_LAUNCH = re.compile(r"(?P<sweep>.+)-(?P<launch>[0-9]{6}-[0-9a-f]{8})")
# Jobs that DescribeJobs takes at once; more of one kind say nothing new.
_MOST_DESCRIBED = 100
# A machine boots and pulls the image in that time; then something is wrong [ms].
_LONG_MS = 15 * 60_000


def job_name(sweep: str, launch: str) -> str:
    """Return the name of the job of a launch."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "-", sweep)[: _LONGEST_NAME - 1 - len(launch)]
    return f"{clean}-{launch}"


@dataclass(frozen=True)
class BatchJob:
    """The job of a launch: an array, or a lone one."""

    id: str  # Its id
    launch: str  # The name of the launch
    queue: str  # The queue that it is in
    status: str  # Its status; that of an array is PENDING as long as a child waits or runs
    is_cancelled: bool = False  # Whether what has not begun of it never will; what runs goes on

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs."""
        return self.status not in _ENDED


class BatchJobs:
    """The jobs of one sweep in the queues of a project; each call asks Batch."""

    def __init__(self, project: Project, launches: Launches) -> None:
        """Name a sweep; nothing is requested yet."""
        self._project, self._launches = project, launches

    def find(self) -> list[BatchJob]:
        """Return the job of each launch that Batch still knows, the newest first.

        Batch forgets a job a week after its end.
        """
        ours = set(self._launches.names())
        prefix = job_name(self._launches.sweep, "")
        project, found = self._project, []
        queues = (project.spot_queue, project.wide_queue, project.on_demand_queue)
        for queue in dict.fromkeys([*queues, project.gpu_queue]):
            wanted = {"filters": [{"name": "JOB_NAME", "values": [f"{prefix}*"]}]}
            for job in list_jobs(jobQueue=queue, **wanted) if queue and ours else ():
                name = _LAUNCH.fullmatch(job["jobName"])
                # Of children there is the job of the launch.
                if name is None or ":" in job["jobId"] or name["launch"] not in ours:
                    continue
                status = "FAILED" if job.get("isTerminated") else job["status"]
                is_cancelled = bool(job.get("isCancelled"))
                found.append(BatchJob(job["jobId"], name["launch"], queue, status, is_cancelled))
        return sorted(found, key=lambda job: job.launch, reverse=True)

    def runs_in(self, job: BatchJob, status: str) -> dict[str, str]:
        """Return the runs whose jobs have a status: the id of the job by the key of the run."""
        keys = self._launches.read(job.launch).jobs
        if len(keys) == 1:
            return {keys[0]: job.id} if job.status == status else {}
        found = {}
        for child in list_jobs(arrayJobId=job.id, jobStatus=status):
            index = int(child["jobId"].rpartition(":")[2])
            if index < len(keys):
                found[keys[index]] = child["jobId"]
        return found

    def covered(self, in_queue: str) -> set[str]:
        """Return the keys of the runs whose jobs wait in a queue, or run in any.

        Jobs that wait in another queue are cancelled: their runs are to start in this one.
        """
        covered: set[str] = set()
        for job in self.find():
            if job.is_active:
                is_elsewhere = job.queue != in_queue and not job.is_cancelled
                moved = self._cancel(job, "moved to another queue") if is_elsewhere else set()
                gone = (*_ENDED, *WAITING) if job.is_cancelled else _ENDED
                ended = {key for state in gone for key in self.runs_in(job, state)}
                covered |= set(self._launches.read(job.launch).jobs) - ended - moved
        return covered

    def cancel_waiting(self, reason: str) -> set[str]:
        """Cancel the jobs that have not begun; return the keys of their runs."""
        active = (job for job in self.find() if job.is_active and not job.is_cancelled)
        return {key for job in active for key in self._cancel(job, reason)}

    def _cancel(self, job: BatchJob, reason: str) -> set[str]:
        waiting = {key for state in WAITING for key in self.runs_in(job, state)}
        if waiting:
            with aws.errors("cancel the jobs"):
                # Of an array: all children that have not begun.
                aws.client("batch").cancel_job(jobId=job.id, reason=reason)
        return waiting

    def explain(self, unbegun: Collection[str], sweep: str, now_ms: float) -> list[str]:
        """Return lines that say how the jobs are, and what helps those that wait or have failed.

        `unbegun` are the keys of the runs that wait, and that nobody has cancelled; `sweep` is what
        commands call it; `now_ms` is the time [ms since 1970].
        """
        counts: Counter[str] = Counter()
        stuck, failed = dict[str, str](), dict[str, str]()
        seen, active = set[str](), set[str]()
        for job in self.find():
            keys = self._launches.read(job.launch).jobs
            is_known = seen.issuperset(keys)
            for state in _STATES if not is_known else ():
                if job.is_cancelled and state in WAITING:
                    continue
                if state == "SUCCEEDED" or (state == "FAILED" and not set(unbegun) - seen):
                    continue
                runs = {k: i for k, i in self.runs_in(job, state).items() if k not in seen}
                if state == "RUNNABLE":
                    stuck |= runs
                elif state == "FAILED":
                    failed |= {key: id for key, id in runs.items() if key in unbegun}
                if state not in _ENDED:
                    active |= set(runs)
                    counts[state] += len(runs)
            seen.update(keys)
        lines = []
        if any(counts.values()):
            told = ", ".join(f"{counts[s]:,} {s.lower()}" for s in _STATES if counts[s])
            lines.append(f"jobs in AWS Batch: {told}")
        starts = counts["STARTING"] + counts["RUNNING"] > 0
        lines += self._why_runnable(list(stuck.values()), sweep, now_ms, starts=starts)
        lines += self._why_failed(list(failed.values()), sweep)
        n_left = len(set(unbegun) - active)
        if n_left:
            left = "a run that waits has" if n_left == 1 else f"{n_left:,} runs that wait have"
            resume = f"rlzoo-plus sweep resume {sweep}"
            lines.append(f"{left} no job in AWS Batch; `{resume}` starts what is missing")
        return lines

    def _why_runnable(
        self, ids: Sequence[str], sweep: str, now_ms: float, *, starts: bool
    ) -> list[str]:
        # Batch gives its reason at the head of the queue only.
        found = _describe(ids[:_MOST_DESCRIBED])
        reasons = dict.fromkeys(printable(job.get("statusReason") or "", 500) for job in found)
        lines = [f"{reason}: {_mend_of(reason, sweep)}" for reason in reasons if reason]
        age = max((now_ms - job.get("createdAt", now_ms) for job in found), default=0.0)
        if lines or starts or age < _LONG_MS:
            return lines
        return [
            f"jobs are runnable for {age / 60_000:.0f} minutes and Batch gives no reason: "
            f"{_mend_of('', sweep)}"
        ]

    def _why_failed(self, ids: Sequence[str], sweep: str) -> list[str]:
        reasons: Counter[str] = Counter()
        logs = dict[str, str]()
        for job in _describe(ids[:_MOST_DESCRIBED]):
            reason = _reason_of(job)
            reasons[reason] += 1
            stream = (job.get("container") or {}).get("logStreamName")
            if stream:
                logs.setdefault(reason, printable(stream))
        lines = []
        for reason, count in reasons.items():
            which = "a job has failed" if count == 1 else f"{count:,} jobs have failed"
            log = f"; see log {self._project.log_group} {logs[reason]}" if reason in logs else ""
            lines.append(f"{which}: {reason}: {_mend_of(reason, sweep)}{log}")
        return lines


def _reason_of(job: Mapping[str, Any]) -> str:
    container = job.get("container") or {}
    code = container.get("exitCode")
    told = [
        job.get("statusReason") or "",
        container.get("reason") or "",
        "" if code is None else f"exit code {code}",
    ]
    return printable("; ".join(dict.fromkeys(t for t in told if t)), 500) or "no reason is given"


# What a reason of Batch has in it, and what helps.
_MENDS = (
    (
        ("insufficient_instance_capacity",),
        "AWS has no free machine of the family now. They start when it has; or go on with "
        "`{resume} infra.spot=false`, or with more families: infra.families=[...]",
    ),
    (
        ("compute_environment_max_resource",),
        "a run needs more than the project's most vCPUs. Lower infra.vcpus, or raise them with "
        "`rlzoo-plus cloud deploy`",
    ),
    (
        ("job_resource_requirement",),
        "no machine of the project is large enough. Lower infra.vcpus, infra.memory_gib or "
        "infra.gpus, or allow larger ones: `rlzoo-plus cloud deploy --largest-vcpus N`",
    ),
    (
        ("service_role_permissions",),
        "the role of Batch lacks permissions. `rlzoo-plus cloud deploy` sets it up again",
    ),
    (("quota",), "ask AWS for more vCPUs of this kind: see `rlzoo-plus cloud status`"),
    (
        ("cannotpullcontainer",),
        "the image cannot be pulled: build and push it again with `rlzoo-plus cloud build`, and "
        "see that the subnets have a way out to the internet",
    ),
    (
        ("outofmemory", "exit code 137"),
        "the job ran out of memory: `{resume} infra.memory_gib=...` gives it more",
    ),
    (
        ("resourceinitializationerror",),
        "its secrets or its log could not be reached: see the names in infra.secrets, and that the "
        "subnets have a way out to the internet",
    ),
    (
        ("assumerole",),
        "the role of the workers cannot be used: `rlzoo-plus cloud deploy` mends it",
    ),
    (
        ("host ec2", "exit code 75"),
        "Spot took its machine away too often. `{resume} infra.spot=false` finishes it on demand",
    ),
    (
        ("timeout",),
        "it took longer than its time. `{resume}` goes on from its last checkpoint, with "
        "infra.max_hours=HOURS for longer",
    ),
)
_NO_REASON = (
    "the quota of vCPUs may be used up (`rlzoo-plus cloud status`), the subnets may have no way "
    "out to the internet, or the role of the machines may be wrong (`rlzoo-plus cloud deploy` "
    "mends it). `{resume} infra.spot=false` tries on-demand machines"
)


def _mend_of(reason: str, sweep: str) -> str:
    usual = "`{resume}` starts it again" if reason else _NO_REASON
    mend = aws.mend_of(reason, _MENDS) or usual
    return mend.format(resume=f"rlzoo-plus sweep resume {sweep}")


def list_jobs(**wanted: Any) -> Iterator[dict[str, Any]]:
    """Yield the jobs that ListJobs gives, page by page."""
    with aws.errors("list the jobs"):
        for page in aws.client("batch").get_paginator("list_jobs").paginate(**wanted):
            yield from page["jobSummaryList"]


def _describe(ids: Sequence[str]) -> list[dict[str, Any]]:
    if not ids:
        return []
    with aws.errors("ask for the jobs"):
        return list(aws.client("batch").describe_jobs(jobs=list(ids))["jobs"])
