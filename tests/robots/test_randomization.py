"""What differs from episode to episode: distributions, draws, and what they do to a world."""

import json

import numpy as np
import pybullet
import pytest
from continuing import (
    EVERYTHING,
    SURROUNDINGS,
    actions_for,
    arm,
    cartpole,
    from_json,
    play,
    randomized_cartpole,
    randomized_tumbler,
    to_json,
    tumbler,
)

from rlzoo_plus.testing.robot_contract import play_randomly
from robots.cartpole import CartPoleSwingUpEnv
from robots.distributions import read_distribution
from robots.driving import HuskyDriveEnv
from robots.kuka_reach import KukaReachEnv
from robots.vec_env import RobotVecEnv


def drawn(env, episodes):
    """Return what was drawn for so many episodes."""
    return [env.reset(seed=seed)[1]["randomization"] for seed in range(episodes)]


def after(env, *actions):
    """Return the state after the first actions of an episode."""
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    return env.state


class TestDistributions:
    """What a configuration can be drawn from."""

    @pytest.mark.parametrize(
        ("config", "low", "high", "mean"),
        [
            ({"uniform": [0.8, 1.2]}, 0.8, 1.2, 1.0),
            ({"log_uniform": [0.25, 4.0]}, 0.25, 4.0, 1.353),
            ({"normal": 0.1}, 0.7, 1.3, 1.0),
            ({"normal": [2.0, 0.1]}, 1.7, 2.3, 2.0),
            ({"choice": [0, 1, 5]}, 0.0, 5.0, 2.0),
        ],
    )
    def test_draws_fill_the_stated_range(self, config, low, high, mean):
        distribution = read_distribution("mass", config, nominal=1.0)
        values = distribution.draw(np.random.default_rng(0), 20_000)
        assert (distribution.low, distribution.high) == pytest.approx((low, high))
        assert values.min() == pytest.approx(low, abs=0.01)
        assert values.max() == pytest.approx(high, abs=0.01)
        assert values.mean() == pytest.approx(mean, abs=0.03)

    def test_a_number_alone_is_a_constant(self):
        distribution = read_distribution("mass", 1.5, nominal=1.0)
        assert distribution.draw(np.random.default_rng(0), None) == 1.5

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"unifrom": [0, 1]}, "randomization.mass: 'unifrom' is unknown.*mean 'uniform'"),
            ({"uniform": [1.2, 0.8]}, r"mass.uniform=\[1.2, 0.8\] does not fit. Write {uniform"),
            ({"uniform": [1.2]}, "does not fit"),
            ({"log_uniform": [0.0, 1.0]}, "both above 0"),
            ({"normal": [1.0, -0.1]}, "does not fit"),
            ({"normal": 0.5}, "can be as low as -0.5, and must be at least 0.01"),
            ({"choice": []}, "does not fit"),
            ({"constant": "heavy"}, "mass.constant='heavy' must be a number"),
            ({"uniform": [0.8, 1.2], "normal": 0.1}, "must name one distribution"),
            ({"uniform": [0.8, 1.2], "each": 2}, "each must be true or false"),
            (True, "must be a number"),
            (float("nan"), "must be a number"),
            (0.0, "can be as low as 0, and must be at least 0.01"),
        ],
    )
    def test_what_does_not_fit_is_refused_with_a_fix(self, config, message):
        with pytest.raises(ValueError, match=message):
            cartpole(randomization={"mass": config})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"frction": 1.0}, "randomization: 'frction' is unknown. Did you mean 'friction'"),
        (1.0, "randomization=1.0 must be a mapping"),
        ({"latency": {"choice": [0, 0.5]}}, "must be whole control steps"),
        ({"latency": {"uniform": [0, 3]}}, "must be whole control steps"),
        ({"latency": -1}, "can be as low as -1"),
        ({"observation_delay": 0.5}, "must be whole control steps"),
        ({"payload": 2.0}, "payload: the base of this robot cannot move"),
        ({"com_offset": {"uniform": [-0.1, 0.1]}}, "com_offset: the base of this robot cannot"),
        ({"gravity": {"uniform": [0.9, 1.1], "each": True}}, "each has no meaning there"),
        ({"push": {"every_s": 2.0}}, "must be a mapping with every_s and velocity"),
        ({"push": {"every_s": 0.0, "velocity": 1.0}}, "must be above 0"),
        ({"push": {"every_s": 2.0, "velocity": 1.0, "angle": 0}}, "push: 'angle' is unknown"),
        ({"curriculum": {"episodes": 2.5}}, "episodes whole"),
        ({"curriculum": 200}, "must be a mapping with episodes"),
        ({"ground_friction": 0.5}, "has not a ground"),
        ({"object_mass": 2.0}, "has not objects that can move"),
    ],
)
def test_what_does_not_fit_the_world_is_refused_with_a_fix(config, message):
    with pytest.raises(ValueError, match=message):
        cartpole(randomization=config)


