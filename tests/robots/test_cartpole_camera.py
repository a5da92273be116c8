"""Cart-pole by camera: what its pictures show, and what they do not."""

from itertools import pairwise

import numpy as np
import pytest

from robots.cartpole import (
    HEIGHT,
    WIDTH,
    CartPoleBalance,
    CartPoleByCamera,
    CartPoleCameraEnv,
    darkness,
)

ENVS = [CartPoleCameraEnv]
PUSH = np.ones(1, np.float32)
REST = np.zeros(1, np.float32)


def picture(env, cart, angle):
    """Return what the policy is shown of a cart [m] and a pole [rad], shape (40, 80)."""
    env.simulation.reset_joints(env.robot.body, [0, 1], [cart, angle], [0.0, 0.0])
    return darkness(env.world.image())


def columns_of_pole(picture):
    """Return the numbers of the columns of a picture that show the pole above the cart."""
    return np.flatnonzero((picture[:25] > 50).any(axis=0))


def columns_of_cart(picture):
    """Return the numbers of the columns that show the cart, by a row above the rail."""
    return np.flatnonzero(picture[33] > 80)


def test_observation_is_two_small_pictures_on_black(env):
    observation, _ = env.reset(seed=0)
    assert observation.shape == (HEIGHT, WIDTH, 2)
    assert observation.dtype == np.uint8
    assert env.observation_space.contains(observation)
    # Mostly background, and something in it.
    assert np.median(observation) == 0
    assert observation.max() > 200


def test_first_observation_shows_the_same_picture_twice(env):
    observation, _ = env.reset(seed=0)
    assert np.array_equal(observation[..., 0], observation[..., 1])
    env.step(PUSH)
    observation, _ = env.reset(seed=1)
    assert np.array_equal(observation[..., 0], observation[..., 1])


def test_second_picture_is_the_first_of_the_step_before(env):
    before, _ = env.reset(seed=0)
    for _ in range(3):
        observation = env.step(PUSH)[0]
        assert np.array_equal(observation[..., 1], before[..., 0])
        before = observation
    assert not np.array_equal(before[..., 0], before[..., 1])


def test_cart_stays_in_the_picture_on_all_of_its_track(env):
    env.reset(seed=0)
    widths = []
    edge = CartPoleByCamera.track_half_length_m
    for cart in (-edge, 0.0, edge):
        shown = columns_of_cart(picture(env, cart, 0.0))
        assert shown.min() > 0
        assert shown.max() < WIDTH - 1
        widths.append(len(shown))
    # Near the edges one of its sides is seen too.
    assert min(widths) >= 15
    assert max(widths) <= 20


def test_a_cart_further_right_is_shown_further_right(env):
    env.reset(seed=0)
    carts = (-0.8, -0.4, 0.0, 0.4, 0.8)
    centres = [columns_of_pole(picture(env, cart, 0.0)).mean() for cart in carts]
    assert np.diff(centres) == pytest.approx(0.4 / 2.66 * WIDTH, abs=1.0)
    assert centres[2] == pytest.approx((WIDTH - 1) / 2, abs=1.0)


def test_a_hundredth_of_a_radian_changes_the_picture(env):
    env.reset(seed=0)
    pictures = [picture(env, 0.0, angle).astype(int) for angle in np.arange(-0.1, 0.11, 0.01)]
    for one, other in pairwise(pictures):
        assert np.abs(one - other).sum() > 500


def test_darkness_is_that_of_blocks_for_one_world_and_for_many():
    image = np.zeros((3, 2 * HEIGHT, 2 * WIDTH, 3), np.uint8)
    image[1] = 255
    image[2, :2, :2] = (12, 24, 36)
    image[2, 0, 2] = (60, 60, 60)
    pictures = darkness(image)
    assert pictures.shape == (3, HEIGHT, WIDTH)
    assert (pictures[0] == 255).all()
    assert (pictures[1] == 0).all()
    assert pictures[2, 0, :3].tolist() == [255 - 24, 255 - 15, 255]
    assert np.array_equal(darkness(image[2]), pictures[2])


def test_a_video_does_not_change_what_the_policy_sees():
    seen = []
    for mode in (None, "rgb_array"):
        env = CartPoleCameraEnv(render_mode=mode, render_width=100)
        env.reset(seed=3)
        env.render()
        seen.append(env.step(PUSH)[0])
    assert np.array_equal(*seen)


def test_episodes_last_250_steps_of_40_ms(env):
    assert env.max_episode_steps == 250
    assert env.simulation.step_s == pytest.approx(0.04)


def test_cart_that_leaves_the_picture_ends_the_episode(env):
    env.reset(seed=0)
    env.simulation.reset_joints(env.robot.body, [0, 1], [0.99, 0.0], [2.0, 0.0])
    _, _, terminated, truncated, info = env.step(REST)
    assert terminated
    assert not truncated
    assert info["end_reason"] == "cart_left_track"


def test_with_state_the_images_stay_and_balance_sees_the_same_world():
    plain, shown, balance = CartPoleCameraEnv(), CartPoleCameraEnv(state=True), CartPoleBalance()
    try:
        image, (seen, _) = plain.reset(seed=3)[0], shown.reset(seed=3)
        for _ in range(4):
            assert shown.observation_space.contains(seen)
            assert np.array_equal(seen["observation"], image)
            assert np.array_equal(seen["state"], balance.observation(shown.state))
            image, seen = plain.step(PUSH)[0], shown.step(PUSH)[0]
        assert seen["state"][0] > 0.0
    finally:
        plain.close()
        shown.close()
