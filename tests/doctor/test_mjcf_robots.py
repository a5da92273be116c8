"""Robots from MJCFs with the layout of MuJoCo Menagerie, and what such a file may not hold."""

import subprocess
import sys
from collections import defaultdict

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlzoo_plus.doctor.new_robot.mjcf import read_mjcf
from rlzoo_plus.doctor.new_robot.survey import survey
from rlzoo_plus.doctor.robot_facts import robot_facts
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.testing.robot_contract import check_random_play, check_same_numbers
from robots.engines.mujoco.records import SEEN, TOUCHED
from robots.vec_env import RobotVecEnv

# A tetrahedron of 0.1 m.
MESH = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 3 1 4\n"
LEG = """
<body name="{0}_thigh" pos="{1} {2} 0">
  <joint class="hip" name="{0}_hip"/>
  <inertial pos="0 0 -0.1" mass="0.5" diaginertia="0.002 0.002 0.0005"/>
  <geom class="visual" mesh="part"/>
  <geom class="collision" fromto="0 0 0 0 0 -0.2"/>
  <body name="{0}_shank" pos="0 0 -0.2">
    <joint class="knee" name="{0}_knee"/>
    <inertial pos="0 0 -0.1" mass="0.2" fullinertia="0.001 0.001 0.0002 0 0 0"/>
    <geom class="collision" fromto="0 0 0 0 0 -0.18"/>
    <geom class="foot" name="{0}_foot"/>
  </body>
</body>"""
PLACES = {"FL": (0.2, 0.1), "FR": (0.2, -0.1), "RL": (-0.2, 0.1), "RR": (-0.2, -0.1)}
DOG = f"""
<mujoco model="dog">
  <compiler angle="degree" meshdir="assets" autolimits="true"/>
  <option integrator="implicitfast"/>
  <default>
    <default class="dog">
      <geom friction="0.7"/>
      <joint axis="0 1 0" damping="0.5" armature="0.01" frictionloss="0.1"/>
      <position kp="60" forcerange="-20 20"/>
      <default class="hip"><joint range="-60 120"/></default>
      <default class="knee">
        <joint range="-150 -30"/>
        <position forcerange="-30 30"/>
      </default>
      <default class="visual">
        <geom type="mesh" contype="0" conaffinity="0" group="2" material="dark"/>
      </default>
      <default class="collision">
        <geom type="capsule" size="0.02" group="3"/>
        <default class="foot"><geom type="sphere" size="0.025" pos="0 0 -0.2"/></default>
      </default>
    </default>
  </default>
  <asset>
    <material name="dark" rgba="0.2 0.2 0.2 1"/>
    <mesh name="part" file="part.obj"/>
  </asset>
  <worldbody>
    <body name="trunk" pos="0 0 0.5" childclass="dog">
      <freejoint/>
      <inertial pos="0.01 0 0" mass="6" diaginertia="0.03 0.1 0.1"/>
      <geom class="collision" type="box" size="0.25 0.08 0.05"/>
      <site name="imu"/>
      {"".join(LEG.format(name, *place) for name, place in PLACES.items())}
    </body>
  </worldbody>
  <actuator>
    {"".join(f'<position class="hip" joint="{name}_hip"/>' for name in PLACES)}
    {"".join(f'<position class="knee" joint="{name}_knee"/>' for name in PLACES)}
  </actuator>
  <sensor><gyro site="imu"/></sensor>
  <keyframe><key name="home" qpos="0 0 0.35 1 0 0 0 {"0.7 -1.4 " * 4}"/></keyframe>
</mujoco>"""
SCENE = """
<mujoco model="scene">
  <include file="robot.xml"/>
  <statistic extent="1"/>
  <asset>
    <texture type="2d" name="floor" builtin="checker" width="300" height="300"/>
    <material name="floor" texture="floor"/>
  </asset>
  <worldbody><light pos="0 0 2"/><geom type="plane" size="0 0 1" material="floor"/></worldbody>
</mujoco>"""
ARM = """
<mujoco>
  <compiler autolimits="true"/>
  <default><geom friction="0.3"/></default>
  <worldbody>
    <body>
      <geom type="cylinder" size="0.05 0.05" mass="1"/>
      <body name="upper" pos="0 0 0.1">
        <joint name="turn" axis="0 0 1" range="-170 170" actuatorfrcrange="-9 9"/>
        <joint name="lift" axis="0 1 0" range="-90 90"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.3" mass="1"/>
        <body name="fore" pos="0 0 0.3">
          <joint axis="0 1 0" range="-120 120"/>
          <geom type="capsule" size="0.02" fromto="0 0 0 0 0 0.3" mass="0.5"/>
          <body name="left" pos="0 0 0.3">
            <joint name="left" type="slide" axis="0 1 0" range="0 0.04"/>
            <geom type="box" size="0.01 0.01 0.03" pos="0 0.02 0" mass="0.02"/>
          </body>
          <body name="right" pos="0 0 0.3">
            <joint name="right" type="slide" axis="0 1 0" range="-0.04 0" stiffness="3"/>
            <geom type="box" size="0.01 0.01 0.03" pos="0 -0.02 0" mass="0.02"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="both"><joint joint="left" coef="1"/></fixed></tendon>
  <equality><joint joint1="right" joint2="left" polycoef="0 -1 0 0 0"/></equality>
  <actuator>
    <motor joint="turn" gear="30" ctrlrange="-1 1"/>
    <position joint="lift" kp="50" ctrlrange="-1 1"/>
    <general joint="joint0" gear="2" forcerange="-4 4"/>
    <position name="grip" tendon="both"/>
  </actuator>
</mujoco>"""


