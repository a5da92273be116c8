"""`rlzoo-plus cloud`: the project of a team in AWS: deploy, use, show, destroy."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rlzoo_plus.cloud import aws, project
from rlzoo_plus.cloud.account import detach_policy, find_account
from rlzoo_plus.cloud.running import end_all, find_items, forget_definitions
from rlzoo_plus.cloud.stack import remove
from rlzoo_plus.commands import cloud_build, cloud_deploy
from rlzoo_plus.commands.typed import command_parser, make_console

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.cloud.running import Item

_PROJECT_HELP = "name of the project (default: $RLZOO_PROJECT, or what `cloud use` was given)"


def main(arguments: list[str]) -> int:
    """Run a sub-command; return the exit code."""
    options = _parse(arguments)
    return int(options.action(options, make_console()))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "cloud",
        "The project of a team in AWS: a bucket, an image repository and job queues, in one stack "
        "of CloudFormation. Region, profile and credentials are those of AWS's own tools.",
        "deploy",
    )
    verbs = parser.add_subparsers(metavar="COMMAND", required=True, dest="verb")
    cloud_deploy.add_to(verbs)
    cloud_build.add_to(verbs)
    use = verbs.add_parser("use", help="use your team's project", description=_USE)
    use.add_argument("project", metavar="PROJECT", help="name of the project")
    use.set_defaults(action=_use)
    status = verbs.add_parser("status", help="show what costs now", description=_STATUS)
    status.add_argument("project", nargs="?", metavar="PROJECT", help=_PROJECT_HELP)
    status.add_argument("--json", action="store_true", help="print JSON, for programs")
    status.set_defaults(action=_status)
    destroy = verbs.add_parser("destroy", help="remove the project", description=_DESTROY)
    destroy.add_argument("project", nargs="?", metavar="PROJECT", help=_PROJECT_HELP)
    destroy.add_argument("--yes", action="store_true", help="do not ask")
    destroy.set_defaults(action=_destroy)
    return parser.parse_args(arguments)


_USE = "Check that a project can be used, and use it in all commands from now on."
_STATUS = (
    "Show the stack of a project and what it has now that costs money: instances, disks, fleets, "
    "jobs, images, the bucket; with dollars a day by the table of prices."
)
_DESTROY = (
    "End the jobs, fleets and instances of a project and delete its stack. The bucket with all "
    "results stays."
)


def _use(options: argparse.Namespace, console: Console) -> int:
    found = project.read_project(options.project)
    project.use_project(found.name)
    console.print(f"using project {found.name}: {found.store}", markup=False)
    return 0


def _status(options: argparse.Namespace, console: Console) -> int:
    name = project.project_name(options.project)
    stack = project.find_stack(name)
    bucket = project.outputs_of(stack).get("Store", "").removeprefix("s3://")
    items = find_items(name, bucket)
    state = "none" if stack is None else str(stack["StackStatus"])
    if options.json:
        found = [asdict(item) for item in items]
        data = {"project": name, "region": aws.region(), "stack": state, "items": found}
        print(json.dumps(data))
        return 0
    console.print(f"project {name} in {aws.region()}: stack {state}", markup=False)
    _print_items(items, console)
    return 0


def _destroy(options: argparse.Namespace, console: Console) -> int:
    def tell(text: str) -> None:
        console.print(text, markup=False)

    name, account = project.project_name(options.project), find_account()
    stack = project.find_stack(name)
    bucket = project.outputs_of(stack).get("Store", "").removeprefix("s3://")
    items = find_items(name, bucket)
    if stack is None and not [item for item in items if item.kind != "bucket"]:
        tell(f"there is no project {name} in {account.region}: nothing to do")
        return 0
    tell(f"account {account.number}, region {account.region}, project {name}. This")
    tell("  cancels its jobs; runs that train keep the checkpoints that they have sent")
    tell("  ends its fleets and instances")
    tell(f"  deletes its stack rlzoo-{name}, with the image repository and the job queues")
    if bucket:
        tell(f"  leaves the bucket {bucket} with all results")
    _print_items(items, console)
    cloud_deploy.confirm(f"Remove project {name}?", options.yes)
    end_all(name, tell)
    if policy := project.outputs_of(stack).get("UserPolicy"):
        for member in detach_policy(policy):
            tell(f"  detached the project's policy from {member}")
    remove(name, tell)
    forget_definitions(name)
    left = [item for item in find_items(name, bucket) if item.kind != "bucket"]
    for item in left:
        tell(f"still there: {item.kind} {item.name} ({item.about})")
    if left:
        tell(f"Instances take a minute to end: look again with `rlzoo-plus cloud status {name}`.")
    else:
        tell(f"nothing that has the tags of project {name} is left")
    if bucket:
        tell(f"The bucket stays. To remove all results: aws s3 rb --force s3://{bucket}")
    return 1 if left else 0


def _print_items(items: list[Item], console: Console) -> None:
    for item in items:
        usd = "price unknown" if item.usd_per_day is None else f"${item.usd_per_day:.2f} a day"
        shown = "" if item.usd_per_day == 0.0 else usd
        console.print(
            f"  {item.kind:<9} {item.name:<24} {item.about:<44} {shown}".rstrip(), markup=False
        )
    total = sum(item.usd_per_day or 0.0 for item in items)
    unknown = ", and what has no known price" if any(i.usd_per_day is None for i in items) else ""
    console.print(f"  about ${total:.2f} a day now{unknown}", markup=False)
