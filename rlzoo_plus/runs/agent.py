"""`Agent`: an algorithm with the methods of Stable-Baselines3, and one run directory behind it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.provenance import python_call
from rlzoo_plus.config.python_calls import call_arguments
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load_noting
from rlzoo_plus.runs.plan import plan_run
from rlzoo_plus.runs.run import Run

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy


def make(
    *overrides: Any, config_dir: str | Path | None = None, quiet: bool = True, **values: Any
) -> Agent:
    """Return an agent that `learn` trains: the run of `train` with the same settings, bit for bit.

    `rz.make("ppo", "cartpole_bullet", n_envs=8, learning_rate=3e-4, seed=0).learn(10_000)`

    Raises:
        ConfigError: The configuration is wrong; nothing is written.
    """
    arguments = call_arguments(overrides, config_dir, values)
    load_noting(arguments)
    return Agent(arguments, quiet=quiet)


def load(path: str | Path, *, trust: bool = False) -> Agent:
    """Return an agent that acts as the one that was saved, or as a run's last policy.

    Args:
        path: What `Agent.save` has written, or what `Run.open` takes; a run can learn on.
        trust: Import what this project does not ship where the run needs it.

    Raises:
        ConfigError: There is no such file or run.
    """
    place = Path(path)
    archive = place.with_name(f"{place.name}.zip")
    run = Run.open(archive if not place.exists() and archive.is_file() else path, trust=trust)
    return Agent([], run=run)


class Agent:
    """An algorithm and its environments; `make` and `load` make one.

    Attributes:
        run: The run behind it; None before `learn`.
    """

    def __init__(self, arguments: list[str], *, run: Run | None = None, quiet: bool = True) -> None:
        self._arguments, self.run, self._quiet = arguments, run, quiet
        self._policy: Policy | None = None

    def learn(self, total_timesteps: int, callback: Any = None, **values: Any) -> Agent:
        """Train for so many steps, and for so many more when it is called again.

        Args:
            total_timesteps: Environment steps.
            callback: As `callbacks` of `train`; only at the first call.
            **values: More overrides; at further calls, what `Run.resume` takes.

        Raises:
            ConfigError, RunError, KeyboardInterrupt: As `train`.
        """
        self._policy = None
        if callback is not None:
            values["callbacks"] = callback
        if self.run is not None:
            steps = int((self.run.result or {}).get("num_timesteps", 0))
            self.run.resume(quiet=self._quiet, n_timesteps=steps + total_timesteps, **values)
            return self
        values["n_timesteps"] = total_timesteps
        arguments = [*self._arguments, *call_arguments((), None, values)]
        config, notes = load_noting(arguments)
        command = python_call("rlzoo_plus.train", arguments)
        run = Run(plan=plan_run(config), command=command, trust=True)
        self.run = run._train(quiet=self._quiet, notes=notes)
        return self

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """Choose actions with the last policy, as `predict` of Stable-Baselines3.

        Raises:
            ConfigError: It has not learned.
        """
        if self._policy is None:
            self._policy = self._trained().policy(self._which())
        return self._policy.predict(observation, state, episode_start, deterministic)

    def evaluate(self, n_eval_episodes: int = 10, **options: Any) -> dict[str, Any]:
        """Play held-out episodes with the last policy; as `Run.evaluate`.

        Raises:
            ConfigError: It has not learned.
        """
        return self._trained().evaluate(n_eval_episodes, which=self._which(), **options)

    def save(self, path: str | Path) -> Path:
        """Write the last policy as a bundle in a zip, without pickle; return its path.

        Raises:
            ConfigError: It has not learned.
        """
        run, out = self._trained(), Path(path)
        out = out if out.suffix == ".zip" else out.with_name(f"{out.name}.zip")
        if run.status == "bundle":
            raise ConfigError(f"{run.path} is saved already: copy it.")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            made = shutil.make_archive(str(Path(folder) / "bundle"), "zip", run.run_dir.final)
            Path(made).replace(out)
        return out

    @property
    def model(self) -> Any:
        """The algorithm of Stable-Baselines3 that `learn` has trained in this process."""
        return self._trained().model

    @property
    def policy(self) -> Any:
        """The network of the last policy."""
        return self._trained().policy(self._which()).network

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken."""
        result = None if self.run is None else self.run.result
        return int((result or {}).get("num_timesteps", 0))

    # As other managers of experiments name them.
    train = learn
    select_action = predict

    def _trained(self) -> Run:
        if self.run is None:
            raise ConfigError("the agent has not learned: call its learn(total_timesteps) first.")
        return self.run

    def _which(self) -> str:
        return "best" if self._trained().status == "bundle" else "final"
