"""One export from start to end: write, check against the policy, say what was found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.export.parity import Parity, Runner, compare
from rlzoo_plus.export.recording import record
from rlzoo_plus.export.signature import Signature, make_signature, metadata

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.errors import ConfigError
from rlzoo_plus.config.schema import RunConfig

FILE_NAMES = {"sb3": "model.zip", "onnx": "policy.onnx", "torchscript": "policy.pt"}
STATISTICS = "vecnormalize.pkl"


@dataclass(frozen=True)
class Exported:
    """What an export left behind.

    Attributes:
        files: The files, the policy itself first.
        signature: Its inputs and outputs.
        parity: How it compares with the policy.
    """

    files: list[Path]
    signature: Signature
    parity: Parity


def export_policy(
    policy: Policy, config: RunConfig, path: Path, file_format: str, about: dict[str, Any]
) -> Exported:
    """Write a policy in another format and compare the file with it.

    Args:
        policy: The policy.
        config: The run it belongs to.
        path: The file; what lies beside it is named after it.
        file_format: One of `FILE_NAMES`.
        about: Step, run and the like, for the file's metadata.

    Raises:
        ConfigError: The policy cannot be written in that format.
    """
    signature = make_signature(policy)
    facts = metadata(signature, policy, {**_origin(config), **about})
    files, runner = _WRITERS[file_format](policy, config, signature, facts, path)
    for file, data in files.items():
        write_atomic(file, data)
    recording = record(policy, signature, config)
    parity = compare(policy, signature, runner(), recording)
    return Exported(list(files), signature, parity)


Written = tuple[dict[Path, bytes], Callable[[], Runner]]


def _sb3(
    policy: Policy, config: RunConfig, signature: Signature, facts: dict[str, str], path: Path
) -> Written:
    from rlzoo_plus.export.sb3_format import sb3_runner, write_sb3

    data, statistics = write_sb3(policy, config, int(facts["step"]))
    beside = {} if statistics is None else {path.with_name(STATISTICS): statistics}

    def runner() -> Runner:
        # It is unpickled, so it must be what was written, and nothing that took its place.
        for file, content in {path: data, **beside}.items():
            if file.read_bytes() != content:
                raise ConfigError(f"{file} was changed while it was being checked. Export again.")
        return sb3_runner(data, statistics, config, policy, signature)

    return {path: data, **beside}, runner


def _onnx(
    policy: Policy, config: RunConfig, signature: Signature, facts: dict[str, str], path: Path
) -> Written:
    from rlzoo_plus.export.graph import PolicyGraph
    from rlzoo_plus.export.onnx_format import onnx_runner, write_onnx

    data = write_onnx(PolicyGraph(policy, signature), facts)
    return {path: data}, lambda: onnx_runner(path.read_bytes())


def _torchscript(
    policy: Policy, config: RunConfig, signature: Signature, facts: dict[str, str], path: Path
) -> Written:
    from rlzoo_plus.export.graph import PolicyGraph
    from rlzoo_plus.export.torchscript_format import torchscript_runner, write_torchscript

    text = json.dumps({key: _plain(value) for key, value in facts.items()}, indent=2) + "\n"
    data = write_torchscript(PolicyGraph(policy, signature), text)
    files = {path: data, path.with_name(path.name + ".json"): text.encode()}
    return files, lambda: torchscript_runner(path.read_bytes(), signature)


_WRITERS = {"sb3": _sb3, "onnx": _onnx, "torchscript": _torchscript}


def _origin(config: RunConfig) -> dict[str, Any]:
    from rlzoo_plus import __version__

    return {
        "rlzoo_plus": __version__,
        "algorithm": config.algo.name,
        "environment": config.env.id,
        "frame_stack": str(config.env.frame_stack),
    }


def _plain(text: str) -> Any:
    return json.loads(text) if text[:1] in "[{" else text
