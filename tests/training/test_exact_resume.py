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
from rlzoo_plus.envs.batching import ENOUGH
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
REACH = "tests/TinyReach-v0"
SHORT = ("n_timesteps=192", "eval.every_steps=64", "log.tensorboard=true")
EXTRACTOR = "network.features_extractor_kwargs"
MINE = "support.user_policies"
TWO_ENVS = ("n_envs=2", "n_timesteps=384", "eval.every_steps=128")


# Others stay for each day: one of each algorithm and kind of environment.
SLOW = {
    *("attention", "attention, frames", "classic", "dropout", "frozen", "parts", "pictures"),
    *("robot", "schedule", "sets", "walker"),
}


def _some_slow(names):
    return [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in names]


def _config(algo, env=REACH, *overrides):
    return tiny_config(algo, env, *SHORT, *overrides)


HYPER = "algo.hyperparams"
MASKS = f"{EXTRACTOR}.masks={{obstacles: there}}"
WALKER = ("HopperBulletEnv-v0", "env.packages=[pybullet_envs_gymnasium]", "env.warmup_resets=1")
BATCHED = (
    *("robots/CartPoleBalance-v0", "env.packages=[]", f"n_envs={ENOUGH}", "vec_env=batched"),
    *("n_timesteps=1280", "eval.every_steps=512"),
)
THRIFTY = (
    f"{HYPER}.optimize_memory_usage=true",
    f"{HYPER}.replay_buffer_kwargs={{handle_timeout_termination: false}}",
    f"{HYPER}.buffer_size=50",
)
PRICED = (
    *("robots/CartPoleBalance-v0", "env.packages=[]", "normalize=true"),
    *("env.kwargs.safety={max_velocity: 0.05}", "cost={limit: 1, every_episodes: 1}"),
)
# Algorithm, environment and settings; on-policy first.
ON_POLICY = {
    **{
        algo: (algo, REACH, "normalize=true", *TWO_ENVS)
        for algo in ("ppo", "a2c", "trpo", "recurrent_ppo")
    },
    "masked": ("maskable_ppo", "tests/TinyMasked-v0"),
    "random search": ("ars", REACH, "n_timesteps=256", "normalize={reward: false}"),
    "gsde": ("ppo", REACH, f"{HYPER}.use_sde=true", f"{HYPER}.sde_sample_freq=4"),
    "schedules": ("ppo", REACH, f"{HYPER}.clip_range=lin_0.2", f"{HYPER}.learning_rate=cos_1e-3"),
    "log interval": ("ppo", REACH, "log.interval=2"),
    "stochastic": ("ppo", REACH, "eval.deterministic=false"),
    "stacked": ("ppo", REACH, "env.frame_stack=2"),
    "attention": ("ppo", "tests/TinyCrowd-v0", "network=attention", "normalize=true", MASKS),
    "attention, frames": ("ppo", REACH, "network=attention", "env.frame_stack=3"),
    "dropout": ("ppo", REACH, "network=attention", f"{EXTRACTOR}.dropout=0.2"),
    "sets": ("recurrent_ppo", "tests/TinyCrowd-v0", "network=deep_sets", "normalize=true", MASKS),
    **{
        kind: ("ppo", f"tests/Tiny{kind}-v0", "n_timesteps=96")
        for kind in ("Image", "Dict", "Memory")
    },
    "robot": ("ppo", "robots/CartPoleBalance-v0", "env.packages=[]"),
    "robots in a batch": ("ppo", *BATCHED),
    "frozen": ("ppo", REACH, "freeze=[policy_net]", "normalize=true"),
    "own policy": ("ppo", REACH, f"network.policy={MINE}.Shifted"),
    "own extractor": ("ppo", REACH, f"network.features_extractor={MINE}.Scaled"),
    "classic": ("ppo", "Pendulum-v1", "env.packages=[]"),
    "cost": ("ppo", *PRICED),
    "walker": ("ppo", *WALKER, "normalize=true", *TWO_ENVS),
}
OFF_POLICY = {
    **{
        algo: (algo, REACH, "normalize=true", *TWO_ENVS)
        for algo in ("sac", "td3", "ddpg", "tqc", "crossq")
    },
    "dqn": ("dqn", REACH, "env.kwargs.discrete=true"),
    "qrdqn": ("qrdqn", REACH, "env.kwargs.discrete=true"),
    "sac_discrete": ("sac_discrete", REACH, "env.kwargs.discrete=true", "normalize=true"),
    "recurrent_sac": ("recurrent_sac", REACH, "normalize=true", *TWO_ENVS),
    "memory, dictionaries": ("recurrent_sac", "tests/TinyDict-v0", f"{HYPER}.buffer_size=50"),
    "hindsight": ("her", "tests/TinyGoal-v0", "n_envs=2", f"{HYPER}.buffer_size=100"),
    "gsde": ("sac", REACH, f"{HYPER}.use_sde=true", f"{HYPER}.sde_sample_freq=3"),
    "n steps": ("sac", REACH, f"{HYPER}.n_steps=3"),
    "full buffer": ("sac", REACH, f"{HYPER}.buffer_size=50"),
    "thrifty buffer": ("sac", REACH, *THRIFTY),
    "noise": ("sac", REACH, "algo.action_noise={type: ou, std: 0.3}", "n_envs=2"),
    "by episode": ("sac", REACH, f"{HYPER}.train_freq=[1,episode]"),
    "stacked": ("sac", REACH, "env.frame_stack=3", "normalize=true"),
    "schedule": ("sac", REACH, f"{HYPER}.learning_rate=lin_1e-3"),
    "parts": ("sac", REACH, f"{HYPER}.ent_coef=0.1", "network.net_arch={actor: [8], critic: [4]}"),
    "attention": ("sac", "tests/TinyCrowd-v0", "network=attention", MASKS),
    "sets": ("td3", "tests/TinyCrowd-v0", "network=deep_sets", "n_envs=2", MASKS),
    "pictures": ("sac", "tests/TinyImage-v0", "n_timesteps=64", "env.frame_stack=2"),
    "robot": ("sac", "robots/CartPoleBalance-v0", "env.packages=[]"),
    "robots in a batch": ("sac", *BATCHED, "n_timesteps=320", "eval.every_steps=128"),
    "frozen": ("sac", REACH, "freeze=[critic.qf0]", "normalize=true"),
    "own policy": ("sac", REACH, f"network.policy={MINE}.ShiftedSAC"),
    "classic": ("sac", "Pendulum-v1", "env.packages=[]"),
    "cost": ("sac", *PRICED),
}


