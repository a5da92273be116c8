"""One export from start to end: write the files and compare them with the policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus import __version__
from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export import graph as graphs
from rlzoo_plus.export.parity import Parity, Runner, compare, record
from rlzoo_plus.export.sb3_format import sb3_runner, write_sb3
from rlzoo_plus.export.signature import Signature, make_signature, metadata

FILE_NAMES = {"sb3": "model.zip", "onnx": "policy.onnx", "torchscript": "policy.pt"}
STATISTICS = "vecnormalize.pkl"
# The content of each file, and what opens them again once they are written.
_Written = tuple[dict[Path, bytes], Callable[[], Runner]]


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    files: list[Path]  # The files, the policy itself first
    signature: Signature  # Its inputs and outputs
    parity: Parity  # How it compares with the policy


def export_policy(
    policy: Policy, config: RunConfig, path: Path, file_format: str, about: dict[str, Any]
) -> Exported:
    """Write a policy in another format and compare the file with it.

    Args:
        policy: The policy.
        config: Its run.
        path: The file; further files are written beside it.
        file_format: One of `FILE_NAMES`.
        about: Step, run and the like, for the file's metadata.

    Raises:
        ConfigError: The policy cannot be written in that format.
    """
    check_backend(config, file_format)
    signature = make_signature(policy)
    facts = facts_of(policy, config, signature, about)
    if file_format == "sb3":
        files, runner = _sb3(policy, config, signature, int(about["step"]), path)
    else:
        files, runner = _graph(policy, signature, facts, path, file_format)
    for file, data in files.items():
        write_atomic(file, data)
    recording = record(policy, signature, config)
    return Exported(list(files), signature, compare(policy, signature, runner(), recording))


def facts_of(
    policy: Policy, config: RunConfig, signature: Signature, about: dict[str, Any]
) -> dict[str, Any]:
    """Return what a file says of its policy: where it comes from, and what goes in and out."""
    origin = {
        "rlzoo_plus": __version__,
        "algorithm": config.algo.name,
        "environment": config.env.id,
        "frame_stack": str(config.env.frame_stack),
        "wrappers": ", ".join(
            w if isinstance(w, str) else next(iter(w)) for w in config.env.wrappers
        ),
    }
    return metadata(signature, policy, {**origin, **about})


def check_backend(config: RunConfig, file_format: str) -> None:
    """Raise ConfigError for a policy that does not compute with torch."""
    if get_algorithm(config.algo.name).backend == "jax":
        raise ConfigError(
            f"{config.algo.name} computes with JAX, and its policy cannot be written as "
            f"{file_format}. Use its bundle: rlzoo_plus.load_policy(RUN)."
        )
    if file_format == "sb3" and config.env.groups is not None:
        raise ConfigError(
            "--format sb3: Stable-Baselines3 has no policy of several groups. Use --format onnx or "
            "torchscript, with --group NAME for that of one."
        )


def _sb3(
    policy: Policy, config: RunConfig, signature: Signature, step: int, path: Path
) -> _Written:
    data, statistics = write_sb3(policy, config, step)
    files = {path: data}
    if statistics is not None:
        files[path.with_name(STATISTICS)] = statistics

    def runner() -> Runner:
        # It is unpickled, so it must be what was written, and nothing that took its place.
        for file, content in files.items():
            if file.read_bytes() != content:
                raise ConfigError(f"{file} was changed while it was being checked. Export again.")
        return sb3_runner(data, statistics, config, policy, signature)

    return files, runner


def _graph(
    policy: Policy, signature: Signature, facts: dict[str, Any], path: Path, file_format: str
) -> _Written:
    graph = graphs.PolicyGraph(policy, signature)
    if file_format == "onnx":
        files = {path: graphs.write_onnx(graph, facts)}
        return files, lambda: graphs.onnx_runner(path.read_bytes())
    text = json.dumps(facts, indent=2) + "\n"
    files = {path: graphs.write_torchscript(graph, text)}
    files[path.with_name(path.name + ".json")] = text.encode()
    return files, lambda: graphs.torchscript_runner(path.read_bytes(), signature)
