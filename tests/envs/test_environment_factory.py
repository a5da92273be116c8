"""One wrapper chain for training and evaluation."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.vec_env import VecNormalize, VecTransposeImage
from support import tiny_envs
from support.training import tiny_config

from rlzoo_plus.envs.factory import make_eval_env, make_train_env
from rlzoo_plus.envs.fit import inspect_env
from rlzoo_plus.errors import ConfigError


def _layers(venv):
    names, env = [], venv.unwrapped.envs[0]
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return names


def build(config, seed=0, monitor=None):
    """Return the environments of training and of evaluation."""
    return make_train_env(config, seed, monitor), make_eval_env(config.env, config.n_envs)


def test_training_and_evaluation_have_the_same_wrappers():
    config = tiny_config(
        "ppo",
        "tests/TinyReach-v0",
        "env.wrappers=[{mask_observation: {hidden: [2]}},{support.tiny_envs.Doubled: {factor: 3}}]",
        "env.time_limit=5",
        "env.warmup_resets=1",
    )
    train, evaluation = build(config)
    # Training records its episodes besides; what it adds to the chain is the same.
    layers = [n.replace("RecordedEpisodes", "ReproducibleResets") for n in _layers(train)]
    assert layers == _layers(evaluation)
    assert {"Doubled", "WarmupResets"} <= set(layers)


def test_environment_arguments_reach_training_and_evaluation():
    # Known defect of rl_zoo3: env_kwargs of the file never reached the evaluation environment.
    tiny_envs.CREATED.clear()
    build(tiny_config("ppo", "tests/TinyReach-v0", "env.kwargs.scale=7", "n_envs=2"))
    assert [made["scale"] for made in tiny_envs.CREATED] == [7, 7, 7, 7]


def test_the_normalisation_has_its_settings_and_the_discount_and_leaves_evaluation_raw():
    settings = "{observation: true, reward: false, clip_observation: 4, epsilon: 1e-4}"
    words = (f"normalize={settings}", "algo.hyperparams.gamma=0.9")
    train, evaluation = build(tiny_config("ppo", "tests/TinyReach-v0", *words))
    assert isinstance(train, VecNormalize)
    assert (train.norm_obs, train.norm_reward, train.gamma) == (True, False, 0.9)
    assert (train.clip_obs, train.epsilon) == (4, 1e-4)
    assert not isinstance(evaluation, VecNormalize)
    # Unless it is asked for.
    assert not isinstance(build(tiny_config())[0], VecNormalize)


def test_pictures_are_transposed_for_training_and_evaluation():
    config = tiny_config("ppo", "tests/TinyImage-v0", "normalize=true", "env.frame_stack=2")
    train, evaluation = build(config)
    assert train.observation_space == evaluation.observation_space
    assert evaluation.observation_space.shape == (6, 36, 36)
    assert isinstance(evaluation, VecTransposeImage)
    # They are not normalised.
    assert train.reset().dtype == np.uint8


def test_only_pictures_with_their_channels_last_are_transposed():
    train, evaluation = build(tiny_config("ppo", "tests/TinyRgbd-v0", "env.frame_stack=2"))
    assert train.observation_space == evaluation.observation_space
    assert train.observation_space["rgb"].shape == (6, 36, 40)
    observation = train.reset()
    rgb = np.arange(36 * 40 * 3, dtype=np.uint8).reshape(36, 40, 3)
    np.testing.assert_array_equal(observation["rgb"][0, 3:], rgb.transpose(2, 0, 1))
    assert observation["depth"].shape == (1, 2, 36, 40)
    for _ in range(tiny_envs.LENGTH):
        *_, infos = train.step([train.action_space.sample()])
    last = infos[0]["terminal_observation"]
    assert last["rgb"].shape == (6, 36, 40)
    np.testing.assert_array_equal(last["depth"][1], tiny_envs.LENGTH)


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("vec_env", ["dummy", "subproc"])
def test_what_ends_an_episode_is_kept_from_the_reset(vec_env, dictionary):
    words = ("n_envs=2", f"vec_env={vec_env}", f"env.kwargs.dictionary={dictionary}")
    train, _ = build(tiny_config("ppo", "tests/TinyReuser-v0", *words))
    train.reset()
    for number in range(1, 2 * tiny_envs.LENGTH + 2):
        observation, _, dones, infos = train.step(np.zeros((2, 1), np.float32))
        first = (observation["inner"] if dictionary else observation)[0]
        taken = number % tiny_envs.LENGTH
        assert first[2] == taken
        assert ("episode" in infos[0]) == dones[0] == (taken == 0)
        steps = taken or tiny_envs.LENGTH
        assert infos[0]["env_episode"] == {"number": steps}
        if dones[0]:
            last = infos[0]["terminal_observation"]
            assert (last["inner"] if dictionary else last)[2] == infos[0]["seen"][2] == steps
            assert infos[0]["episode"]["l"] == steps
    train.close()


def test_only_numbers_of_a_dictionary_are_normalised():
    train, evaluation = build(tiny_config("ppo", "tests/TinyDict-v0", "normalize=true"))
    assert sorted(train.norm_obs_keys) == ["alpha", "zeta"]
    observation = train.reset()
    assert observation["picture"].shape == (1, 3, 36, 36)
    assert observation["picture"].dtype == np.uint8
    assert evaluation.observation_space["picture"].shape == (3, 36, 36)


def test_observations_that_no_policy_can_use_are_a_user_error():
    with pytest.raises(ConfigError, match=r"Blackjack-v1.*flatten_observation"):
        inspect_env(tiny_config("ppo", "Blackjack-v1", "normalize=true"))


def test_numbered_states_are_left_alone_by_normalisation():
    train, _ = build(tiny_config("ppo", "FrozenLake-v1", "normalize=true"))
    assert train.reset().shape == (1,)
    assert train.norm_obs is False
    assert train.norm_reward is True


def test_training_environments_have_consecutive_seeds():
    config = tiny_config("ppo", "tests/TinyReach-v0", "n_envs=3")
    train, _ = build(config, seed=40)
    train.reset()
    assert [seeds[0] for seeds in train.get_attr("seeds")] == [40, 41, 42]


def test_one_monitor_file_is_written_for_each_training_environment(tmp_path):
    config = tiny_config("ppo", "tests/TinyReach-v0", "n_envs=2")
    train, _ = build(config, monitor=tmp_path / "monitor")
    train.reset()
    for _ in range(20):
        train.step(np.zeros((2, 1), np.float32))
    train.close()
    files = sorted(path.name for path in (tmp_path / "monitor").iterdir())
    assert files == ["0.monitor.csv", "1.monitor.csv"]
    rows = (tmp_path / "monitor" / "1.monitor.csv").read_text().splitlines()
    assert len(rows) == 2 + 2
    assert rows[2].split(",")[1] == "8"


def test_evaluation_environments_take_a_seed_for_each_episode():
    _, evaluation = build(tiny_config())
    evaluation.env_method("set_episode_seeds", [21, 22])
    evaluation.reset()
    for _ in range(8):
        evaluation.step(np.zeros((1, 1), np.float32))
    assert evaluation.get_attr("seeds")[0] == [21, 22]


@pytest.mark.training
def test_evaluation_in_processes_takes_episode_seeds():
    venv = make_eval_env(tiny_config().env, 2, "subproc")
    try:
        venv.env_method("set_episode_seeds", [31], indices=1)
        venv.reset()
        assert venv.get_attr("seeds", indices=1) == [[31]]
    finally:
        venv.close()
