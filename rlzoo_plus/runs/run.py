"""`Run`: train, open, resume, evaluate, record and read one run from Python."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlzoo_plus import accelerators
from rlzoo_plus.analysis.curves import plot_learning_curve
from rlzoo_plus.analysis.find_run import Place, find_place, read_config, require_trust
from rlzoo_plus.analysis.run_list import find_runs, started_at, summarise
from rlzoo_plus.analysis.series import evaluation_rows, metric_rows
from rlzoo_plus.analysis.shipped_runs import folder_of_new_files
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.provenance import python_call
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ACTION_FILE
from rlzoo_plus.config.compare import ENGINE_KEY, differing_values
from rlzoo_plus.config.overrides import as_arguments
from rlzoo_plus.config.python_calls import call_arguments, given_again, translated
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.engine import engine_version, trained_engine
from rlzoo_plus.envs.environment_version import (
    differences,
    environment_version,
    had_kwargs,
    version_text,
)
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.changed_env import changed_config, check_spaces
from rlzoo_plus.runs.load import load_noting
from rlzoo_plus.runs.notebook import LiveCurve, page
from rlzoo_plus.runs.plan import Plan, Start, plan_resume, plan_run
from rlzoo_plus.runs.printing import lines_shown, plain_console
from rlzoo_plus.runs.store_sync import bring_to_resume
from rlzoo_plus.runs.train_job import check_before_building, interruptible, run_plan

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.artifacts.checkpoint import Checkpoint
    from rlzoo_plus.training.evaluation import Watch
    from rlzoo_plus.training.live_agent import LiveAgent

log = logging.getLogger(__name__)
# No torch at the top: mistakes are told at once.


def train(
    *overrides: Any,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    **values: Any,
) -> Run:
    """Train as `rlzoo-plus train` does: the same run, in the same directory, bit for bit.

    `rz.train("algo=sac", "env=cartpole_bullet", seed=3)` trains below outputs/. With
    `run_dir=DIRECTORY` an existing run resumes; a finished one is returned.
    `rz.train("sac", MyEnv, total_timesteps=10_000, callback=MyCallback())` does the same with
    objects and the names of Stable-Baselines3. What can be imported is stored as its dotted path;
    of anything else the source is recorded, and resuming needs the object again.

    Args:
        *overrides: As on the command line; an algorithm and an environment may stand first.
        config_dir: A folder like conf/ with your own files, which are searched first.
        quiet: Print nothing.
        **values: More overrides: `seed=3`, `algo={"hyperparams": {"gamma": 0.9}}`, or
            `**{"algo.hyperparams.gamma": 0.9}`, or `gamma=0.9`.

    Raises:
        ConfigError: The configuration is wrong; nothing is written.
        RunError: The run failed; what it saved before stays.
        KeyboardInterrupt: It was interrupted, and has saved a checkpoint to resume from.
    """
    arguments = call_arguments(overrides, config_dir, values)
    config, notes = load_noting(arguments)
    run = Run(plan=plan_run(config), command=python_call("rlzoo_plus.train", arguments), trust=True)
    return run._train(quiet=quiet, notes=notes)


def runs_below(folder: Path) -> list[Run]:
    """Return the runs below a folder, the newest first."""
    found = sorted(find_runs([folder]), key=started_at, reverse=True)
    return [Run(Place(run.path)) for run in found]


def load_policy(run: str | Path, which: str | None = None, *, trust: bool = False) -> Policy:
    """Load a policy; nothing that comes with it is imported, instantiated or unpickled.

    Args:
        run: What `Run.open` takes: a run, a bundle, `latest`, or the end of a path.
        which: `best`, `final` or the step of a checkpoint; by default the one named, or the best.
        trust: Import the packages that register the run's algorithm.

    Raises:
        ConfigError: There is no such policy, it is damaged, or it needs trust.
    """
    return Run.open(run, trust=trust, wanted=which or "").policy(which)


class Run:
    """One run: a configuration, and the directory where it is or will be trained.

    `Run.create` and `Run.open` make one. Reading needs no trust; what would import code that this
    project does not ship is refused unless the run was opened with `trust=True`, or the trust file
    has it (`rlzoo-plus trust`).
    """

    def __init__(
        self,
        place: Place | None = None,
        *,
        plan: Plan | None = None,
        command: str = "",
        trust: bool = False,
        other_env: bool = False,
    ) -> None:
        """Initialize a run, with a place or a plan; use `Run.create` or `Run.open`."""
        self._other_env = other_env
        if place is None and plan is not None and plan.run_dir is not None:
            place = Place(plan.run_dir.path)
        self._place, self._plan, self._command, self._trust = place, plan, command, trust
        self._config = None if plan is None else plan.config
        self._model: Any = None

    @classmethod
    def create(cls, config: RunConfig) -> Run:
        """Return a run of a composed configuration; nothing is written before `train`.

        Raises:
            ConfigError: `run_dir` holds another run, or one that must not be changed.
        """
        return cls(plan=plan_run(config), command="rlzoo_plus.Run.create(config)", trust=True)

    @classmethod
    def open(
        cls,
        run: str | Path,
        trust: bool = False,
        *,
        wanted: str | None = None,
        other_env: bool = False,
    ) -> Run:
        """Open a run or a bundle.

        Args:
            run: A run directory; a bundle, as a folder or a zip; `latest`, the run below outputs/
                that was started last; the end of the path of one run below outputs/; or
                `trained/NAME`, one that comes with the package; or `NAME@production`, a model of
                a registry.
            trust: Import what this project does not ship where the run needs it.
            wanted: The policy that is to be played; empty for the best, or the final one where
                there is no best. `latest` is then the newest run that has it.
            other_env: Play in the environment as it is now, though its code, models or arguments
                are not those of the training; the evaluation says so.

        Raises:
            ConfigError: There is no such run, several match, or its configuration is damaged.
        """
        opened = cls(find_place(run, wanted), trust=trust, other_env=other_env)
        _ = opened.config
        return opened

    def __repr__(self) -> str:
        if self._place is None:
            config = self.config
            return (
                f"<Run new: {config.algo.name} on {config.env.name}, seed {config.seed}, "
                f"{config.n_timesteps:,} steps>"
            )
        if self._place.is_bundle:
            return f"<Run bundle {printable(self._place.path)}>"
        known = summarise(self.run_dir)
        steps = "" if known.steps is None else f", {known.steps:,} steps"
        best = "" if known.best is None else f", best mean return {known.best:.1f}"
        about = f"{known.algo} on {known.env}, seed {known.seed}{steps}{best}"
        return printable(f"<Run {known.state}: {about}, {known.path}>")

    @property
    def path(self) -> Path | None:
        """The run directory, or the bundle; None before a new run begins."""
        return None if self._place is None else self._place.path

    @property
    def run_dir(self) -> RunDir:
        """The paths in the run directory.

        Raises:
            ConfigError: It has none.
        """
        if self._place is None:
            raise ConfigError("the run has not begun: call its train() first.")
        if self._place.is_bundle:
            name = printable(self._place.path)
            raise ConfigError(f"{name} is a bundle: a policy alone. Open its run's directory.")
        return RunDir(self._place.path)

    @property
    def config(self) -> RunConfig:
        """The configuration; of a bundle, without `env.kwargs` and what only training needs.

        Raises:
            ConfigError: It is damaged.
        """
        if self._config is None:
            assert self._place is not None
            self._config = read_config(self._place)
        return self._config

    @property
    def status(self) -> str:
        """`new`, `bundle`, `running`, `finished`, `interrupted`, `failed`, `died` or `damaged`."""
        if self._place is None:
            return "new"
        if self._place.is_bundle:
            return "bundle"
        return summarise(self.run_dir).state if self.run_dir.has_begun() else "new"

    @property
    def result(self) -> dict[str, Any] | None:
        """The outcome, as in result.json; None while there is none."""
        return self.run_dir.read_result() or None

    @property
    def which(self) -> str:
        """The policy that was named as the run was opened; else the best, or the final one."""
        place = self._place
        if place is None or place.is_bundle or place.which != "best":
            return "best" if place is None else place.which
        run = RunDir(place.path)
        return "final" if run.has_policy("final") and not run.has_policy("best") else "best"

    @property
    def folder(self) -> Path:
        """Where new files go: the run directory; else, as for a bundle, the working directory.

        Those of a run that comes with the package go to outputs/trained/NAME.
        """
        place = self._place
        is_ours = place is None or not (place.is_bundle or place.is_copy)
        return folder_of_new_files(self.run_dir) if is_ours else Path()

    def evaluations(self) -> Any:
        """Return the evaluations as a data frame, or without pandas as a list of dictionaries."""
        return frame(evaluation_rows(self.run_dir))

    def metrics(self) -> Any:
        """Return the logged metrics as `evaluations` does, with a row for each step that has any.

        The columns are `step` and the metrics, such as `rollout/ep_rew_mean`.
        """
        return frame(metric_rows(self.run_dir))

    def actions(self) -> dict[str, Any]:
        """Return the log of `log.actions`, an array with a row for each action, by its name.

        `step`, `env`, `action`, `greedy` (what the policy does without exploration), `random`
        (whether the action was drawn uniformly, before learning starts), and for continuous
        actions `noise`, their difference.

        Raises:
            ConfigError: The run has none, or it is damaged.
        """
        return cast(
            "dict[str, Any]", import_module(ACTION_FILE).read_actions(self.run_dir.actions_file)
        )

    def train(self, quiet: bool = False) -> Run:
        """Train, and print nothing if `quiet`; raises what `rlzoo_plus.train` raises.

        An interrupted run resumes, and a finished one stays as it is.
        """
        return self._train(quiet=quiet) if self._plan is not None else self.resume(quiet=quiet)

    def resume(self, quiet: bool = False, **overrides: Any) -> Run:
        """Resume the run from its newest whole checkpoint, bit for bit.

        A run in S3 is brought to outputs/ first, and goes on being sent to its store.

        Args:
            quiet: Print nothing.
            **overrides: What may change: `checkpoint`, `log`, `report`, `store`, and `n_timesteps`,
                which may grow; such a run is not exact. `env`, `callbacks` and others take the
                objects again that the run was given and that cannot be imported.

        Raises:
            ConfigError: The run cannot resume, an override may not change, or it needs trust.
            RunError, KeyboardInterrupt: As `rlzoo_plus.train`.
        """
        changes = given_again(self.config.model_dump(), translated(overrides))
        arguments = as_arguments((), None, changes)
        self._config = None
        self._plan = self.plan_to_resume(arguments)
        self._command = python_call("rlzoo_plus.Run.resume", [str(self.path), *arguments])
        return self._train(quiet=quiet)

    def plan_to_resume(self, overrides: list[str]) -> Plan:
        """Return how the run resumes; raises what `resume` raises."""
        # What was typed replaces what the run says.
        typed = any(override.partition("=")[0].strip() == "store" for override in overrides)
        is_copy = self._place is not None and self._place.is_copy
        self.require_trust(to_train=True, without_store=typed or is_copy)
        if self._place is not None and is_copy:
            path, store = bring_to_resume(self._place.url)
            self._place = Place(path)
            overrides = overrides if typed else [f"store={store}", *overrides]
        return plan_resume(self.run_dir, self.config, overrides)

    def _train(self, *, quiet: bool, notes: Iterable[str] = ()) -> Run:
        plan, self._plan = self._plan, None
        assert plan is not None
        if plan.start is Start.DONE:
            self._config = None
            return self
        problem = check_before_building(plan)
        from rlzoo_plus.training.callbacks import StopRequest

        stop, console = StopRequest(), plain_console(quiet=quiet)

        def claimed(run_dir: RunDir) -> None:
            self._place, self._config = Place(run_dir.path), None

        def work() -> None:
            with lines_shown(plan.config.log.level, console):
                for note in notes:
                    console.print(f"note: {note}", markup=False)
                run_plan(
                    *(plan, problem, console, self._command),
                    stop=stop,
                    claimed=claimed,
                )

        curve = LiveCurve()
        title = f"{plan.config.algo.name} on {plan.config.env.name}, seed {plan.config.seed}"

        def draw(*, is_last: bool = False) -> None:
            if not quiet and self._place is not None:
                curve.show(self.run_dir, title, is_last=is_last)

        try:
            interruptible(work, stop, draw)
        finally:
            draw(is_last=True)
        return self

    @property
    def model(self) -> Any:
        """The algorithm of Stable-Baselines3, as `load_model` returns it first."""
        if self._model is None:
            self._model = self.load_model()
        return self._model

    def load_model(self, which: str | None = None) -> Any:
        """Load the algorithm of Stable-Baselines3 with optimizers, replay buffer and environments.

        It is read from a checkpoint as data; nothing in it is unpickled. It belongs to the caller:
        what is done to it changes nothing of the run.

        Args:
            which: `best`, `final` or the step of a checkpoint; by default the newest.

        Raises:
            ConfigError: There is no such checkpoint, it is damaged, or the run needs trust.
        """
        return self.live_agent(which).algorithm

    def live_agent(self, which: str | None = None, config: RunConfig | None = None) -> LiveAgent:
        """Return the algorithm outside of a training; see `load_model`.

        `config` is one that fits the checkpoint, the run's own if None.
        """
        accelerators.before_torch(self.config)
        from rlzoo_plus.training.live_agent import LiveAgent

        if self._place is None:
            return LiveAgent(self.config)
        self.require_trust()
        store = self.run_dir.checkpoints()
        step = None if which is None else self.policy(which).step
        checkpoint: Checkpoint | None = None
        try:
            if which is None:
                checkpoint = store.load_newest()
            elif step in store.steps():
                checkpoint = store.load(int(step or 0))
        except DamagedFolderError as error:
            raise ConfigError(f"no usable checkpoint: {error}.") from error
        if checkpoint is None:
            at = "" if which is None else f" at step {step} ({which})"
            raise ConfigError(f"{self.path} has no checkpoint{at}: use policy().")
        return LiveAgent(config or self.config, checkpoint)

    def plot(self, out: str | Path | None = None) -> Path:
        """Draw the learning curve; return the path of the picture.

        Args:
            out: A .png, .pdf or .svg; by default `plots/learning_curve.png` in the run directory.
        """
        path = self.folder / "plots" / "learning_curve.png" if out is None else Path(out)
        if out is None:
            check_inside(self.folder, path)
        plot_learning_curve([self.run_dir], path)
        return path

    def export(
        self, file_format: str = "onnx", out: str | Path | None = None, which: str | None = None
    ) -> Path:
        """Write a policy in another format, and check the file; return its path.

        Args:
            file_format: `onnx`, `torchscript` or `sb3`.
            out: The file; by default below `export/` in the run directory.
            which: The policy, as for `policy`.

        Raises:
            ConfigError: The policy cannot be written so, or the file does not act as it does.
        """
        # Takes seconds.
        from rlzoo_plus.export.writing import FILE_NAMES, export_policy

        if file_format not in FILE_NAMES:
            raise ConfigError(f"{file_format}: the formats are {', '.join(FILE_NAMES)}.")
        name, policy = which or self.which, self.policy(which)
        path = self.folder / "export" / name / FILE_NAMES[file_format]
        if out is None:
            check_inside(self.folder, path)
        path = path if out is None else Path(out)
        about = self.facts(name, policy)
        exported = export_policy(policy, self.config, path, file_format, about)
        if not exported.parity.holds:
            raise ConfigError(f"{path} does not act as the policy does: do not use it.")
        return path

    def compare(self, other: Run) -> dict[str, tuple[Any, Any]]:
        """Return what differs from another run: each setting that decides the outcome, and results.

        Settings stand under their dotted keys; `best` and `final` are mean returns.
        """
        found = differing_values(self.config, other.config)
        if ENGINE_KEY in found:
            # A run that names none has one all the same.
            engines = [run._engine for run in (self, other)]
            del found[ENGINE_KEY]
            found |= {ENGINE_KEY: (engines[0], engines[1])} if engines[0] != engines[1] else {}
        scores = ((run.result or {}, which) for which in ("best", "final") for run in (self, other))
        means = [(result.get(which) or {}).get("mean_return") for result, which in scores]
        return {**found, "best": (means[0], means[1]), "final": (means[2], means[3])}

    @property
    def _engine(self) -> str | None:
        """Name of the physics engine that it was trained with, None if it is no robot."""
        env = self.config.env
        provenance = {} if self._place is None else self.run_dir.read_provenance()
        found = trained_engine(provenance, env.id, env.kwargs.get("engine"))
        return None if found is None else found.split()[0]

    def _repr_html_(self) -> str:
        """Return a table of the run and its learning curve, for notebooks."""
        is_run = self.status not in ("new", "bundle")
        return page(repr(self), evaluation_rows(self.run_dir) if is_run else [])

    def policy(self, which: str | None = None) -> Policy:
        """Load a policy.

        Args:
            which: `best`, `final` or the step of a checkpoint; by default the one that was named
                as the run was opened, or the best.

        Raises:
            ConfigError: There is no such policy, it is damaged, or it needs trust.
        """
        from rlzoo_plus.agents.policy import check_stack, load_policy, load_run_policy

        if self._place is not None and self._place.is_bundle:
            if which not in (None, "best"):
                name = printable(self._place.path)
                raise ConfigError(f"{name} is a bundle, without {which}. Open its run's directory.")
            policy = load_policy(self._place.path, trust=self._trust)
        else:
            policy = load_run_policy(self.run_dir, which or self.which, trust=self._trust)
        check_stack(self.config, policy)
        return policy

    def require_trust(self, *, to_train: bool = False, without_store: bool = False) -> None:
        """Raise a ConfigError if the run needs trust, and was opened without `trust=True`.

        Args:
            to_train: Its callbacks, tracker and store count, too.
            without_store: Its own store is not used.
        """
        if self._place is not None:
            config = self.config.model_copy(update={"store": None} if without_store else {})
            path, url = self._place.path, self._place.url
            require_trust(config, path, trust=self._trust, to_train=to_train, url=url)

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy of a run in S3 or on the Hub, without checkpoints."""
        return self._place is not None and self._place.is_copy

    @property
    def is_trusted(self) -> bool:
        """Whether it was opened with trust."""
        return self._trust

    @property
    def allows_other_env(self) -> bool:
        """Whether it was opened with `other_env=True`."""
        return self._other_env

    def environment_differences(self) -> list[str]:
        """Return in what the environment here differs from that of the training, as far as known.

        Raises:
            ConfigError: The run needs trust.
        """
        self.require_trust()
        before = self.trained_environment
        if self._place is None or before is None:
            return []
        now = environment_version(self.config.env)
        return differences(before, now, kwargs=not self._place.is_bundle)

    @property
    def trained_environment(self) -> Any:
        """Version of the environment of its training, as its files say; None if they do not."""
        if self._place is None or not os.path.lexists(self._place.path):
            return None
        if self._place.is_bundle:
            return self.policy().about.get("environment")
        return self.run_dir.read_provenance().get("environment")

    @property
    def lacks_env_kwargs(self) -> bool:
        """Whether it was, or may have been, trained with `env.kwargs` that its files do not hold.

        A bundle holds none.
        """
        if self.status != "bundle" or self.config.env.kwargs:
            return False
        about = self.policy().about
        # Earlier bundles have the hash of them alone.
        told = about.get("env_kwargs")
        return told if isinstance(told, bool) else had_kwargs(about.get("environment"))

    def require_environment(self) -> list[str]:
        """Refuse to play in another environment than that of the training; return what differs.

        Raises:
            ConfigError: It differs, and the run was opened without `other_env=True`.
        """
        found = self.environment_differences()
        if found and not self._other_env:
            raise ConfigError(
                f"{printable(self.path)}: the environment is not the one of the training: "
                f"{'; '.join(found)}. Play with the code of then, or add --other-env "
                "(other_env=True in Python), and the evaluation or the file will say so."
            )
        return found

    def facts(self, which: str, policy: Policy) -> dict[str, str]:
        """Return what a file that is made of a policy says of its run and environment.

        Raises:
            ConfigError: As `require_environment`.
        """
        other, version = self.require_environment(), self.trained_environment
        name = "" if self.path is None else self.path.name
        found = {"step": str(policy.step), "which": which, "run": name}
        if isinstance(version, Mapping):
            found["environment_version"] = str(version_text(version))
        return found | ({"other_environment": "; ".join(other)} if other else {})

    def env(
        self, n_envs: int = 1, render_mode: str | None = None, *, config: RunConfig | None = None
    ) -> VecEnv:
        """Return environments as evaluations see them, with the run's own wrappers.

        Observations are raw: a `Policy` holds the statistics that normalise them. `config` is one
        of `changed_config`, the run's own if None.

        Raises:
            ConfigError: The environment cannot be made, or it needs trust.
        """
        from rlzoo_plus.envs.factory import make_eval_env, steps_alike

        config = config or self.config
        self.require_environment()
        if not config.env.kwargs and self.lacks_env_kwargs:
            log.warning("%s holds no env.kwargs: the environment has its defaults", self.path)
        most = config.eval.max_episode_steps
        return make_eval_env(config.env, n_envs, steps_alike(config), render_mode, most_steps=most)

    def evaluate(
        self,
        episodes: int = 100,
        *,
        which: str | Policy | None = None,
        seed: int = 0,
        deterministic: bool = True,
        n_envs: int = 10,
        overrides: Iterable[str] = (),
        watching: Callable[[Policy, Sequence[int], int], Watch] | None = None,
        **values: Any,
    ) -> dict[str, Any]:
        """Play held-out episodes, which neither training nor the choice of the best has used.

        `run.evaluate(100, **{"env.kwargs.mass_scale": 1.3})` plays in another environment.

        Args:
            episodes: How many.
            which: The policy, as for `policy`, or one that is loaded.
            seed: Another set of episodes.
            deterministic: Act without exploration.
            n_envs: Environments in parallel; decides how the policy rounds, and nothing else.
            overrides: `KEY=VALUE` each, of `env.kwargs.*`, `env.time_limit`, `eval.metrics` and
                `eval.max_episode_steps`.
            watching: Makes what watches every step, from the policy, the seeds and the number of
                environments; e.g. `rlzoo_plus.policies.recorder.EpisodeRecorder`.
            **values: More of them.

        Returns:
            What `rlzoo-plus evaluate --json` prints: `mean_return`, `returns`, `success_rate`, ...

        Raises:
            ConfigError: There is no such policy, the run needs trust, or an override is wrong.
        """
        if episodes < 1 or n_envs < 1:
            raise ConfigError(f"episodes={episodes}, n_envs={n_envs}: must be at least 1.")
        self.require_trust()
        name = (which or self.which) if which is None or isinstance(which, str) else None
        policy: Any = which if name is None else self.policy(name)
        config, changed = self.changed_config(as_arguments(overrides, None, values))
        from rlzoo_plus.training import evaluation, metrics

        measured = metrics.load_metrics(config.eval.metrics)
        other = self.require_environment()
        made = self.env(min(n_envs, episodes), config=config)
        with evaluation.one_torch_thread(), contextlib.closing(made) as venv:
            if changed:
                check_spaces(policy, venv, changed)
            seeds = held_out_seeds(episodes, seed)
            watch = None if watching is None else watching(policy, seeds, venv.num_envs)
            options: dict[str, Any] = {"deterministic": deterministic, "metrics": measured}
            result = evaluation.evaluate(policy, venv, seeds, watch=watch, **options)
        if result.about_cuts:
            log.warning(result.about_cuts)
        return {
            "run": None if self.path is None else str(self.path),
            "which": name,
            "deterministic": deterministic,
            "episodes": episodes,
            "overrides": changed,
            "engine": engine_version(config.env),
            "trained_engine": self.trained_engine,
            "environment": version_text(environment_version(config.env)),
            "other_environment": other,
            "successes": result.successes,
            **result.record(policy.step or 0),
        }

    @property
    def trained_engine(self) -> str | None:
        """Name and version of the physics engine of its training, None if it is no robot's."""
        # A bundle records nothing of its training.
        has_record = self._place is not None and not self._place.is_bundle
        provenance = self.run_dir.read_provenance() if has_record else {}
        env = self.config.env
        return trained_engine(provenance, env.id, env.kwargs.get("engine"))

    def changed_config(self, overrides: Sequence[str]) -> tuple[RunConfig, list[str]]:
        """Return the configuration to play with, and those of the overrides that change episodes.

        Raises:
            ConfigError: An override is of another key, or wrong.
        """
        return changed_config(self.config, overrides)

    def record(self, out: str | Path | None = None, **options: Any) -> Path:
        """Record a video of a policy, with the options of `record_video`; return its path."""
        return self.record_video(out, **options)[0]

    def record_video(
        self,
        out: str | Path | None = None,
        *,
        which: str | None = None,
        seconds: float = 10.0,
        seed: int = 0,
        deterministic: bool = True,
        all_checkpoints: bool = False,
    ) -> tuple[Path, int]:
        """Record a video of a policy; return its path and the number of its frames.

        Args:
            out: A .mp4 or .gif; by default `videos/<which>.mp4` in the run directory.
            which: The policy, as for `policy`.
            seconds: Length of the video, or of each checkpoint's part [s].
            seed: Another set of held-out episodes.
            deterministic: Act without exploration.
            all_checkpoints: Show all checkpoints, then the best, one after the other.

        Raises:
            ConfigError: There is no such policy, the environment renders no images, or it needs
                trust.
        """
        self.require_environment()
        names = [which or self.which]
        path = self.folder / "videos" / f"{'all' if all_checkpoints else names[0]}.mp4"
        if out is None:
            check_inside(self.folder, path)
        if all_checkpoints:
            names = [str(step) for step in self.run_dir.checkpoints().steps()]
            names += ["best"] if self.run_dir.best.is_dir() else []
            if not names:
                raise ConfigError(f"{self.path} has saved nothing yet.")
        algo, path = self.config.algo.name, path if out is None else Path(out)
        labels = [algo if name.isdigit() else f"{algo}, {name}" for name in names]
        pairs = [(label, self.policy(name)) for label, name in zip(labels, names, strict=True)]
        from rlzoo_plus.training import evaluation, media

        with evaluation.one_torch_thread():
            n_frames = media.record_video(
                self.config, pairs, path, seconds=seconds, seed=seed, deterministic=deterministic
            )
        return path, n_frames


def frame(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a data frame where pandas is installed."""
    try:
        from pandas import DataFrame
    except ImportError:
        return rows
    return DataFrame(rows)
