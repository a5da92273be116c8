"""A new run begins from earlier weights, known by their content, and then needs no source."""

import json
import shutil

import numpy as np
import pytest
import stable_baselines3 as sb3
import support.tiny_envs
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from support.resuming import KillAfter, StopAfter
from support.training import assert_same_tree, bundle_weights, start_run, tiny_config, train_run

import rlzoo_plus
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.plain_state import to_plain
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.training.exp_manager import ExpManager
from rlzoo_plus.training.warm_start import with_source

pytestmark = pytest.mark.training
REACH = "tests/TinyReach-v0"
WITH_OPTIMIZERS = "init.parts=[policy,optimizer]"
SHORT = ("eval.every_steps=32", "checkpoint.keep_best=true")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a function that trains a run once and returns its directory."""
    root, made = tmp_path_factory.mktemp("sources"), {}

    def source(algo, *overrides, env=REACH):
        key = (algo, env, overrides)
        if key not in made:
            config = tiny_config(algo, env, *SHORT, *overrides)
            made[key], _ = train_run(root / str(len(made)), config)
        return made[key].path

    return source


def begun_from(source, algo="ppo", *overrides, env=REACH):
    """Return the configuration of a run that begins from a source, as `train` makes it."""
    return with_source(tiny_config(algo, env, *SHORT, "seed=7", f"init_from={source}", *overrides))


def first_state(run_dir):
    """Return what the checkpoint at step 0 holds."""
    return run_dir.checkpoints(keep=99).load(0).state


def train_kept(path, config):
    """Train with all checkpoints kept."""
    often = config.checkpoint.model_copy(update={"keep": 99, "every_steps": 32})
    return train_run(path, config.model_copy(update={"checkpoint": often}))[0]


def weights_at_start(path, config):
    """Train, and return the weights before the first step."""
    return first_state(train_kept(path, config))["agent"]["parameters"]["policy"]


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo", "sac", "td3", "ars"])
def test_a_run_begins_with_the_weights_of_the_best_policy(tmp_path, sources, algo):
    source = sources(algo)
    found = weights_at_start(tmp_path / "run", begun_from(source, algo))
    assert_same_tree(found, bundle_weights(source / "best"))


def test_final_and_the_step_of_a_checkpoint_can_be_chosen(tmp_path, sources):
    source = sources("ppo")
    step = RunDir(source).checkpoints().steps()[0]
    state = RunDir(source).checkpoints().load(step).state["agent"]["parameters"]["policy"]
    final = begun_from(source, "ppo", "init.which=final")
    assert_same_tree(weights_at_start(tmp_path / "a", final), bundle_weights(source / "final"))
    at_step = begun_from(source, "ppo", f"init.which={step}")
    assert_same_tree(weights_at_start(tmp_path / "b", at_step), state)


def test_latest_the_end_of_a_path_and_a_zip_of_a_bundle_are_sources(tmp_path, sources, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "outputs" / "reach" / "ppo" / "one"
    shutil.copytree(sources("ppo"), target)
    shutil.make_archive(str(tmp_path / "handed_on"), "zip", target / "final")
    places = ("latest", "ppo/one", target / "final", tmp_path / "handed_on.zip")
    configs = [begun_from(place) for place in places]
    assert [config.init_from for config in configs[:3]] == [str(target)] * 3
    assert [config.init.which for config in configs[:3]] == ["best", "best", "final"]
    assert configs[2].init.sha256 == configs[3].init.sha256
    found = weights_at_start(tmp_path / "run", configs[3])
    assert_same_tree(found, bundle_weights(target / "final"))


def test_statistics_of_observations_are_taken_and_go_on(tmp_path, sources):
    source = sources("ppo", "normalize=true")
    run_dir = train_kept(tmp_path / "run", begun_from(source, "ppo", "normalize=true"))
    steps = run_dir.checkpoints().steps()
    counts = [run_dir.checkpoints().load(s).state["normalizer"]["count"][""] for s in steps]
    kept = RunDir(source).checkpoints().load(32).state["normalizer"]["count"][""]
    assert kept <= counts[0] < counts[1] < counts[2]


def test_optimizer_and_buffer_are_taken_with_the_policy(tmp_path, sources):
    source = sources("sac")
    parts = "init.parts=[policy,optimizer,buffer]"
    run_dir = train_kept(tmp_path / "run", begun_from(source, "sac", parts, "init.which=64"))
    before = RunDir(source).checkpoints().load(64).state
    after = first_state(run_dir)
    assert_same_tree(after["agent"]["parameters"], before["agent"]["parameters"])
    assert_same_tree(after["agent"]["tensors"], before["agent"]["tensors"])
    assert after["buffer"]["pos"] == before["buffer"]["pos"] == 64
    last = run_dir.checkpoints(keep=99).load(64)
    assert last.state["buffer"]["pos"] == 128


def test_a_zip_of_stable_baselines3_is_a_source_with_its_statistics(tmp_path):
    venv = VecNormalize(DummyVecEnv([support.tiny_envs.TinyReach]))
    model = sb3.PPO("MlpPolicy", venv, n_steps=32, batch_size=16, policy_kwargs={"net_arch": [8]})
    model.learn(64)
    model.save(tmp_path / "model.zip")
    venv.save(str(tmp_path / "vecnormalize.pkl"))
    config = begun_from(tmp_path / "model.zip", "ppo", "normalize=true")
    run_dir = train_kept(tmp_path / "run", config)
    found = first_state(run_dir)
    for name, value in model.policy.state_dict().items():
        np.testing.assert_array_equal(found["agent"]["parameters"]["policy"][name], value)
    assert found["normalizer"]["count"][""] >= venv.obs_rms.count


@pytest.mark.parametrize("torch_1", [False, True])
def test_a_zip_of_stable_baselines3_brings_its_optimizers(tmp_path, torch_1):
    arguments = {"learning_starts": 8, "buffer_size": 100, "batch_size": 4}
    network = {"net_arch": [8]}
    model = sb3.SAC("MlpPolicy", support.tiny_envs.TinyReach(), policy_kwargs=network, **arguments)
    model.learn(20)
    wanted = to_plain(model.get_parameters()["actor.optimizer"]["state"])
    for optimizer in (model.actor.optimizer, model.critic.optimizer, model.ent_coef_optimizer):
        if torch_1:
            # Its steps were whole numbers, and its settings fewer.
            for entry in optimizer.state.values():
                entry["step"] = int(entry["step"])
            del optimizer.param_groups[0]["maximize"], optimizer.param_groups[0]["fused"]
    model.save(tmp_path / "model.zip")
    config = begun_from(tmp_path / "model.zip", "sac", WITH_OPTIMIZERS)
    found = first_state(train_kept(tmp_path / "run", config))["agent"]
    assert_same_tree(found["parameters"]["actor.optimizer"]["state"], wanted)
    np.testing.assert_array_equal(found["tensors"]["log_ent_coef"], model.log_ent_coef.detach())
    group = found["parameters"]["actor.optimizer"]["param_groups"][0]
    assert group["lr"] == config.algo.hyperparams["learning_rate"]


def test_an_optimizer_of_dqn_that_held_the_target_network_too_is_taken_over(tmp_path):
    env = support.tiny_envs.TinyReach(discrete=True)
    arguments = {"learning_starts": 4, "buffer_size": 100, "batch_size": 4}
    model = sb3.DQN("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, **arguments)
    # As SB3 before 2.4 made it.
    model.policy.optimizer = torch.optim.Adam(model.policy.parameters(), lr=1e-4)
    model.learn(20)
    model.save(tmp_path / "model.zip")
    wanted = to_plain(model.policy.optimizer.state_dict()["state"])
    config = begun_from(tmp_path / "model.zip", "dqn", WITH_OPTIMIZERS, "env.kwargs.discrete=true")
    found = first_state(train_kept(tmp_path / "run", config))["agent"]["parameters"]
    assert_same_tree(found["policy.optimizer"]["state"], wanted)


def test_a_zip_with_another_optimizer_is_refused_in_one_message(tmp_path):
    network = {"net_arch": [8], "optimizer_class": torch.optim.RMSprop}
    model = sb3.PPO("MlpPolicy", support.tiny_envs.TinyReach(), n_steps=32, policy_kwargs=network)
    model.save(tmp_path / "model.zip")
    with pytest.raises(ConfigError, match=r"optimizer: an optimizer has other settings"):
        train_kept(tmp_path / "run", begun_from(tmp_path / "model.zip", "ppo", WITH_OPTIMIZERS))


def test_the_same_weights_have_the_same_hash_in_a_run_a_bundle_and_a_zip(tmp_path, sources):
    source = sources("ppo", "export.sb3_zip=true")
    shutil.copytree(source / "best", tmp_path / "bundle")
    shutil.copytree(source, tmp_path / "copy")
    places = [source, tmp_path / "copy", tmp_path / "bundle", source / "best_sb3" / "model.zip"]
    configs = [begun_from(place) for place in places]
    assert len({config.init_from for config in configs}) == 4
    assert len({config_hash(config) for config in configs}) == 1


def test_a_relative_path_is_resolved_once_and_jobs_are_named_by_the_weights(
    tmp_path, sources, monkeypatch
):
    for name, overrides in {"a": (), "b": ("seed=1",), "copy": ()}.items():
        shutil.copytree(sources("ppo", *overrides), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    words = ["env=cartpole_bullet", "n_envs=1", "tuned=none", "init.partial=true", "sweep=s"]
    jobs = [make_job(rlzoo_plus.compose(words, init_from=name)) for name in ("a", "b", "copy")]
    assert [job.config.init_from for job in jobs] == [str(tmp_path / n) for n in ("a", "b", "copy")]
    assert jobs[0].path == jobs[2].path != jobs[1].path


def test_other_weights_parts_and_frozen_parts_are_other_runs_and_none_is_as_before(sources):
    plain = tiny_config("ppo", REACH, *SHORT, "seed=7")
    others = [
        plain,
        begun_from(sources("ppo")),
        begun_from(sources("ppo", "seed=1")),
        begun_from(sources("ppo"), "ppo", "init.parts=[policy]"),
        begun_from(sources("ppo"), "ppo", "freeze=[policy_net]"),
    ]
    assert len({config_hash(config) for config in others}) == 5
    assert not {"init_from", "init", "freeze"} & plain.model_dump().keys()


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_warm_start_resumes_exactly_when_its_source_is_gone(tmp_path, sources, algo):
    parts = "[policy,optimizer,normalization" + (",buffer]" if algo == "sac" else "]")
    shutil.copytree(sources(algo, "normalize=true"), tmp_path / "source")
    config = begun_from(
        tmp_path / "source", algo, "normalize=true", f"init.parts={parts}", "n_timesteps=96"
    )
    whole, _ = train_run(tmp_path / "whole", config)
    pieces = start_run(tmp_path / "pieces", config)
    with pytest.raises(KeyboardInterrupt):
        ExpManager(config, pieces, KillAfter(1)).train()
    shutil.rmtree(tmp_path / "source")
    ExpManager(config, pieces, StopAfter(2)).train()
    result = ExpManager(config, pieces).train()
    assert result.exact
    assert result.resumed_at[0] == 0
    assert run_digests(whole) == run_digests(pieces)


def test_the_same_command_goes_on_when_the_source_is_gone(tmp_path, sources):
    shutil.copytree(sources("ppo"), tmp_path / "source")
    place = f"run_dir={tmp_path / 'run'}"
    config = begun_from(tmp_path / "source", "ppo", place)
    start_run(tmp_path / "run", config)
    shutil.rmtree(tmp_path / "source")
    assert begun_from(tmp_path / "source", "ppo", place) == config
    with pytest.raises(ConfigError, match="no such directory"):
        begun_from(tmp_path / "source")


def test_partial_takes_what_fits_and_says_what_it_left(tmp_path, sources, caplog):
    source = sources("sac")
    config = begun_from(source, "tqc", "init.partial=true")
    run_dir = train_kept(tmp_path / "run", config)
    found, given = first_state(run_dir), bundle_weights(source / "best")
    weights = found["agent"]["parameters"]["policy"]
    for name in weights:
        if name.startswith("actor."):
            np.testing.assert_array_equal(weights[name], given[name])
    assert weights["critic.qf0.2.weight"].shape == (25, 8)
    assert "begins fresh: critic.qf0.2.weight: 1x8 there, 25x8 here" in caplog.text
    told = json.loads(run_dir.provenance_file.read_text())["init"]
    assert len(told["left_out"]) == 8
    assert (told["algo"], told["which"], told["sha256"][:16]) == ("sac", "best", config.init.sha256)


@pytest.mark.parametrize(
    ("before", "after", "overrides", "shared"),
    [
        ("td3", "ddpg", ("init.partial=true",), "actor.mu.0.weight"),
        ("ppo", "trpo", (), "value_net.weight"),
        ("recurrent_ppo", "ppo", ("init.partial=true",), "action_net.weight"),
    ],
)
def test_algorithms_of_one_family_share_what_has_the_same_name_and_shape(
    tmp_path, sources, before, after, overrides, shared
):
    source = sources(before)
    found = weights_at_start(tmp_path / "run", begun_from(source, after, *overrides))
    np.testing.assert_array_equal(found[shared], bundle_weights(source / "best")[shared])


def test_another_environment_of_the_same_shapes_is_no_obstacle(tmp_path, sources):
    config = begun_from(sources("ppo"), "ppo", "env.kwargs.scale=3.0")
    _, result = train_run(tmp_path / "run", config)
    assert result.state == "finished"


@pytest.mark.parametrize(
    ("source", "algo", "overrides", "message"),
    [
        (("ppo", "normalize=true"), "ppo", (), "it has statistics of observations; set normalize"),
        (("ppo",), "ppo", ("normalize=true",), "saw raw observations; set normalize=false"),
        (("a2c",), "ppo", ("init.parts=[policy,optimizer]",), "optimizer: an optimizer has other"),
        (("sac",), "sac", ("init.parts=[buffer]", "n_envs=2"), "buffer: n_envs is 1 there, 2 here"),
        (
            ("sac",),
            "sac",
            ("init.parts=[buffer]", "algo.hyperparams.buffer_size=400"),
            "buffer: buffer_size is 500 there, 400 here",
        ),
        (("ppo",), "ppo", ("env.kwargs.discrete=true",), "action_net.bias: 1 there, 3 here"),
        (("ppo",), "sac", ("init.partial=true",), "as they were there; no layer fits"),
        (("sac",), "tqc", (), "critic.qf0.2.weight: 1x8 there, 25x8 here"),
        (("sac",), "tqc", (), "the 14 layers that fit: init.partial=true"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, sources, source, algo, overrides, message):
    config = begun_from(sources(*source), algo, *overrides)
    with pytest.raises(ConfigError, match=message):
        ExpManager(config, start_run(tmp_path / "run", config)).train()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("init_from=x", "init.parts=[polcy]"), "unknown part in init.parts 'polcy'. Did you mean"),
        (("init_from=x", "init.parts=[]"), "takes nothing"),
        (("init_from=x", "init.parts=policy"), "must be a list of policy, optimizer, buffer"),
        (("init_from=x", "init.parts=[buffer]"), "ppo has no replay buffer"),
        (("init_from=x", "init.which=bets"), "must be best, final, or the step of a checkpoint"),
        (("init.partial=true",), "Add init_from=RUN"),
        (("freeze=features_extractor",), r"e.g. \[features_extractor\]"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(overrides, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config("ppo", REACH, *overrides)


def test_a_source_that_changes_after_it_was_chosen_is_refused(tmp_path, sources):
    shutil.copytree(sources("ppo"), tmp_path / "source")
    config = begun_from(tmp_path / "source")
    shutil.rmtree(tmp_path / "source" / "best")
    shutil.copytree(sources("ppo", "seed=1") / "best", tmp_path / "source" / "best")
    with pytest.raises(ConfigError, match="It was changed"):
        ExpManager(config, start_run(tmp_path / "run", config)).train()
    with pytest.raises(ConfigError, match="It was changed"):
        begun_from(tmp_path / "source", "ppo", f"init.sha256={config.init.sha256}")


def test_a_folder_without_a_policy_and_a_step_without_a_checkpoint_are_named(tmp_path, sources):
    with pytest.raises(ConfigError, match=r"config\.yaml is missing"):
        begun_from(tmp_path)
    with pytest.raises(ConfigError, match="has no checkpoint at step 7"):
        begun_from(sources("ppo"), "ppo", "init.which=7")
    shutil.copytree(sources("ppo") / "best", tmp_path / "bundle")
    with pytest.raises(ConfigError, match="alone holds optimizer and buffer"):
        begun_from(tmp_path / "bundle", "ppo", "init.parts=[optimizer]")
