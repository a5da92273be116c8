"""`rlzoo-plus verify`: play a policy's recorded episodes again, and check hashes and score."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rlzoo_plus.analysis.shipped_runs import name_of_shipped
from rlzoo_plus.commands.arguments import add_policy, open_to_play, positive
from rlzoo_plus.commands.typed import command_parser


def main(arguments: list[str]) -> int:
    """Verify and print one line; return 0 if the policy does what was recorded, else 1."""
    parser = command_parser(
        "verify",
        "Play the recorded episodes of a policy again, and check that its hashes, every step and "
        "its score are those of evaluation.json: bit for bit, or, where the machine, a library or "
        "this package is another one, with a mean return within a tolerance. Prints one line; exit "
        "code 0: verified, 1: not, 2: there is nothing to verify.",
        "outputs/cartpole_bullet/ppo/...",
    )
    add_policy(parser)
    add = parser.add_argument
    episodes_help = "from evaluate --save-episodes (default: RUN/episodes)"
    add("--episodes", type=Path, metavar="DIR", help=episodes_help)
    tolerance_help = "part of the mean return that it may be off on another machine (default 0.05)"
    add("--tolerance", type=positive(float), default=0.05, help=tolerance_help)
    first_help = "play only the first N, ten or more (default: all)"
    add("--first", type=positive(int), metavar="N", help=first_help)
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    run = open_to_play(options.run, options)
    from rlzoo_plus.policies.verification import verify

    named = Path(options.run).name
    which = options.which or (named if named in ("best", "final") else None)
    found = verify(run, options.episodes, which, options.tolerance, options.first)
    # The folder of a copy or an installation says nothing.
    is_named = "://" in options.run or name_of_shipped(Path(str(run.path))) is not None
    text = found.text.replace(str(run.path), options.run) if is_named else found.text
    print(json.dumps(asdict(found)) if options.json else text)
    return 0 if found.holds else 1
