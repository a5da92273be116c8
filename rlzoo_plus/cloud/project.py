"""The project of a team in AWS: the outputs of its stack are all the configuration there is."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.untrusted import printable, read_json
from rlzoo_plus.cloud import aws
from rlzoo_plus.errors import ConfigError

VARIABLE = "RLZOO_PROJECT"
_NAME = re.compile(r"[a-z][a-z0-9-]{2,20}")
# Other states are those of a stack that is being made or removed, or could not be.
_READY = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE")


@dataclass(frozen=True)
class Project:
    """What the stack of a project has made; each is an output of aws/stack.yaml, in CamelCase."""

    name: str  # The project's name; all that it makes has the tags of `project_tags`
    store: str  # URL of its bucket
    repository: str  # URI of its image repository
    spot_queue: str  # Job queue of Spot machines of the one family
    wide_queue: str  # The same for all of `families`
    on_demand_queue: str  # Job queue of on-demand machines of the one family
    worker_role: str  # ARN of the role of jobs
    execution_role: str  # ARN of the role that injects their secrets
    instance_profile: str  # ARN of the instance profile of machines that `infra=ec2_spot` starts
    launch_template: str  # Id of the launch template of those machines
    security_group: str  # Id of their security group
    subnets: tuple[str, ...]  # Ids of the subnets, one in each zone
    log_group: str  # Log group of the jobs
    family: str  # The instance family that keeps results exact
    families: tuple[str, ...]  # The families of the wide queue
    types: tuple[str, ...]  # The instance types that may be started of the one family
    wide_types: tuple[str, ...]  # Those of `families`
    max_vcpus: int  # The most vCPUs at once
    gpu_queue: str = ""  # Job queue of machines with GPUs, empty if there is none
    gpu_family: str = ""  # The family of the GPU queue, empty if there is none
    gpu_types: tuple[str, ...] = ()  # The instance types that may be started of it
    bid_percentage: int = 100  # The highest Spot price, in percent of the on-demand price


def stack_name(project: str) -> str:
    """Return the name of a project's stack."""
    if not _NAME.fullmatch(project):
        raise ConfigError(
            f"{printable(project)!r} is no name of a project. Use 3 to 21 lower-case letters, "
            "digits and hyphens, a letter first."
        )
    return f"rlzoo-{project}"


def project_tags(project: str) -> dict[str, str]:
    """Return the tags of all that a project makes: instances, disks, fleets, jobs, its stack."""
    return {"Project": project, "ManagedBy": "rlzoo-plus"}


def has_tags(tags: Mapping[str, str], project: str) -> bool:
    """Return whether something has the tags of a project."""
    return project_tags(project).items() <= tags.items()


def project_name(asked: str | None = None) -> str:
    """Return the name of the project to use: what was asked for, $RLZOO_PROJECT, or `cloud use`."""
    found = asked or os.environ.get(VARIABLE) or read_json(_file()).get("project")
    if not isinstance(found, str):
        raise ConfigError(
            "no project is chosen. Deploy one with `rlzoo-plus cloud deploy`, or choose your "
            "team's with `rlzoo-plus cloud use PROJECT`. Or name it for once: `infra.project=NAME` "
            "for a sweep, `rlzoo-plus cloud status NAME`."
        )
    return found


def use_project(name: str, *, unless_chosen: bool = False) -> None:
    """Let this user's commands use a project."""
    path = _file()
    if unless_chosen and read_json(path).get("project") is not None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"project": name})


def read_project(asked: str | None = None) -> Project:
    """Return a project as its stack is now."""
    name = project_name(asked)
    stack = find_stack(name)
    if stack is None:
        raise ConfigError(
            f"there is no project {name!r} in region {aws.region()}. Deploy it with `rlzoo-plus "
            f"cloud deploy --project {name}`, or set AWS_REGION and AWS_PROFILE to where it is."
        )
    if stack["StackStatus"] not in _READY:
        is_busy = str(stack["StackStatus"]).endswith("_IN_PROGRESS")
        mend = f"`rlzoo-plus cloud deploy --project {name}` mends it"
        if is_busy:
            mend = f"try again when `rlzoo-plus cloud status {name}` says that it is complete"
        raise ConfigError(
            f"the stack of project {name!r} is {stack['StackStatus']}: {mend}. Its events are in "
            "the CloudFormation console."
        )
    outputs = outputs_of(stack)
    try:
        return Project(name=name, **_project_values(outputs))
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"the stack of project {name!r} lacks the output {error}: another version of "
            f"rlzoo_plus made it. Update it with `rlzoo-plus cloud deploy --project {name}`."
        ) from None


def _project_values(outputs: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a project from the outputs of its stack; a KeyError names what lacks."""
    values: dict[str, Any] = {}
    for each in dataclasses.fields(Project)[1:]:
        output = output_of(each.name)
        if output in outputs or each.default is dataclasses.MISSING:
            text = outputs[output]
            kinds: dict[str, Callable[[str], Any]] = {"int": int, "tuple[str, ...]": _names}
            values[each.name] = kinds.get(str(each.type), str)(text)
    return values


def output_of(field: str) -> str:
    """Return the output of the stack that a field of a project is read from."""
    return "SubnetIds" if field == "subnets" else field.title().replace("_", "")


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def find_stack(project: str) -> dict[str, Any] | None:
    """Return what CloudFormation says of a project's stack, None if there is none."""
    name = stack_name(project)
    try:
        with aws.errors(f"look for project {project!r}"):
            found = aws.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    except aws.CloudError as error:
        # CloudFormation has no code of its own for a stack that does not exist.
        if error.code == "ValidationError" and "does not exist" in str(error):
            return None
        raise
    return dict(found[0]) if found else None


def outputs_of(stack: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the outputs of a stack by name, as far as it has made them."""
    found = () if stack is None else stack.get("Outputs", ())
    return {output["OutputKey"]: output["OutputValue"] for output in found}


def _file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "rlzoo_plus" / "cloud.json"
