"""What every policy class and features extractor keeps to: a run's contract, and its export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.testing.run_contract import RunContract


class NetworkContract(RunContract):
    """The suite for policy classes and features extractors."""

    @pytest.mark.parametrize("file_format", ["torchscript", "onnx"])
    def test_an_exported_file_acts_as_the_policy(
        self, trained: tuple[RunDir, Any], config: RunConfig, tmp_path: Path, file_format: str
    ) -> None:
        from rlzoo_plus.agents.policy import load_policy
        from rlzoo_plus.export.graph import PolicyGraph
        from rlzoo_plus.export.graph_files import (
            onnx_runner,
            torchscript_runner,
            write_onnx,
            write_torchscript,
        )
        from rlzoo_plus.export.parity import TOLERANCE, compare, made_up
        from rlzoo_plus.export.signature import make_signature

        policy = load_policy(trained[0].final, trust=True)
        signature = make_signature(policy)
        graph = PolicyGraph(policy, signature)
        if file_format == "onnx":
            pytest.importorskip("onnxscript")
            run = onnx_runner(write_onnx(graph, {}))
        else:
            run = torchscript_runner(write_torchscript(graph, "{}"), signature)
        found = compare(policy, signature, run, made_up(policy, signature))
        assert found.difference < max(TOLERANCE, 2.0 * found.rounding)