class TestPhysics:
    """What the draws do to masses, friction, motors and the like."""

    def dynamics(self, env):
        return env.simulation.link_dynamics(env.robot.body)

    def test_mass_scales_the_inertia_with_it(self):
        env, plain = (arm(randomization=r) for r in ({"mass": 1.5, "inertia": 2.0}, None))
        for seed in (0, 1):
            env.reset(seed=seed)
            for link, nominal in self.dynamics(plain).items():
                changed = self.dynamics(env)[link]
                assert changed.mass_kg == pytest.approx(1.5 * nominal.mass_kg)
                inertia = np.array(nominal.inertia) * (3.0 if nominal.mass_kg else 1.0)
                assert changed.inertia == pytest.approx(inertia)

    def test_every_link_can_have_a_draw_of_its_own(self):
        env = arm(randomization={"mass": {"uniform": [0.5, 2.0], "each": True}})
        nominal = self.dynamics(env)
        _, info = env.reset(seed=0)
        factors = info["randomization"]["mass"]
        assert len(set(factors)) == len(nominal)
        for factor, (link, was) in zip(factors, nominal.items(), strict=True):
            assert self.dynamics(env)[link].mass_kg == pytest.approx(factor * was.mass_kg)

    def test_a_payload_and_an_offset_are_those_of_the_trunk(self):
        offset, payload = (0.01, -0.02, 0.0), 2.0
        plain = tumbler(randomization={"payload": 0.0})
        env = tumbler(randomization={"payload": payload, "com_offset": {"uniform": [-0.02, 0.02]}})
        for each in (plain, env):
            each.reset(seed=0)
        env.conditions.randomizer.drawn["com_offset"] = list(offset)
        env.conditions.randomizer._set_physics()
        body = env.robot.body
        trunk = plain.simulation.trunk(body)
        mass = self.dynamics(plain)[trunk].mass_kg
        links = [trunk, *env.simulation.ballast(body)]
        read = env.simulation.bind(pybullet.getDynamicsInfo)
        masses = np.array([read(body, link)[0] for link in links])
        assert masses.sum() == pytest.approx(mass + payload, abs=1e-4)
        where = env.simulation.bind(pybullet.getLinkState)
        places = [where(body, link)[0] for link in links[1:]]
        start, turn = env.simulation.bind(pybullet.getBasePositionAndOrientation)(body)
        assert turn == (0.0, 0.0, 0.0, 1.0)
        centre = (masses[:, None] * [start, *places]).sum(axis=0) / masses.sum()
        assert trunk == -1
        assert centre - start == pytest.approx(offset, abs=1e-6)
        assert self.dynamics(env).keys() == self.dynamics(plain).keys()

    def test_ballast_that_weighs_nothing_leaves_the_robot_as_it_was(self):
        places = []
        for randomization in ({"payload": 0.0}, {"com_offset": 0.0}):
            env = HuskyDriveEnv(randomization=randomization)
            places.append(after(env, *[np.array([1.0, 0.0])] * 20).base_position)
        assert places[0] == pytest.approx(places[1], abs=2e-3)
        assert places[0][0] > 0.5

    def test_a_weight_ahead_loads_the_wheels_ahead(self):
        shares = []
        for offset in (-0.1, 0.1):
            env = HuskyDriveEnv(randomization={"com_offset": offset, "payload": 20.0})
            after(env, *[np.zeros(2)] * 20)
            touching = env.simulation.bind(pybullet.getContactPoints)(env.robot.body)
            force = {link: sum(p[9] for p in touching if p[3] == link) for link in range(12)}
            wheels = [force[joint.index] for joint in env.robot.actuated]
            shares.append(sum(wheels[:2]) / sum(wheels))
            assert sum(wheels) == pytest.approx(9.8 * (44 + 20), rel=0.05)
        assert shares[0] + 0.2 < shares[1]

    def test_friction_of_robot_ground_and_objects_is_scaled_apart(self):
        env = tumbler(
            randomization={"friction": 0.5, "ground_friction": 0.25, "object_friction": 3.0}
        )
        env.reset(seed=0)
        read = env.simulation.link_dynamics
        assert all(link.friction == 0.25 for link in read(env.robot.body).values())
        assert read(env.world.ground)[-1].friction == pytest.approx(0.2)
        assert all(read(body)[-1].friction == 1.5 for body in env.world.objects)

    def test_a_robot_slides_further_on_a_smooth_floor(self):
        rough, smooth = (
            after(tumbler(randomization={"friction": factor}), *[np.ones(4)] * 30).base_position
            for factor in (1.0, 0.05)
        )
        assert np.hypot(*smooth[:2]) < 0.7 * np.hypot(*rough[:2])

    def test_gravity_is_scaled(self):
        whole, half = (
            after(tumbler(randomization={"gravity": factor}), np.zeros(4)).base_velocity[2]
            for factor in (1.0, 0.5)
        )
        assert half == pytest.approx(0.5 * whole, rel=1e-3)

    def test_damping_slows_a_joint(self):
        free, damped = (
            cartpole(randomization={"joint_damping": damping, "initial_velocity": 0.5})
            for damping in (0.0, 0.1)
        )
        after(free, np.zeros(1))
        after(damped, np.zeros(1))
        assert damped.state.joint_velocity[1] < 0.97 * free.state.joint_velocity[1]

    @pytest.mark.parametrize(
        ("fixed", "randomized", "together"),
        [
            ({"motor_strength": 0.5}, {"motor_strength": 0.5}, {"motor_strength": 0.25}),
            ({"latency": 1}, {"latency": 2}, {"latency": 3}),
        ],
    )
    def test_strengths_are_multiplied_and_latencies_added(self, fixed, randomized, together):
        both, one = cartpole(randomization=randomized, **fixed), cartpole(**together)
        for env in (both, one):
            after(env, *actions_for(env, 10))
        assert np.array_equal(both.readings, one.readings)


