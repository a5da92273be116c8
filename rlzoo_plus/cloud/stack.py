"""The stack of a project: CloudFormation makes, changes and removes all of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

import yaml

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.project import find_stack, project_tags, stack_name
from rlzoo_plus.cloud.template import template_path
from rlzoo_plus.errors import ConfigError

Tell = Callable[[str], None]
_LOOK_S = 4.0
# Of a stack that never was whole: it cannot be updated.
_BROKEN = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED")
_DONE = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
_WHY_NOT = "Resource creation cancelled"
_VERBS = {"CREATE": "made", "UPDATE": "updated", "DELETE": "removed"}


def parameters_of(stack: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the parameters of a stack by name, those of one that can be updated only."""
    if stack is None or stack["StackStatus"] in _BROKEN:
        return {}
    return {p["ParameterKey"]: p["ParameterValue"] for p in stack.get("Parameters", ())}


def deploy(project: str, values: Mapping[str, str], tell: Tell) -> bool:
    """Create or update the stack of a project, and wait for it.

    Of parameters that are not given, an update keeps the value, and a new stack has the template's
    default. A line is told for each resource that is made, changed or removed.

    Returns:
        Whether anything had to be changed.

    Raises:
        ConfigError: It cannot be deployed; the stack is as it was before.
    """
    cloudformation, stack = aws.client("cloudformation"), find_stack(project)
    _refuse_busy(project, stack)
    if stack is not None and stack["StackStatus"] in _BROKEN:
        tell("  removing what is left of a stack that was never whole")
        remove(project, tell)
        stack = None
    known = template_defaults()
    kept = {key: value for key, value in parameters_of(stack).items() if key in known}
    request = {
        "StackName": stack_name(project),
        "TemplateBody": template_path().read_text(encoding="utf-8"),
        "Capabilities": ["CAPABILITY_IAM"],
        "Tags": [{"Key": key, "Value": value} for key, value in project_tags(project).items()],
        "Parameters": [
            {"ParameterKey": key, "ParameterValue": value}
            for key, value in {**kept, **values}.items()
        ],
    }
    last = "" if stack is None else _last_event(stack)
    try:
        with aws.errors(f"deploy project {project!r}"):
            if stack is None:
                made = cloudformation.create_stack(**request, OnFailure="DELETE")
            else:
                made = cloudformation.update_stack(**request)
            stack_id = made["StackId"]
    except aws.CloudError as error:
        if "No updates are to be performed" in str(error):
            return False
        raise
    status, failures = _follow(stack_id, last, tell)
    if status not in _DONE:
        what = "made" if stack is None else "updated"
        raise ConfigError(_failure(f"the stack of project {project!r} was not {what}", failures))
    return True


def remove(project: str, tell: Tell) -> bool:
    """Delete the stack of a project, and wait; its bucket stays. Return whether there was one."""
    stack = find_stack(project)
    if stack is None:
        return False
    _refuse_busy(project, stack, but="DELETE_IN_PROGRESS")
    last = _last_event(stack)
    with aws.errors(f"delete the stack of project {project!r}"):
        aws.client("cloudformation").delete_stack(StackName=stack["StackId"])
    status, failures = _follow(stack["StackId"], last, tell)
    if status != "DELETE_COMPLETE":
        raise ConfigError(_failure(f"the stack of project {project!r} was not deleted", failures))
    return True


def template_defaults() -> dict[str, str]:
    """Return the parameters of the template by name, with their defaults."""
    # What follows has tags of CloudFormation.
    head = template_path().read_text(encoding="utf-8").partition("\nConditions:")[0]
    parameters = yaml.safe_load(head)["Parameters"]
    return {name: str(about.get("Default", "")) for name, about in parameters.items()}


def _refuse_busy(project: str, stack: Mapping[str, Any] | None, but: str = "") -> None:
    status = "" if stack is None else str(stack["StackStatus"])
    if status.endswith("_IN_PROGRESS") and status not in (but, "REVIEW_IN_PROGRESS"):
        raise ConfigError(
            f"the stack of project {project!r} is {status}: somebody is changing it. Try again "
            f"when `rlzoo-plus cloud status {project}` says that it is complete."
        )


def _follow(stack_id: str, last: str, tell: Tell) -> tuple[str, list[str]]:
    """Wait until a stack is made or removed; return its last state and a line for each failure."""
    failures: list[str] = []
    while True:
        with aws.errors("see how the stack goes on (it does, in AWS)"):
            cloudformation = aws.client("cloudformation")
            # First, so that the events of its end are among those that follow.
            status = cloudformation.describe_stacks(StackName=stack_id)["Stacks"][0]["StackStatus"]
            for event in _events_since(last, stack_id):
                last = event["EventId"]
                _tell_event(event, failures, tell)
        if not status.endswith("_IN_PROGRESS"):
            return str(status), failures
        time.sleep(_LOOK_S)


def _events(stack_id: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a stack, the newest first."""
    pages = aws.client("cloudformation").get_paginator("describe_stack_events")
    for page in pages.paginate(StackName=stack_id):
        yield from page["StackEvents"]


def _events_since(last: str, stack_id: str) -> list[dict[str, Any]]:
    """Return the events of a stack after one, the oldest first."""
    return [*takewhile(lambda event: event["EventId"] != last, _events(stack_id))][::-1]


def _last_event(stack: Mapping[str, Any]) -> str:
    """Return the id of the newest event of a stack, empty if there is none."""
    with aws.errors("read the events of the stack"):
        return next((str(event["EventId"]) for event in _events(stack["StackId"])), "")


def _tell_event(event: Mapping[str, Any], failures: list[str], tell: Tell) -> None:
    verb, _, state = event["ResourceStatus"].partition("_")
    name = printable(event["LogicalResourceId"])
    if event["PhysicalResourceId"] == event["StackId"]:
        return
    if state == "FAILED":
        reason = printable(" ".join(event.get("ResourceStatusReason", "").split()), 500)
        if not reason.startswith(_WHY_NOT):
            failures.append(f"{name} ({event['ResourceType']}): {reason}")
            tell(f"  failed  {failures[-1]}")
    elif state == "COMPLETE" and verb in _VERBS:
        tell(f"  {_VERBS[verb]:<8}{name}")


def _failure(what: str, failures: list[str]) -> str:
    if not failures:
        return f"{what}. See the events of the stack in the CloudFormation console."
    more = f" ({len(failures) - 1} more failed, see above)" if failures[1:] else ""
    return f"{what}: {failures[0]}{more}"
