"""Callbacks by name: what they write, and that a run with them trains as without."""

import numpy as np
import pytest
from support.training import bundle_weights, tiny_config, train_run

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.callbacks import check_user_callbacks

pytestmark = pytest.mark.training
EACH = "{every_steps: 16}"
ALL = f"[reward_terms,{{histograms: {EACH}}},{{gradients: {EACH}}},{{q_values: {EACH}}}]"


def _train(path, algo, env, *overrides):
    run_dir, _ = train_run(path, tiny_config(algo, env, *overrides))
    rows = {}
    for row in read_records(run_dir.metrics_file):
        rows.setdefault(row["key"], []).append((row["step"], row["value"]))
    return run_dir, rows


@pytest.mark.parametrize(
    ("algo", "env", "name"),
    [
        ("ppo", "tests/TinyReach-v0", "train/value"),
        ("sac", "tests/TinyReach-v0", "train/q"),
        ("dqn", "CartPole-v1", "train/q"),
        ("qrdqn", "CartPole-v1", "train/q"),
    ],
)
def test_values_and_gradients_are_written_and_change_nothing(algo, env, name, tmp_path):
    with_them, rows = _train(tmp_path / "with", algo, env, f"callbacks={ALL}")
    without, _ = _train(tmp_path / "without", algo, env)
    a, b = bundle_weights(with_them.final), bundle_weights(without.final)
    assert all(np.array_equal(a[key], b[key]) for key in a.keys() | b.keys())
    assert len(rows[f"{name}_mean"]) >= 2
    assert all(np.isfinite(value) for _, value in rows[f"{name}_std"])
    steps, norms = zip(*rows["gradients/all"], strict=True)
    assert list(steps) == sorted(set(steps))
    assert min(norms) > 0


@pytest.mark.parametrize("algo", ["ppo", "a2c", "dqn"])
def test_gradients_are_those_of_plain_updates(algo, tmp_path):
    env = "CartPole-v1" if algo == "dqn" else "tests/TinyReach-v0"
    overrides = ("n_timesteps=256", f"callbacks=[{{gradients: {EACH}}}]")
    found = []
    for recorded in ("true", "false"):
        _, rows = _train(tmp_path / recorded, algo, env, *overrides, f"record_updates={recorded}")
        found.append({key: row for key, row in rows.items() if key.startswith("gradients/")})
    assert len(found[0]["gradients/all"]) > 5
    assert found[0] == found[1]


def test_q_values_are_those_of_the_critic_for_the_newest_transitions(tmp_path):
    import torch
    from stable_baselines3 import DQN

    from rlzoo_plus.training.callbacks.shipped import QValues

    agent = DQN("MlpPolicy", "CartPole-v1", learning_starts=1000, seed=0, device="cpu")
    agent.learn(40)
    callback = QValues()
    callback.init_callback(agent)
    with torch.no_grad():
        values = callback.values()
        buffer = agent.replay_buffer
        table = agent.q_net(torch.as_tensor(buffer.observations[:40, 0])).numpy()
    chosen = table[np.arange(40), buffer.actions[:40, 0, 0]]
    assert values["train/q_mean"] == pytest.approx(chosen.mean(), abs=1e-6)
    assert values["train/q_std"] == pytest.approx(chosen.std(), abs=1e-6)


def test_terms_of_the_reward_are_means_of_sums_over_episodes():
    from types import SimpleNamespace

    from rlzoo_plus.training.callbacks.shipped import RewardTerms

    logged = {}
    callback = RewardTerms()
    callback.model = SimpleNamespace(
        get_env=lambda: SimpleNamespace(num_envs=2),
        num_timesteps=0,
        logger=SimpleNamespace(record=logged.__setitem__),
    )
    callback._on_training_start()

    def step(first, second, dones):
        infos = [{"reward_ctrl": first, "other": 5.0}, {"reward_ctrl": second}]
        callback.locals = {"infos": infos, "dones": np.array(dones)}
        assert callback.on_step()

    step(1.0, 10.0, [False, False])
    assert not logged
    step(2.0, 20.0, [True, False])
    assert logged == {"rollout/reward/ctrl": 3.0}
    again = RewardTerms()
    again.load_state_dict(callback.state_dict())
    again.model = callback.model
    again._on_training_start()
    callback = again
    step(4.0, 30.0, [False, True])
    assert logged == {"rollout/reward/ctrl": (3.0 + 60.0) / 2}


def test_histograms_are_in_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    run_dir, _ = _train(
        tmp_path, "ppo", "tests/TinyReach-v0", f"callbacks=[{{histograms: {EACH}}}]",
        "log.tensorboard=true",
    )  # fmt: skip
    tags = {
        value.tag
        for file in run_dir.tensorboard.glob("events.out.*")
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "histograms"
    }
    assert {"actions", "weights/action_net.weight"} <= tags


def test_videos_are_recorded_while_the_policy_learns(tmp_path):
    run_dir, _ = _train(
        tmp_path / "with", "ppo", "CartPole-v1",
        "callbacks=[{episode_video: {every_steps: 32, seconds: 0.2}}]",
    )  # fmt: skip
    assert sorted(f.name for f in run_dir.videos.iterdir()) == [
        "step-000000000.mp4", "step-000000032.mp4"
    ]  # fmt: skip
    without, _ = _train(tmp_path / "without", "ppo", "CartPole-v1")
    a, b = bundle_weights(run_dir.final), bundle_weights(without.final)
    assert all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(
    "entry", ["{q_values: {every_steps: 0}}", "{episode_video: {seconds: -1}}", "q_value"]
)
def test_mistakes_are_told(entry):
    with pytest.raises(ConfigError, match=r"every_steps|q_values"):
        check_user_callbacks(tiny_config("ppo", "CartPole-v1", f"callbacks=[{entry}]"))