class TestStart:
    """Offsets of the joints at the start."""

    def test_offsets_move_the_start_that_the_task_drew(self):
        env, plain = cartpole(randomization={"initial_position": 0.1}), cartpole()
        env.reset(seed=0)
        plain.reset(seed=0)
        moved = env.state.joint_position - plain.state.joint_position
        assert moved == pytest.approx([0.1, 0.1])
        assert np.array_equal(env.state.joint_velocity, plain.state.joint_velocity)

    def test_a_start_stays_within_the_limits_of_its_joints(self):
        env = arm(randomization={"initial_position": 5.0})
        env.reset(seed=0)
        assert env.state.joint_position == pytest.approx(env.robot.drive.motors.upper)


class TestPushes:
    """Velocity that is added at random intervals."""

    def jumps(self, env, read):
        """Return the steps in which a velocity jumped."""
        env.reset(seed=0)
        steps, before = [], read(env.state)
        for step in range(40):
            env.step(np.zeros(env.action_space.shape))
            now = read(env.state)
            if abs(now - before).max() > 0.3:
                steps.append(step)
            before = now
        return steps

    def test_a_joint_of_a_fixed_robot_is_pushed_now_and_then(self):
        push = {"push": {"every_s": 0.2, "velocity": 2.0}}
        floating = {"gravity": 0.0}

        def swing(state):
            # The first joint carries the inertia of the whole arm.
            return state.joint_velocity[:1]

        assert 0 < len(self.jumps(arm(randomization=push | floating), swing)) < 15
        assert not self.jumps(arm(randomization=floating), swing)

    def test_a_free_base_is_pushed_sideways(self):
        def sideways(state):
            return state.base_velocity[:2]

        push = {"push": {"every_s": 0.2, "velocity": 5.0}, "gravity": 0.0}
        jumps = self.jumps(tumbler(randomization=push), sideways)
        assert 2 <= len(jumps) <= 8
        assert not self.jumps(tumbler(randomization={"gravity": 0.0}), sideways)


