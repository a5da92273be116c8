"""A run that is asked to stop while it is evaluated stops at once, and makes it again later."""

import logging

import pytest
from support.resuming import StopAfter
from support.training import evaluations, start_run, tiny_config, train_run

from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.episodes import EpisodeLimit, layers_of
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.runs.plan import plan_run
from rlzoo_plus.training import evaluation
from rlzoo_plus.training.callbacks import stopping
from rlzoo_plus.training.callbacks.background_evaluator import make_evaluation_env
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training


class StopAtQuestion(StopAfter):
    """Asks to stop when it was looked at so many times, which an evaluation does at each step."""

    def begin_iteration(self):
        pass

    def look(self):
        self._left -= 1
        return 15 if self._left < 0 else None


def _config(*overrides, env="tests/TinyReach-v0"):
    usual = ("n_timesteps=128", "eval.every_steps=64", "eval.n_envs=1", "checkpoint.keep_best=true")
    return tiny_config("ppo", env, *usual, *overrides)


@pytest.mark.parametrize(
    "overrides",
    [(), ("eval.deterministic=false", "eval.at_start=true"), ("stop.reward_threshold=-1e9",)],
    ids=["usual", "stochastic", "threshold"],
)
def test_a_run_stopped_in_its_evaluations_is_the_same_run(tmp_path, overrides):
    whole, _ = train_run(tmp_path / "whole", _config(*overrides))
    run_dir = start_run(tmp_path / "pieces", _config(*overrides))
    stops = 0
    for n_questions in (3, 5, 30, 5, 30, 5, 500):
        before = len(evaluations(run_dir)) if run_dir.evaluations_file.exists() else 0
        result = ExpManager(_config(*overrides), run_dir, StopAtQuestion(n_questions)).train()
        if result.state == "finished":
            break
        assert result.reason == "stopped by SIGTERM"
        assert n_questions > 5 or len(evaluations(run_dir)) == before
        stops += 1
    assert stops >= 2
    assert result.state == "finished"
    assert result.exact, result.inexact_because
    assert run_digests(run_dir) == run_digests(whole)


def test_the_last_evaluation_is_made_again_too(tmp_path):
    config = _config("eval.every_steps=128")
    whole, _ = train_run(tmp_path / "whole", config)
    run_dir = start_run(tmp_path / "pieces", config)
    # Once before each of the four rollouts, then in the evaluation after the last.
    result = ExpManager(config, run_dir, StopAtQuestion(7)).train()
    assert (result.state, result.num_timesteps) == ("interrupted", 128)
    assert not run_dir.final.exists()
    assert run_dir.checkpoints().steps() == [128]
    result = ExpManager(config, run_dir).train()
    assert result.state == "finished"
    assert result.exact, result.inexact_because
    assert run_digests(run_dir) == run_digests(whole)


def test_a_best_policy_found_after_the_resume_keeps_its_checkpoint(tmp_path):
    config = _config("checkpoint.keep=1")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAtQuestion(5)).train()
    (step,) = run_dir.checkpoints().steps()
    assert run_dir.checkpoints().load(step).kept_as is None
    ExpManager(config, run_dir).train()
    best = run_dir.read_result()["best"]["step"]
    assert run_dir.checkpoints().load(best).kept_as == "best"


