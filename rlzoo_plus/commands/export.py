"""`rlzoo-plus export`: a run's policy as ONNX, TorchScript, C, for a robot or for SB3."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.commands.arguments import add_policy, opened
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Export and check the file; return 1 if it does not act as the policy."""
    parser = command_parser(
        "export",
        "Export a run's policy. What is written takes raw observations and returns actions within "
        "their bounds: normalisation is inside.",
        "outputs/cartpole_bullet/ppo/... --format onnx",
    )
    add = parser.add_argument
    add_policy(parser)
    formats = ("onnx", "torchscript", "c", "leapp", "sb3")
    of_format = (
        "c: one C99 file; leapp: a folder for a robot, as of deploy; sb3: weights for "
        "Stable-Baselines3"
    )
    add("--format", choices=formats, required=True, help=of_format)
    add("--output", type=Path, metavar="PATH", help="the file (default: RUN/export/<which>/...)")
    add_value(parser)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    return export(parser.parse_args(arguments))


def add_value(parser: ArgumentParser) -> None:
    """Add the options of what is exported: of one group, and of a folder with the critic, too."""
    group_help = "of env.groups: the policy of its agents alone"
    parser.add_argument("--group", metavar="NAME", help=group_help)
    parser.add_argument("--with-value", action="store_true", help="of a folder for a robot: its "
        "graph also returns what the critic expects, for the audit log of serve")  # fmt: skip


def export(options: Namespace) -> int:
    """Export as parsed arguments say; return 1 if the result does not act as the policy."""
    from rlzoo_plus.deploy import bundle_export, c_export
    from rlzoo_plus.export import graph, writing

    if options.with_value and options.format != "leapp":
        raise ConfigError(f"--with-value needs --format leapp; {options.format} has no value.")
    if options.format in ("onnx", "c", "leapp"):
        # Before the run is opened, which takes seconds.
        graph.check_onnx_is_there()
    run, policy = opened(options)
    if options.group is not None:
        policy = policy.of_group(options.group)
    names = {**writing.FILE_NAMES, "c": "policy.c", "leapp": "leapp"}
    path = options.output
    if path is None:
        path = run.folder / "export" / options.which / (options.group or "") / names[options.format]
        check_inside(run.folder, path)
    if path.is_dir() and options.format != "leapp":
        raise ConfigError(
            f"--output {path} is a folder. Name a file: {path / names[options.format]}."
        )
    about = run.facts(options.which, policy)
    if "other_environment" in about:
        print(f"another environment than in training: {about['other_environment']}")
    try:
        if options.format == "c":
            return _told_c(c_export.export_c(policy, run.config, path, about), path)
        if options.format == "leapp":
            made = bundle_export.write_deployed(
                *(policy, run.config, path, about),
                with_value=options.with_value,
                lacks_kwargs=run.lacks_env_kwargs,
            )
            return _told_folder(made)
        exported = writing.export_policy(policy, run.config, path, options.format, about)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}.") from error
    _tell(exported.files, exported.signature)
    return _verdict(exported.parity, path)


def _told_c(made: Any, path: Path) -> int:
    _tell([path], made.signature)
    if made.parity is None:
        print("not checked: no C compiler (cc, gcc or clang) was found")
        return 0
    print(
        f"compiled: {made.bytes:,} bytes; the slowest of 10,000 decisions took "
        f"{made.slowest_us:.3g} us"
    )
    return _verdict(made.parity, path)


def _told_folder(made: Any) -> int:
    _tell([made.folder], made.signature)
    print(f"{made.bytes:,} bytes; README.md says how to use them")
    print(f"SHA-256 of deploy.json, which has those of all files: {made.sha256}")
    if made.without_commands is not None:
        print(f"no commands of joints: {made.without_commands}")
    if made.without_shield is not None:
        print(f"no shield: {made.without_shield}")
    return _verdict(made.parity, made.folder)


def _tell(files: list[Path], signature: Any) -> None:
    for file in files:
        print(f"wrote {file}")
    for what, ports in (("in", signature.inputs), ("out", signature.outputs)):
        for port in ports:
            shape = ", ".join(str(size) for size in port.shape)
            print(f"  {what:<4}{port.name:<16}{port.dtype:<9}({shape})  {port.meaning}")


def _verdict(parity: Any, path: Path) -> int:
    print(f"checked against the policy: {parity}")
    if parity.holds:
        return 0
    print(
        f"error: {path} does not act as the policy does (the limit is 1e-5, or what rounding "
        "explains). It was kept for inspection; do not use it.",
        file=sys.stderr,
    )
    return 1
