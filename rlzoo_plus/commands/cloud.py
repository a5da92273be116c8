"""`rlzoo-plus cloud`: the project of a team in AWS: deploy, build, use, show, destroy."""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_file
from rlzoo_plus.cloud import aws, image_build, project
from rlzoo_plus.cloud.account import detach_policy, find_account
from rlzoo_plus.cloud.image import find_image, images
from rlzoo_plus.cloud.running import end_all, find_items, forget_definitions
from rlzoo_plus.cloud.stack import remove
from rlzoo_plus.commands import cloud_deploy
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.errors import ConfigError

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
    _add_build(verbs)
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


_LARGEST_FILE_BYTES = 1_000_000
_BUILD = (
    "Build the image of workers with docker, podman or buildah, and push it to the project's "
    "repository; jobs use it by its digest. It is needed again when rlzoo_plus or its "
    "dependencies change; your own code goes through the store."
)


def _add_build(verbs: Any) -> None:
    """Add `build` to the sub-commands of `cloud`."""
    parser = verbs.add_parser(
        "build", help="build and push the image of workers", description=_BUILD
    )
    parser.set_defaults(action=_build_image)
    add = parser.add_argument
    add("--project", metavar="NAME", help="the project (default: that of `cloud use`)")
    add(
        "--tool",
        choices=image_build.TOOLS,
        help="what builds (default: the first of these that works)",
    )
    add("--gpu", action="store_true", help="with torch for CUDA, for infra.gpus")
    add("--requirements", type=Path, metavar="FILE", help="what your own code needs, for pip")
    add("--base", metavar="IMAGE", help="build on this image, which has Python 3.11 or newer")
    add("--torch-index", metavar="URL", help="where pip finds torch (default: PyTorch's own)")
    pip_config = "a pip.conf for the build alone, as of a mirror; it may have a password"
    add("--pip-config", type=Path, metavar="FILE", help=pip_config)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--no-push", action="store_true", help="keep the image on this machine")
    context = "only write what a build reads, to build elsewhere: docker build FOLDER"
    instead.add_argument("--context", type=Path, metavar="FOLDER", help=context)
    more = "more arguments for the tool, after two hyphens: -- --network host"
    add("more", nargs="*", metavar="ARGUMENT", help=more)


def _build_image(options: argparse.Namespace, console: Console) -> int:
    """Build the image unless the project has it; return the exit code."""
    recipe = _recipe(options)
    if options.context is not None:
        image_build.write_context(options.context, recipe)
        given = [f"--build-arg {name}={value}" for name, value in recipe.arguments.items()]
        _tell(console, f"docker build {' '.join(given)} {printable(options.context)}")
        return 0
    if options.no_push:
        tool = image_build.find_tool(options.tool)
        _build(tool, f"localhost/rlzoo_plus:{recipe.tag}", recipe, options, console)
        _tell(console, f"built localhost/rlzoo_plus:{recipe.tag}; it was not pushed")
        return 0
    _build_and_push(recipe, options, console)
    return 0


def _build_and_push(
    recipe: image_build.Recipe, options: argparse.Namespace, console: Console
) -> None:
    ours = project.read_project(options.project)

    def find() -> str | None:
        return next((each.uri for each in images(ours) if recipe.tag in each.tags), None)

    uri = find()
    if uri is not None:
        _tell(console, f"nothing has changed, the project has this image: {uri}")
    else:
        tool, reference = image_build.find_tool(options.tool), f"{ours.repository}:{recipe.tag}"
        with tempfile.TemporaryDirectory(prefix="rlzoo_plus-login-") as folder:
            authfile = Path(folder) / "auth.json"
            # Before the build, which takes minutes.
            image_build.log_in(tool, ours, authfile)
            _build(tool, reference, recipe, options, console)
            image_build.push(tool, reference, authfile)
        uri = find()
        _tell(console, f"pushed {uri}")
    newest = find_image(ours, gpu=recipe.gpu)
    if newest == uri:
        _tell(console, "jobs of this rlzoo_plus use it from now on")
    else:
        more = "which was pushed later with other options. Delete that one to use this one"
        _tell(console, f"jobs use {newest}, {more}")


def _build(
    tool: str,
    reference: str,
    recipe: image_build.Recipe,
    options: argparse.Namespace,
    console: Console,
) -> None:
    _tell(console, f"{tool} builds {reference}")
    image_build.build(tool, recipe, reference, pip_config=options.pip_config, more=options.more)


def _recipe(options: argparse.Namespace) -> image_build.Recipe:
    requirements, pip_config = options.requirements, options.pip_config
    if pip_config is not None and not pip_config.is_file():
        raise ConfigError(f"--pip-config: {printable(pip_config)} is not a file.")
    text = ""
    if requirements is not None:
        try:
            text = read_plain_file(requirements, _LARGEST_FILE_BYTES).decode()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--requirements cannot be read: {one_line(error)}.") from error
    return image_build.Recipe(options.gpu, options.base, options.torch_index, text)


def _tell(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
