"""What a study has stored of its trials is composed only if it can do no harm, or is drawn here."""

import pytest
from pretended import base_fixture, finish, make_fixture  # noqa: F401
from support.training import make_config

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.overrides import prepare_overrides
from rlzoo_plus.config.own_code import UntrustedError, is_harmless
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning import trial_job
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.retraining import retraining_jobs
from rlzoo_plus.tuning.study_plan import make_plan

EVIL = [
    "++callbacks=[{os.system: {command: touch /tmp/evil}}]",
    "callbacks=[evil.Callback]",
    "env.packages=[evil]",
    "env.wrappers=[evil.Wrapper]",
    "env.id=evil:Env-v0",
    "tracker=wandb",
    "infra=slurm",
    "hydra.searchpath=[file:///tmp/evil]",
    "--config-dir=/tmp/evil",
    "run_dir=/tmp/evil",
    "env.kwargs.key=${oc.env:HOME}",
    "packages=[evil]",
    "algo.name=evil.Algorithm",
    "algo.replay_buffer=evil.Buffer",
    "algo.action_noise.type=evil.Noise",
    "algo.action_noise={type: evil.Noise, std: 0.1}",
    "network.features_extractor=evil.Extractor",
    "++network.activation=evil\\.Activation",
    "vec_env=evil.VecEnv",
    "eval.metrics=[evil.Metric]",
    "algo.packages=[evil]",
    "++hydra.run.dir=/",
    "hydra/launcher=evil",
    "env.id=GymV21Environment-v0",
    "env=../../evil",
    "env.kwargs.x=$\\{oc.env\\:PGPASSWORD\\}",
    "env.kwargs.render_mode=human",
    "network/evil@network.x=y",
    "--config-dir",
]
CHOICE = {"callbacks": "choice([], [mine.Callback])"}


def ended(run, data, handle):
    return finish(run)


def wait_with(tuner, overrides):
    """Leave a trial that waits, with overrides that are known already."""
    tuner.study.optuna_study.enqueue_trial({}, user_attrs={noted.OVERRIDES: overrides})


def done_with(tuner, overrides):
    """Leave a trial that is done and beats all others."""
    asked = tuner.study.ask("dead")
    tuner.plan.space.draw(asked.trial, tuner.plan.fixed_values)
    tuner.study.set_overrides(asked.number, overrides)
    names = tuner.study.hpo.objectives
    tuner.study.done(asked.number, [1e9] * len(names), dict.fromkeys(names, 1e9))
    (view,) = tuner.study.best(1)
    return view


# Whatever is not harmless goes this way; test_what_imports_or_reaches_is_not_harmless has all.
@pytest.mark.parametrize("word", EVIL[::7])
def test_a_waiting_trial_that_may_run_code_is_not_composed(make, word):
    composed = []
    tuner = make(ended, compose=composed.append)
    wait_with(tuner, ["algo.hyperparams.gamma=0.9", word])
    with pytest.raises(UntrustedError, match="add --trust"):
        tuner.run()
    assert composed == []
    assert tuner.launcher.submitted == []


@pytest.mark.parametrize("word", EVIL[::7])
def test_the_best_trial_that_may_run_code_is_not_trained_again(make, word):
    composed = []
    tuner = make(ended, compose=composed.append)
    view = done_with(tuner, ["algo.hyperparams.gamma=0.9", word])
    with pytest.raises(UntrustedError, match="add --trust"):
        retraining_jobs(tuner.plan, [view])
    with pytest.raises(UntrustedError, match="add --trust"):
        tuner.plan.trial_config(view.overrides, view.folder)
    assert composed == []


def test_a_trusted_study_composes_what_it_has_stored(make, base):
    composed = []
    tuner = make(ended, compose=lambda words: composed.append(words) or base, n_trials=1)
    object.__setattr__(tuner.plan, "trust", True)
    wait_with(tuner, EVIL[:1])
    tuner.run()
    assert EVIL[:1] in composed


def test_what_the_space_of_the_command_draws_needs_no_trust(make, base):
    composed = []
    tuner = make(ended, compose=lambda words: composed.append(words) or base, space=CHOICE)
    assert tuner.run() == 0
    assert all(words[0].startswith("callbacks=[") for words in composed)
    again = make(ended, compose=lambda words: composed.append(words) or base, space=CHOICE)
    assert retraining_jobs(again.plan, again.study.best(3))


def test_another_value_of_a_key_of_the_space_needs_trust(make):
    tuner = make(ended, space=CHOICE)
    view = done_with(tuner, EVIL[1:2])
    with pytest.raises(UntrustedError):
        retraining_jobs(tuner.plan, [view])


def test_a_lost_attempt_with_harmless_values_goes_on(make, base):
    composed = []
    tuner = make(ended, compose=lambda words: composed.append(words) or base, n_trials=1)
    wait_with(tuner, ["algo.hyperparams.gamma=0.5"])
    assert tuner.run() == 0
    assert ["algo.hyperparams.gamma=0.5"] in composed


@pytest.mark.parametrize(
    "word",
    [
        *("algo.hyperparams.gamma=0.9", "env=cartpole_bullet", "++network.net_arch=[64,64]"),
        *("seed=3", "network.activation=relu", "algo.action_noise={type:ou,std:0.1}"),
        *("algo.action_noise.std=1e-3", "algo.replay_buffer=null", "vec_env=batched"),
    ],
)
def test_plain_values_and_shipped_names_are_harmless(word):
    assert is_harmless(word)


@pytest.mark.parametrize("word", EVIL)
def test_what_imports_or_reaches_is_not_harmless(word):
    assert not is_harmless(word)


def test_trust_on_the_command_line_is_that_of_the_plan(in_process):
    words = ["-m", "hpo=ppo", "--trust", "env=cartpole_bullet"]
    assert "--trust" not in prepare_overrides(words)
    seen = []

    def compose(overrides):
        seen.append(overrides)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        make_plan(words, compose)
    assert all("--trust" not in overrides for overrides in seen)


def planted(path, callback):
    """Leave a finished run with code of its own where a study would train its best trial."""
    config = make_config("algo=ppo", "env=pendulum", "tuned=none", f"env.wrappers=[{callback}]")
    path.mkdir()
    RunDir(path).start(config.model_dump(mode="json"), "x", {})
    return config


def test_the_examination_imports_nothing_of_a_run_that_is_not_the_studys_own(tmp_path, monkeypatch):
    planted(tmp_path / "run", "evil_package.Wrapper")
    own: RunConfig = make_config("algo=ppo", "env=pendulum", "tuned=none")
    data = {"run": str(tmp_path / "run"), "config": own.model_dump(mode="json"), "episodes": 1}
    with pytest.raises(
        ConfigError, match=r"needs what rlzoo_plus does not ship: evil_package\.Wrapper"
    ):
        trial_job.examine(data)


def test_the_examination_imports_what_the_study_has_trained_with(tmp_path):
    own = planted(tmp_path / "run", "evil_package.Wrapper")
    data = {"run": str(tmp_path / "run"), "config": own.model_dump(mode="json"), "episodes": 1}
    with pytest.raises(ConfigError, match="has no best policy"):
        trial_job.examine(data)
