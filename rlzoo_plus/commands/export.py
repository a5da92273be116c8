"""`rlzoo-plus export`: a run's policy as ONNX, TorchScript or a Stable-Baselines3 zip."""

from __future__ import annotations

import sys
from pathlib import Path

from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.commands.arguments import add_policy, opened
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Export and check the file; return 1 if it does not act as the policy."""
    parser = command_parser(
        "export",
        "Export a run's policy. ONNX and TorchScript files take raw observations and return "
        "actions within their bounds: normalisation is inside.",
        "outputs/cartpole_bullet/ppo/... --format onnx",
    )
    add = parser.add_argument
    add_policy(parser)
    formats = ("onnx", "torchscript", "sb3")
    add("--format", choices=formats, required=True, help="sb3: weights for Stable-Baselines3")
    add("--output", type=Path, metavar="PATH", help="the file (default: RUN/export/<which>/...)")
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    from rlzoo_plus.export import graph, writing

    if options.format == "onnx":
        # Before the run is opened, which takes seconds.
        graph.check_onnx_is_there()
    run, policy = opened(options)
    path = options.output
    if path is None:
        path = run.folder / "export" / options.which / writing.FILE_NAMES[options.format]
        check_inside(run.folder, path)
    if path.is_dir():
        raise ConfigError(
            f"--output {path} is a folder. Name a file: {path / writing.FILE_NAMES['onnx']}."
        )
    name = "" if run.path is None else run.path.name
    about = {"step": str(policy.step), "which": options.which, "run": name}
    try:
        exported = writing.export_policy(policy, run.config, path, options.format, about)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}.") from error
    for file in exported.files:
        print(f"wrote {file}")
    for what, ports in (("in", exported.signature.inputs), ("out", exported.signature.outputs)):
        for port in ports:
            shape = ", ".join(str(size) for size in port.shape)
            print(f"  {what:<4}{port.name:<16}{port.dtype:<9}({shape})  {port.meaning}")
    print(f"checked against the policy: {exported.parity}")
    if exported.parity.holds:
        return 0
    print(
        f"error: {exported.files[0]} does not act as the policy does (the limit is 1e-5, or what "
        "rounding explains). It was kept for inspection; do not use it.",
        file=sys.stderr,
    )
    return 1