class TestNoise:
    """What is added to observations."""

    def noise(self, randomization):
        """Return what is added to the observations of an episode, where they have no bounds."""
        env = cartpole(randomization=randomization)
        added = [env.reset(seed=3)[0] - env.task.observation(env.state)]
        for _ in range(20):
            added.append(env.step(np.zeros(1))[0] - env.task.observation(env.state))
        return np.array(added)[:, [0, 1, 4]]

    def test_noise_differs_from_step_to_step(self):
        noise = self.noise({"observation_noise": {"normal": 0.05}})
        assert 0.035 < noise.std() < 0.065
        assert len(np.unique(noise)) == noise.size

    def test_a_bias_stays_for_the_episode(self):
        bias = self.noise({"observation_bias": {"normal": 0.05}})
        assert bias == pytest.approx(np.broadcast_to(bias[0], bias.shape), abs=1e-6)
        assert abs(bias[0]).min() > 1e-3
        assert len(np.unique(bias[0])) == 3

    def test_observations_stay_in_their_space(self):
        env = cartpole(randomization={"observation_noise": {"uniform": [-2.0, 2.0]}})
        for observation, _, _ in play_randomly(env, 100):
            assert env.observation_space.contains(observation)

    def test_the_reward_is_for_the_true_state(self):
        env = cartpole(randomization={"observation_noise": {"normal": 0.5}})
        env.reset(seed=0)
        for action in actions_for(env, 10):
            _, _, _, _, info = env.step(action)
            centred = env.task.reward_terms(env.state, action)["centred"]
            assert info["reward_terms"]["centred"] == 0.5 * centred

    def test_goals_stay_exact(self):
        env = KukaReachEnv(randomization={"observation_noise": {"normal": 1.0}})
        seen, true = env.reset(seed=0)[0], env.task.observation(env.state)
        assert not np.array_equal(seen["observation"], true["observation"])
        for goal in ("achieved_goal", "desired_goal"):
            assert np.array_equal(seen[goal], true[goal])


class TestDelay:
    """Observations that arrive late."""

    @pytest.mark.parametrize("delay", [0, 3])
    def test_the_policy_sees_what_was_so_many_steps_ago(self, delay):
        env, plain = cartpole(randomization={"observation_delay": delay}), cartpole()
        seen, true = ([each.reset(seed=1)[0]] for each in (env, plain))
        rewards = []
        for action in actions_for(plain)[:20]:
            steps = [each.step(action) for each in (env, plain)]
            seen.append(steps[0][0])
            true.append(steps[1][0])
            rewards.append((steps[0][1], steps[1][1]))
        expected = [true[0]] * delay + true[: len(true) - delay]
        assert np.array_equal(seen, expected)
        assert all(late == now for late, now in rewards)

    def test_goals_are_seen_at_once(self):
        env, plain = KukaReachEnv(randomization={"observation_delay": 2}), KukaReachEnv()
        first, now = env.reset(seed=0)[0], plain.reset(seed=0)[0]
        late = env.step(np.ones(7))[0]
        now = plain.step(np.ones(7))[0]
        assert np.array_equal(late["observation"], first["observation"])
        assert not np.array_equal(late["observation"], now["observation"])
        for goal in ("achieved_goal", "desired_goal"):
            assert np.array_equal(late[goal], now[goal])


