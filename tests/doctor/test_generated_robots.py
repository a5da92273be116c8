"""Generated environments: they are sound, they do what they say, and no URDF can put code in."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import gymnasium
import numpy as np
import pybullet
import pytest
from gymnasium.utils.env_checker import check_env

from rlzoo_plus.doctor.new_robot.survey import survey
from rlzoo_plus.doctor.new_robot.tasks import TASKS
from rlzoo_plus.doctor.new_robot.text import MODES, NewRobot, check_name, write_robot
from rlzoo_plus.doctor.new_robot.urdf import read_urdf
from rlzoo_plus.doctor.robot_facts import robot_facts
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.testing.robot_contract import check_random_play, check_same_numbers
from robots.vec_env import RobotVecEnv

ROOT = Path(__file__).resolve().parents[2]
LIMIT = '<limit lower="-1" upper="2" effort="3" velocity="4"/>'
HINGE = ("hinge", "revolute", LIMIT)
ARM = [HINGE, ("wheel", "continuous", ""), ("slide", "prismatic", LIMIT)]
FREE = {"urdf": "r2d2.urdf", "mode": "velocity", "forward": "y"}
FIXED = {"urdf": "kuka_iiwa/model.urdf"}
REACH = {"urdf": "kuka_iiwa/model.urdf", "task": "reach"}
TRACK = {"urdf": "kuka_iiwa/model.urdf", "task": "track"}
POLE = {"urdf": "cartpole.urdf", "task": "balance", "mode": "torque"}
STANDS = (".*upper_joint=0.9", ".*lower_joint=-1.8")
DOG = {"urdf": "a1/a1.urdf", "task": "balance", "rest": STANDS}
EVERY = {"free": FREE, "fixed": FIXED, "reach": REACH, "track": TRACK, "pole": POLE, "dog": DOG}
KINDS = pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)


def play(env, policy, seed=0):
    """Play an episode; return the sum of its rewards and its last information."""
    observation, _ = env.reset(seed=seed)
    total, done, info = 0.0, False, {}
    while not done:
        observation, reward, terminated, truncated, info = env.step(policy(observation))
        total, done = total + reward, terminated or truncated
    return total, info


@KINDS
def test_it_passes_the_checker_of_gymnasium(generate, options):
    _, env = generate(**options)
    check_env(env, skip_render_check=True)


def test_the_end_of_an_arm_can_be_at_each_goal(generate):
    module, env = generate(**REACH)
    assert module.TIP == "lbr_iiwa_link_7"
    assert len(np.unique(module.GOALS, axis=0)) == 64
    # No farther from the shoulder than the arm is long, and above the ground.
    assert np.linalg.norm(module.GOALS - (0, 0, 0.36), axis=1).max() < 1.0
    assert module.GOALS[:, 2].min() > 0.05
    env.reset(seed=0)
    at_rest = env.state.link_position[0]
    np.testing.assert_allclose(at_rest, (0, 0, 1.26), atol=0.05)
    state = env.state._replace(memory={"goal": at_rest})
    far = env.state._replace(memory={"goal": at_rest - (0, 0, 0.3)})
    assert env.task.success(state, np.array(True))
    assert not env.task.success(far, np.array(True))
    near, away = (env.task.reward_terms(s, np.zeros(7)) for s in (state, far))
    assert near["near"] == 1.0
    assert away["distance"] == pytest.approx(-0.3)


def test_the_target_goes_round_a_circle_that_the_end_of_the_arm_can_follow(generate):
    module, env = generate(**TRACK)
    observation, _ = env.reset(seed=0)
    goals, phases = [], []
    for _ in range(round(module.PERIOD_S * 50)):
        goals.append(env.state.memory["goal"])
        phases.append(observation[-2:])
        observation, *_ = env.step(np.zeros(7))
    away = np.array(goals) - module.CENTRE
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), module.RADIUS_M, rtol=1e-6)
    np.testing.assert_allclose(env.state.memory["goal"], goals[0], atol=1e-6)
    np.testing.assert_allclose(away.mean(axis=0), 0.0, atol=1e-6)
    # The policy sees where it is.
    np.testing.assert_allclose(phases @ np.array(module.SIDES) * module.RADIUS_M, away, atol=1e-6)
    # Its start differs.
    env.reset(seed=1)
    assert np.linalg.norm(env.state.memory["goal"] - goals[0]) > 0.01


def test_inverse_kinematics_follows_the_target_and_is_paid_for_it(generate):
    module, env = generate(**TRACK)
    scale = np.array([joint.scale for joint in module.JOINTS.values()])
    body, bind = env.robot.body, env.simulation.bind
    tip = env.simulation.links(body)[module.TIP]
    solve = bind(pybullet.calculateInverseKinematics)

    def follow(_):
        goal = env.state.memory["goal"].tolist()
        return (np.array(solve(body, tip, goal, maxNumIterations=50)) - module.REST) / scale

    followed, info = play(env, follow)
    assert info["is_success"]
    assert followed > 0.5 * env.max_episode_steps
    still, info = play(env, lambda _: np.zeros(7))
    assert not info["is_success"]
    assert still < 0.0


def test_a_pole_falls_unless_the_cart_follows_it(generate):
    module, env = generate(**POLE)
    assert env.action_space.shape == (1,)
    assert module.POLE == "pole"
    still, info = play(env, lambda _: np.zeros(1))
    assert info["end_reason"] == "fell"

    def push(observation):
        cart, sine, _, speed, rate = observation
        return np.clip([0.5 * cart + 0.8 * speed + 12.0 * sine + 3.0 * rate], -1, 1)

    held, info = play(env, push)
    assert info["is_success"]
    assert held > 0.9 * env.max_episode_steps > 2 * still


def test_a_dog_that_holds_its_posture_bears_a_push_and_may_fall_otherwise(generate):
    _, env = generate(**DOG)
    stood, info = play(env, lambda _: np.zeros(12))
    assert info["is_success"]
    assert stood > 0.8 * env.max_episode_steps
    fell, info = play(env, lambda _: np.array([0.0, 1.0, -1.0] * 2 + [0.0, -1.0, 1.0] * 2))
    assert info["end_reason"] == "fell"
    assert fell < 0.2 * stood


@pytest.mark.parametrize(
    ("urdf", "base", "task"),
    [
        ("kuka_iiwa/model.urdf", "auto", "reach"),
        ("franka_panda/panda.urdf", "auto", "reach"),
        ("cartpole.urdf", "auto", "balance"),
        ("a1/a1.urdf", "auto", "walk"),
        ("a1/a1.urdf", "fixed", "posture"),
        ("pr2_gripper.urdf", "auto", "posture"),
    ],
)
def test_a_task_that_fits_the_robot_is_chosen(generate, urdf, base, task):
    module, _ = generate(urdf, base=base, task="auto")
    assert [name for name in TASKS if hasattr(module, TASKS[name].name)] == [task]


@pytest.mark.parametrize(
    ("urdf", "task", "reason"),
    [
        ("husky/husky.urdf", "balance", "it stands with all motors let go. Use --task walk"),
        ("kuka_iiwa/model.urdf", "balance", "its base is fixed, and no pole .* Use --task posture"),
        ("a1/a1.urdf", "track", "the base of this robot is free. Use --task walk or balance"),
        ("kuka_iiwa/model.urdf", "walk", "the base of this robot is fixed. Use --task reach"),
        ("cartpole.urdf", "track", "reaches too few points above the ground"),
        ("pr2_gripper.urdf", "track", "has 1 joint, so it has no arm. Use --task posture"),
    ],
)
def test_a_task_that_means_nothing_for_a_robot_is_refused(generate, urdf, task, reason):
    with pytest.raises(ConfigError, match=f"--task {task}: .*{reason}"):
        generate(urdf, task=task)


def test_a_robot_without_an_arm_has_nothing_to_reach_with(generate, chain):
    with pytest.raises(ConfigError, match=r"has 1 joint, so it has no arm. Use --task posture"):
        generate(chain(HINGE), base="fixed", task="reach")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("base", ["fixed", "free"])
def test_every_mode_plays_at_random_with_finite_numbers(generate, chain, mode, base):
    _, env = generate(chain(*ARM), mode=mode, base=base)
    assert env.action_space.shape == (3,)
    check_random_play(env, 100)


@KINDS
def test_many_worlds_give_the_numbers_of_one(generate, options):
    module, _ = generate(**options)
    env_id = next(spec for spec in gymnasium.registry if spec.startswith(f"{module.__name__}/"))
    make = lambda: gymnasium.make(env_id, disable_env_checker=True, episode_s=0.5).unwrapped  # noqa: E731
    together = RobotVecEnv([make() for _ in range(2)])
    singles = [make() for _ in range(2)]
    check_same_numbers(together, singles, 60)
    for env in (together, *singles):
        env.close()


@pytest.mark.parametrize(
    "urdf", ["r2d2.urdf", "quadruped/minitaur.urdf", "husky/husky.urdf", "a1/a1.urdf"]
)
def test_a_free_robot_starts_just_above_the_ground(generate, urdf):
    _, env = generate(urdf)
    facts = robot_facts(env)
    # The joints are drawn a little about their rest positions.
    assert facts.clearance_m == pytest.approx(0.01, abs=0.008)
    assert not any("ground" in note for note in facts.notes)


def test_a_base_with_a_turned_inertial_frame_starts_level(generate, chain):
    path = chain(*ARM)
    text = path.read_text().replace(
        '<mass value="1"/>', '<mass value="1"/><origin xyz="0 0 0.05" rpy="0.5 0.3 0.2"/>', 1
    )
    path.write_text(text)
    module, env = generate(path, base="free")
    env.reset(seed=0)
    assert module.START_ORIENTATION != (0.0, 0.0, 0.0, 1.0)
    assert env.task.observation(env.state)[4:6] == pytest.approx([1.0, 0.0], abs=1e-5)
    assert float(module.MoveForward._upright(env.state)) == pytest.approx(1.0, abs=1e-6)
    assert robot_facts(env).clearance_m == pytest.approx(0.01, abs=0.008)


def test_driving_forward_is_paid_and_succeeds_where_standing_does_not(generate):
    module, env = generate(**FREE)
    wheels = [name.endswith("wheel_joint") for name in module.JOINTS]
    ahead, info = play(env, lambda _: -1.0 * np.array(wheels))
    assert info["is_success"]
    assert info["episode_terms"]["forward"] > 0.5 * env.max_episode_steps * 0.5
    back, info = play(env, lambda _: 1.0 * np.array(wheels))
    assert not info["is_success"]
    still, _ = play(env, lambda _: np.zeros(8))
    assert max(back, still) < 0.3 * ahead


def test_a_robot_that_lies_down_ends_its_episode(generate):
    _, env = generate("a1/a1.urdf", rest=STANDS)
    env.reset(seed=0)
    env.simulation.reset_base(env.robot.body, (0, 0, 0.3), (0.7071, 0, 0, 0.7071))
    _, _, terminated, _, info = env.step(np.zeros(12, np.float32))
    assert terminated
    assert info["end_reason"] == "fell"


def test_a_robot_that_sinks_to_its_belly_ends_its_episode(generate):
    module, env = generate("a1/a1.urdf", rest=STANDS)
    env.reset(seed=0)
    assert not any(env.task.terminations(env.state).values())
    low = np.array([0.0, 0.0, module.LOWEST_HEIGHT_M - 0.01])
    assert env.task.terminations(env.state._replace(base_position=low))["sank"]


def test_commanding_the_goal_itself_holds_the_posture(generate):
    module, env = generate(**FIXED)
    scale = np.array([joint.scale for joint in module.JOINTS.values()])
    total, info = play(env, lambda _: (env.state.memory["goal"] - module.REST) / scale)
    assert info["is_success"]
    assert total > 0.9 * 250
    assert play(env, lambda _: np.zeros(7))[0] < 0.7 * total


def test_goals_differ_and_keep_to_the_limits(generate):
    _, env = generate(**FIXED)
    goals = []
    for seed in range(20):
        env.reset(seed=seed)
        goals.append(env.state.memory["goal"])
    limits = np.array([(j.lower, j.upper) for j in env.robot.joints])
    assert np.all(limits[:, 0] <= np.min(goals, axis=0))
    assert np.all(np.max(goals, axis=0) <= limits[:, 1])
    assert np.std(goals, axis=0).min() > 0.1


def test_a_joint_whose_line_is_taken_away_swings_freely(generate, chain, tmp_path):
    module, _ = generate(chain(*ARM), base="fixed")
    text = Path(module.__file__).read_text()
    lines = [line for line in text.splitlines() if '"wheel": Joint(' not in line]
    assert len(lines) == len(text.splitlines()) - 1
    (tmp_path / "one_joint_less.py").write_text("\n".join(lines))
    changed = import_module("one_joint_less")
    env = getattr(changed, f"{module.__name__.title().replace('_', '')}Env")()
    uses = {joint.name: joint.use for joint in robot_facts(env).joints}
    env.close()
    assert uses == {"hinge": "driven", "wheel": "passive", "slide": "driven"}


def test_a_urdf_beside_the_module_is_found_wherever_both_are_moved(generate, chain):
    module, _ = generate(chain(*ARM, name="parts/arm.urdf"))
    text = Path(module.__file__).read_text()
    assert 'str(Path(__file__).parent / "parts/arm.urdf")' in text
    assert str(Path(module.__file__).parent) not in text


def test_no_name_in_a_urdf_becomes_code(generate, chain, tmp_path):
    evil = "&quot;: 0}; open('owned', 'w') #\\&apos;&quot;&quot;&quot;"
    path = chain((evil, "revolute", LIMIT), name='x"""\nopen("owned", "w")\n"""\\.urdf')
    module, env = generate(path)
    env.reset(seed=0)
    assert len(module.JOINTS) == 1
    written = ast.parse(Path(module.__file__).read_text())
    names = {node.id for node in ast.walk(written) if isinstance(node, ast.Name)}
    assert "open" not in names
    assert not Path("owned").exists()
    assert not (tmp_path / "owned").exists()


def test_the_written_python_is_clean(generate, chain):
    robots = [*EVERY.values(), {"urdf": chain(*ARM)}, {"urdf": chain(*FINGER, name="finger.urdf")}]
    files = [generate(**options)[0].__file__ for options in robots]
    tool = [sys.executable, "-m", "ruff"]
    settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command in (["check", "--ignore", "I001"], ["format", "--check"]):
        done = subprocess.run(
            [*tool, *command, *settings, *files], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("My-Robot", "Did you mean 'my_robot'"),
        ("2legs", "Did you mean 'legs'"),
        ("class", "no keyword of Python"),
        ("../evil", "Did you mean 'evil'"),
        ("", "small letters"),
        ("numpy", "a module numpy exists"),
        ("json", "a module json exists"),
        ("robots", "a module robots exists"),
        ("cartpole_bullet", "env=cartpole_bullet exists already"),
    ],
)
def test_a_name_that_could_not_work_is_refused(tmp_path, name, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)):
        check_name(name, tmp_path)


def test_files_that_exist_are_kept_unless_forced(tmp_path, chain):
    urdf = read_urdf(str(chain(HINGE)))
    robot = survey(urdf)
    new = NewRobot("kept", tmp_path, "position", is_free=False)
    module, config = write_robot(new, urdf, robot)
    module.write_text("mine")
    with pytest.raises(ConfigError, match=r"kept\.py and .*kept\.yaml exist already"):
        write_robot(new, urdf, robot)
    assert module.read_text() == "mine"
    config.unlink()
    with pytest.raises(ConfigError, match=r"kept\.py exists already"):
        write_robot(new, urdf, robot)
    assert not config.exists()
    write_robot(new, urdf, robot, force=True)
    assert "HoldPosture" in module.read_text()


# A finger whose second joint follows the first, the other way round.
FINGER = [
    ("first", "revolute", '<limit lower="-1" upper="1" effort="5" velocity="4"/>'),
    ("second", "revolute", '<limit lower="-1" upper="0.5" effort="5" velocity="4"/>'
     '<mimic joint="first" multiplier="-0.5" offset="0.1"/>'),
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("base", ["fixed", "free"])
def test_a_mimic_joint_follows_its_leader_and_has_no_action(generate, chain, mode, base):
    module, env = generate(chain(*FINGER), mode=mode, base=base)
    assert list(module.JOINTS) == ["first"]
    assert env.action_space.shape == (1,)
    body = env.robot.body
    read = env.simulation.joint_reader(body, [j.index for j in env.simulation.movable_joints(body)])
    env.action_space.seed(0)
    for seed in range(2):
        env.reset(seed=seed)
        for _ in range(40):
            first, second = read()[:2]
            assert second == pytest.approx(0.1 - 0.5 * first, abs=0.02)
            env.step(env.action_space.sample())
    uses = {joint.name: joint.use for joint in robot_facts(env).joints}
    assert uses == {"first": "driven", "second": "follows first"}


def test_many_worlds_with_mimic_joints_give_the_numbers_of_one(generate, chain):
    module, _ = generate(chain(*FINGER))
    env_id = next(spec for spec in gymnasium.registry if spec.startswith(f"{module.__name__}/"))
    make = lambda: gymnasium.make(env_id, disable_env_checker=True, episode_s=0.5).unwrapped  # noqa: E731
    together = RobotVecEnv([make() for _ in range(2)])
    singles = [make() for _ in range(2)]
    check_same_numbers(together, singles, 60)
    for env in (together, *singles):
        env.close()


def test_a_joint_that_is_driven_cannot_follow_another(generate, chain, tmp_path):
    module, _ = generate(chain(*FINGER), base="fixed")
    text = Path(module.__file__).read_text()
    wrong = text.replace('"first": Joint(', '"second": Joint(')
    (tmp_path / "driven_follower.py").write_text(wrong)
    changed = import_module("driven_follower")
    with pytest.raises(ValueError, match="second follows first and cannot be driven"):
        getattr(changed, f"{module.__name__.title().replace('_', '')}Env")()


def test_an_infinite_effort_limit_becomes_a_guess_and_no_name_of_python(generate, chain):
    limit = '<limit lower="-inf" upper="inf" effort="inf" velocity="inf"/>'
    module, env = generate(chain(("hinge", "revolute", limit)))
    env.reset(seed=0)
    assert np.isfinite([*module.JOINTS["hinge"][:1], *module.JOINTS["hinge"].goal]).all()
    assert 0 < module.JOINTS["hinge"].max_force < 100


def test_the_table_of_inspect_has_planar_and_locked_joints(generate, chain):
    stiff = '<limit lower="0" upper="0" effort="1" velocity="1"/>'
    _, env = generate(chain(HINGE, ("flat", "planar", ""), ("stiff", "revolute", stiff)))
    rows = {row.name: row for row in robot_facts(env).joints}
    assert (rows["flat"].kind, rows["flat"].use) == ("planar", "passive")
    assert (rows["stiff"].limits, rows["stiff"].use) == ((0.0, 0.0), "passive")
