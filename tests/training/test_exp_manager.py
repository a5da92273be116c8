"""A whole run in this process: what it leaves, and that it can be repeated exactly."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import stable_baselines3
from support.training import assert_same_tree, bundle_weights, evaluations, tiny_config, train_run

from rlzoo_plus.agents.policy import load_policy, load_run_policy
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.envs.plain_state import to_plain
from rlzoo_plus.envs.seeding import evaluation_seeds
from rlzoo_plus.training.evaluation import evaluate

pytestmark = pytest.mark.training

NORMALIZED = ("normalize=true", "n_timesteps=256", "eval.every_steps=32", "eval.episodes=3")


def _train(path, algo="ppo", *overrides, env="tests/TinyReach-v0", **options):
    return train_run(path, tiny_config(algo, env, *overrides), **options)


def _replay(folder, config):
    venv = make_eval_env(config.env, int(config.eval.n_envs))
    try:
        return evaluate(load_policy(folder), venv, evaluation_seeds(config.eval.episodes))
    finally:
        venv.close()


def test_a_run_leaves_what_it_promises(tmp_path):
    run_dir, result = _train(tmp_path, "ppo", "log.tensorboard=true", "n_envs=2")
    left = {path.name for path in tmp_path.iterdir()}
    assert left >= {
        "config.yaml", "command.txt", "provenance.json", "status.json", "metrics.jsonl",
        "evaluations.jsonl", "tensorboard", "monitor", "checkpoints", "best", "final",
        "result.json",
    }  # fmt: skip
    assert len(list(run_dir.monitor.iterdir())) == 2
    assert run_dir.read_result()["num_timesteps"] == result.num_timesteps == 64
    assert run_dir.read_status()["state"] == "finished"
    assert not [p for p in tmp_path.rglob("*") if p.suffix in (".pkl", ".zip", ".pt", ".pth")]
    assert not list(tmp_path.glob("*_sb3"))


@pytest.mark.parametrize("algo", ["ppo", "sac", "ars"])
def test_best_bundle_keeps_its_own_normalization_statistics(tmp_path, monkeypatch, algo):
    # Known defect of rl_zoo3: best_model.zip is paired with the final VecNormalize statistics.
    real = []

    def declining(*args, **kwargs):
        real.append(evaluate(*args, **kwargs))
        returns = [value - 1000.0 * len(real) for value in real[-1].returns]
        return replace(real[-1], returns=returns)

    monkeypatch.setattr("rlzoo_plus.training.callbacks.evaluation_callback.evaluate", declining)
    config = tiny_config(algo, "tests/TinyReach-v0", *NORMALIZED)
    run_dir, _ = train_run(tmp_path, config)
    best, final = load_bundle(run_dir.best), load_bundle(run_dir.final)
    assert best.about["step"] < final.about["step"]
    assert best.normalization["count"][""] < final.normalization["count"][""]
    assert not np.array_equal(best.normalization["mean"][""], final.normalization["mean"][""])
    assert _replay(run_dir.best, config) == real[0]
    assert _replay(run_dir.final, config) == real[-1]


def test_the_best_and_every_checkpoint_act_with_the_statistics_of_their_moment(tmp_path):
    config = tiny_config(
        "ppo", "tests/TinyReach-v0", *NORMALIZED, "checkpoint.every_steps=64", "checkpoint.keep=9"
    )
    run_dir, result = train_run(tmp_path, config)
    recorded = {record["step"]: record["mean_return"] for record in evaluations(run_dir)}
    assert len(recorded) == 8
    best = load_bundle(run_dir.best).about["mean_return"]
    assert best == result.best["mean_return"] == max(recorded.values())
    assert _replay(run_dir.best, config).mean_return == best
    assert _replay(run_dir.final, config).mean_return == result.final["mean_return"]
    venv = make_eval_env(config.env, int(config.eval.n_envs))
    for step in run_dir.checkpoints().steps():
        policy = load_run_policy(run_dir, str(step))
        assert policy.step == step
        seen = evaluate(policy, venv, evaluation_seeds(config.eval.episodes))
        assert seen.mean_return == recorded[step]


def test_another_seed_gives_another_run(tmp_path):
    first, _ = _train(tmp_path / "a", "ppo", "seed=1")
    second, _ = _train(tmp_path / "b", "ppo", "seed=2")
    assert first.evaluations_file.read_bytes() != second.evaluations_file.read_bytes()


@pytest.mark.parametrize("algo", ["ppo", "sac", "recurrent_ppo", "ars"])
def test_evaluating_more_often_does_not_change_what_is_learned(tmp_path, algo):
    common = ("n_timesteps=96", "normalize=true", "eval.deterministic=false")
    rare, _ = _train(tmp_path / "rare", algo, *common, "eval.every_steps=null")
    often, _ = _train(
        tmp_path / "often", algo, *common, "eval.every_steps=32", "eval.at_start=true"
    )
    assert_same_tree(bundle_weights(rare.final), bundle_weights(often.final))


def test_a_failing_run_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="gearbox"):
        _train(tmp_path, env="tests/TinyBroken-v0")
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "failed"
    assert "the gearbox broke" in status["message"]
    assert not (tmp_path / "result.json").exists()


def test_best_and_final_are_exported_for_plain_stable_baselines3(tmp_path):
    run_dir, _ = _train(tmp_path, "ppo", "export.sb3_zip=true", "normalize=true")
    for which in ("best", "final"):
        model = stable_baselines3.PPO.load(tmp_path / f"{which}_sb3" / "model.zip")
        assert_same_tree(to_plain(model.policy.state_dict()), bundle_weights(run_dir.path / which))
    assert (run_dir.path / "best_sb3" / "vecnormalize.pkl").is_file()


def test_solved_is_judged_by_the_best(tmp_path):
    assert _train(tmp_path / "a", "ppo", "env.solved_return=-1e9")[1].solved is True
    assert _train(tmp_path / "b", "ppo", "env.solved_return=1e9")[1].solved is False
    assert _train(tmp_path / "c")[1].solved is None


class _Breaking:
    """A tracker whose service goes away in the middle of a run."""

    def start(self, config, run_dir):
        self.calls = 0

    def log(self, metrics, step):
        self.calls += 1
        raise ConnectionError("the service is gone")

    def finish(self, result, files):
        raise ConnectionError("the service is gone")

    fail = finish


def test_a_tracker_that_breaks_does_not_end_the_run(tmp_path, monkeypatch):
    from rlzoo_plus.tracking.safe import SafeTracker

    inner = _Breaking()
    monkeypatch.setattr(
        "rlzoo_plus.training.exp_manager.make_tracker", lambda _config: SafeTracker(inner, "test")
    )
    config = tiny_config("ppo", "tests/TinyReach-v0", "tracker=wandb")
    _, result = train_run(tmp_path, config)
    assert result.state == "finished"
    assert inner.calls == 1


def test_a_tracker_gets_configuration_figures_and_outcome(tmp_path, monkeypatch):
    seen = SimpleNamespace(config=None, keys=set(), result=None)

    class Tracker:
        def start(self, config, run_dir):
            seen.config = config

        def log(self, metrics, step):
            seen.keys |= set(metrics)

        def finish(self, result, files):
            seen.result = result

        def fail(self, message):
            raise AssertionError(message)

    monkeypatch.setattr("rlzoo_plus.training.exp_manager.make_tracker", lambda _config: Tracker())
    _train(tmp_path, "ppo", "tracker=wandb", "seed=5")
    assert seen.config["seed"] == 5
    assert {"eval/mean_return", "train/loss"} <= seen.keys
    assert seen.result["state"] == "finished"


@pytest.mark.slow
def test_learning_improves_the_tiny_task(tmp_path):
    run_dir, result = _train(
        tmp_path, "ppo", "n_timesteps=4096", "eval.every_steps=512", "eval.at_start=true",
        "algo.hyperparams.n_steps=256", "algo.hyperparams.batch_size=64", "eval.episodes=10",
        "algo.hyperparams.n_epochs=10", "network.net_arch=[16]", "normalize=true",
        "algo.hyperparams.learning_rate=3e-3",
    )  # fmt: skip
    first = evaluations(run_dir)[0]["mean_return"]
    assert result.best["mean_return"] > first + 1.0