def test_an_evaluation_without_end_says_so_once_and_can_be_stopped(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(evaluation, "_LONG_EPISODE", 50)
    evaluation._warn_of_a_long_episode.cache_clear()
    config = _config("eval.max_episode_steps=null", env="tests/TinyEndless-v0")
    run_dir = start_run(tmp_path / "run", config)
    with caplog.at_level(logging.WARNING):
        result = ExpManager(config, run_dir, StopAtQuestion(300)).train()
    assert (result.state, result.num_timesteps) == ("interrupted", 64)
    (told,) = [
        record.getMessage() for record in caplog.records if "50 steps" in record.getMessage()
    ]
    assert "env.time_limit" in told
    assert run_dir.checkpoints().steps() == [64]


@pytest.mark.parametrize("n_envs", [1, 2])
def test_an_episode_without_end_is_cut_with_a_word(tmp_path, caplog, n_envs):
    cut = ("eval.max_episode_steps=30", f"eval.n_envs={n_envs}")
    run_dir, result = train_run(tmp_path / "run", _config(*cut, env="tests/TinyEndless-v0"))
    assert result.state == "finished"
    for record in evaluations(run_dir):
        assert record["episode_lengths"] == [30, 30]
        assert record["metrics"]["end/max_episode_steps"] == 1.0
    (told,) = [r.getMessage() for r in caplog.records if "were cut" in r.getMessage()]
    assert "2 of 2 episodes of the evaluation were cut after 30 steps" in told
    assert "env.time_limit" in told


@pytest.mark.parametrize(
    ("env", "overrides", "most"),
    [
        ("tests/TinyEndless-v0", (), 10_000),
        ("tests/TinyEndless-v0", ("env.time_limit=25",), None),
        ("tests/TinyEndless-v0", ("eval.max_episode_steps=null",), None),
        ("CartPole-v1", (), None),
        ("CartPole-v1", ("eval.max_episode_steps=100",), 100),
        ("CartPole-v1", ("eval.max_episode_steps=600",), None),
        ("robots/CartPoleBalance-v0", (), None),
    ],
)
def test_only_evaluations_that_may_not_end_are_cut(env, overrides, most):
    config = _config(*overrides, env=env)
    for venv, limit in ((make_evaluation_env(config), most), (make_train_env(config, 0), None)):
        found = [w._most for w in layers_of(venv.envs[0]) if isinstance(w, EpisodeLimit)]
        assert found == ([] if limit is None else [limit])


BY_EPISODE = {
    "ars": ("algo.hyperparams.n_delta=2", "algo.hyperparams.n_top=1"),
    "sac": ("algo.hyperparams.train_freq=[1,episode]", "algo.hyperparams.learning_starts=10"),
}


@pytest.mark.parametrize("algo", BY_EPISODE)
def test_an_iteration_without_end_is_broken_off(tmp_path, monkeypatch, algo):
    monkeypatch.setattr(stopping, "_PATIENCE_AT_FIRST_S", 0.0)
    config = tiny_config(algo, "tests/TinyEndless-v0", *BY_EPISODE[algo], "n_timesteps=1000")
    run_dir = start_run(tmp_path / "run", config)
    result = ExpManager(config, run_dir, StopAtQuestion(20)).train()
    assert (result.state, result.num_timesteps) == ("interrupted", 0)
    assert result.reason == "stopped by SIGTERM in an episode"
    # Nothing is saved, so that it begins anew.
    assert plan_run(config.model_copy(update={"run_dir": str(run_dir.path)})).start == "resume"


def test_a_run_broken_off_in_an_episode_is_the_same_run(tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(stopping, "_PATIENCE_AT_FIRST_S", 0.0)
    often = ("n_timesteps=300", "eval.every_steps=100", "checkpoint.every_steps=50")
    config = tiny_config("ars", "tests/TinyReach-v0", *BY_EPISODE["ars"], *often)
    whole, _ = train_run(tmp_path / "whole", config)
    run_dir = start_run(tmp_path / "pieces", config)
    reasons = []
    for n_questions in (150, 180, 10_000):
        result = ExpManager(config, run_dir, StopAtQuestion(n_questions)).train()
        reasons.append(result.reason)
        if result.state == "interrupted":
            assert result.num_timesteps in run_dir.checkpoints().steps()
    assert reasons[:2] == ["stopped by SIGTERM in an episode"] * 2
    assert result.state == "finished"
    assert result.exact, result.inexact_because
    assert run_digests(run_dir) == run_digests(whole)


def test_an_iteration_that_will_end_is_waited_for(tmp_path):
    config = tiny_config("ars", "tests/TinyReach-v0", *BY_EPISODE["ars"], "n_timesteps=300")
    run_dir = start_run(tmp_path / "run", config)
    result = ExpManager(config, run_dir, StopAtQuestion(150)).train()
    assert result.reason == "stopped by SIGTERM"
    assert run_dir.checkpoints().steps() == [result.num_timesteps]
