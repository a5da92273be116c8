"""The contracts of plugins that take part in training; networks and VecEnvs have more tests."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rlzoo_plus.agents.policy import load_policy
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.own_vec_env import OwnVecEnv, make_own_vec_env
from rlzoo_plus.envs.trial import check_shape
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export import graph as graphs
from rlzoo_plus.export.parity import compare, made_up
from rlzoo_plus.export.signature import make_signature
from rlzoo_plus.runs.load import load
from rlzoo_plus.testing.robot_contract import bytes_of
from rlzoo_plus.training.callbacks import StopRequest
from rlzoo_plus.training.exp_manager import ExpManager

# So short that a suite takes seconds; later overrides win.
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


# A run directory and the result of its training.
Trained = tuple[RunDir, Any]


class RunContract:
    """The suite for plugins that take part in training: algorithm, network, callback, wrapper, ...

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
    def trained(cls, config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Trained:
        """Train once for all tests; return the run directory and the result."""
        run_dir = _start(tmp_path_factory.mktemp("run") / "whole", config)
        return run_dir, ExpManager(config, run_dir).train()

    def test_it_trains_to_the_end(self, trained: Trained, config: RunConfig) -> None:
        run_dir, result = trained
        assert result.state == "finished"
        assert result.num_timesteps >= config.n_timesteps
        assert run_dir.read_result()["final"] is not None

    def test_the_saved_policy_acts_within_the_bounds_and_always_alike(
        self, trained: Trained
    ) -> None:
        policies = [load_policy(trained[0].final, trust=True) for _ in range(2)]
        space = policies[0].network.observation_space
        space.seed(3)
        for observation in [space.sample() for _ in range(20)]:
            one, other = (policy.predict(observation)[0] for policy in policies)
            np.testing.assert_array_equal(one, other)
            assert policies[0].network.action_space.contains(one)

    def test_without_trust_a_policy_of_ones_own_code_is_refused_by_its_name(
        self, trained: Trained, config: RunConfig
    ) -> None:
        names = own_code(config, "act")
        if not names:
            pytest.skip("the policy acts without code of its own")
        with pytest.raises(ConfigError, match=names[0]):
            load_policy(trained[0].final)

    def test_a_run_in_pieces_is_the_same_bit_for_bit(
        self, trained: Trained, config: RunConfig, tmp_path: Path
    ) -> None:
        if not self.is_exact:
            pytest.skip("the suite does not claim that it is exact")
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
        overrides = [*SHORT, *self.short, *self.overrides, f"run_dir={tmp_path / 'run'}"]
        run_command("train", *overrides, folder=self.folder)
        assert RunDir(tmp_path / "run").read_status()["state"] == "finished"


class NetworkContract(RunContract):
    """The suite for policy classes and features extractors."""

    @pytest.mark.parametrize("file_format", ["torchscript", "onnx"])
    def test_an_exported_file_acts_as_the_policy(
        self, trained: Trained, config: RunConfig, tmp_path: Path, file_format: str
    ) -> None:
        policy = load_policy(trained[0].final, trust=True)
        signature = make_signature(policy)
        graph = graphs.PolicyGraph(policy, signature)
        if file_format == "onnx":
            pytest.importorskip("onnxscript")
            run = graphs.onnx_runner(graphs.write_onnx(graph, {}))
        else:
            data = graphs.write_torchscript(graph, "{}")
            run = graphs.torchscript_runner(data, signature)
        assert compare(policy, signature, run, made_up(policy, signature)).holds


class VecEnvContract(RunContract):
    """The suite for classes of `vec_env`; `overrides` name one, and more than one environment.

    Attributes:
        n_steps: Steps to play; episodes should end in them.
    """

    n_steps: ClassVar[int] = 120

    @pytest.fixture
    def pair(self, config: RunConfig) -> Iterator[list[OwnVecEnv]]:
        """Return two instances with the same seed."""
        arguments = (config.env, config.n_envs, config.vec_env)
        made = [make_own_vec_env(*arguments, seed=7) for _ in range(2)]
        yield made
        for venv in made:
            venv.close()

    def test_resets_and_steps_return_what_the_spaces_say(self, pair: list[OwnVecEnv]) -> None:
        pair[0].try_out()

    def test_the_same_seed_gives_the_same_steps(self, pair: list[OwnVecEnv]) -> None:
        assert _bytes(_play(pair[0], self.n_steps)) == _bytes(_play(pair[1], self.n_steps))

    def test_another_seed_gives_other_episodes(self, pair: list[OwnVecEnv]) -> None:
        pair[1].seed(8)
        assert bytes_of(pair[0].reset()) != bytes_of(pair[1].reset())

    def test_an_episode_that_ends_tells_its_last_observation_and_its_length(
        self, pair: list[OwnVecEnv]
    ) -> None:
        space, n_ended = pair[0].observation_space, 0
        for _, _, dones, infos in _play(pair[0], self.n_steps):
            for rank in np.flatnonzero(dones):
                last = infos[rank].get("terminal_observation")
                assert last is not None, "an episode's last info needs terminal_observation"
                check_shape(last, space, "terminal_observation")
                n_ended += "episode" in infos[rank]
        assert n_ended, f"no episode ended in {self.n_steps} steps"

    def test_what_was_returned_stays_as_it_was(self, pair: list[OwnVecEnv]) -> None:
        first = pair[0].reset()
        kept = copy.deepcopy(first)
        pair[0].step(_actions(pair[0]))
        assert bytes_of(first) == bytes_of(kept)

    def test_its_state_decides_how_it_goes_on(self, pair: list[OwnVecEnv]) -> None:
        one, other = pair
        if not one.has_state:
            pytest.skip("it has no state_dict() and load_state_dict(state)")
        _play(one, self.n_steps // 2 + 1)
        other.reset()
        assert other.restore(one.state()) is None
        for _ in range(self.n_steps):
            actions = _actions(one)
            assert _bytes([one.step(actions)]) == _bytes([other.step(actions)])


def short_config(*overrides: str) -> RunConfig:
    """Compose and check a configuration as `train` does, of a run that takes a moment."""
    return load([*SHORT, *overrides])


def run_command(verb: str, *arguments: str, folder: Path, code: int = 0) -> str:
    """Run `rlzoo-plus VERB ARGUMENTS...` in a folder; return its output, errors too.

    Args:
        verb: The command, e.g. `train`.
        arguments: Its arguments.
        folder: The current folder, where modules of the user are found.
        code: The exit code that it must have.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rlzoo_plus", verb, *arguments],
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

    _n_iterations = 0

    def __getattribute__(self, name: str) -> Any:
        # Read once an iteration.
        if name == "checkpoint":
            self._n_iterations += 1
            if self._n_iterations == 2:
                self.signal_number = signal.SIGTERM
        return super().__getattribute__(name)


def _start(path: Path, config: RunConfig) -> RunDir:
    """Write what `train` writes before the first step."""
    path.mkdir(parents=True)
    run_dir = RunDir(path)
    run_dir.start(config.model_dump(mode="json"), "a test", {})
    return run_dir


def _play(venv: OwnVecEnv, n_steps: int) -> list[Any]:
    """Return the result of each step, with the same random actions for every instance."""
    venv.action_space.seed(3)
    venv.reset()
    return [venv.step(_actions(venv)) for _ in range(n_steps)]


def _actions(venv: OwnVecEnv) -> np.ndarray:
    return np.stack([venv.action_space.sample() for _ in range(venv.num_envs)])


def _bytes(steps: list[Any]) -> list[tuple[bytes, ...]]:
    """Return observations, rewards and ends of steps as bytes."""
    return [tuple(map(bytes_of, step[:3])) for step in steps]
