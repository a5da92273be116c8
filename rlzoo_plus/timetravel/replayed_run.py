"""Trains a part of a run again, in a directory of its own, until a condition holds."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.checkpoint import Checkpoint
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.compare import changed_values, describe_changes
from rlzoo_plus.config.schema import RunConfig, StopConfig
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.timetravel.branching import copy_checkpoint
from rlzoo_plus.timetravel.condition import Condition
from rlzoo_plus.timetravel.update_probe import UpdateProbe
from rlzoo_plus.training.callbacks import RunCallbacks
from rlzoo_plus.training.exp_manager import ExpManager

_NOT_FINITE = re.compile(r"\b(NaN|inf)\b")


class ReplayManager(ExpManager):
    """Trains one run under the eyes of a probe."""

    def watch_with(self, probe: UpdateProbe) -> None:
        """Say what watches; called before `train`."""
        self._probe = probe

    def _attach(self, stack: contextlib.ExitStack, agent: Any, *given: Any) -> RunCallbacks:
        callbacks = super()._attach(stack, agent, *given)
        self._probe.attach(agent)
        first, *others = agent.before_iteration
        snapshot = callbacks.checkpoint.snapshot

        def check() -> None:
            if snapshot.exactness.because:
                raise not_exact(snapshot.exactness.because)

        agent.before_iteration = [first, check, *others]
        return callbacks


def not_exact(reasons: list[str], *, at_start: bool = False) -> ConfigError:
    """Return the error that a run cannot be replayed exactly, from its start or a checkpoint."""
    start = "" if at_start else " --from-start replays from its seed instead of a checkpoint."
    return ConfigError(
        f"the replay would not be the run: {'; '.join(reasons[:3])}. Replay it on its machine with "
        f"its code and libraries.{start}"
    )


def replay_config(config: RunConfig, condition: Condition) -> RunConfig:
    """Return a run's configuration for a replay: the same updates, and nothing beside them."""
    never: dict[str, Any] = {"every_steps": None, "every_minutes": None, "milestone_steps": None}
    # Callbacks are restored by their position, behind the evaluation.
    plays = bool(config.callbacks) or condition.metric.startswith("eval/")
    evaluation = {"beside": "never"} if plays else {"every_steps": None}
    stop = StopConfig(reward_threshold=None, no_improvement_evals=None, wall_clock_minutes=None)
    return config.model_copy(
        update={
            **{"run_dir": None, "sweep": None, "store": None, "tracker": None, "stop": stop},
            **{"record_updates": False, "profile": False, "resume": "auto", "restart": False},
            "eval": config.eval.model_copy(update=evaluation),
            "checkpoint": config.checkpoint.model_copy(update={**never, "keep_best": False}),
            "log": config.log.model_copy(update={"tensorboard": False, "sb3": False}),
            "export": config.export.model_copy(update={"sb3_zip": False}),
        }
    )


def replay(
    parent: RunDir, config: RunConfig, start: Checkpoint | None, probe: UpdateProbe
) -> str | None:
    """Train a part of a run again; the probe ends it.

    Args:
        parent: The run; nothing is written to it.
        config: Its configuration.
        start: The checkpoint to begin at; None for the beginning of the run.
        probe: What watches.

    Returns:
        The message that it ended with because of NaN or infinity, None if there was none.

    Raises:
        ConfigError: The replay is not the run.
        RunError: It failed for another reason.
    """
    again = replay_config(config, probe.condition)
    if start is not None:
        again = again.model_copy(update={"n_timesteps": _length(start, config)})
    with tempfile.TemporaryDirectory(prefix="rlzoo-bisect-") as folder:
        run_dir = RunDir(Path(folder) / "replay")
        run_dir.path.mkdir()
        run_dir.start(again.whole(), "rlzoo-plus bisect", {})
        try:
            if start is not None:
                state, about = {**start.state, "exactness": {}}, {**start.about, "logs": {}}
                fresh = replace(start, state=state, about=about)
                copy_checkpoint(parent, fresh, run_dir, again, best=False)
            manager = ReplayManager(again, run_dir)
            manager.watch_with(probe)
            manager.train()
        except RunError as error:
            if _NOT_FINITE.search(str(error)):
                return str(error)
            raise
        except ConfigError:
            raise
        # The user's own code, and what is forged, can raise anything.
        except Exception as error:
            what = f"{type(error).__name__}: {one_line(error)}"
            raise RunError(f"the replay failed: {what}") from error
    return None


def _length(start: Checkpoint, config: RunConfig) -> int:
    """Return the length of a run as of a checkpoint: schedules depend on it.

    Raises:
        ConfigError: Its settings were changed since.
    """
    about = start.about
    begun = about.get("branch")
    before = {"config": begun} if isinstance(begun, Mapping) else about
    changes = changed_values(before, config)
    if changes:
        raise not_exact([f"since the checkpoint {text}" for text in describe_changes(changes)])
    length = about.get("n_timesteps")
    return length if type(length) is int and length >= start.step else config.n_timesteps