@pytest.mark.parametrize("name", _some_slow(ON_POLICY))
def test_an_on_policy_run_in_pieces_is_the_run_as_a_whole(tmp_path, name):
    iterations = 2 if name in ("Image", "Dict", "Memory") else 3
    assert_same_in_pieces(tmp_path, _config(*ON_POLICY[name]), iterations)


@pytest.mark.parametrize("name", _some_slow(OFF_POLICY))
def test_an_off_policy_run_in_pieces_is_the_run_as_a_whole(tmp_path, name):
    iterations = {"pictures": 5, "robots in a batch": 3}.get(name, 9)
    assert_same_in_pieces(tmp_path, _config(*OFF_POLICY[name]), iterations)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "iterations"), [("ppo", 2), ("sac", 16)])
def test_environments_in_processes_of_their_own(tmp_path, algo, iterations):
    config = _config(algo, REACH, "vec_env=subproc", "normalize=true", *TWO_ENVS)
    assert_same_in_pieces(tmp_path, config, iterations)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_on_a_gpu(tmp_path, algo):
    config = _config(algo, REACH, "device=cuda", "normalize=true", *TWO_ENVS)
    assert_same_in_pieces(tmp_path, config, 9 if algo == "sac" else 2)


def test_pictures_keep_their_order_in_memory(tmp_path):
    # A convolution rounds by it, so that the first action after a resume would differ a little.
    config = _config("sac", "tests/TinyImage-v0", "n_timesteps=64", "env.frame_stack=2")
    run_dir = start_run(tmp_path / "run", config)
    ExpManager(config, run_dir, StopAfter(8)).train()
    agent = run_dir.checkpoints().load_newest().state["agent"]
    assert agent["layouts"]["_last_obs"] == [0, 2, 3, 1]


@pytest.mark.parametrize("algo", ["ppo", pytest.param("sac", marks=pytest.mark.slow)])
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


@pytest.mark.slow
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
