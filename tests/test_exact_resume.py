"""A run that is stopped and resumed is, bit for bit, the run that was never stopped."""

import pytest
import support.tiny_envs  # noqa: F401
from support.resuming import assert_same_in_pieces, train_in_pieces
from support.training import tiny_config, train_run

from rlzoo_plus.verification.digests import run_digests

pytestmark = pytest.mark.training
REACH = "tests/TinyReach-v0"
SHORT = ("n_timesteps=192", "eval.every_steps=64", "log.tensorboard=true")
TWO_ENVS = ("n_envs=2", "n_timesteps=384", "eval.every_steps=128")


def _config(algo, env=REACH, *overrides):
    chosen = {override.partition("=")[0] for override in overrides}
    short = [override for override in SHORT if override.partition("=")[0] not in chosen]
    return tiny_config(algo, env, *short, *overrides)


@pytest.mark.parametrize(
    "algo", ["ppo", "a2c", "trpo", "recurrent_ppo", "sac", "td3", "ddpg", "tqc", "crossq"]
)
def test_continuous_algorithms_with_normalisation_and_two_environments(tmp_path, algo):
    iterations = 7 if algo in ("sac", "td3", "ddpg", "tqc", "crossq") else 2
    assert_same_in_pieces(tmp_path, _config(algo, REACH, "normalize=true", *TWO_ENVS), iterations)


@pytest.mark.parametrize("algo", ["dqn", "qrdqn"])
def test_discrete_algorithms(tmp_path, algo):
    assert_same_in_pieces(tmp_path, _config(algo, REACH, "env.kwargs.discrete=true"), 9)


def test_masked_actions(tmp_path):
    assert_same_in_pieces(tmp_path, _config("maskable_ppo", "tests/TinyMasked-v0"))


def test_random_search(tmp_path):
    config = _config("ars", REACH, "n_timesteps=256", "normalize={reward: false}")
    assert_same_in_pieces(tmp_path, config)


def test_hindsight_replay(tmp_path):
    config = _config("her", "tests/TinyGoal-v0", "n_envs=2", "algo.hyperparams.buffer_size=100")
    assert_same_in_pieces(tmp_path, config, 9)


@pytest.mark.parametrize(
    "overrides",
    [
        ("algo.hyperparams.use_sde=true", "algo.hyperparams.sde_sample_freq=3"),
        ("algo.hyperparams.n_steps=3",),
        ("algo.hyperparams.buffer_size=50",),
        (
            "algo.hyperparams.optimize_memory_usage=true",
            "algo.hyperparams.replay_buffer_kwargs={handle_timeout_termination: false}",
            "algo.hyperparams.buffer_size=50",
        ),
        ("algo.action_noise={type: ou, std: 0.3}", "n_envs=2"),
        ("algo.hyperparams.train_freq=[1,episode]",),
        ("env.frame_stack=3", "normalize=true"),
        ("algo.hyperparams.learning_rate=lin_1e-3",),
        ("algo.hyperparams.ent_coef=0.1", "network.net_arch={actor: [8], critic: [4]}"),
    ],
    ids=lambda overrides: overrides[0].split("=")[0].split(".")[-1],
)
def test_features_of_off_policy_algorithms(tmp_path, overrides):
    assert_same_in_pieces(tmp_path, _config("sac", REACH, *overrides), 7)


@pytest.mark.parametrize(
    "overrides",
    [
        ("algo.hyperparams.use_sde=true", "algo.hyperparams.sde_sample_freq=4"),
        ("algo.hyperparams.clip_range=lin_0.2", "algo.hyperparams.learning_rate=cos_1e-3"),
        ("log.interval=2",),
        ("eval.deterministic=false",),
        ("env.frame_stack=2",),
    ],
    ids=lambda overrides: overrides[0].split("=")[0].split(".")[-1],
)
def test_features_of_on_policy_algorithms(tmp_path, overrides):
    assert_same_in_pieces(tmp_path, _config("ppo", REACH, *overrides))


