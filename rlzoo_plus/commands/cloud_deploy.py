"""`rlzoo-plus cloud deploy`: checks, questions, and the stack."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from rlzoo_plus.cloud import account as accounts
from rlzoo_plus.cloud import project as projects
from rlzoo_plus.cloud import quota
from rlzoo_plus.cloud.aws import CloudError
from rlzoo_plus.cloud.prices import load_prices
from rlzoo_plus.cloud.stack import deploy, parameters_of, template_defaults
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

_ABOUT = (
    "Create the stack of a project, or update it. It shows the account, checks what AWS needs, and "
    "asks; with --yes, or without a terminal, it takes what is given, what the project has, or the "
    "defaults. An option that is not given keeps its value in an update."
)
# Option, parameter of the template, kind, metavar, help.
_OPTIONS: tuple[tuple[str, str, Any, str, str], ...] = (
    ("--max-vcpus", "MaxVcpus", positive(int), "N", "the most vCPUs at once (default 64)"),
    (
        "--largest-vcpus",
        "LargestVcpus",
        positive(int),
        "N",
        "the most vCPUs of a machine, which budgets count as a whole (default 4)",
    ),
    ("--budget", "BudgetUsd", positive(float), "USD", "costs of a month to be mailed about"),
    ("--email", "Email", str, "ADDRESS", "who gets that mail; none for nobody"),
    ("--family", "Family", str, "NAME", "instance family that keeps results exact (default c7a)"),
    ("--families", "Families", str, "A,B", "families of the queue without exactness"),
    (
        "--gpu-family",
        "GpuFamily",
        str,
        "NAME",
        "make a queue for GPUs, such as g6; none removes it",
    ),
    ("--bid-percentage", "BidPercentage", positive(int), "N", "highest Spot price (default 100)"),
    ("--checkpoint-days", "CheckpointDays", positive(int), "N", "keep checkpoints (default 90)"),
)
_NONE = "none"
_ASKED = {
    "MaxVcpus": ("most vCPUs at once", "64"),
    "BudgetUsd": ("costs of a month to be mailed about [$]", "50"),
    "Email": ("who gets that mail", _NONE),
}


def add_to(verbs: Any) -> None:
    """Add the sub-command to those of `cloud`."""
    parser = verbs.add_parser("deploy", help="make or update a project", description=_ABOUT)
    add = parser.add_argument
    add("--project", metavar="NAME", help="its name (default: the project in use, or rlzoo)")
    for option, parameter, kind, metavar, text in _OPTIONS:
        add(option, dest=parameter, type=kind, metavar=metavar, help=text)
    add("--subnets", metavar="ID,ID", help="subnets that reach the internet (default VPC's)")
    add("--yes", action="store_true", help="do not ask")
    parser.set_defaults(action=_deploy)


def confirm(question: str, yes: bool) -> None:
    """Ask before something happens that costs or removes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("nothing was changed: there is no terminal to ask at. Add --yes.")
    if _answer(f"{question} [y/N] ").lower() not in ("y", "yes"):
        raise ConfigError("nothing was changed.")


def _deploy(options: argparse.Namespace, console: Console) -> int:
    def tell(text: str) -> None:
        console.print(text, markup=False)

    account = accounts.find_account()
    tell(f"account {account.number} as {account.user}")
    tell(f"region {account.region}, profile {account.profile}")
    asks = sys.stdin.isatty() and not options.yes
    name = _name(options.project, asks)
    stack = projects.find_stack(name)
    old = parameters_of(stack)
    values = _values(options, old, asks)
    whole = {**template_defaults(), **old, **values}
    subnets = options.subnets or (projects.outputs_of(stack).get("SubnetIds", "") if old else "")
    network = accounts.find_network(whole["Family"], tuple(filter(None, subnets.split(","))))
    values |= {"VpcId": network.vpc, "SubnetIds": ",".join(network.subnets)}
    types = _types(whole)
    values |= {key: ",".join(kinds) for key, kinds in types.items()}
    missing = accounts.missing_service_roles()
    _tell_plan(name, {**whole, **values}, types, missing, bool(old), tell)
    confirm(f"{'Update' if old else 'Make'} project {name}?", options.yes)
    for service in missing:
        accounts.make_service_role(service)
        tell(f"  made    role of {service}")
    # If the first one breaks off, the next command is about it.
    projects.use_project(name, unless_chosen=True)
    changed = deploy(name, {"Project": name, **values}, tell)
    projects.use_project(name)
    project = projects.read_project(name)
    tell(f"project {name} is {'ready' if changed else 'as it was'}: {project.store}")
    if {**old, **values}.get("Email") and not accounts.show_costs_by_project():
        tell(
            "Bills do not know the tag Project yet, so the mail of the budget does not count: give "
            "this command again tomorrow, or activate it under Billing, Cost allocation tags."
        )
    policy = projects.outputs_of(projects.find_stack(name)).get("UserPolicy")
    tell(f"For your team: attach {policy}, then `rlzoo-plus cloud use {name}`.")
    tell("Next: rlzoo-plus cloud build   (the image of workers, with docker, podman or buildah)")
    tell("Then: rlzoo-plus train -m seed=0,1 infra=aws_batch infra.dry_run=true")
    return 0


