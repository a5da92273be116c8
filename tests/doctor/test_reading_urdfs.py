"""What is read from the text of a URDF, and what is refused."""

import re

import pybullet_data
import pytest

from rlzoo_plus.doctor.new_robot.survey import survey
from rlzoo_plus.doctor.new_robot.urdf import read_urdf
from rlzoo_plus.errors import ConfigError

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


def test_a_mesh_that_is_not_there_is_named_with_where_it_is_looked_for(tmp_path):
    file = tmp_path / "no_mesh.urdf"
    mesh = '<visual><geometry><mesh filename="gone.stl"/></geometry></visual>'
    joint = '<joint name="j" type="continuous"><parent link="b"/><child link="c"/></joint>'
    link = f'<link name="b">{mesh}</link><link name="c"/>'
    file.write_text(f'<robot name="a">{link}{joint}</robot>')
    with pytest.raises(ConfigError, match=r"cannot find 'gone\.stl'.*beside it"):
        survey(read_urdf(str(file)))


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


def _limit(**values):
    return "<limit {}/>".format(" ".join(f'{key}="{value}"' for key, value in values.items()))


ONE = {"effort": 1, "velocity": 1}


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (_limit(lower=1, upper=-1, **ONE), "lower=1 above upper=-1.*Swap them"),
        (_limit(lower="nan", upper=1, **ONE), "lower='nan', which is no number"),
        (_limit(lower="${-pi}", upper="${pi}", **ONE), "expression of xacro"),
        (_limit(lower="-1,5", upper="1,5", **ONE), "lower='-1,5', which is no number"),
        (_limit(lower=-1, **ONE), "a lower limit and no upper one"),
        (_limit(lower=-1, upper=1, effort="${e}", velocity=1), "effort='"),
        (LIMIT + '<mimic joint="none"/>', "mimics 'none'"),
        (LIMIT + '<mimic joint="hinge"/>', "mimics 'hinge'"),
    ],
)
def test_numbers_that_pybullet_takes_for_something_else_are_refused(chain, limit, reason):
    with pytest.raises(ConfigError, match=f"joint hinge.*{reason}"):
        read_urdf(str(chain(("hinge", "revolute", limit))))


def test_an_axis_of_length_zero_is_refused(chain):
    path = chain(HINGE)
    path.write_text(path.read_text().replace('xyz="0 1 0"', 'xyz="0 0 0"'))
    with pytest.raises(ConfigError, match="hinge has an axis of length 0"):
        read_urdf(str(path))


def test_more_joints_than_pybullet_reads_are_refused(chain):
    survey(read_urdf(str(chain(HINGE, *[(f"j{i}", "fixed", "") for i in range(126)]))))
    with pytest.raises(ConfigError, match=r"has 140 joints, fixed ones included.* at most 127"):
        read_urdf(str(chain(HINGE, *[(f"j{i}", "fixed", "") for i in range(139)], name="b.urdf")))


@pytest.mark.parametrize("declared", ['<?xml version="1.0" encoding="ISO-8859-1"?>', ""])
def test_a_file_that_is_not_utf_8_is_refused(chain, declared):
    path = chain(("g\xe9nou", "revolute", LIMIT))
    text = path.read_text(encoding="utf-8").replace('<?xml version="1.0"?>', declared + "\n")
    path.write_bytes(text.encode("iso-8859-1"))
    with pytest.raises(ConfigError, match=r"is not XML in UTF-8: .*0xe9"):
        read_urdf(str(path))


def test_a_name_beyond_ascii_is_read(chain):
    path = chain(("g\xe9nou", "revolute", LIMIT))
    path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    assert [joint.name for joint in survey(read_urdf(str(path))).joints] == ["g\xe9nou"]


def test_a_prefix_that_is_not_declared_is_no_fault_of_the_robot(chain):
    path = chain(HINGE, extra="<gazebo><controller:motor/></gazebo>")
    assert len(survey(read_urdf(str(path))).joints) == 1


def test_an_element_of_xacro_is_refused_wherever_it_stands(chain):
    path = chain(HINGE, extra='<gazebo><xacro:insert_block name="a"/></gazebo>')
    with pytest.raises(ConfigError, match=r"is a xacro file\. Expand it first"):
        read_urdf(str(path))


def test_a_robot_without_shapes_is_told(chain):
    path = chain(HINGE)
    text = path.read_text()
    path.write_text(re.sub(r"<collision>.*?</collision>", "", text, flags=re.DOTALL))
    robot = survey(read_urdf(str(path)))
    assert robot.height_m is None
    assert any("no link has a <collision> shape" in note for note in robot.notes)


