"""What every run keeps to, whatever of the user's own takes part in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.callbacks import StopRequest
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.compose import compose_run
from rlzoo_plus.runs.exp_manager import ExpManager
from rlzoo_plus.verification.digests import run_digests

# So short that a suite takes seconds; each may be given otherwise.
SHORT = (
    *("env=pendulum", "tuned=none", "n_timesteps=256", "eval.every_steps=128", "eval.episodes=1"),
    *("env.time_limit=50", "num_threads=1", "device=cpu", "log.tensorboard=false"),
    *("report.plot=false", "report.video=false", "log.progress=false"),
)
ON_POLICY = ("algo.hyperparams.n_steps=64", "algo.hyperparams.batch_size=32")
OFF_POLICY = (
    *("algo.hyperparams.learning_starts=64", "algo.hyperparams.batch_size=16"),
    "algo.hyperparams.buffer_size=500",
)


class RunContract:
    """The suite for all that takes part in training: algorithm, network, callback, wrapper, ...

    Attributes:
        overrides: The command line that names the plugin, e.g. `algo.name=my_module.MyPPO`.
        short: What makes the run short: `ON_POLICY`, `OFF_POLICY`, or your own.
        is_exact: Whether a run that was interrupted must be the same bit for bit.
        folder: The folder of your module, if it is not installed.
    """

    overrides: ClassVar[tuple[str, ...]]
    short: ClassVar[tuple[str, ...]] = ON_POLICY
    is_exact: ClassVar[bool] = True
    folder: ClassVar[Path] = Path()

    @pytest.fixture(scope="class")
    @classmethod
    def config(cls) -> Iterator[RunConfig]:
        """Return the checked configuration of a short run."""
        sys.path.insert(0, str(cls.folder.absolute()))
        yield short_config(*cls.short, *cls.overrides)
        sys.path.remove(str(cls.folder.absolute()))

    @pytest.fixture(scope="class")
    @classmethod
    def trained(
        cls, config: RunConfig, tmp_path_factory: pytest.TempPathFactory
    ) -> tuple[RunDir, Any]:
        """Train once for all tests; return the run and the manager of it."""
        run_dir = _start(tmp_path_factory.mktemp("run") / "whole", config)
        manager = ExpManager(config, run_dir)
        return run_dir, manager.train()

    def test_it_trains_to_the_end(self, trained: tuple[RunDir, Any], config: RunConfig) -> None:
        run_dir, result = trained
        assert result.state == "finished"
        assert result.num_timesteps >= config.n_timesteps
        assert run_dir.read_result()["final"] is not None

    def test_the_saved_policy_acts_within_the_bounds_and_always_alike(
        self, trained: tuple[RunDir, Any]
    ) -> None:
        from rlzoo_plus.agents.policy import load_policy

        policies = [load_policy(trained[0].final, trust=True) for _ in range(2)]
        space = policies[0].network.observation_space
        space.seed(3)
        for observation in [space.sample() for _ in range(20)]:
            one, other = (policy.predict(observation)[0] for policy in policies)
            np.testing.assert_array_equal(one, other)
            assert policies[0].network.action_space.contains(one)

    def test_without_trust_a_policy_of_ones_own_code_is_refused_by_its_name(
        self, trained: tuple[RunDir, Any], config: RunConfig
    ) -> None:
        from rlzoo_plus.agents.policy import load_policy

        names = own_code(config, "act")
        if not names:
            pytest.skip("the policy acts without code of its own")
        with pytest.raises(ConfigError, match=names[0]):
            load_policy(trained[0].final)

    def test_a_run_in_pieces_is_the_same_bit_for_bit(
        self, trained: tuple[RunDir, Any], config: RunConfig, tmp_path: Path
    ) -> None:
        if not self.is_exact:
            pytest.skip("it is not said to be exact")
        run_dir = _start(tmp_path / "pieces", config)
        stops = 0
        while (result := ExpManager(config, run_dir, _StopSoon()).train()).state != "finished":
            stops += 1
            assert stops < 500, "the run makes no progress"
        assert stops >= 2
        assert result.exact, result.inexact_because
        expected, found = run_digests(trained[0]), run_digests(run_dir)
        differing = sorted(k for k in expected | found if expected.get(k) != found.get(k))
        assert not differing, differing

    def test_the_command_trains_with_it(self, tmp_path: Path) -> None:
        words = [*SHORT, *self.short, *self.overrides, f"run_dir={tmp_path / 'run'}"]
        run_command("train", *words, folder=self.folder)
        assert RunDir(tmp_path / "run").read_status()["state"] == "finished"


def short_config(*overrides: str) -> RunConfig:
    """Compose and check a configuration as `train` does, of a run that takes a moment."""
    return compose_run([*SHORT, *overrides])


def run_command(verb: str, *words: str, folder: Path, code: int = 0) -> str:
    """Run `rlzoo-plus VERB WORDS...` in a folder; return what it printed, errors too.

    Args:
        verb: The command, e.g. `train`.
        words: Its arguments.
        folder: The current folder, where modules of the user's own are found.
        code: The exit code that it must have.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rlzoo_plus", verb, *words],
        cwd=folder.absolute(),
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == code, text[-3000:]
    return text


class _StopSoon(StopRequest):
    """Asks to stop at the second iteration of a process; the first alone is no progress."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 2

    @property
    def signal_number(self) -> int | None:  # type: ignore[override]
        return 15 if self._left <= 0 else None

    @signal_number.setter
    def signal_number(self, number: int | None) -> None:
        pass

    @property
    def checkpoint(self) -> bool:  # type: ignore[override]
        # Asked once an iteration.
        self._left -= 1
        return False

    @checkpoint.setter
    def checkpoint(self, wanted: bool) -> None:
        pass


def _start(path: Path, config: RunConfig) -> RunDir:
    """Write what `train` writes before the first step."""
    path.mkdir(parents=True)
    run_dir = RunDir(path)
    run_dir.start(config.model_dump(mode="json"), "a test", {})
    return run_dir
