"""A robot's folder does what wrappers and drive do: commands by joint, and what is refused."""

import shutil

import gymnasium as gym
import numpy as np
import pytest
import torch
from support.policies import VARIANTS, random_policy
from support.training import tiny_config

import rlzoo_plus as rz
from rlzoo_plus.deploy.bundle_export import write_deployed
from rlzoo_plus.deploy.drive_commands import Commands, NotAffineError, affine_commands
from rlzoo_plus.envs.episodes import layers_of
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from robots.drives import ActionMode
from robots.engines.bullet.simulation import BulletSimulation
from robots.robot import Robot, RobotSpec
from robots.simulation import Physics

pytest.importorskip("onnxscript")
from rlzoo_plus.deploy.robot_runtime import Policy
from rlzoo_plus.serving.served_policy import ServedPolicy

CART_POLE = "robots/CartPoleBalance-v0"
CHEETAH = "robots/HalfCheetah-v0"
KUKA, FRANKA = "kuka_iiwa/model.urdf", "franka_panda/panda.urdf"
RACECAR = {"urdf": "racecar/racecar.urdf", "actuated": "left_rear_wheel_joint|.*_hinge_joint"}
DRIVES = {
    "torque": {"urdf": KUKA, "action_scale": 3.0},
    "velocity": {"urdf": KUKA, "action_mode": "velocity", "action_scale": 3.0, "max_velocity": 2.0},
    "position": {"urdf": KUKA, "action_mode": "position", "action_scale": 4.0},
    "pd": {
        **{"urdf": KUKA, "action_mode": "pd", "action_scale": 0.4},
        **{"rest_position": (0.0, 0.3, 0.0, -1.0, 0.0, 0.5, 0.1)},
        **{"position_gain": 50.0, "velocity_gain": 1.0},
    },
    "mixed": {
        **{"urdf": "husky/husky.urdf", "action_mode": "velocity", "action_scale": 5.0},
        "mixing": ((1.0, -1.0), (1.0, 1.0), (1.0, -0.7), (1.0, 0.3)),
    },
    "combined": {
        **RACECAR,
        **{"action_mode": "velocity", "action_scale": (20.0, 0.4, 0.4), "positioned": ".*_hinge.*"},
    },
    "gripper": {
        **{"urdf": FRANKA, "action_mode": "position", "action_scale": 0.5},
        **{"actuated": "panda_joint[1-7]", "gripper": "panda_finger_joint[12]"},
    },
}
REFUSED = {
    "torque": ({"max_velocity": 1.0}, "TorqueDrive with max_velocity"),
    "position": ({"action_mode": "delta_position"}, "DeltaPositionDrive"),
    "pd": (
        {"action_mode": "end_effector", "end_effector": "lbr_iiwa_link_7"},
        "EndEffectorDrive",
    ),
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def made_robot(options):
    spec = RobotSpec(**options)
    by_torque = ActionMode(spec.action_mode) is ActionMode.TORQUE
    return Robot(BulletSimulation(Physics(), hold_torques=by_torque), spec)


@pytest.mark.parametrize("name", DRIVES)
def test_commands_are_those_of_the_drive(name):
    robot = made_robot(DRIVES[name])
    affine = affine_commands(robot.drive)
    commands, signals = Commands(affine, None, None), affine.signals()
    actions = np.random.default_rng(0).uniform(-1, 1, (50, robot.drive.n_actions))
    kinds = np.array(affine.kinds)
    for action in [*actions, np.ones(robot.drive.n_actions), -np.ones(robot.drive.n_actions)]:
        expected = np.array(robot.drive.targets(action, None))
        found, _ = commands(torch.from_numpy(action[None]), None)
        for (kind, signal), values in zip(signals.items(), found, strict=True):
            np.testing.assert_allclose(values[0], expected[kinds == kind], rtol=1e-6, atol=1e-6)
            assert np.all(values[0].numpy() >= np.array(signal["lower"]) - 1e-6)
            assert np.all(values[0].numpy() <= np.array(signal["upper"]) + 1e-6)


def test_commands_have_names_and_units():
    signals = affine_commands(made_robot(DRIVES["combined"]).drive).signals()
    assert signals["joint_velocity"]["names"] == ["left_rear_wheel_joint"]
    assert signals["joint_velocity"]["unit"] == "rad/s"
    assert signals["joint_position"]["unit"] == "rad"
    fingers = affine_commands(made_robot(DRIVES["gripper"]).drive).signals()["joint_position"]
    assert fingers["names"][-2:] == ["panda_finger_joint1", "panda_finger_joint2"]
    assert fingers["unit"] == "rad,rad,rad,rad,rad,rad,rad,m,m"


@pytest.mark.parametrize("name", REFUSED)
def test_a_drive_that_needs_more_than_the_action_is_named(name):
    more, said = REFUSED[name]
    with pytest.raises(NotAffineError, match=said):
        affine_commands(made_robot({**DRIVES[name], **more}).drive)


class Tap(gym.Wrapper):
    """Notes what a bare environment shows and is told."""

    def reset(self, **kwargs):
        self.seen, info = self.env.reset(**kwargs)
        return self.seen, info

    def step(self, action):
        self.told = np.array(action)
        self.seen, *rest = self.env.step(action)
        return self.seen, *rest


def policy_of(monkeypatch, *overrides):
    """Return an untrained policy of an environment, and its configuration."""
    config = tiny_config("ppo", *overrides)
    env = make_env(config.env)
    spaces = (env.observation_space, env.action_space)
    env.close()
    monkeypatch.setitem(VARIANTS, "mine", ("ppo", *spaces, True, ()))
    return random_policy("mine")[0], config


WRAPPERS = {
    "history": ("{history: {horizon: 3}}", "{mask_observation: {hidden: [1, 4]}}"),
    "smooth": ("clip_action", "{smooth_action: {smoothing_coef: 0.6}}", "{history: {horizon: 2}}"),
    "rescale": ("{rescale_action: {min_action: -0.2, max_action: 0.5}}", "{frame_skip: {skip: 2}}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRAPPERS)
def test_an_episode_through_wrappers_is_that_of_the_folder(name, tmp_path, monkeypatch):
    overrides = (CHEETAH, f"env.wrappers=[{','.join(WRAPPERS[name])}]")
    rate = 0.3 if name == "smooth" else None
    policy, config = policy_of(
        monkeypatch, *overrides, f"env.kwargs.max_action_rate={rate or 'null'}"
    )
    folder = write_deployed(policy, config, tmp_path / "robot", {}).folder
    runtime, env = Policy(folder), make_env(config.env)
    inner = layers_of(env)[-1]
    inner.env = tap = Tap(inner.env)
    bare = env.unwrapped
    assert runtime.rate_hz == pytest.approx(
        (0.5 if name == "rescale" else 1) / bare.simulation.step_s
    )
    for _ in range(2):
        observation, _ = env.reset(seed=0)
        runtime.reset()
        told = []
        advance = bare.robot.drive.advance
        bare._advance = lambda targets: (told.append(targets), advance(targets))  # noqa: B023
        for _ in range(20):
            action, _ = policy.predict(observation)
            found = runtime.act(tap.seen)
            np.testing.assert_allclose(found, action, atol=1e-6)
            observation, *_ = env.step(action)
            np.testing.assert_allclose(runtime.applied, tap.told, atol=5e-6)
            first = told[-2] if name == "rescale" else told[-1]
            np.testing.assert_allclose(
                runtime.commands["joint_torque"], first, rtol=1e-5, atol=1e-4
            )
    env.close()


SHIELD = "env.kwargs.safety={max_velocity: 0.5, on_violation: shield}"


def test_what_a_bundle_lacks_is_not_made_up(tmp_path, monkeypatch):
    policy, config = policy_of(monkeypatch, CART_POLE, SHIELD, "env.kwargs.force_n=2")
    bare = config.model_copy(update={"env": config.env.model_copy(update={"kwargs": {}})})
    made = write_deployed(policy, bare, tmp_path / "robot", {}, lacks_kwargs=True)
    about = Policy(made.folder).about
    assert about["commands"] == {}
    assert about["shield"] is None
    assert "which a bundle does not hold" in about["no_shield_because"]
    assert made.without_shield == made.without_commands == about["no_commands_because"]
    with pytest.raises(ConfigError, match="Say --no-shield"):
        ServedPolicy(made.folder, "1", "cart")


@pytest.mark.parametrize("has_shield", [True, False])
def test_a_shield_is_not_forgotten_where_its_environment_cannot_be_made(
    has_shield, tmp_path, monkeypatch
):
    words = [SHIELD] if has_shield else []
    policy, config = policy_of(monkeypatch, CART_POLE, *words)

    def gone(_):
        raise ImportError("there is no module my_arm")

    monkeypatch.setattr("rlzoo_plus.deploy.bundle_export.make_env", gone)
    made = write_deployed(policy, config, tmp_path / "robot", {})
    about = Policy(made.folder).about
    assert ("no module my_arm" in str(about.get("no_shield_because"))) is has_shield
    assert (made.without_shield is not None) is has_shield
    assert "no module my_arm" in made.without_commands


@pytest.mark.training
@pytest.mark.parametrize("kwargs", [{}, {"force_n": 2.0}])
def test_a_bundle_knows_whether_it_was_trained_with_env_kwargs(kwargs, tmp_path):
    run = rz.train(
        *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "n_timesteps=64"),
        *("algo.hyperparams.n_steps=64", "eval.every_steps=64", "eval.episodes=1"),
        *("report.video=false", "report.plot=false", "log.tensorboard=false"),
        env={"kwargs": kwargs},
        run_dir=str(tmp_path / "run"),
        quiet=True,
    )
    assert not run.lacks_env_kwargs
    shutil.copytree(tmp_path / "run/best", tmp_path / "alone")
    assert rz.Run.open(tmp_path / "alone").lacks_env_kwargs is bool(kwargs)


def test_what_only_a_simulation_needs_is_left_out_and_told(tmp_path, monkeypatch):
    wrappers = "env.wrappers=[{noisy_observation: {noise_std: 0.1}}, {delayed_action: {delay: 2}}]"
    policy, config = policy_of(monkeypatch, CHEETAH, wrappers, "env.kwargs.latency=1")
    about = Policy(write_deployed(policy, config, tmp_path / "robot", {}).folder).about
    assert about["trained_with"]["latency_s"] == pytest.approx(3 / about["rate_hz"], abs=1e-5)
    assert about["trained_with"]["wrappers"] == config.env.wrappers
    assert about["joints"]["driven"] == about["commands"]["joint_torque"]["names"]
    assert about["safe_action"] == "damp"


@pytest.mark.parametrize("wrapper", ["flatten_observation", "time_feature"])
def test_a_wrapper_that_no_graph_holds_is_refused_by_name(wrapper, tmp_path, monkeypatch):
    policy, config = policy_of(monkeypatch, CHEETAH, f"env.wrappers=[{wrapper}]")
    with pytest.raises(rz.ConfigError, match=r"env\.wrappers: \w+ cannot be in the graph"):
        write_deployed(policy, config, tmp_path / "robot", {})
    assert not (tmp_path / "robot").exists()