def test_a_locked_joint_is_left_out_and_told(chain):
    path = chain(HINGE, ("stiff", "revolute", _limit(lower=0, upper=0, **ONE)))
    robot = survey(read_urdf(str(path)))
    assert [joint.name for joint in robot.joints] == ["hinge"]
    assert any("locked" in note and "stiff" in note for note in robot.notes)


def test_joints_without_an_entry_of_the_action_are_told(chain):
    path = chain(
        HINGE,
        ("flat", "planar", ""),
        ("loose", "floating", ""),
        ("free", "revolute", _limit(**ONE)),
    )
    notes = "\n".join(survey(read_urdf(str(path))).notes)
    assert "planar or spherical" in notes
    assert "flat" in notes
    assert "1 joints are floating, and are welded: loose" in notes
    assert "no limits or senseless ones" in notes


def test_a_floating_root_is_free_or_refused_but_not_fixed(chain):
    path = chain(("root", "floating", ""), HINGE)
    robot = survey(read_urdf(str(path)))
    assert robot.stands_free
    assert "root is floating" in robot.reason
    text = path.read_text().replace("link0", "world")
    start, end = text.index("<inertial>"), text.index("</inertial>") + len("</inertial>")
    path.write_text(text[:start] + text[end:])
    with pytest.raises(ConfigError, match=r"root is floating.*Take both out"):
        read_urdf(str(path))


def test_a_chain_of_mimic_joints_follows_its_first_joint(chain):
    mimic = '<mimic joint="{}" multiplier="{}" offset="{}"/>'.format
    path = chain(
        HINGE,
        ("second", "revolute", LIMIT + mimic("hinge", 0.5, 0.1)),
        ("third", "revolute", LIMIT + mimic("second", -2, 0.3)),
    )
    robot = survey(read_urdf(str(path)))
    assert [tuple(one) for one in robot.mimic] == [
        ("second", "hinge", 0.5, 0.1),
        ("third", "hinge", -1.0, pytest.approx(0.1)),
    ]
    # Third at 0.1 - hinge stays within -1 to 2.
    (joint,) = robot.joints
    assert (joint.lower, joint.upper) == (-1, pytest.approx(1.1))
    assert any("narrower" in note and "hinge" in note for note in robot.notes)


def _limbs(*limbs, root="base", box="0.3 0.3 0.05"):
    """Return a URDF of limbs on a base: each (x, y, direction of z, kind of its joints)."""
    text = [f'<robot name="r"><link name="{root}">{_body(box, 0)}</link>']
    for number, (x, y, along, kind) in enumerate(limbs):
        for part in range(2 if kind == "revolute" else 1):
            link, parent = f"l{number}_{part}", root if part == 0 else f"l{number}_0"
            at = f"{x} {y} 0" if part == 0 else f"0 0 {0.2 * along}"
            shape = _body("0.04 0.04 0.2", 0.1 * along) if along else _wheel()
            text += [
                f'<link name="{link}">{shape}</link>',
                f'<joint name="j{link}" type="{kind}"><parent link="{parent}"/>'
                f'<child link="{link}"/><origin xyz="{at}"/><axis xyz="0 1 0"/>',
                f"{LIMIT}</joint>",
            ]
    return "\n".join([*text, "</robot>"])


def _body(size, z):
    return (
        f'<inertial><origin xyz="0 0 {z}"/><mass value="1"/><inertia ixx="0.1" ixy="0" ixz="0" '
        f'iyy="0.1" iyz="0" izz="0.1"/></inertial>\n<collision><origin xyz="0 0 {z}"/><geometry>'
        f'<box size="{size}"/></geometry></collision>'
    )


def _wheel():
    return _body("0.2 0.05 0.2", 0)


SQUARE = [(x, y) for x in (-0.2, 0.2) for y in (-0.2, 0.2)]


@pytest.mark.parametrize(
    ("text", "is_free", "reason"),
    [
        (_limbs(*[(*at, -1, "revolute") for at in SQUARE]), True, "4 limbs reach down"),
        (_limbs(*[(*at, -1, "revolute") for at in SQUARE[:2]]), True, "2 limbs reach down"),
        (_limbs(*[(*at, 1, "revolute") for at in SQUARE]), False, "neither two wheels"),
        (_limbs(*[(*at, 0, "continuous") for at in SQUARE[:2]]), True, "2 wheels stand"),
        (_limbs((0, 0, 1, "revolute")), False, "neither two wheels"),
        (_limbs(*[(*at, -1, "revolute") for at in SQUARE], root="world"), False, "called world"),
    ],
    ids=["quadruped", "biped", "hand", "cart", "arm", "hung from the world"],
)
def test_the_base_is_guessed_by_what_reaches_the_ground(tmp_path, text, is_free, reason):
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    robot = survey(read_urdf(str(path)))
    assert (robot.stands_free, reason in robot.reason) == (is_free, True), robot.reason