class TestCurriculum:
    """How far the draws spread."""

    def test_the_spread_grows_from_none_to_full(self):
        config = {"mass": 2.0, "latency": 4, "curriculum": {"episodes": 4}}
        records = drawn(cartpole(randomization=config), 6)
        assert [r["level"] for r in records] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
        assert [r["mass"] for r in records] == [1.0, 1.25, 1.5, 1.75, 2.0, 2.0]
        assert [r["latency"] for r in records] == [0, 1, 2, 3, 4, 4]

    def test_a_level_can_be_set_and_given_back_to_the_curriculum(self):
        env = cartpole(randomization={"mass": 2.0, "curriculum": {"episodes": 10}})
        masses = []
        for level in (1.0, 0.5, None):
            env.set_randomization_level(level)
            masses.append(env.reset()[1]["randomization"]["mass"])
        assert masses == [2.0, 1.5, 1.2]

    def test_a_level_of_zero_is_the_nominal_world(self):
        config = {name: value for name, value in EVERYTHING.items() if name != "curriculum"}
        env, plain = cartpole(randomization=config), cartpole()
        env.set_randomization_level(0.0)
        # The draws come first from the same generator, so only what they do can be compared.
        _, info = env.reset(seed=0)
        nominal = {"mass": 1.0, "friction": 1.0, "joint_damping": 0.0, "latency": 0}
        for name, value in nominal.items():
            assert set(np.atleast_1d(info["randomization"][name])) == {value}
        masses = [e.simulation.link_dynamics(e.robot.body) for e in (env, plain)]
        assert masses[0] == masses[1]

    @pytest.mark.parametrize("level", [-0.1, 1.1, "full"])
    def test_a_level_outside_of_0_to_1_is_refused(self, level):
        env = cartpole(randomization={"mass": 2.0})
        with pytest.raises(ValueError, match="level="):
            env.set_randomization_level(level)

    def test_a_level_without_randomization_is_refused(self):
        env = cartpole()
        with pytest.raises(ValueError, match="no effect without randomization"):
            env.set_randomization_level(0.5)


class TestExactness:
    """The same numbers again, and side by side."""

    def test_the_order_of_the_entries_does_not_matter(self):
        backwards = dict(reversed(EVERYTHING.items()))
        assert drawn(cartpole(randomization=backwards), 8) == drawn(randomized_cartpole(), 8)

    def test_the_draw_is_told_at_the_reset_and_at_the_end(self):
        env = randomized_tumbler()
        _, first = env.reset(seed=0)
        ended = False
        while not ended:
            *_, terminated, truncated, info = env.step(np.zeros(4))
            ended = terminated or truncated
        assert info["randomization"] == first["randomization"]
        assert set(first["randomization"]) == {
            "level",
            *(EVERYTHING | SURROUNDINGS).keys() - {"observation_noise", "push", "curriculum"},
        }
        json.dumps(info["randomization"])

    @pytest.mark.parametrize("make", [randomized_cartpole, randomized_tumbler])
    def test_an_episode_does_not_depend_on_those_before_it(self, make):
        fresh, used = make(), make()
        play_randomly(used, 150)
        digests = []
        for env in (fresh, used):
            env.set_randomization_level(1.0)
            env.reset(seed=3)
            digests.append(play(env, actions_for(env)[:39])[-1])
        assert digests[0] == digests[1]

    def test_resets_of_worlds_side_by_side_tell_the_draws(self):
        together = RobotVecEnv([randomized_cartpole(), randomized_cartpole()])
        _, infos = together.reset(seed=0)
        assert infos["randomization"]["gravity"].shape == (2,)

    def test_a_level_that_was_set_in_the_middle_of_an_episode_is_kept(self):
        env, other = randomized_cartpole(), randomized_cartpole()
        env.reset(seed=0)
        env.step(np.zeros(1))
        env.set_randomization_level(0.5)
        other.load_state_dict(env.state_dict())
        for each in (env, other):
            assert each.conditions.randomizer.level == 0.0
            assert each.reset()[1]["randomization"]["level"] == 0.5

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda s: s.pop("randomization"), r"state lacks \['randomization'\]"),
            (lambda s: s.update(randomization=3), "randomization=3 must be a mapping"),
            (lambda s: s["randomization"].update(episodes=-1), "episodes=-1 must be a whole"),
            (
                lambda s: s["randomization"].update(level=2.0),
                "level=2.0 must be a number.* at most 1",
            ),
        ],
    )
    def test_a_wrong_state_is_refused(self, spoil, message):
        env = randomized_cartpole()
        env.reset(seed=0)
        state = from_json(to_json(env.state_dict()))
        spoil(state)
        with pytest.raises(ValueError, match=message):
            env.load_state_dict(state)

    def test_without_randomization_nothing_is_told_and_kept(self):
        env = cartpole()
        assert env.conditions is None
        assert env.reset(seed=0)[1] == {}
        assert "randomization" not in env.state_dict()

    def test_bullet_does_not_restore_masses_which_is_why_each_reset_sets_them(self):
        env = cartpole()
        env.simulation.change_dynamics(env.robot.body, 0, mass=3.0)
        env.simulation.restore()
        read = env.simulation.bind(pybullet.getDynamicsInfo)
        assert read(env.robot.body, 0)[0] == 3.0


