"""Evaluations by another process give the run that evaluates by itself, bit for bit."""

import pytest
from support.resuming import KillAfter, StopAfter, train_in_pieces
from support.training import start_run, tiny_config, train_run

from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.training.callbacks import background_evaluator as beside
from rlzoo_plus.training.callbacks.background_evaluator import (
    BackgroundEvaluator,
    background_eval_blocker,
)
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
SHORT = ("env.packages=[]", "n_timesteps=320", "eval.every_steps=64", "log.tensorboard=true")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(beside, "usable_cores", lambda: 2)
    # Idle threads of other tests are no reason.
    monkeypatch.setattr(beside.threading, "active_count", lambda: 1)


@pytest.fixture
def processes(monkeypatch):
    """The evaluators that were made."""
    made = []

    class Noted(BackgroundEvaluator):
        def __init__(self, config):
            super().__init__(config)
            made.append(self)

    monkeypatch.setattr("rlzoo_plus.training.exp_manager.BackgroundEvaluator", Noted)
    return made


def config_of(algo="ppo", env="CartPole-v1", *overrides):
    return tiny_config(algo, env, *SHORT, *overrides)


def in_line(config):
    never = config.eval.model_copy(update={"beside": "never"})
    return config.model_copy(update={"eval": never})


def assert_same_digests(one, two):
    expected, found = run_digests(one), run_digests(two)
    assert not sorted(k for k in expected | found if expected.get(k) != found.get(k))


def assert_same(one, two):
    assert_same_digests(one, two)
    names = [sorted(p.name for p in run.checkpoints().root.iterdir()) for run in (one, two)]
    assert names[0] == names[1]
    for step in one.checkpoints().steps():
        assert rows_at(one, step) == rows_at(two, step)


def rows_at(run_dir, step):
    """Return how many rows of each log a checkpoint counts; timings differ in length."""
    sizes = run_dir.checkpoints().load(step).about["logs"]
    kept = {name: size for name, size in sizes.items() if "tensorboard" not in name}
    return {name: (run_dir.path / name).read_bytes()[:n].count(b"\n") for name, n in kept.items()}


@pytest.mark.parametrize(
    ("algo", "env", "overrides"),
    [
        ("ppo", "CartPole-v1", ("checkpoint.keep_best=true", "normalize=true")),
        ("ppo", "Pendulum-v1", ("checkpoint.every_steps=64", "algo.hyperparams.use_sde=true")),
        ("a2c", "CartPole-v1", ("eval.deterministic=false", "eval.at_start=true", "n_envs=2")),
        pytest.param(
            "recurrent_ppo",
            "CartPole-v1",
            ("checkpoint.milestone_steps=128", "checkpoint.keep=1", "checkpoint.keep_best=true"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_is_the_same(tmp_path, processes, algo, env, overrides):
    config = config_of(algo, env, *overrides)
    other, _ = train_run(tmp_path / "beside", config)
    assert len(processes) == 1
    assert not processes[0]._process.is_alive()
    plain, _ = train_run(tmp_path / "in_line", in_line(config))
    assert len(processes) == 1
    assert config_hash(config) == config_hash(in_line(config))
    assert_same(plain, other)


@pytest.mark.slow
def test_a_run_that_is_stopped_and_killed_goes_on_as_if_it_were_not(tmp_path, processes):
    config = config_of("ppo", "CartPole-v1", "checkpoint.every_steps=64", "normalize=true")
    plain, _ = train_run(tmp_path / "whole", in_line(config))
    pieces, result, stops = train_in_pieces(tmp_path / "pieces", config, 3)
    assert stops >= 2
    assert result.exact, result.inexact_because
    assert_same_digests(plain, pieces)
    run_dir = start_run(tmp_path / "killed", config)
    for count in (4, 3):
        with pytest.raises(KeyboardInterrupt):
            ExpManager(config, run_dir, KillAfter(count)).train()
    result = ExpManager(config, run_dir).train()
    assert len(processes) == stops + 4
    assert result.exact, result.inexact_because
    assert_same_digests(plain, run_dir)


def test_an_evaluation_that_takes_too_long_ends_the_run_where_it_began(tmp_path, monkeypatch):
    config = config_of("ppo", "CartPole-v1", "eval.every_steps=128")
    plain, _ = train_run(tmp_path / "in_line", in_line(config))
    run_dir = start_run(tmp_path / "slow", config)
    with monkeypatch.context() as patch:
        patch.setattr(BackgroundEvaluator, "is_done", lambda *_: False)
        patch.setattr("rlzoo_plus.training.callbacks.evaluation_callback._PATIENCE_S", 0.2)
        stopped = ExpManager(config, run_dir, StopAfter(6)).train()
    assert stopped.state == "interrupted"
    assert run_dir.checkpoints().steps() == [128]
    assert not run_dir.evaluations_file.exists()
    result = ExpManager(config, run_dir).train()
    assert result.exact, result.inexact_because
    assert_same_digests(plain, run_dir)


@pytest.mark.parametrize("last", [False, True], ids=["while training", "after the last step"])
def test_an_endless_evaluation_does_not_hold_up_a_run_that_is_to_stop(tmp_path, processes, last):
    changes = ("eval.max_episode_steps=null", f"eval.every_steps={320 if last else 64}")
    config = tiny_config("ppo", "tests/TinyEndless-v0", *SHORT[:2], *changes)

    class StopOnceBegun(StopAfter):
        def look(self):
            return 15 if processes and processes[0]._request is not None else None

    run_dir, stopped = train_run(tmp_path / "run", config, StopOnceBegun(0))
    assert stopped.state == "interrupted"
    assert run_dir.checkpoints().steps() == [320 if last else 64]
    assert not run_dir.evaluations_file.exists()
    assert not processes[0]._process.is_alive()


def test_the_training_evaluates_by_itself_if_the_process_dies(tmp_path, processes, caplog):
    config = config_of("ppo", "CartPole-v1")
    plain, _ = train_run(tmp_path / "in_line", in_line(config))

    class Killing(StopAfter):
        def look(self):
            if self._left == 4:
                processes[0]._process.kill()
                processes[0]._process.join()

    run_dir, _ = train_run(tmp_path / "beside", config, Killing(8))
    assert "this one evaluates now" in caplog.text
    assert_same(plain, run_dir)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), ""),
        (("eval.beside=never",), "never"),
        (("stop.reward_threshold=0",), "decides"),
        (("stop.no_improvement_evals=3",), "decides"),
        (("env.packages=[support.tiny_envs]",), "yours"),
        (("callbacks=[support.policies.Nothing]",), "yours"),
        (("vec_env=subproc",), "processes of their own"),
        (("export.sb3_zip=true",), "sb3_zip"),
    ],
)
def test_where_it_is_not_certain_to_be_the_same_the_run_evaluates_by_itself(overrides, told):
    config = config_of("ppo", "CartPole-v1", *overrides)
    reason = background_eval_blocker(config, 1, decides=False)
    assert told in reason
    assert bool(reason) == bool(told)


def test_a_core_must_be_free_and_nobody_may_wait_for_each_result(monkeypatch):
    config = config_of()
    assert "decides" in background_eval_blocker(config, 1, decides=True)
    assert "core" in background_eval_blocker(config, 2, decides=False)
    assert "buffer" in background_eval_blocker(config_of("sac", "Pendulum-v1"), 1, decides=False)
    monkeypatch.setattr(beside, "usable_cores", lambda: 1)
    assert "core" in background_eval_blocker(config, 1, decides=False)
