"""Whether algorithm and environment fit is answered before anything heavy is built."""

import numpy as np
import pytest
from gymnasium import spaces
from support.training import make_config, tiny_config

from rlzoo_plus.envs.fit import inspect_env, is_image, policy_kind
from rlzoo_plus.errors import ConfigError


def test_continuous_algorithm_in_a_discrete_space_names_those_that_fit():
    with pytest.raises(ConfigError, match=r"sac cannot act in Discrete\(2\).*ppo.*dqn") as caught:
        inspect_env(tiny_config("sac", "CartPole-v1"))
    assert "CartPole-v1" in str(caught.value)
    assert "maskable_ppo" not in str(caught.value)


def test_discrete_algorithm_in_a_continuous_space_names_those_that_fit():
    with pytest.raises(ConfigError, match=r"dqn cannot act in Box.*sac"):
        inspect_env(tiny_config("dqn", "Pendulum-v1"))


def test_the_cart_pole_s_own_switch_is_offered_both_ways():
    with pytest.raises(ConfigError, match=r"env\.kwargs\.discrete=true"):
        inspect_env(make_config("algo=dqn", "env=cartpole_bullet"))
    with pytest.raises(ConfigError, match=r"env\.kwargs\.discrete=false"):
        inspect_env(make_config("algo=sac", "env=cartpole_bullet", "env.kwargs.discrete=true"))


@pytest.mark.parametrize("words", [("her",), ("td3", "Pendulum-v1", "algo.replay_buffer=her")])
def test_hindsight_replay_needs_a_goal_environment(words):
    with pytest.raises(ConfigError, match=r"goal environment.*env=panda_reach"):
        inspect_env(tiny_config(*words))


def test_hindsight_replay_takes_no_stacked_goals():
    with pytest.raises(ConfigError, match=r"frame_stack=2: hindsight replay"):
        inspect_env(tiny_config("her", "tests/TinyGoal-v0", "env.frame_stack=2"))


def test_masked_algorithm_needs_masks():
    with pytest.raises(ConfigError, match=r"action_masks.*algo=ppo"):
        inspect_env(tiny_config("maskable_ppo", "CartPole-v1"))


def test_masked_algorithm_accepts_an_environment_with_masks():
    facts = inspect_env(tiny_config("maskable_ppo", "tests/TinyMasked-v0"))
    assert facts.action_space == spaces.Discrete(3)


def test_the_facts_are_those_behind_the_wrappers():
    config = make_config(
        "algo=ppo", "env.id=Pendulum-v1", "env.wrappers=[{mask_observation: {hidden: [2]}}]"
    )
    facts = inspect_env(config)
    assert facts.observation_space.high[2] == 0
    assert facts.can_render


def test_an_environment_without_pictures_says_so():
    assert not inspect_env(tiny_config()).can_render


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Box(-1, 1, (3,)), "mlp"),
        (spaces.Discrete(3), "mlp"),
        (spaces.Box(0, 255, (36, 36, 3), np.uint8), "cnn"),
        (spaces.Box(0, 1, (36, 36, 3), np.float32), "mlp"),
        (spaces.Box(0, 200, (36, 36, 3), np.uint8), "mlp"),
        (spaces.Dict({"a": spaces.Box(-1, 1, (3,))}), "multi_input"),
    ],
)
def test_the_kind_of_network_follows_the_observations(space, kind):
    assert policy_kind(space) == kind
    assert is_image(space) == (kind == "cnn")


@pytest.mark.parametrize(
    ("algo", "env", "more", "reason"),
    [
        ("sac", "NoWidth", "network=default", r"from 0\.5 to 0\.5 at \[1\].*divides by the width"),
        ("td3", "Whole", "network=default", r"cut actions.*whole numbers.*\[plain_spaces\]"),
        ("ppo", "FloatImage", "network=cnn", r"\(3, 40, 40\) and float32, from 0 to 1.*uint8"),
        ("ppo", "GreyImage", "network=cnn", r"\{reshape_observation: \{shape: \[1, 40, 40\]\}\}"),
        ("dqn", "StartsBelowZero", "network=default", r"start=-1.*\[plain_spaces\]"),
    ],
)
def test_what_an_algorithm_cannot_read_is_refused_with_a_fix(algo, env, more, reason):
    words = (f"algo={algo}", f"env.id=broken/{env}-v0", "env.packages=[support.broken_envs]", more)
    with pytest.raises(ConfigError, match=reason):
        inspect_env(make_config(*words))


def test_a_constant_action_is_fine_where_nothing_is_divided_by_its_width():
    words = ("algo=ppo", "env.id=broken/NoWidth-v0", "env.packages=[support.broken_envs]")
    inspect_env(make_config(*words))
