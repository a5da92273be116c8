"""A run that is stopped and resumed is, bit for bit, the run that was never stopped."""

import shutil

import pytest
import support.tiny_envs  # noqa: F401
import torch
from support.resuming import StopAfter, assert_same_in_pieces, train_in_pieces
from support.training import start_run, tiny_config, train_run

from rlzoo_plus.artifacts.atomic import write_folder
from rlzoo_plus.artifacts.checkpoint import SCHEMA_VERSION
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
REACH = "tests/TinyReach-v0"
SHORT = ("n_timesteps=192", "eval.every_steps=64", "log.tensorboard=true")
EXTRACTOR = "network.features_extractor_kwargs"
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


@pytest.mark.parametrize(
    ("algo", "env", "overrides"),
    [
        ("ppo", "TinyCrowd", ("network=attention", "normalize=true")),
        ("ppo", "TinyReach", ("network=attention", "env.frame_stack=3")),
        ("sac", "TinyCrowd", ("network=attention",)),
        (
            "ppo",
            "TinyReach",
            ("network=attention", f"{EXTRACTOR}.dropout=0.2"),
        ),
        ("recurrent_ppo", "TinyCrowd", ("network=deep_sets", "normalize=true")),
        ("td3", "TinyCrowd", ("network=deep_sets", "n_envs=2")),
    ],
)
def test_features_extractors_for_parts_and_sets(tmp_path, algo, env, overrides):
    masks = (EXTRACTOR + ".masks={obstacles: there}",)
    more = masks if env == "TinyCrowd" else ()
    config = _config(algo, f"tests/{env}-v0", *overrides, *more)
    assert_same_in_pieces(tmp_path, config, 2 if "ppo" in algo else 7)


@pytest.mark.parametrize("env", ["TinyImage", "TinyDict", "TinyMemory"])
def test_observations_of_every_kind(tmp_path, env):
    assert_same_in_pieces(tmp_path, _config("ppo", f"tests/{env}-v0", "n_timesteps=96"))


def test_pictures_keep_their_order_in_memory(tmp_path):
    # A convolution rounds by it, so that the first action after a resume would differ a little.
    config = _config("sac", "tests/TinyImage-v0", "n_timesteps=64", "env.frame_stack=2")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAfter(8)).train()
    agent = run_dir.checkpoints().load_newest().state["agent"]
    assert agent["layouts"]["_last_obs"] == [0, 2, 3, 1]


def test_a_replay_buffer_of_images(tmp_path):
    config = _config("sac", "tests/TinyImage-v0", "n_timesteps=64", "env.frame_stack=2")
    assert_same_in_pieces(tmp_path, config, 4)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_environments_in_processes_of_their_own(tmp_path, algo):
    config = _config(algo, REACH, "vec_env=subproc", "normalize=true", *TWO_ENVS)
    assert_same_in_pieces(tmp_path, config, 16 if algo == "sac" else 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_on_a_gpu(tmp_path, algo):
    config = _config(algo, REACH, "device=cuda", "normalize=true", *TWO_ENVS)
    assert_same_in_pieces(tmp_path, config, 7 if algo == "sac" else 2)


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
    result = ExpManager(config, run_dir).train()
    assert "using the checkpoint before it" in caplog.text
    assert result.resumed_at == [160]
    assert run_digests(run_dir) == run_digests(whole)


def test_another_machine_is_told_with_what_differs(tmp_path, monkeypatch):
    from rlzoo_plus.training.resume import snapshot

    config = _config("ppo")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAfter(3)).train()
    real = snapshot.numeric_fingerprint
    monkeypatch.setattr(
        snapshot, "numeric_fingerprint", lambda *about: {**real(*about), "processor": "another"}
    )
    result = ExpManager(config, run_dir).train()
    assert result.exact is False
    assert result.inexact_since == result.resumed_at[0] == 64
    (reason,) = result.inexact_because
    assert reason.startswith("processor was ")
    assert reason.endswith("is another")
    assert run_dir.read_result()["inexact_because"] == [reason]


def test_what_a_checkpoint_says_of_itself(tmp_path):
    config = _config("ppo")
    run_dir, _ = train_run(tmp_path / "run", config)
    about = run_dir.checkpoints().load_newest().about
    assert about["schema"] == SCHEMA_VERSION
    assert about["config_hash"] == config_hash(config)
    assert {"torch", "numpy", "threads", "processor"} <= about["fingerprint"].keys()
    assert about["provenance"]["time"] > 0
    assert about["logs"]["evaluations.jsonl"] == run_dir.evaluations_file.stat().st_size
    assert (about["ended"], about["unsaved"]) == ("all steps taken", [])


def test_a_run_killed_after_its_last_step_only_writes_its_result(tmp_path, monkeypatch):
    config = _config("ppo", REACH, "stop.reward_threshold=-1e9")
    whole, _ = train_run(tmp_path / "whole", config)
    run_dir = start_run(tmp_path / "killed", config)
    with monkeypatch.context() as patch:
        patch.setattr("rlzoo_plus.training.exp_manager.save_policy", _die)
        with pytest.raises(KeyboardInterrupt):
            ExpManager(config, run_dir).train()
    assert run_dir.read_result() == {}
    result = ExpManager(config, run_dir).train()
    assert result.reason.endswith("reached stop.reward_threshold")
    assert run_digests(run_dir) == run_digests(whole)


def test_a_checkpoint_of_the_first_schema_goes_on_as_well_as_it_can(tmp_path):
    config = _config("ppo", REACH, "checkpoint.every_steps=64")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAfter(4)).train()
    store = run_dir.checkpoints()
    state, step = store.load_newest().state, store.steps()[-1]
    agent = state["agent"]
    old = {
        "agent": {
            "parameters": agent["parameters"],
            "tensors": agent["tensors"],
            "counters": {"num_timesteps": step, "_n_updates": agent["attributes"]["_n_updates"]},
        },
        "normalizer": None,
        "spaces": state["spaces"],
    }
    shutil.rmtree(store.root)
    write_folder(store.root / f"{step:012d}", pack(old), {"schema": 1, "step": step})
    evaluated = run_dir.evaluations_file.read_bytes()
    result = ExpManager(config, run_dir).train()
    assert (result.state, result.num_timesteps, result.exact) == ("finished", 192, False)
    assert "schema 1" in result.inexact_because[0]
    assert run_dir.evaluations_file.read_bytes().startswith(evaluated)


def test_a_longer_run_goes_on_and_says_that_it_is_longer(tmp_path):
    run_dir, _ = train_run(tmp_path / "run", _config("sac"))
    result = ExpManager(_config("sac", REACH, "n_timesteps=256"), run_dir).train()
    assert (result.num_timesteps, result.resumed_at) == (256, [192])
    assert result.inexact_because == ["extended from 192 to 256 steps"]


def _die(*_):
    raise KeyboardInterrupt
