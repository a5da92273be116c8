"""`rlzoo-plus leave-fleet`: what a machine of `infra=ec2_spot` calls before it ends."""

from __future__ import annotations

from rlzoo_plus.cloud.fleets import leave_fleet
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.submissions import split_sweep_url
from rlzoo_plus.sweeps.launchers.submitter import Submitter

# Exit code of a machine that must not end.
NEEDED = 75


def main(arguments: list[str]) -> int:
    """Make the fleet of a launch one machine smaller; return 0, or 75 if the machine is needed."""
    parser = command_parser(
        "leave-fleet",
        "Make the EC2 Fleet of a launch one machine smaller, or delete it with its last machine. "
        "The machines of infra=ec2_spot call this before they end, so that AWS replaces them only "
        "while runs are left. You need not call it: `rlzoo-plus sweep cancel` deletes the fleets.",
        "s3://my-bucket/first-sweep --project lab --launch 000001-0a1b2c3d",
    )
    parser.add_argument("sweep", metavar="STORE/SWEEP", help="the sweep that its machines train")
    parser.add_argument("--project", required=True, metavar="NAME", help="the project")
    parser.add_argument("--launch", required=True, metavar="NAME", help="the launch")
    parser.add_argument(
        "--unless-needed",
        action="store_true",
        help="exit with 75 if all machines are needed for the runs that have not ended",
    )
    options = parser.parse_args(arguments)

    n_open = None
    if options.unless_needed:
        url, sweep = split_sweep_url(options.sweep)
        try:
            n_open = Submitter(open_store(url), sweep).n_open()
        except StoreError as error:
            tell(f"{error}: perhaps this machine is needed")
            return NEEDED
    if leave_fleet(options.project, options.launch, n_open):
        tell("the fleet is one machine smaller")
        return 0
    tell(f"runs that have not ended: {n_open:,}; this machine is needed")
    return NEEDED
