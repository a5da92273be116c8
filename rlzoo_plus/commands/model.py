"""`rlzoo-plus model`: versions of policies, and aliases such as production that name one."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import rlzoo_plus
from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.arguments import RUN_HELP, add_trust, positive
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models import model_texts as texts
from rlzoo_plus.models.mlflow_mirror import mirror
from rlzoo_plus.models.model_copies import ModelName, Resolved, resolve
from rlzoo_plus.models.model_history import problems_of, roll_back
from rlzoo_plus.models.model_records import AliasRecord, is_version, version_number
from rlzoo_plus.models.model_store import DEFAULT, VARIABLE, ModelStore

PRODUCTION = "production"


def main(arguments: list[str]) -> int:
    """Run a sub-command; return the exit code."""
    options = _parse(arguments)
    return int(options.action(options))


def _register(options: argparse.Namespace) -> int:
    store, wanted = _model(options.name)
    _, registering = _that_play()
    name, which = registering.split_run(options.run)
    run = rlzoo_plus.Run.open(
        name, trust=options.trust, wanted=which or "", other_env=options.other_env
    )
    made = registering.register(
        run,
        which,
        store,
        wanted.name,
        origin=options.run,
        why=options.why,
        episodes=options.episodes,
        onnx=not options.no_onnx,
        say=_say,
    )
    for note in made.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    record = made.record
    size = sum(entry.size for entry in record.files.values()) / 1e6
    if made.is_new:
        files = f"{counted(len(record.files), 'file')}, {size:.2f} MB"
        print(f"{wanted.name}@{record.number}: {files}, in {printable(store.url)}")
    else:
        print(f"{wanted.name}@{record.number} has these very files already")
    tell(f"next: rlzoo-plus model promote {options.name} {record.number} --to {PRODUCTION}")
    return 0


def _promote(options: argparse.Namespace) -> int:
    store, wanted = _model(options.name)
    promotion, _ = _that_play()
    found = promotion.promote(
        store,
        wanted.name,
        version_number(options.version),
        options.to,
        why=options.why,
        gate=options.gate,
        force=options.force,
        trust=options.trust,
        other_env=options.other_env,
        say=_say,
    )
    for check in found.checks:
        print(f"{'passed' if check.holds else 'FAILED'}  {check.check}: {check.text}")
    if found.record is None:
        print(
            f"error: {wanted.name}@{options.version} did not pass, so {options.to} stays as it is. "
            "--force REASON promotes it all the same, and is recorded.",
            file=sys.stderr,
        )
        return 1
    _tell_move(wanted.name, found.record)
    return 0


def _rollback(options: argparse.Namespace) -> int:
    store, wanted = _model(options.name)
    version = None if options.version is None else version_number(options.version)
    _tell_move(wanted.name, roll_back(store, wanted.name, options.alias, options.why, version))
    return 0


def _retire(options: argparse.Namespace) -> int:
    store, wanted = _model(options.name)
    number = version_number(options.version)
    store.retire(wanted.name, number, options.why)
    print(f"{wanted.name}@{number} is retired: no alias will name it any more; its files stay")
    return 0


def _list(options: argparse.Namespace) -> int:
    text = options.name
    if text is not None and "@" not in text and not text.rstrip("/").endswith("models"):
        store, wanted = _model(text)
        names = [wanted.name]
        store.require(wanted.name)
    else:
        store = ModelStore(None if text is None else text.rstrip("/").removesuffix("/models"))
        names = store.names()
    rows = [row for name in names for row in texts.rows_of(store, name)]
    if options.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        print(texts.table(rows))
    else:
        print(f"{printable(store.url)} has no model; `rlzoo-plus model register RUN --name NAME`")
    return 0


def _show(options: argparse.Namespace) -> int:
    store, wanted = _model(options.name, at=True)
    if wanted.at is None:
        store.require(wanted.name)
        rows = texts.rows_of(store, wanted.name)
        moves = {alias: store.history(wanted.name, alias) for alias in store.aliases(wanted.name)}
        if options.json:
            shown = {a: [r.model_dump(by_alias=True) for r in rs] for a, rs in moves.items()}
            print(json.dumps({"versions": rows, "aliases": shown}, indent=2))
        else:
            print(texts.model(rows, moves))
        return 0
    moved = None if is_version(wanted.at) else store.newest(wanted.name, wanted.at)
    record = store.version(wanted.name, int(wanted.at) if moved is None else moved.version)
    if options.json:
        print(json.dumps(record.model_dump(), indent=2))
    else:
        print(texts.version(wanted.name, record, moved))
    return 0


def _diff(options: argparse.Namespace) -> int:
    pair: list[Resolved] = []
    for at in (options.first, options.second):
        pair.append(resolve(f"{options.name}@{at}"))
    promotion, _ = _that_play()
    found = promotion.changes(*pair)
    if options.json:
        print(json.dumps({key: list(values) for key, values in found.items()}, default=str))
        return 0
    print(texts.differing([f"{each.name}@{each.version.number}" for each in pair], found))
    return 0


def _verify(options: argparse.Namespace) -> int:
    store, wanted = _model(options.name, at=True)
    store.require(wanted.name)
    versions = store.versions(wanted.name)
    if wanted.at is not None:
        is_number = is_version(wanted.at)
        at = int(wanted.at) if is_number else store.newest(wanted.name, wanted.at).version
        versions = [store.version(wanted.name, at).number]
    found = problems_of(store, wanted.name, versions, options.head)
    for text in found:
        print(f"damaged: {text}")
    if not found:
        print(f"{wanted.name}: every byte of {len(versions)} versions is as it was registered")
        for alias in store.aliases(wanted.name):
            print(f"{alias}: record {' '.join(map(str, store.end_of(wanted.name, alias)))}")
    return 1 if found else 0


def _mirror(options: argparse.Namespace) -> int:
    store, wanted = _model(options.name)
    found = mirror(store, wanted.name)
    print("\n".join(map(printable, found)) or f"MLflow's {wanted.name} is as it should be")
    return 0


def _model(text: str, *, at: bool = False) -> tuple[ModelStore, ModelName]:
    """Return the registry and the model that a user names."""
    wanted = ModelName.parse(text)
    if wanted.at is not None and not at:
        raise ConfigError(f"{printable(text)}: name the model alone here: {wanted.name}.")
    return ModelStore(wanted.url), wanted


def _that_play() -> tuple[ModuleType, ModuleType]:
    """Import what plays policies, which takes torch: when the arguments are known to be right."""
    from rlzoo_plus.models import promotion, registering

    return promotion, registering


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr)


def _tell_move(name: str, record: AliasRecord) -> None:
    print(printable(f"{name}@{record.alias}: {texts.move(record)}", LONGEST_LINE))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "model",
        "Versions of policies in a registry, which are never changed, and aliases that name one: "
        "NAME@production is a RUN of every command. The registry is in a store, a folder or S3: "
        f"that of {VARIABLE} (default: {DEFAULT}/), or STORE/models/NAME.",
        "register latest --name a1-walk",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    name_help = "a model: NAME, or STORE/models/NAME"

    def command(name: str, action: Any, about: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about)
        made.set_defaults(action=action)
        return made

    register = command("register", _register, "make a run's policy the next version of a model")
    add = register.add_argument
    add("run", metavar="RUN[@best|final|STEP]", help=RUN_HELP)
    add("--name", required=True, metavar="NAME", help=name_help)
    add("--why", default="", metavar="TEXT", help="a note")
    add("--episodes", type=positive(int), default=20, help="how many are recorded (default 20)")
    add("--no-onnx", action="store_true", help="leave out policy.onnx and the folder of `deploy`, "
        "with which `serve` starts at once")  # fmt: skip
    add_trust(register)
    promote = command("promote", _promote, "let an alias name a version, if it passes a gate")
    add = promote.add_argument
    add("name", metavar="NAME", help=name_help)
    add("version", metavar="VERSION", help="its number")
    add("--to", required=True, metavar="ALIAS", help="such as production")
    add("--gate", type=Path, metavar="FILE", help="YAML (default: the shipped one)")
    add("--force", metavar="REASON", help="promote it whatever the gate says; it is recorded")
    add("--why", default="", metavar="TEXT", help="a note")
    add_trust(promote)
    rollback = command("rollback", _rollback, "let an alias name the version before again")
    add = rollback.add_argument
    add("name", metavar="NAME", help=name_help)
    add("--alias", default=PRODUCTION, help="(default: %(default)s)")
    add("--version", metavar="VERSION", help="an earlier one (default: the last before)")
    add("--why", default="", metavar="TEXT", help="the reason")
    listed = command("list", _list, "list versions, and the aliases that name them")
    listed.add_argument(
        "name", nargs="?", metavar="NAME|STORE/models", help="(default: all models)"
    )
    listed.add_argument("--json", action="store_true", help="print one JSON list")
    show = command("show", _show, "show a version, or all moves of a model's aliases")
    show.add_argument("name", metavar="NAME[@ALIAS|@VERSION]", help=name_help)
    show.add_argument("--json", action="store_true", help="print one JSON object")
    diff = command("diff", _diff, "show what differs between two versions")
    diff.add_argument("name", metavar="NAME", help=name_help)
    for which in ("first", "second"):
        diff.add_argument(which, metavar="VERSION|ALIAS", help=f"the {which} one")
    diff.add_argument("--json", action="store_true", help="print one JSON object")
    verify = command("verify", _verify, "check every byte of versions, and the moves of aliases")
    verify.add_argument("name", metavar="NAME[@ALIAS|@VERSION]", help=name_help)
    verify.add_argument("--head", metavar="HASH", help="the hash of an alias's newest record, as "
        "verify has printed it: finds an alias whose end was cut off since")  # fmt: skip
    retire = command("retire", _retire, "let a version not be promoted any more")
    retire.add_argument("name", metavar="NAME", help=name_help)
    retire.add_argument("version", metavar="VERSION", help="its number")
    retire.add_argument("--why", default="", metavar="TEXT", help="the reason")
    about = "let MLflow's registry (MLFLOW_TRACKING_URI) have the same versions and aliases"
    command("mirror", _mirror, about).add_argument("name", metavar="NAME", help=name_help)
    return parser.parse_args(arguments)