@pytest.fixture
def write(tmp_path):
    """Return a function that writes the folder of a model; returns the path of a file in it."""

    def write_it(robot, name="robot.xml", **further):
        folder = tmp_path / "model"
        (folder / "assets").mkdir(parents=True, exist_ok=True)
        (folder / "assets" / "part.obj").write_text(MESH)
        texts = {"robot.xml": robot, "scene.xml": SCENE, **further}
        for file, text in texts.items():
            (folder / file).write_text(text)
        return folder / name

    return write_it


def test_a_scene_gives_the_robot_that_it_includes_without_the_ground(write):
    file = read_mjcf(str(write(DOG, "scene.xml")))
    dog = survey(file)
    assert dog.stands_free
    assert [joint.name for joint in dog.joints[:2]] == ["FL_hip", "FL_knee"]
    assert dog.mass_kg == pytest.approx(6 + 4 * 0.7)
    hip, knee = dog.joints[:2]
    assert (hip.max_force, knee.max_force) == (20.0, 30.0)
    assert (hip.lower, hip.upper) == pytest.approx((-np.pi / 3, 2 * np.pi / 3))
    assert (hip.rest, knee.rest) == (0.7, -1.4)
    # Two links of 0.2 m, the feet's radius, and the centre of mass of the trunk.
    assert dog.height_m == pytest.approx(0.4 * np.cos(0.7) + 0.025, abs=1e-6)
    notes = "\n".join(dog.notes)
    assert "the ground and other shapes of the world are left out" in notes
    assert "8 joints state a frictionloss" in notes
    assert "runs with engine=mujoco" in notes


def test_limits_of_actuators_are_those_of_motors_by_name(write):
    arm = survey(read_mjcf(str(write(ARM))))
    strengths = {joint.name: joint.max_force for joint in arm.joints}
    # The joint's own limit, a position that is no force, a gear, and a tendon.
    assert strengths == {"turn": 9.0, "lift": 0.0, "joint0": 8.0, "left": 0.0}


def test_what_cannot_be_carried_is_said_by_name(write):
    arm = survey(read_mjcf(str(write(ARM))))
    said = [note for note in arm.notes if "engine" not in note]
    assert [note.rpartition(": ")[2] for note in said] == [
        "right (as left)", "both", "grip", "right", "left", "lift",
    ]  # fmt: skip
    assert [word in note for word, note in zip(
        ["follow", "tendons", "actuators", "spring", "no actuator", "guessed"], said, strict=True
    )] == [True] * 6  # fmt: skip


