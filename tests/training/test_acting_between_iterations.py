"""When evaluations and checkpoints happen, when a run stops, and what is recorded."""

import json
import signal

import pytest
from support.training import evaluations, start_run, tiny_config, train_run

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.training.callbacks import StopRequest
from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback
from rlzoo_plus.training.evaluation import Evaluation

pytestmark = pytest.mark.training


def _train(path, *overrides, algo="ppo", **options):
    return train_run(path, tiny_config(algo, "tests/TinyReach-v0", *overrides), **options)


def _steps(run_dir):
    return [record["step"] for record in evaluations(run_dir)]


@pytest.mark.parametrize(
    ("algo", "overrides", "steps"),
    [
        # Known trap of Stable-Baselines3: the frequency is multiplied by n_envs.
        *(
            ("ppo", (f"n_envs={n}", f"algo.hyperparams.n_steps={32 // n}"), [64, 128, 192, 256])
            for n in (1, 2, 4)
        ),
        ("sac", ("n_envs=1", "n_timesteps=64", "eval.every_steps=16"), [16, 32, 48, 64]),
        ("sac", ("n_envs=2", "n_timesteps=64", "eval.every_steps=16"), [16, 32, 48, 64]),
        # Between two rollouts: the next one counts.
        ("ppo", ("n_timesteps=192", "eval.every_steps=40"), [64, 96, 128, 160, 192]),
        ("ppo", ("n_timesteps=64", "eval.at_start=true"), [0, 64]),
        ("ars", ("n_timesteps=96", "eval.every_steps=32"), [32, 64, 96]),
    ],
)
def test_evaluations_count_environment_steps(tmp_path, algo, overrides, steps):
    usual = ("n_timesteps=256", "eval.every_steps=64")
    run_dir, _ = _train(tmp_path, *usual, *overrides, algo=algo)
    assert _steps(run_dir) == steps


def test_no_evaluation_at_all_on_request(tmp_path):
    run_dir, result = _train(tmp_path, "eval.every_steps=null")
    assert _steps(run_dir) == []
    assert result.best is None
    assert run_dir.final.is_dir()


def test_what_is_recorded_has_the_promised_keys(tmp_path):
    run_dir, result = _train(tmp_path, "eval.every_steps=32")
    assert (result.state, result.reason) == ("finished", "all steps taken")
    promised = {
        "step", "returns", "mean_return", "std_return", "iqm_return", "success_rate",
        "episode_lengths",
    }  # fmt: skip
    for record in evaluations(run_dir):
        assert set(record) >= promised
        assert len(record["returns"]) == len(record["episode_lengths"]) == 2
    records = read_records(run_dir.metrics_file)
    assert all(set(r) == {"ts", "step", "key", "value", "tags"} for r in records)
    assert all(isinstance(record["value"], float) for record in records)
    keys = {record["key"] for record in records}
    assert {"eval/mean_return", "eval/success_rate", "train/loss", "rollout/ep_rew_mean"} <= keys
    evaluated = [r["step"] for r in records if r["key"] == "eval/mean_return"]
    assert evaluated == [32, 64]


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        (("checkpoint.every_steps=64", "checkpoint.keep=2"), [192, 256]),
        (
            ("n_envs=2", "algo.hyperparams.n_steps=16", "checkpoint.every_steps=64"),
            [64, 128, 192, 256],
        ),
        (("n_timesteps=96", "checkpoint.every_minutes=1e-9"), [0, 32, 64, 96]),
    ],
)
def test_checkpoints_come_by_environment_steps_and_by_time(tmp_path, overrides, steps):
    run_dir, _ = _train(tmp_path, "n_timesteps=256", "checkpoint.keep=9", *overrides)
    assert run_dir.checkpoints().steps() == steps


