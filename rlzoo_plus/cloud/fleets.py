"""EC2 Fleets of a project: found by their tags, made smaller by their machines, and deleted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.project import has_tags

# Besides those of the project: `STORE/SWEEP`, the launch, and what one machine is.
SWEEP, LAUNCH, SLOTS, VCPUS = "Sweep", "Launch", "Slots", "Vcpus"
# States in which AWS starts machines.
_STARTING = ("submitted", "active", "modifying")
# What AWS says, and what helps.
_MENDS = (
    (("limitexceeded", "countexceeded", "vcpu"), "the quota of vCPUs is used: ask AWS for more"),
    (
        ("capacity", "unfulfillable"),
        "no such machine is free: wait, add infra.families=[...], or take infra.spot=false",
    ),
    (("unauthorized", "accessdenied"), "a role may not do it: see docs/cloud.md"),
)
_AT_ONCE = 100
_TRIES, _TRY_AGAIN_S = 12, 5.0


@dataclass(frozen=True)
class Fleet:
    """A fleet that AWS keeps at its size."""

    id: str  # AWS's id
    state: str  # AWS's name of its state
    sweep: str  # The sweep that its machines train, `STORE/SWEEP`
    launch: str  # The launch that asked for it
    target: int  # Its size in machines
    running: float  # How much of it AWS has started
    slots: int  # Runs at once of a machine
    vcpus: int  # VCPUs of a machine
    spot: bool  # Whether its machines are Spot machines


def find_fleets(
    project: str, *, sweep: str | None = None, launch: str | None = None
) -> list[Fleet]:
    """Return the fleets of a project that AWS keeps at their size; a sweep is `STORE/SWEEP`."""
    with aws.errors("look for fleets"):
        found = map(_fleet, described_fleets(project))
        return [
            fleet
            for fleet in found
            if fleet and sweep in (None, fleet.sweep) and launch in (None, fleet.launch)
        ]


def described_fleets(project: str) -> list[dict[str, Any]]:
    """Return what AWS says of the fleets of a project for which it still starts machines."""
    pages = aws.client("ec2").get_paginator("describe_fleets").paginate()
    found = [fleet for page in pages for fleet in page["Fleets"]]
    return [f for f in found if f["FleetState"] in _STARTING and has_tags(_tags(f), project)]


def leave_fleet(project: str, launch: str, n_open: int | None = None) -> bool:
    """Make the fleet of a launch one machine smaller; one without any other machine is deleted.

    A machine calls it before it ends, or AWS would replace it. Two machines that leave at once may
    make the fleet smaller by one: the machine that replaces the other one leaves in its turn. If
    the `n_open` runs of the sweep that have not ended need all machines that there are, one has to
    take over from a machine that died, and the fleet stays as it is.

    Returns:
        Whether the machine may end.
    """
    for _ in range(_TRIES):
        mine = next(iter(find_fleets(project, launch=launch)), None)
        if mine is None:
            return True
        if n_open is not None:
            fleets = find_fleets(project, sweep=mine.sweep)
            if sum(fleet.target * fleet.slots for fleet in fleets) - mine.slots < n_open:
                return False
        if mine.target <= 1:
            delete_fleets([mine])
            return True
        if mine.state != "modifying":
            _set_target(mine, mine.target - 1)
            return True
        time.sleep(_TRY_AGAIN_S)
    raise aws.CloudError(f"cannot make the fleet of {launch} smaller: it is modified all the time.")


def delete_fleets(fleets: Iterable[Fleet]) -> None:
    """Let AWS start no more machines; those that run go on, and end by themselves."""
    ids = [fleet.id for fleet in fleets]
    for begin in range(0, len(ids), _AT_ONCE):
        with aws.errors("delete fleets"):
            said = aws.client("ec2").delete_fleets(
                FleetIds=ids[begin : begin + _AT_ONCE], TerminateInstances=False
            )
        for refused in said.get("UnsuccessfulFleetDeletions") or ():
            error = refused.get("Error", {})
            raise aws.CloudError(
                f"cannot delete fleet {refused.get('FleetId')}: {error.get('Message')}",
                str(error.get("Code", "")),
            )


def why_waiting(fleet: Fleet) -> str:
    """Return what AWS said last when it could not start a machine, and our mend; "" if nothing."""
    since = datetime.now(UTC) - timedelta(hours=1)
    request = {"FleetId": fleet.id, "EventType": "service-error", "StartTime": since}
    try:
        with aws.errors("read the history of a fleet"):
            records = aws.client("ec2").describe_fleet_history(**request)["HistoryRecords"]
            if not records:
                return "AWS has given no reason yet"
            last = max(records, key=lambda record: record["Timestamp"])["EventInformation"]
    except aws.CloudError as error:
        return f"why is not known: {error}"
    text = f"{last.get('EventSubType', '')} {last.get('EventDescription', '')}"
    mend = aws.mend_of(text, _MENDS)
    return "; ".join(filter(None, [printable(text.strip()), mend]))


def _set_target(fleet: Fleet, target: int) -> None:
    with aws.errors(f"make fleet {fleet.id} smaller"):
        aws.client("ec2").modify_fleet(
            FleetId=fleet.id,
            # A machine that trains is never the one that has to go.
            ExcessCapacityTerminationPolicy="no-termination",
            TargetCapacitySpecification={"TotalTargetCapacity": target},
        )


def _fleet(found: Mapping[str, Any]) -> Fleet | None:
    """Return what AWS says of a fleet, None if it is none of ours."""
    tags = _tags(found)
    capacity = found["TargetCapacitySpecification"]
    try:
        return Fleet(
            id=found["FleetId"],
            state=found["FleetState"],
            sweep=tags[SWEEP],
            launch=tags[LAUNCH],
            target=int(capacity["TotalTargetCapacity"]),
            running=float(found.get("FulfilledCapacity", 0.0)),
            slots=int(tags[SLOTS]),
            vcpus=int(tags[VCPUS]),
            spot=capacity.get("DefaultTargetCapacityType") == "spot",
        )
    except (KeyError, ValueError):
        return None


def _tags(found: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in found.get("Tags") or ()}
