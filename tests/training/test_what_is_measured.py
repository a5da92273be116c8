"""What environments tell of their episodes reaches every output, in training and in evaluation."""

import pytest
from support.training import evaluations, make_config, tiny_config, train_run

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.result import recorded_numbers
from rlzoo_plus.envs.monitor import episode_numbers, mean_of_episodes

TERMS = ("alive", "centred", "effort", "safety")
CART_POLE = (
    "algo=ppo",
    "env=cartpole_bullet",
    "tuned=none",
    "network.net_arch=[8]",
    "algo.hyperparams.n_steps=32",
    "algo.hyperparams.batch_size=16",
    "algo.hyperparams.n_epochs=1",
    "n_timesteps=512",
    "eval.every_steps=512",
    "eval.episodes=3",
    "env.kwargs.safety={max_velocity: 0.5, on_violation: penalty}",
    "log.tensorboard=false",
    "device=cpu",
)


def test_the_last_info_tells_of_the_whole_episode():
    info = {
        "episode_terms": {"alive": 3.0, "note": "text"},
        "end_reason": "fell",
        "episode_violations": {"velocity": 2},
        "reward_terms": {"alive": 1.0},
    }
    told = episode_numbers(info)
    assert told == {"reward/alive": 3.0, "violations/velocity": 2.0, "end/fell": 1.0}
    assert episode_numbers({"episode": {"r": 1.0}, "end_reason": 3, "episode_terms": None}) == {}


def test_ends_are_shares_of_all_episodes_and_other_means_are_over_those_that_tell():
    episodes = [
        {"r": 1.0, "l": 2, "t": 0.1, "end/fell": 1.0, "reward/alive": 2.0},
        {"r": 1.0, "l": 2, "t": 0.1, "end/time_limit": 1.0, "reward/alive": 4.0, "mine": 5.0},
    ]
    means = {"end/fell": 0.5, "end/time_limit": 0.5, "reward/alive": 3.0, "mine": 5.0}
    assert mean_of_episodes(episodes) == means
    assert mean_of_episodes([{"r": 1.0, "l": 2, "t": 0.1}]) == {}


@pytest.mark.training
@pytest.mark.parametrize("how", [("n_envs=8", "vec_env=batched"), ("n_envs=2", "vec_env=dummy")])
def test_terms_ends_and_violations_of_a_robot_are_recorded_in_training_and_evaluation(
    tmp_path, how
):
    run_dir, _ = train_run(tmp_path, make_config(*CART_POLE, *how))
    keys = {record["key"] for record in read_records(run_dir.metrics_file)}
    for part in ("rollout", "eval"):
        assert {f"{part}/reward/{term}" for term in TERMS} <= keys
        assert f"{part}/violations/velocity" in keys
        assert f"{part}/success_rate" in keys
        assert any(key.startswith(f"{part}/end/") for key in keys)
    (record,) = evaluations(run_dir)
    metrics = record["metrics"]
    # The terms add up to the return, and every episode has an end.
    total = sum(metrics[f"reward/{term}"] for term in TERMS)
    assert total == pytest.approx(record["mean_return"], rel=1e-5)
    assert sum(v for k, v in metrics.items() if k.startswith("end/")) == pytest.approx(1.0)


@pytest.mark.training
def test_environments_that_tell_nothing_have_nothing_recorded(tmp_path):
    run_dir, _ = train_run(tmp_path, tiny_config("ppo", "tests/TinyReach-v0"))
    keys = {record["key"] for record in read_records(run_dir.metrics_file)}
    assert not [key for key in keys if key.count("/") > 1]


@pytest.mark.training
@pytest.mark.parametrize(("algo", "steps"), [("ppo", 96), ("sac", 64), ("ars", 64)])
def test_a_run_shorter_than_the_interval_of_the_log_logs_at_its_end(tmp_path, algo, steps):
    config = tiny_config(algo, "tests/TinyReach-v0", f"n_timesteps={steps}", "log.interval=1000")
    run_dir, result = train_run(tmp_path, config)
    rows = [r for r in read_records(run_dir.metrics_file) if not r["key"].startswith("eval/")]
    assert {row["step"] for row in rows} == {result.num_timesteps}
    assert {"rollout/ep_rew_mean", "time/total_timesteps"} <= {row["key"] for row in rows}


@pytest.mark.training
def test_a_run_that_stops_by_itself_logs_its_end_too(tmp_path):
    overrides = ("n_timesteps=640", "log.interval=1000", "eval.every_steps=32")
    config = tiny_config("ppo", "tests/TinyReach-v0", *overrides, "stop.reward_threshold=-1e6")
    run_dir, result = train_run(tmp_path, config)
    rows = [r for r in read_records(run_dir.metrics_file) if r["key"] == "rollout/ep_rew_mean"]
    assert [row["step"] for row in rows] == [result.num_timesteps] == [32]


def test_records_of_earlier_versions_are_read_as_those_of_now():
    old = {"step": 5, "mean_return": 1.5, "std_return": 0.5, "iqm_return": 1.0,
           "success_rate": None, "returns": [1.0, 2.0], "episode_lengths": [3, 3]}  # fmt: skip
    numbers = {"mean_return": 1.5, "std_return": 0.5, "iqm_return": 1.0}
    assert recorded_numbers(old) == numbers
    now = {**old, "success_rate": 0.5, "metrics": {"end/fell": 1.0, "odd": "text"}}
    assert recorded_numbers(now) == {**numbers, "success_rate": 0.5, "end/fell": 1.0}
    assert recorded_numbers({"metrics": [1], "mean_return": True}) == {}