def test_a_joint_that_turns_about_any_axis_is_told_and_not_driven(write):
    ball = '<body name="b"><body><joint name="any" type="ball"/><geom size="0.1"/></body>{}</body>'
    hinge = '<body><joint name="one"/><geom size="0.1" pos="0.3 0 0"/></body>'
    robot = survey(read_mjcf(str(write(_mjcf(ball.format(hinge))))))
    assert [joint.name for joint in robot.joints] == ["one"]
    assert "1 joints are planar or spherical; they move, and no action drives them: any" in (
        robot.notes
    )
    # The size is that of the robot, which hangs in the air while it is measured.
    assert robot.size_m == pytest.approx((0.5, 0.2, 0.2))


@pytest.mark.parametrize(("text", "name"), [(DOG, "scene.xml"), (ARM, "robot.xml")])
def test_the_environment_is_sound_on_mujoco(generate, write, text, name):
    _, env = generate(write(text, name), task="auto")
    assert env.simulation.engine == "mujoco"
    check_env(env, skip_render_check=True)
    check_random_play(env, 60)


def test_a_free_robot_starts_at_home_just_above_the_ground(generate, write):
    _, env = generate(write(DOG, "scene.xml"))
    facts = robot_facts(env)
    assert facts.clearance_m == pytest.approx(0.01, abs=0.008)
    assert facts.notes == []
    zeros = np.zeros(8, np.float32)
    env.reset(seed=0)
    ends = [env.step(zeros)[2] for _ in range(100)]
    assert not any(ends)


def test_pictures_show_what_a_robot_looks_like_and_not_what_collides(generate, write):
    _, env = generate(write(DOG))
    model = env.simulation.model
    groups = defaultdict(set)
    for number in range(model.ngeom):
        groups[model.body(model.geom_bodyid[number]).name].add(int(model.geom_group[number]))
    assert groups["1/FL_thigh"] == {SEEN, TOUCHED}
    assert groups["1/FL_shank"] == {TOUCHED}


def test_joints_that_no_actuator_drives_are_no_part_of_the_task(generate, write):
    module, env = generate(write(ARM), task="auto")
    assert list(module.JOINTS) == ["turn", "lift", "joint0"]
    assert module.TIP == "fore"
    uses = {joint.name: joint.use for joint in robot_facts(env).joints}
    assert (uses["left"], uses["right"]) == ("passive", "follows left")


def test_a_finger_follows_the_other_one_in_the_simulation(generate, write):
    _, env = generate(write(ARM), task="auto")
    env.reset(seed=0)
    fingers = {j.name: j.index for j in env.simulation.movable_joints(env.robot.body)}
    body, pair = env.robot.body, [fingers["left"], fingers["right"]]
    env.simulation.reset_joints(body, pair, [0.03, -0.03], [0.0, 0.0])
    read = env.simulation.joint_reader(body, pair)
    for _ in range(20):
        env.step(np.ones(3, np.float32))
        left, right = read()[:2]
        assert right == pytest.approx(-left, abs=5e-3)


def test_many_worlds_of_a_model_give_the_numbers_of_one(generate, write):
    module, _ = generate(write(DOG))
    env_id = next(spec for spec in gymnasium.registry if spec.startswith(f"{module.__name__}/"))
    make = lambda: gymnasium.make(env_id, disable_env_checker=True, episode_s=0.4).unwrapped  # noqa: E731
    together, singles = RobotVecEnv([make() for _ in range(2)]), [make() for _ in range(2)]
    check_same_numbers(together, singles, 40)
    for env in (together, *singles):
        env.close()


def test_pybullet_refuses_a_model_of_which_it_would_read_only_a_part(generate, write):
    module, _ = generate(write(DOG, "scene.xml"))
    env_id = next(spec for spec in gymnasium.registry if spec.startswith(f"{module.__name__}/"))
    with pytest.raises(
        ValueError, match=r"its <include> are not read by PyBullet\. Use engine=mujoco"
    ):
        gymnasium.make(env_id, engine="bullet")


BODY = '<body name="b"><joint name="j"/><geom size="0.1"/></body>'


