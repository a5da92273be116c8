"""`rlzoo-plus export`: a run's policy as ONNX, TorchScript, C or a Stable-Baselines3 zip."""

from __future__ import annotations

import sys
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
        "Export a run's policy. ONNX, TorchScript and C files take raw observations and return "
        "actions within their bounds: normalisation is inside.",
        "outputs/cartpole_bullet/ppo/... --format onnx",
    )
    add = parser.add_argument
    add_policy(parser)
    formats = ("onnx", "torchscript", "c", "sb3")
    of_format = "c: one C99 file; sb3: weights for Stable-Baselines3"
    add("--format", choices=formats, required=True, help=of_format)
    add("--output", type=Path, metavar="PATH", help="the file (default: RUN/export/<which>/...)")
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    from rlzoo_plus.export import graph, writing

    if options.format in ("onnx", "c"):
        # Before the run is opened, which takes seconds.
        graph.check_onnx_is_there()
    run, policy = opened(options)
    names = {**writing.FILE_NAMES, "c": "policy.c"}
    path = options.output
    if path is None:
        path = run.folder / "export" / options.which / names[options.format]
        check_inside(run.folder, path)
    if path.is_dir():
        raise ConfigError(
            f"--output {path} is a folder. Name a file: {path / names[options.format]}."
        )
    name = "" if run.path is None else run.path.name
    about = {"step": str(policy.step), "which": options.which, "run": name}
    try:
        if options.format == "c":
            return _in_c(policy, run.config, path, about)
        exported = writing.export_policy(policy, run.config, path, options.format, about)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}.") from error
    _tell(exported.files, exported.signature)
    return _verdict(exported.parity, path)


def _in_c(policy: Any, config: Any, path: Path, about: dict[str, Any]) -> int:
    """Write a policy in C, and let it repeat what the policy does where there is a compiler."""
    from rlzoo_plus.deploy.c_export import export_c

    made = export_c(policy, config, path, about)
    _tell([path], made.signature)
    if made.parity is None:
        print("not checked: no C compiler (cc, gcc or clang) was found")
        return 0
    print(
        f"compiled: {made.bytes:,} bytes; the slowest of 10,000 decisions took "
        f"{made.slowest_us:.3g} us"
    )
    return _verdict(made.parity, path)


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
