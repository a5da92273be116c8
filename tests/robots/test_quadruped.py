"""The quadrupeds: command, trot, reward, ends and success."""

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest

from robots.quadruped import MAX_MEAN_ERROR_M_S, CommandRanges, FollowVelocity, Stance, motor_power
from robots.sensors import State

IDS = ("robots/A1Walk-v0", "robots/Vision60Walk-v0")
FORWARD, CLOCK = 0, slice(12, 14)
STANCE = Stance((0.0,) * 3, 0.3, (0.0, 0.2, -0.4), (True,) * 3, 0.15, 100.0)


@pytest.fixture(params=IDS)
def env(request: pytest.FixtureRequest) -> Iterator[gymnasium.Env]:
    """Return a quadruped, closed after the test."""
    env = gymnasium.make(request.param).unwrapped
    yield env
    env.close()


def walker(**ranges: tuple[float, float]) -> FollowVelocity:
    """Return the task of a robot with three joints."""
    return FollowVelocity(STANCE, CommandRanges(**ranges), radians_per_step=0.3)


def walking(task: FollowVelocity, **changes: np.ndarray) -> State:
    """Return a state of that robot: level, at its height, exactly at its command."""
    memory = {
        "command": np.array([0.5, 0.0, 0.2]),
        "action": np.zeros(3),
        "error_sum": np.zeros(()),
        "count": np.zeros(()),
    }
    at_command = State(
        joint_position=np.zeros(3),
        joint_velocity=np.zeros(3),
        joint_effort=np.zeros(3),
        base_position=np.array([0.0, 0.0, 0.3]),
        base_orientation=np.array([0.0, 0.0, 0.0, 1.0]),
        base_velocity=np.array([0.5, 0.0, 0.0]),
        base_angular_velocity=np.array([0.0, 0.0, 0.2]),
        memory=memory,
    )
    return at_command._replace(**changes)


def play(env: gymnasium.Env, steps: int, sweep: float = 0.0) -> dict:
    """Step with the upper legs swept in time with the clock; return the last info."""
    observation, _ = env.reset(seed=0)
    info: dict = {}
    for _ in range(steps):
        _, cosine = observation[CLOCK]
        action = np.zeros(12)
        # Lifted legs swing forward: the outer pairs first, then the inner ones.
        action[[1, 10]], action[[4, 7]] = sweep * cosine, -sweep * cosine
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    return info


def test_zero_actions_step_on_the_spot_without_falling(env: gymnasium.Env) -> None:
    info = play(env, 500)
    assert info["end_reason"] == "time_limit"
    assert np.hypot(*env.state.base_position[:2]) < 1.5


def test_stepping_on_the_spot_is_no_success(env: gymnasium.Env) -> None:
    assert not play(env, 500)["is_success"]


def test_diagonal_pairs_of_legs_are_lifted_in_turn(env: gymnasium.Env) -> None:
    env.reset(seed=0)
    bends = []
    for _ in range(120):
        env.step(np.zeros(12))
        bends.append(abs(env.state.joint_position[2::3] - env.robot.rest_position[2::3]))
    settled = np.array(bends[20:])
    together = np.corrcoef(settled.T)
    assert settled.max(axis=0).min() > 0.08
    assert together[0, 3] > 0.8
    assert together[1, 2] > 0.8
    assert together[0, 1] < 0


def test_without_lift_the_robot_stands_still() -> None:
    env = gymnasium.make("robots/A1Walk-v0", lift=0.0).unwrapped
    play(env, 100)
    assert abs(env.state.joint_velocity).max() < 0.05
    assert env.state.base_position[2] == pytest.approx(0.27, abs=0.02)
    env.close()


def test_sweeping_the_lifted_legs_forward_walks_forward(env: gymnasium.Env) -> None:
    play(env, 200)
    on_the_spot = env.state.base_position[0]
    play(env, 200, sweep=0.25)
    assert env.state.base_position[0] > on_the_spot + 0.5


def test_legs_that_give_way_end_the_episode_as_a_fall(env: gymnasium.Env) -> None:
    env.robot.drive.set_strength(0.0)
    info = play(env, 500)
    assert info["end_reason"] == "fell"
    assert info["is_success"] is False


def test_masses_and_inertias_are_those_of_a_body(env: gymnasium.Env) -> None:
    dynamics = env.simulation.link_dynamics(env.robot.body).values()
    assert 10 < sum(link.mass_kg for link in dynamics) < 30
    for link in dynamics:
        # No link is wider than 1 m, nor smaller than a coin.
        assert all(1e-4 * link.mass_kg < i < 0.5 * max(link.mass_kg, 1e-3) for i in link.inertia)