def _mjcf(body=BODY, rest=""):
    return f"<mujoco><worldbody>{body}</worldbody>{rest}</mujoco>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<mujoco>", "is not XML"),
        ("<robot/>", "begins with <robot>"),
        ('<!DOCTYPE a [<!ENTITY x "y">]>' + _mjcf(), "<!DOCTYPE>"),
        (_mjcf(rest='<extension><plugin plugin="a.b"/></extension>'), "<extension>, which loads"),
        (_mjcf(rest='<asset><mesh name="m" plugin="p"/></asset>'), "<plugin>, which loads"),
        (_mjcf(rest='<include file="../other.xml"/>'), "outside of its folder"),
        (_mjcf(rest='<include file="/etc/passwd"/>'), "outside of its folder"),
        (_mjcf(rest='<include file="link.xml"/>'), "outside of its folder"),
        (_mjcf(rest='<include file="gone.xml"/>'), "'gone.xml', which is not there"),
        (_mjcf(rest='<include file="robot.xml"/>'), "includes 'robot.xml' twice"),
        (_mjcf(rest='<asset><mesh file="../../m.obj"/></asset>'), "outside of its folder"),
        (_mjcf(rest='<asset><mesh file="gone.stl"/></asset>'), "'gone.stl', which is not there"),
        (_mjcf(rest='<asset><mesh file="robot.xml"/></asset>'), "Use one of .stl"),
        (_mjcf(rest='<asset><model file="robot.xml"/></asset>'), "<model>"),
        (_mjcf(BODY + '<body name="c"/>'), r"holds 2 bodies \(b, c\)"),
        (_mjcf('<body name="hand" mocap="true"/>'), "'hand', which is moved by hand"),
        (_mjcf('<replicate count="1000000000"><geom size="1"/></replicate>'), "<replicate>"),
        (_mjcf("<body><geom size='1'/></body>"), "no joint that moves"),
        (_mjcf("<frame>" * 200 + "</frame>" * 200), "150 in each other"),
        (_mjcf("<geom/>" * 50_001), "more than 50,000 elements"),
        (_mjcf(" " * 2**24), "more than 16,777,216 bytes"),
        (_mjcf(BODY.replace("size=", "sise=")), "cannot read it as MJCF .*sise"),
        (
            _mjcf(rest='<equality><connect name="c" body1="b" anchor="0 0 0"/></equality>'),
            r"'c' \(connect\), which closes a loop",
        ),
        (
            _mjcf(rest='<equality><joint name="q" joint1="j" polycoef="1 0 0 0 0"/></equality>'),
            "'q', by which no joint follows another",
        ),
        (_mjcf(rest="<evil/>"), "<evil>, which no MJCF has"),
    ],
)
def test_what_is_no_robot_or_could_harm_is_refused_in_one_line(write, tmp_path, text, reason):
    path = write(text)
    (tmp_path / "other.xml").write_text(_mjcf())
    (path.parent / "link.xml").symlink_to(tmp_path / "other.xml")
    with pytest.raises(ConfigError, match=reason) as refused:
        read_mjcf(str(path))
    assert len(str(refused.value).splitlines()) == 1
    assert str(refused.value).startswith(f"--mjcf {path}")


def test_what_mujoco_warns_of_is_not_written_into_the_working_folder(tmp_path, write):
    path = write(_mjcf(BODY.replace('"0.1"', '"0.1" pos="nan 0 0"')))
    code = (
        "import sys; from pathlib import Path; from robots.engines import mjcf_facts\n"
        "mjcf_facts(Path(sys.argv[1]))"
    )
    words = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "NaN" in done.stderr or done.returncode == 0, done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_a_merge_of_bodies_that_the_file_asks_for_is_not_made(write):
    text = ARM.replace("autolimits", 'fusestatic="true" discardvisual="true" autolimits')
    assert survey(read_mjcf(str(write(text)))).mass_kg == pytest.approx(2.54)


def test_a_urdf_option_with_an_mjcf_names_the_other_one(answer, write):
    path = write(DOG)
    code, text = answer("new-robot", "dog", "--urdf", str(path))
    assert code == 2
    assert f"Give it as --mjcf {path}" in text


def test_the_file_decides_whether_the_base_is_free(answer, write):
    code, text = answer("new-robot", "dog", "--mjcf", str(write(DOG)), "--base", "fixed")
    assert code == 2
    assert "the MJCF gives it a free joint" in text
