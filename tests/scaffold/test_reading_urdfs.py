"""What is read from the text of a URDF, and what is refused."""

import pybullet_data
import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.scaffold.survey import read_urdf, survey

LIMIT = '<limit lower="-1" upper="2" effort="3" velocity="4"/>'

HINGE = ("hinge", "revolute", LIMIT)


def _chain(joints, links="ab"):
    """Return a URDF of links of one letter, with a joint for each pair of letters."""
    bodies = "".join(f'<link name="{link}"/>' for link in links)
    hinges = "".join(
        f'<joint name="{a}{b}" type="continuous"><parent link="{a}"/><child link="{b}"/></joint>'
        for a, b in joints
    )
    return f'<robot name="r">{bodies}{hinges}</robot>'


def test_a_path_of_pybullet_data_is_found_by_its_name():
    assert read_urdf("r2d2.urdf").name == "r2d2.urdf"


def test_a_file_inside_pybullet_data_is_called_by_its_name_there():
    path = f"{pybullet_data.getDataPath()}/kuka_iiwa/model.urdf"
    assert read_urdf(path).name == "kuka_iiwa/model.urdf"


@pytest.mark.parametrize(
    "name",
    ["biped/biped2d_pybullet.urdf", "differential/diff_ring.urdf", "humanoid/humanoid.urdf"],
)
def test_a_file_may_lie_between_empty_lines_or_zeros(name):
    assert read_urdf(name).name == name


def test_a_file_here_goes_before_one_of_pybullet_data(chain, tmp_path, monkeypatch):
    chain(HINGE, name="r2d2.urdf")
    monkeypatch.chdir(tmp_path)
    assert read_urdf("r2d2.urdf").name is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<robot><link></robot>", "is not XML"),
        ("", "is not XML"),
        ("<mujoco/>", "is MJCF, not URDF"),
        ("<sdf/>", "is SDF, not URDF"),
        ("<html/>", "begins with <html>"),
        ('<robot xmlns:x="http://www.ros.org/wiki/xacro"><x:macro/></robot>', "xacro"),
        (_chain(["a\x85"], "a\x85"), "control characters"),
        ('<robot name="a"><link name="b"/></robot>', "no joint that moves"),
    ],
)
def test_what_is_no_urdf_of_a_robot_is_refused(tmp_path, text, reason):
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_urdf(str(path))


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="is not XML"):
        read_urdf(str(path))


def test_a_misspelled_path_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"Did you mean 'r2d2\.urdf'"):
        read_urdf("r2d3.urdf")


def test_the_names_in_a_transmission_are_no_joints(chain):
    extra = '<transmission name="t"><joint name="hinge"/></transmission>'
    assert [joint.name for joint in survey(read_urdf(str(chain(HINGE, extra=extra)))).joints] == [
        "hinge"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_chain(["ab", "no"]), "joint no names the link 'n', which is not there"),
        (_chain(["ab", "cb"], "abc"), "link b hangs on two joints"),
        (_chain(["ab"], "abc"), "without a parent, and has: a, c"),
        (_chain(["ab", "cd", "dc"], "abcd"), "link c hangs on itself"),
        (_chain(["ab", "ba"]), "without a parent, and has: none"),
        (_chain(["ab"], "abb"), "two links called 'b'"),
    ],
)
def test_links_that_are_no_tree_are_refused_before_pybullet_can_crash(tmp_path, text, reason):
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_urdf(str(path))


def test_what_pybullet_says_of_a_file_that_it_cannot_load_is_told(chain, capfd):
    path = chain(("hinge", "revolute", ""))
    with pytest.raises(ConfigError, match="hinge") as refused:
        survey(read_urdf(str(path)))
    assert "does not specify limits" in str(refused.value)
    assert capfd.readouterr().err == ""


def test_a_robot_without_weight_is_refused(chain):
    path = chain(HINGE)
    path.write_text(path.read_text().replace('mass value="1"', 'mass value="0"'))
    with pytest.raises(ConfigError, match="weigh 0 kg"):
        survey(read_urdf(str(path)))


def test_two_joints_of_one_name_are_refused(chain):
    with pytest.raises(ConfigError, match="two joints called 'hinge'"):
        read_urdf(str(chain(HINGE, HINGE)))


def test_joints_are_known_with_their_kinds_limits_and_strengths(chain):
    path = chain(HINGE, ("wheel", "continuous", ""), ("slide", "prismatic", LIMIT))
    hinge, wheel, slide = survey(read_urdf(str(path))).joints
    assert (hinge.lower, hinge.upper, hinge.max_force, hinge.max_velocity) == (-1, 2, 3, 4)
    assert [joint.endless for joint in (hinge, wheel, slide)] == [False, True, False]
    assert [joint.slides for joint in (hinge, wheel, slide)] == [False, False, True]


def test_a_joint_that_cannot_be_at_zero_rests_in_the_middle_of_its_range(chain):
    limit = '<limit lower="-2" upper="-1" effort="1" velocity="1"/>'
    (joint,) = survey(read_urdf(str(chain(("knee", "revolute", limit))))).joints
    assert joint.rest == -1.5


def test_rest_positions_are_given_by_patterns(chain):
    path = chain(("knee_a", "revolute", LIMIT), ("knee_b", "revolute", LIMIT), HINGE)
    robot = survey(read_urdf(str(path)), ["knee_.*=0.5", "knee_b=-0.5"])
    assert [joint.rest for joint in robot.joints] == [0.5, -0.5, 0.0]


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("hinge", "is not PATTERN=VALUE"),
        ("hinge=far", "is not PATTERN=VALUE"),
        ("(=1", "is not PATTERN=VALUE"),
        ("knee=1", "matches no joint. Choose among: hinge"),
        ("hinge=3", "hinge moves from -1 to 2"),
        ("hinge=nan", "hinge moves from -1 to 2"),
    ],
)
def test_a_rest_position_that_cannot_be_is_refused(chain, rest, reason):
    with pytest.raises(ConfigError, match=reason):
        survey(read_urdf(str(chain(HINGE))), [rest])


def test_what_pybullet_makes_up_is_told(chain):
    path = chain(("wheel", "continuous", ""), extra='<link name="tip"/><joint name="fix" '
                 'type="fixed"><parent link="link1"/><child link="tip"/></joint>')  # fmt: skip
    mass, effort = survey(read_urdf(str(path))).notes
    assert "tip" in mass
    assert "1 kg" in mass
    assert "wheel" in effort


@pytest.mark.parametrize(
    ("urdf", "is_free"),
    [
        ("kuka_iiwa/model.urdf", False),
        ("franka_panda/panda.urdf", False),
        ("cartpole.urdf", False),
        ("r2d2.urdf", True),
        ("quadruped/minitaur.urdf", True),
        ("husky/husky.urdf", True),
        ("a1/a1.urdf", True),
    ],
)
def test_arms_are_taken_to_be_bolted_down_and_vehicles_to_be_free(urdf, is_free):
    assert survey(read_urdf(urdf)).stands_free is is_free