@pytest.mark.parametrize(
    ("overrides", "steps", "reason"),
    [
        (("eval.every_steps=32", "stop.reward_threshold=-1e6"), 32, "stop.reward_threshold"),
        (
            (
                *("eval.every_steps=32", "algo.hyperparams.learning_rate=0"),
                "stop.no_improvement_evals=3",
            ),
            32 * 4,
            "no better evaluation",
        ),
        (("n_timesteps=6400", "stop.wall_clock_minutes=0.001"), None, "wall_clock_minutes"),
    ],
)
def test_a_run_stops_for_a_reason(tmp_path, overrides, steps, reason):
    run_dir, result = _train(tmp_path, "n_timesteps=640", *overrides)
    assert result.num_timesteps == (steps or result.num_timesteps) < 6400
    assert reason in result.reason
    assert run_dir.read_status()["state"] == "finished"
    assert run_dir.final.is_dir()


def test_a_request_to_stop_writes_a_checkpoint_and_no_result(tmp_path):
    stop = StopRequest(signal_number=signal.SIGTERM)
    run_dir, result = _train(tmp_path, stop=stop)
    assert (result.state, result.reason) == ("interrupted", "stopped by SIGTERM")
    assert run_dir.read_status()["state"] == "interrupted"
    assert run_dir.checkpoints().steps() == [0]
    assert not run_dir.result_file.exists()
    assert not run_dir.final.exists()


class Recorder:
    """Fakes of a policy's figures, one after the other."""

    def __init__(self, means):
        self.means = iter(means)

    def __call__(self, *_args, **_kwargs):
        mean = next(self.means)
        return Evaluation([mean, mean], [8, 8], [None, None])


@pytest.mark.parametrize(
    ("means", "best"),
    [
        ([1.0, 3.0, 2.0, 4.0], [100, 200, 200, 400]),
        ([1.0, 1.0], [100, 100]),  # the first of equals
        ([float("nan"), 1.0], [100, 200]),
    ],
)
def test_the_best_is_replaced_by_a_better_one_only(tmp_path, monkeypatch, means, best):
    config = tiny_config("ppo", "tests/TinyReach-v0", "eval.every_steps=32")
    run_dir = start_run(tmp_path, config)
    train, venv = make_train_env(config, 0), make_eval_env(config.env, 1)
    monkeypatch.setattr(
        "rlzoo_plus.training.callbacks.evaluation_callback.evaluate", Recorder(means)
    )
    agent = make_agent(config, train, 0)
    callback = EvaluationCallback(config, run_dir, venv)
    agent._setup_learn(64, callback)
    callback.init_callback(agent)
    steps = []
    for step in range(1, len(means) + 1):
        agent.num_timesteps = 100 * step
        callback.evaluate_now()
        steps.append(json.loads((run_dir.best / "MANIFEST.json").read_text())["about"]["step"])
    assert steps == best


USER = """
from stable_baselines3.common.callbacks import BaseCallback

EVENTS = []


class Count(BaseCallback):
    def __init__(self, name="count", stop_at=None):
        super().__init__()
        self.name, self.stop_at = name, stop_at

    def _on_training_start(self):
        EVENTS.append(f"{self.name} starts")

    def _on_step(self):
        return self.stop_at is None or self.num_timesteps < self.stop_at

    def _on_training_end(self):
        EVENTS.append(f"{self.name} ends at {self.num_timesteps}")
"""


@pytest.fixture
def events(tmp_path, monkeypatch):
    import sys

    (tmp_path / "my_callbacks.py").write_text(USER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_callbacks", raising=False)
    import my_callbacks

    return my_callbacks.EVENTS


def test_callbacks_of_the_user_are_called_with_their_arguments(tmp_path, events):
    _train(tmp_path / "run", "callbacks=[my_callbacks.Count,{my_callbacks.Count: {name: mine}}]")
    assert events == ["count starts", "mine starts", "count ends at 64", "mine ends at 64"]


def test_callbacks_of_the_user_are_told_of_an_early_end(tmp_path, events):
    _train(
        tmp_path / "run",
        "callbacks=[my_callbacks.Count]",
        "n_timesteps=640",
        "eval.every_steps=32",
        "stop.reward_threshold=-1e6",
    )
    assert events == ["count starts", "count ends at 32"]


def test_a_run_that_the_user_s_callback_stopped_says_so(tmp_path, events):
    _, result = _train(
        tmp_path / "run", "callbacks=[{my_callbacks.Count: {stop_at: 40}}]", "n_timesteps=640"
    )
    assert result.num_timesteps < 640
    assert result.reason != "all steps taken"
