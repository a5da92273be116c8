"""`Agent`: an algorithm with the methods of Stable-Baselines3, and one run directory behind it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.analysis.shipped_runs import name_of_shipped
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.provenance import python_call
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.python_calls import call_arguments, translated
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.given import is_given
from rlzoo_plus.runs.load import load_noting, with_sources
from rlzoo_plus.runs.plan import Plan, Start, plan_run, with_overrides
from rlzoo_plus.runs.run import Run
from rlzoo_plus.runs.train_job import begin_run

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.training.live_agent import LiveAgent

# Arguments of `learn` of Stable-Baselines3 that say where it logs, and what a run always does.
_WITHOUT = ("tb_log_name", "reset_num_timesteps")
# Of a stored run; a new one has its own.
_FRESH = {"run_dir": None, "resume": "auto", "restart": False, "sweep": None, "hpo": None}


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


def load(
    path: str | Path, env: Any = None, *, trust: bool = False, quiet: bool = True, **values: Any
) -> Agent:
    """Return an agent that acts as the one that was saved, or as a run's last policy.

    Args:
        path: What `Agent.save` has written, or what `Run.open` takes; a run can learn on.
        env: The environment that a run was given and that cannot be imported, or another one:
            `learn` then begins a new run there from the policy, as `init_from` does.
        trust: Import what this project does not ship where the run needs it.
        quiet: Print nothing.
        **values: Overrides for such a new run, e.g. `learning_rate=1e-4`.

    Raises:
        ConfigError: There is no such file or run, or the policy does not fit the environment.
    """
    place = Path(path)
    archive = place.with_name(f"{place.name}.zip")
    run = Run.open(archive if not place.exists() and archive.is_file() else path, trust=trust)
    if env is None and not values:
        return Agent([], run=run, quiet=quiet)
    # Its configuration becomes that of a new run.
    run.require_trust(to_train=True)
    before, named = run.config, {} if env is None else translated({"env": env})
    is_same = named.get("env.id", before.env.id) == before.env.id
    is_again = is_given(before.env.id) and is_given(named.get("env.id"))
    if run.status != "bundle" and not values and (is_again or is_same):
        return Agent([], run=run, quiet=quiet, again={"env": env})
    stored = before.model_dump() | _FRESH
    if env is not None:
        chosen = load_noting(call_arguments((before.algo.name,), None, {"env": env}))[0].env
        kept = {key: stored["env"][key] for key in ("wrappers", "frame_stack")}
        stored["env"] = chosen.model_dump() | kept
    stored |= {"init_from": str(run.path), "init": {"which": _last_of(run)}}
    agent = Agent(call_arguments((), None, values), stored=stored, quiet=quiet)
    agent.setup()
    return agent


def _last_of(run: Run) -> str:
    """Return the name of a run's last policy; a bundle and a shipped run have one alone."""
    is_shipped = run.path is not None and name_of_shipped(run.path) is not None
    return "best" if is_shipped or run.status == "bundle" else "final"


