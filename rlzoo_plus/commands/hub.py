"""`rlzoo-plus hub`: policies on the Hugging Face Hub: push, pull, search."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import rlzoo_plus
from rlzoo_plus.analysis.find_run import Place, find_place, read_config, trust_option
from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import RUN_HELP, add_trust, positive
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError

_FILTERS = ("algo", "env", "author")
_OWN, _SB3 = "rlzoo-plus", "stable-baselines3"


def main(arguments: list[str]) -> int:
    """Run a sub-command; return the exit code."""
    options = _parse(arguments)
    return int(options.action(options))


def _push(options: argparse.Namespace) -> int:
    place = find_place(options.run)
    if place.is_copy and not place.is_version:
        raise ConfigError(f"{printable(options.run)} is a copy. Name a run of this machine.")
    from rlzoo_plus.hub import client, package, sharing

    repo = client.Repository.parse(options.name)
    if options.dry_run is None:
        # Now: a package takes a while.
        client.Client().require_login()
    if repo.revision is not None:
        raise ConfigError(
            f"{printable(options.name)}: a push makes the newest revision. Write {repo.repo}."
        )
    run = rlzoo_plus.Run.open(options.run, trust=options.trust, other_env=options.other_env)
    with tempfile.TemporaryDirectory(prefix="rlzoo-hub-") as folder:
        target = options.dry_run or Path(folder)
        if any(target.glob("*")):
            raise ConfigError(f"--dry-run {target} is not empty. Choose another folder.")
        target.mkdir(parents=True, exist_ok=True)
        made = package.make_package(
            run,
            repo.repo,
            target,
            episodes=options.episodes,
            video=not options.no_video,
            state=options.state,
            say=print,
        )
        for note in made.notes:
            print(f"note: {printable(note)}", file=sys.stderr)
        files = made.files()
        size = sum(path.stat().st_size for path in files.values()) / 1e6
        if options.dry_run:
            print(f"wrote {len(files)} files, {size:.2f} MB, to {target}; nothing was sent")
            return 0
        message = options.message or f"Policy of {run.config.algo.name} on {run.config.env.id}"
        commit = sharing.send(made, repo.repo, private=options.private, message=message)
    print(f"sent {len(files)} files, {size:.2f} MB: {repo.repo}@{commit}")
    tell(f"next: rlzoo-plus verify hf://{repo.repo}")
    return 0


def _pull(options: argparse.Namespace) -> int:
    from rlzoo_plus.hub import client, copies

    place = client.Repository.parse(options.name)
    path = options.to or OUTPUTS / "hub" / place.repo
    if path.exists():
        raise ConfigError(f"{path} exists. Choose another directory: --to DIR.")
    pulled = copies.pull(
        place,
        path,
        state=options.state,
        agent=copies.Agent(options.algo, options.env, options.zip),
        note=lambda text: print(f"note: {printable(text)}", file=sys.stderr),
    )
    if pulled.left:
        shown = ", ".join(printable(name, 60) for name in pulled.left[:4])
        more = f" and {len(pulled.left) - 4} more" if len(pulled.left) > 4 else ""
        print(f"note: left there: {shown}{more}", file=sys.stderr)
    print(f"{pulled.path}   ({place.repo}@{pulled.commit})")
    if pulled.step is not None:
        trust = trust_option(read_config(Place(path)), to_train=True)
        tell(
            f"next: rlzoo-plus resume {shlex.quote(str(path))}{trust}   (from step {pulled.step:,})"
        )
    else:
        trust = trust_option(read_config(find_place(path)), to_train=False)
        tell(f"next: rlzoo-plus enjoy {shlex.quote(str(path))}{trust}")
    return 0


def _search(options: argparse.Namespace) -> int:
    filters = {}
    for text in options.filters:
        key, separator, value = text.partition("=")
        if key not in _FILTERS or not separator or not value:
            known = ", ".join(f"{name}=..." for name in _FILTERS)
            raise ConfigError(f"{printable(text)}: policies are searched by {known}.")
        filters[key] = value
    from rlzoo_plus.hub import sharing

    found = sharing.search(**filters, library=options.library, limit=options.limit)
    if options.json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    elif not found:
        print("nothing found; `--library stable-baselines3` searches the RL Zoo's, too")
    else:
        columns = ("model", "algo", "env", "mean return", "downloads", "changed")
        print("\n".join(aligned([columns, *(tuple(map(str, asdict(f).values())) for f in found)])))
        print("Returns are as their owners say; `rlzoo-plus verify hf://MODEL` plays again.")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "hub",
        "Share policies on the Hugging Face Hub (extra `hub`): without pickle, with a card, "
        "recorded episodes, a video and ONNX. Commands that take a RUN take "
        "hf://org/name[@revision]. Tokens are those of `hf auth login` or HF_TOKEN.",
        "push latest my-name/a1-walk",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    push = commands.add_parser("push", help="send a run's policies, and a card about them")
    add = push.add_argument
    add("run", metavar="RUN", help=f"{RUN_HELP}; or a bundle")
    add("name", metavar="ORG/NAME", help="the repository; it is made if it does not exist")
    add("--episodes", type=positive(int), default=20, help="how many are recorded (default 20)")
    add("--state", action="store_true", help="send the newest checkpoint, too, to resume from")
    add("--private", action="store_true", help="make the repository private, if it is made")
    add("--no-video", action="store_true", help="record no video")
    add("--message", help="of the commit")
    add("--dry-run", type=Path, metavar="DIR", help="write what would be sent, and send nothing")
    add_trust(push)
    push.set_defaults(action=_push)
    pull = commands.add_parser("pull", help="bring a policy, also of the RL Zoo or SB3")
    add = pull.add_argument
    add("name", metavar="ORG/NAME[@REVISION]", help="the repository, and a branch, tag or commit")
    add("--to", type=Path, metavar="DIR", help="the run directory (default: outputs/hub/ORG/NAME)")
    add("--state", action="store_true", help="bring the checkpoint, too, to resume from")
    add("--algo", help="of a zip of SB3 without args.yml: the algorithm (default: in its name)")
    add("--env", help="of such a zip: the environment (default: in its name)")
    add("--zip", metavar="FILE.zip", help="the one to read, of several")
    pull.set_defaults(action=_pull)
    search = commands.add_parser("search", help="list policies, the most downloaded first")
    add = search.add_argument
    add("filters", nargs="*", metavar="KEY=VALUE", help="algo=..., env=..., author=...")
    add("--library", choices=(_OWN, _SB3), default=_OWN, help="whose (default: %(default)s)")
    add("--limit", type=positive(int), default=20, help="how many at most (default 20)")
    add("--json", action="store_true", help="print one JSON list")
    search.set_defaults(action=_search)
    return parser.parse_args(arguments)