@pytest.mark.parametrize("env", ["TinyImage", "TinyDict", "TinyMemory"])
def test_observations_of_every_kind(tmp_path, env):
    assert_same_in_pieces(tmp_path, _config("ppo", f"tests/{env}-v0", "n_timesteps=96"))


def test_a_replay_buffer_of_images(tmp_path):
    config = _config("sac", "tests/TinyImage-v0", "n_timesteps=64", "env.frame_stack=2")
    assert_same_in_pieces(tmp_path, config, 4)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_environments_in_processes_of_their_own(tmp_path, algo):
    config = _config(algo, REACH, "vec_env=subproc", "normalize=true", *TWO_ENVS)
    assert_same_in_pieces(tmp_path, config, 16 if algo == "sac" else 2)


@pytest.mark.parametrize("env", ["robots/CartPoleBalance-v0", "Pendulum-v1"])
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_robots_of_ours_and_classic_ones(tmp_path, env, algo):
    packages = "env.packages=[]"
    assert_same_in_pieces(tmp_path, _config(algo, env, packages), 7 if algo == "sac" else 2)


def test_third_party_robots(tmp_path):
    config = _config(
        "ppo",
        "HopperBulletEnv-v0",
        "env.packages=[pybullet_envs_gymnasium]",
        "env.warmup_resets=1",
        "normalize=true",
        "n_envs=2",
        "n_timesteps=384",
        "eval.every_steps=128",
    )
    assert_same_in_pieces(tmp_path, config)


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_when_checkpoints_are_made_changes_nothing(tmp_path, algo):
    found = []
    cadences = [
        ("checkpoint.every_minutes=null",),
        ("checkpoint.every_steps=32", "checkpoint.every_minutes=null", "checkpoint.keep_best=true"),
        ("checkpoint.every_steps=96", "checkpoint.milestone_steps=64"),
        ("checkpoint.every_minutes=1e-9",),
    ]
    for number, cadence in enumerate(cadences):
        run_dir, _ = train_run(tmp_path / str(number), _config(algo, REACH, *cadence))
        found.append(run_digests(run_dir))
    assert all(digests == found[0] for digests in found)


def test_early_stopping_goes_on_counting(tmp_path):
    config = _config(
        "ppo",
        REACH,
        "n_timesteps=3200",
        "eval.every_steps=32",
        "stop.no_improvement_evals=3",
        "algo.hyperparams.learning_rate=0.0",
    )
    run_dir = assert_same_in_pieces(tmp_path, config)
    assert run_dir.read_result()["num_timesteps"] < 3200


def test_callbacks_of_a_user_go_on(tmp_path):
    stopper = "stable_baselines3.common.callbacks.StopTrainingOnMaxEpisodes"
    callback = f"callbacks=[{{{stopper}: {{max_episodes: 15}}}}]"
    run_dir = assert_same_in_pieces(tmp_path, _config("ppo", REACH, callback, "n_timesteps=640"))
    assert run_dir.read_result()["reason"] == "a callback ended it"


def test_a_damaged_checkpoint_costs_nothing_but_time(tmp_path, caplog):
    config = _config("ppo", REACH, "checkpoint.every_steps=32")
    whole, _ = train_run(tmp_path / "whole", config)
    run_dir, _, _ = train_in_pieces(tmp_path / "hit", config, 100)
    run_dir.write_status("running")
    newest = run_dir.checkpoints().root / f"{run_dir.checkpoints().steps()[-1]:012d}"
    tensors = newest / "tensors.safetensors"
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(data)
    from rlzoo_plus.exp_manager import ExpManager

    result = ExpManager(config, run_dir).train()
    assert "using the checkpoint before it" in caplog.text
    assert result.resumed_at == [160]
    assert run_digests(run_dir) == run_digests(whole)