class Agent:
    """An algorithm and its environments; `make` and `load` make one.

    Before `learn` it acts as its untrained networks do. After `update` and `set_state` it is no
    longer that of its run: the next `learn` begins a new run with it, in a directory of its own.

    Attributes:
        run: The run behind it; None before `learn`.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        stored: dict[str, Any] | None = None,
        run: Run | None = None,
        quiet: bool = True,
        again: Mapping[str, Any] | None = None,
    ) -> None:
        """Initialize an agent; use `make` or `load`.

        Args:
            arguments: Of its configuration, as on a command line.
            stored: A whole configuration that they change; None to compose one.
            run: That it goes on with.
            quiet: Print nothing.
            again: Objects that the run is given again.
        """
        self._arguments, self._stored, self._quiet = arguments, stored, quiet
        self.run, self._again = run, dict(again or {})
        self._policy: Policy | None = None
        self._live: LiveAgent | None = None
        self._is_changed = False

    def learn(self, total_timesteps: int, callback: Any = None, **values: Any) -> Agent:
        """Train for so many steps, and for so many more when it is called again.

        Args:
            total_timesteps: Environment steps.
            callback: As `callbacks` of `train`; only where a run begins.
            **values: More overrides; where a run goes on, what `Run.resume` takes.

        Raises:
            ConfigError, RunError, KeyboardInterrupt: As `train`.
        """
        values = {name: value for name, value in values.items() if name not in _WITHOUT}
        if callback is not None:
            values["callbacks"] = callback
        values["n_timesteps"] = self.num_timesteps + total_timesteps
        if self._is_changed:
            self._begin(values)
            values = {}
        if self.run is not None:
            self._forget()
            self.run.resume(quiet=self._quiet, **{**self._again, **values})
            return self
        config, notes, arguments = self._composed(values)
        self._forget()
        command = python_call("rlzoo_plus.train", arguments)
        run = Run(plan=plan_run(config), command=command, trust=True)
        try:
            run._train(quiet=self._quiet, notes=notes)
        finally:
            # One that was interrupted learns on, too.
            if run.path is not None and run.run_dir.has_begun():
                self.run = run
        return self

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """Choose actions with the last policy, as `predict` of Stable-Baselines3."""
        return self._acting().predict(observation, state, episode_start, deterministic)

    def evaluate(self, n_eval_episodes: int = 10, **options: Any) -> dict[str, Any]:
        """Play held-out episodes with the last policy; as `Run.evaluate`."""
        return self._any_run().evaluate(n_eval_episodes, which=self._acting(), **options)

    def save(self, path: str | Path) -> Path:
        """Write the last policy as a bundle in a zip, without pickle; return its path."""
        out = Path(path)
        out = out if out.suffix == ".zip" else out.with_name(f"{out.name}.zip")
        if self.run is not None and self.run.status == "bundle":
            raise ConfigError(f"{self.run.path} is saved already: copy it.")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            bundle = Path(folder) / "policy"
            if self.run is None or self._is_changed:
                self._live_now().save_policy(bundle)
            else:
                bundle = self.run.run_dir.path / _last_of(self.run)
            made = shutil.make_archive(str(Path(folder) / "bundle"), "zip", bundle)
            Path(made).replace(out)
        return out

    def get_state(self) -> dict[str, Any]:
        """Return all that decides how the agent goes on, as plain data with arrays.

        That is what a checkpoint holds: networks, optimizers, replay buffer, normalization, the
        running episodes and the random numbers.
        """
        return self._live_now().state()

    def set_state(self, state: Mapping[str, Any]) -> Agent:
        """Go on from a state, of this agent or another with the same settings.

        The next `learn` begins a new run, bit for bit as the other agent would go on. Its
        configuration alone does not give it again, so that its result says `exact: false`.

        Raises:
            ConfigError: The state does not fit.
        """
        return self._restore(state)

    def update(self, gradient_steps: int = 1, batch_size: int | None = None) -> Agent:
        """Update the networks from the replay buffer, as `train` of Stable-Baselines3 does.

        An on-policy algorithm collects a rollout first, and updates from it. What `learn` trains
        afterwards is a new run; as after `set_state`, its result says `exact: false`.

        Raises:
            ConfigError: There is nothing to learn from.
        """
        self._live_now().update(gradient_steps, batch_size)
        self._is_changed = True
        return self

    def setup(self) -> Agent:
        """Build the algorithm and its environments now, not at their first use."""
        self._live_now()
        return self

    def checkpoint(self) -> Path:
        """Return the folder of the checkpoint from which the agent goes on.

        After `update` and `set_state` a new run begins with it.
        """
        if self._is_changed:
            self._begin({"n_timesteps": max(self.num_timesteps, 1)})
        found = self._trained().run_dir.checkpoints().load_newest()
        if found is None:
            raise ConfigError(f"{self._trained().path} has no checkpoint.")
        return found.path

    def resume_from_checkpoint(self, path: str | Path) -> Agent:
        """Go on from a checkpoint, as `set_state` does.

        Args:
            path: A folder `checkpoints/<step>` of a run, or a run directory for its newest.

        Raises:
            ConfigError: It is damaged, or does not fit.
        """
        folder, found = Path(path), None
        try:
            if folder.name.isdigit():
                found = CheckpointStore(folder.parent).load(int(folder.name))
            else:
                found = RunDir(folder).checkpoints().load_newest()
        except (DamagedFolderError, OSError) as error:
            raise ConfigError(f"no usable checkpoint: {error}.") from error
        if found is None:
            raise ConfigError(f"{folder} is no run with a checkpoint: name checkpoints/<step>.")
        return self._restore(found)

    @property
    def model(self) -> Any:
        """The algorithm of Stable-Baselines3 as it is now, with open environments."""
        return self._live_now().algorithm

    @property
    def policy(self) -> Any:
        """The network of the last policy."""
        return self._acting().network

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken."""
        if self._is_changed or self.run is None:
            return 0 if self._live is None else int(self._live.algorithm.num_timesteps)
        if self.run.status == "bundle":
            return self._acting().step or 0
        return max(self.run.run_dir.checkpoints().steps(), default=0)

    # As other managers of experiments name them.
    train = learn
    select_action = predict

    def _composed(self, values: Mapping[str, Any]) -> tuple[RunConfig, list[str], list[str]]:
        """Return the configuration with more values, notes on it, and its arguments."""
        arguments, stored = call_arguments((), None, values), self._stored
        if self.run is not None:
            stored = self.run.config.model_dump() | _FRESH
        else:
            arguments = [*self._arguments, *arguments]
        if stored is None:
            return *load_noting(arguments), arguments
        path = values.get("run_dir")
        config = with_overrides(stored, arguments, None if path is None else str(path))
        return with_sources(config), [], arguments

    def _begin(self, values: Mapping[str, Any]) -> None:
        """Begin a new run with the agent as it is, which then goes on as a run does."""
        if self.run is not None:
            self.run.require_trust(to_train=True)
        config, _, arguments = self._composed(values)
        live = self._live_now()
        command = python_call("rlzoo_plus.Agent.learn", arguments)
        run_dir = begin_run(config, command, lambda new: live.begin_run(new, config))
        self.run = Run.open(run_dir.path, trust=True)
        self._again = {}
        self._forget()

    def _restore(self, state: Any) -> Agent:
        live = self._live_now()
        try:
            live.restore(state)
        except ConfigError:
            # What it was before is lost, but not what its run has saved.
            self._forget()
            raise
        self._is_changed = True
        return self

    def _forget(self) -> None:
        """Let go of what a run will replace."""
        if self._live is not None:
            self._live.close()
        self._policy, self._live, self._is_changed = None, None, False

    def _any_run(self) -> Run:
        """Return the run behind it, or one that never begins."""
        if self.run is not None:
            return self.run
        return Run(plan=Plan(Start.NEW, self._composed({})[0], None), trust=True)

    def _live_now(self) -> LiveAgent:
        if self._live is None:
            self._live = self._any_run().live_agent()
        return self._live

    def _acting(self) -> Policy:
        if self.run is None or self._is_changed:
            return self._live_now().policy()
        if self._policy is None:
            self._policy = self.run.policy(_last_of(self.run))
        return self._policy

    def _trained(self) -> Run:
        if self.run is None:
            raise ConfigError("the agent has not learned: call its learn(total_timesteps) first.")
        return self.run