def test_commands_fill_their_ranges_and_stay_inside() -> None:
    task = walker(forward_m_s=(0.2, 0.4), sideways_m_s=(-0.1, 0.1), turn_rad_s=(-0.5, 0.0))
    rng = np.random.default_rng(0)
    drawn = np.stack([task.sample_initial_state(rng).memory["command"] for _ in range(300)])
    low, high = np.array([0.2, -0.1, -0.5]), np.array([0.4, 0.1, 0.0])
    assert ((low <= drawn) & (drawn <= high)).all()
    assert np.allclose(drawn.min(axis=0), low, atol=0.02)
    assert np.allclose(drawn.max(axis=0), high, atol=0.02)


def test_a_command_is_part_of_the_observation_and_stays() -> None:
    env = gymnasium.make("robots/A1Walk-v0", forward_m_s=[0.6, 0.6], turn_rad_s=[0.0, 0.0])
    observation, _ = env.reset(seed=0)
    later = env.step(np.zeros(12, np.float32))[0]
    env.close()
    assert observation[9:12].tolist() == pytest.approx([0.6, 0.0, 0.0])
    assert later[9:12].tolist() == observation[9:12].tolist()


@pytest.mark.parametrize("bad", [(0.8, 0.3), (0.5,)])
def test_a_range_that_is_none_is_refused(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"forward_m_s=.* is no range"):
        gymnasium.make("robots/A1Walk-v0", forward_m_s=bad)


def test_walking_exactly_as_commanded_earns_one_a_step() -> None:
    task = walker()
    terms = task.reward_terms(walking(task), np.zeros(3))
    assert sum(task.weights[name] * term for name, term in terms.items()) == pytest.approx(1.0)


def test_velocity_is_measured_in_the_frame_of_the_body() -> None:
    task = walker()
    facing_left = np.array([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)])
    along = walking(task, base_orientation=facing_left, base_velocity=np.array([0.0, 0.5, 0.0]))
    assert task.reward_terms(along, np.zeros(3))["velocity"] == pytest.approx(1.0)
    assert task.observation(along)[FORWARD] == pytest.approx(0.5)
    across = walking(task, base_orientation=facing_left)
    assert task.reward_terms(across, np.zeros(3))["velocity"] < 0.2


@pytest.mark.parametrize(
    ("term", "changes"),
    [
        ("velocity", {"base_velocity": np.array([0.2, 0.0, 0.0])}),
        ("turn", {"base_angular_velocity": np.array([0.0, 0.0, -0.2])}),
        ("posture", {"base_position": np.array([0.0, 0.0, 0.2])}),
        ("posture", {"base_orientation": np.array([0.2, 0.0, 0.0, np.sqrt(0.96)])}),
        ("vertical", {"base_velocity": np.array([0.5, 0.0, 0.5])}),
        ("rocking", {"base_angular_velocity": np.array([1.0, 0.0, 0.2])}),
    ],
)
def test_each_deviation_lowers_its_term(term: str, changes: dict[str, np.ndarray]) -> None:
    task = walker()
    good = task.reward_terms(walking(task), np.zeros(3))[term]
    assert task.reward_terms(walking(task, **changes), np.zeros(3))[term] < good - 0.05


def test_power_and_a_changed_action_cost() -> None:
    task = walker()
    busy = walking(
        task, joint_effort=np.array([10.0, -20.0, 0.0]), joint_velocity=np.array([1.0, 2.0, 3.0])
    )
    assert motor_power(busy) == 50.0
    terms = task.reward_terms(busy, np.array([0.5, 0.0, -1.0]))
    assert terms["power"] == -0.5
    assert terms["action_change"] == -1.25


def test_a_low_or_tilted_base_is_a_fall() -> None:
    task = walker()
    assert not task.terminations(walking(task))["fell"]
    assert task.terminations(walking(task, base_position=np.array([0.0, 0.0, 0.1])))["fell"]
    on_its_side = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    assert task.terminations(walking(task, base_orientation=on_its_side))["fell"]


@pytest.mark.parametrize(("error", "succeeds"), [(-0.01, True), (0.01, False)])
def test_success_needs_a_small_mean_error(error: float, succeeds: bool) -> None:
    task = walker()
    speed = np.array([0.5 - MAX_MEAN_ERROR_M_S - error, 0.0, 0.0])
    state = walking(task, base_velocity=speed)
    for _ in range(20):
        state = state._replace(memory=task.remember(state, np.zeros(3)))
    assert bool(task.success(state, np.array(True))) is succeeds
    assert not task.success(state, np.array(False))


def test_the_clock_of_the_steps_is_observed(env: gymnasium.Env) -> None:
    env.reset(seed=0)
    radians = 2 * np.pi * 2.5 / 50
    for count in range(2, 30):
        clock = env.step(np.zeros(12))[0][CLOCK]
        assert np.allclose(clock, [np.sin(count * radians), np.cos(count * radians)], atol=1e-4)
