"""A checkpoint as a documented mapping: its manifest at once, the rest when it is asked for.

Nothing is unpickled, imported or built: a checkpoint is JSON and safetensors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import DamagedFolderError, read_about, read_folder
from rlzoo_plus.artifacts.checkpoint import READABLE_SCHEMAS
from rlzoo_plus.artifacts.tree import unpack
from rlzoo_plus.artifacts.untrusted import has_control_characters, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.zips import unzip

KEYS = ("version", "module_state", "trainer_state", "replay_meta", "rng_state", "meta")
# What the manifest has that stands elsewhere in the mapping.
_ELSEWHERE = ("schema", "chunks")


class CheckpointView(Mapping[str, Any]):
    """A checkpoint by the keys of `KEYS`; see `read_checkpoint`."""

    def __init__(self, path: Path) -> None:
        """Read the manifest of a checkpoint's folder, or of its zip as a store has it.

        Raises:
            ConfigError: There is no whole checkpoint, or one of another version.
        """
        self.path = path
        self._unzipped: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._folder = self._unzip() if path.is_file() else path
            self._about = read_about(self._folder)
        except (DamagedFolderError, OSError) as error:
            raise self._damaged(error) from error
        schema = self._about.get("schema")
        if schema not in READABLE_SCHEMAS or has_control_characters(self._about):
            raise self._damaged(f"schema {schema} is not known here")

    def __getitem__(self, key: str) -> Any:
        match key:
            case "version":
                return self._about["schema"]
            case "meta":
                return {k: v for k, v in self._about.items() if k not in _ELSEWHERE}
            case "replay_meta":
                chunks = self._about.get("chunks") or {}
                return {"chunks": chunks, "attributes": self._state.get("buffer")}
            case "module_state":
                return self._agent["parameters"].get("policy", {})
            case "rng_state":
                return self._agent.get("random", {})
            case "trainer_state":
                learned = self._agent["parameters"].items()
                rest = {k: v for k, v in self._agent.items() if k not in ("parameters", "random")}
                run = {k: v for k, v in self._state.items() if k not in ("agent", "buffer")}
                optimizers = {k: v for k, v in learned if k != "policy"}
                return {"optimizers": optimizers, **rest, "run": run}
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(KEYS)

    def __len__(self) -> int:
        return len(KEYS)

    def __repr__(self) -> str:
        step = self._about.get("step")
        return f"<CheckpointView {printable(self.path)}: step {printable(step)}>"

    @cached_property
    def _state(self) -> dict[str, Any]:
        """The checkpoint's state, every byte of it checked."""
        try:
            state = unpack(read_folder(self._folder)[0])
        except (DamagedFolderError, OSError) as error:
            raise self._damaged(error) from error
        if not isinstance(state, dict):
            raise self._damaged("its state is no mapping")
        return state

    @property
    def _agent(self) -> dict[str, Any]:
        agent = self._state.get("agent")
        if not isinstance(agent, dict) or not isinstance(agent.get("parameters"), dict):
            raise self._damaged("it has no agent")
        return agent

    def _unzip(self) -> Path:
        self._unzipped = tempfile.TemporaryDirectory(prefix="rlzoo-checkpoint-")
        folder = Path(self._unzipped.name) / "checkpoint"
        unzip(self.path, folder)
        return folder

    def _damaged(self, error: object) -> ConfigError:
        return ConfigError(
            f"{printable(self.path)} is no whole checkpoint: {printable(error, 300)}."
        )


def read_checkpoint(path: str | Path) -> CheckpointView:
    """Return a checkpoint as a mapping with the keys of `KEYS`.

    - `version`: of the format: 2; 1 has neither environments nor a replay buffer
    - `module_state`: arrays of the policy's networks, targets included, by the names of torch
    - `trainer_state`: `optimizers` by name; `tensors` that are learned besides (`log_ent_coef`);
      `attributes` (counters, last observations), `noise`, `logger`; `run`: environments,
      callbacks, statistics, spaces
    - `replay_meta`: `attributes` of the replay buffer (`pos`, `full`), and of its rows in
      `chunks` the names, hashes and shapes, not the rows
    - `rng_state`: generators: `python`, `numpy`, `torch`, `cuda`, `actions`
    - `meta`: `step`, `config`, `config_hash`, `n_timesteps`, `fingerprint`, `code`,
      `provenance`, `logs`, `ended`, `kept_as`

    Args:
        path: The folder of a checkpoint, `RUN/checkpoints/<step>`, or its zip in a store.

    Raises:
        ConfigError: There is no whole checkpoint.
    """
    return CheckpointView(Path(path))