def _name(given: str | None, asks: bool) -> str:
    default = "rlzoo"
    try:
        default = projects.project_name()
    except ConfigError:
        # No project is in use yet.
        if given is None and not asks:
            raise ConfigError("which project? Add --project NAME.") from None
    name = given or (_ask("project", default) if asks else default)
    projects.stack_name(name)
    return name


def _values(options: argparse.Namespace, old: dict[str, str], asks: bool) -> dict[str, str]:
    """Return the parameters that were given or answered."""
    values = {}
    for _, parameter, kind, _, _ in _OPTIONS:
        given = getattr(options, parameter)
        if given is None and asks and parameter in _ASKED:
            question, default = _ASKED[parameter]
            text = _ask(question, old.get(parameter) or default)
            try:
                given = kind(text)
            except ValueError:
                raise ConfigError(f"{question}: {text!r} is not {kind.__name__}.") from None
        if given is not None:
            # As CloudFormation writes numbers.
            text = f"{given:g}" if isinstance(given, float) else str(given)
            values[parameter] = "" if text == _NONE else text.strip()
    return values


def _types(values: dict[str, str]) -> dict[str, dict[str, int]]:
    """Return what types of machines AWS may start, with their vCPUs, by the parameter."""
    largest = min(int(float(values[key])) for key in ("LargestVcpus", "MaxVcpus"))
    families = {"Types": "Family", "WideTypes": "Families", "GpuTypes": "GpuFamily"}
    names = {types: values[key].split(",") for types, key in families.items() if values[key]}
    return {types: accounts.small_types(each, largest) for types, each in names.items()}


def _tell_plan(
    name: str,
    values: dict[str, str],
    types: dict[str, dict[str, int]],
    missing: list[str],
    is_there: bool,
    tell: Any,
) -> None:
    prices = load_prices()
    tell(f"{'updates' if is_there else 'makes'} project {name}, stack rlzoo-{name}:")
    tell("  a private bucket, an image repository, roles, a security group without ingress")
    queues = {"Spot": "Types", "wide": "WideTypes", "on demand": "Types", "GPU": "GpuTypes"}
    largest = {kind: max(types[key].values()) for kind, key in queues.items() if key in types}
    most = int(float(values["MaxVcpus"]))
    tell(
        f"  job queues ({', '.join(largest)}) of at most {most} vCPUs each, in machines of at most"
    )
    tell(
        f"    {max(largest.values())} vCPUs; AWS may exceed a queue by one of them: "
        f"{sum(most + each for each in largest.values())} vCPUs in all at most"
    )
    if values["Email"]:
        usd = values["BudgetUsd"]
        tell(f"  a mail to {values['Email']} at 80% of ${usd} in a month")
    if missing:
        tell(f"  roles of AWS's services, once an account: {', '.join(missing)}")
    tell(
        "  costs nothing while no job runs, but storage: "
        f"${prices.s3_gb_month:g} a GB and month in the bucket, ${prices.ecr_gb_month:g} for images"
    )
    _tell_quotas(values, tell)


def _tell_quotas(values: dict[str, str], tell: Any) -> None:
    wanted = int(float(values["MaxVcpus"]))
    kinds = [("Spot vCPUs", False)] + [("Spot vCPUs with GPUs", True)] * bool(values["GpuFamily"])
    for kind, gpu in kinds:
        try:
            found = quota.vcpu_quota(spot=True, gpu=gpu)
        except CloudError as error:
            tell(f"  quota of {kind}: unknown ({error})")
            continue
        enough = "" if found >= wanted else f", fewer than {wanted}: ask AWS for more, see docs"
        tell(f"  quota of {kind}: {found}{enough}")


def _ask(question: str, default: str) -> str:
    return _answer(f"{question} [{default}]: ") or default


def _answer(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        raise ConfigError("nothing was changed: there was no answer.") from None