class TestJoints:
    """Damping, dry friction and armature, of all joints or of those that are named."""

    @staticmethod
    def cart_speed(engine, randomization, steps=10):
        env = CartPoleSwingUpEnv(
            engine=engine, randomization={"initial_velocity": 1.0, **randomization}
        )
        env.reset(seed=0)
        for _ in range(steps):
            env.step(np.array([0.1]))
        return float(env.state.joint_velocity[0])

    @pytest.mark.parametrize("friction", [0.5, 2.0])
    def test_dry_friction_takes_the_same_speed_on_both_engines(self, friction):
        slowed = {"joint_friction": {"joints": {"slider_to_cart": friction}}}
        speeds = [self.cart_speed(engine, slowed) for engine in ("bullet", "mujoco")]
        free = self.cart_speed("bullet", {})
        assert speeds[0] == pytest.approx(speeds[1], abs=1e-6)
        # Force times time, by the mass of cart and pole.
        assert free - speeds[0] == pytest.approx(friction * 0.4 / 1.1, rel=0.1)

    def test_dry_friction_holds_what_it_is_stronger_than(self):
        held = {"joint_friction": {"joints": {"slider_to_cart": 5.0}}}
        assert abs(self.cart_speed("bullet", held, steps=50)) < 1e-3
        assert abs(self.cart_speed("mujoco", held, steps=50)) < 1e-3

    def test_armature_adds_to_what_a_motor_moves(self):
        def gained(armature):
            speeds = []
            for force in (0.0, 1.0):
                env = CartPoleSwingUpEnv(
                    engine="mujoco",
                    randomization={"armature": {"joints": {"slider_to_cart": armature}}},
                )
                env.reset(seed=0)
                env.step(np.array([force]))
                speeds.append(float(env.state.joint_velocity[0]))
            return speeds[1] - speeds[0]

        # 10 N on a cart of 1 kg, and what it feels of the hanging pole.
        assert gained(10.0) == pytest.approx(gained(0.0) * 1.03 / 11.03, rel=0.03)

    def test_each_joint_has_the_distribution_that_is_given_for_it(self):
        env = CartPoleSwingUpEnv(
            randomization={"joint_damping": {"joints": {"cart_to_pole": {"uniform": [0.1, 0.2]}}}}
        )
        draws = np.array([one["joint_damping"] for one in drawn(env, 20)])
        assert (draws[:, 0] == 0.0).all()
        assert ((draws[:, 1] >= 0.1) & (draws[:, 1] <= 0.2)).all()
        assert len(set(draws[:, 1])) == 20

    @pytest.mark.parametrize(
        ("randomization", "message"),
        [
            ({"joint_damping": {"joints": {"cart": 1.0}}}, "joints: 'cart' is unknown"),
            ({"joint_damping": {"joints": 1.0}}, "must have joints alone"),
            ({"joint_damping": {"joints": {}, "each": True}}, "must have joints alone"),
            ({"mass": {"joints": {"cart": 1.0}}}, "randomization.mass: 'joints' is unknown"),
            (
                {"joint_damping": {"joints": {"cart_to_pole": {"constant": 1, "each": True}}}},
                "each has no meaning for one joint",
            ),
            ({"armature": 0.1}, "engine=bullet has none"),
        ],
    )
    def test_a_mistake_is_named(self, randomization, message):
        with pytest.raises(ValueError, match=message):
            CartPoleSwingUpEnv(engine="bullet", randomization=randomization)

    def test_joints_that_motors_hold_have_no_friction_of_their_own(self):
        with pytest.raises(ValueError, match="motors hold every joint"):
            KukaReachEnv(randomization={"joint_friction": 1.0})
