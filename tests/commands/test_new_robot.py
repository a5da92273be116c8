"""`new-robot` on the command line: what it writes and says, and how mistakes are answered."""

import pytest

URDF = ("--urdf", "r2d2.urdf")
HAND = """<robot name="a"><link name="b"><visual><geometry><sphere radius="0.1"/>
</geometry></visual></link><link name="c"/><joint name="j" type="continuous"><parent link="b"/>
<child link="c"/></joint></robot>"""


def test_two_files_are_written_and_the_next_commands_are_shown(answer, tmp_path):
    code, text = answer("new-robot", "my_r2d2", *URDF, "--mode", "velocity", "--forward=-y")
    assert code == 0, text
    assert (tmp_path / "my_r2d2.py").is_file()
    assert (tmp_path / "conf" / "env" / "my_r2d2.yaml").is_file()
    assert "rlzoo-plus train --config-dir conf env=my_r2d2" in text
    assert "DIRECTION = (0.0, -1.0, 0.0)" in (tmp_path / "my_r2d2.py").read_text()


def test_another_directory_is_made_and_named(answer, tmp_path):
    code, text = answer("new-robot", "my_r2d2", *URDF, "--directory", "my robots")
    assert code == 0, text
    assert (tmp_path / "my robots" / "my_r2d2.py").is_file()
    assert "cd 'my robots'" in text


def test_the_kind_of_base_can_be_chosen(answer, tmp_path):
    assert "guessed" in answer("new-robot", "free", *URDF)[1]
    assert "guessed" not in answer("new-robot", "fixed", *URDF, "--base", "fixed")[1]
    assert "HoldPosture" in (tmp_path / "fixed.py").read_text()
    assert "MoveForward" in (tmp_path / "free.py").read_text()


def test_a_pole_is_balanced_by_force_unless_told_otherwise(answer, tmp_path):
    _, text = answer("new-robot", "forced", "--urdf", "cartpole.urdf")
    assert "action mode torque" in text
    assert "task balance" in text
    _, text = answer("new-robot", "moved", "--urdf", "cartpole.urdf", "--mode", "velocity")
    assert "action mode velocity" in text


def test_an_arm_reaches_by_small_changes_unless_told_otherwise(answer, tmp_path):
    arm = ("--urdf", "kuka_iiwa/model.urdf")
    assert "action mode delta_position" in answer("new-robot", "near", *arm)[1]
    assert "action mode position" in answer("new-robot", "far", *arm, "--mode", "position")[1]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["My-Robot", *URDF], ["'My-Robot'", "'my_robot'"]),
        (["numpy", *URDF], ["module numpy"]),
        (["reacher_bullet", *URDF], ["env=reacher_bullet exists"]),
        (["mine", "--urdf", "no_such.urdf"], ["no_such.urdf", "no such file"]),
        (["mine", "--urdf", "broken.urdf"], ["is not XML", "line 1"]),
        (["mine", *URDF, "--mode", "velocty"], ["'velocty'", "'velocity'"]),
        (["mine", *URDF, "--mode", "pd"], ["--mode position", "docs/own_robot.md"]),
        (["mine", *URDF, "--task", "track"], ["the base of this robot is free", "--task walk"]),
        (["mine", *URDF, "--directory", "broken.urdf"], ["cannot be written", "--directory"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_gets_one_line_and_leaves_nothing(answer, tmp_path, words, parts):
    # tests/doctor/test_reading_urdfs.py has other files.
    (tmp_path / "broken.urdf").write_text("<robot")
    code, text = answer("new-robot", *words)
    assert code == 2, text
    assert len(text.splitlines()) == 1
    assert text.startswith("error: ")
    for part in parts:
        assert part in text
    assert [path.name for path in tmp_path.iterdir()] == ["broken.urdf"]


@pytest.mark.parametrize("words", [[], ["mine"], ["mine", *URDF, "--forward", "up"]])
def test_a_wrong_option_gets_the_usage(answer, words):
    code, text = answer("new-robot", *words)
    assert code == 2
    assert "usage:" in text


def test_what_is_guessed_of_the_joints_and_the_base_is_told(answer, tmp_path):
    (tmp_path / "hand.urdf").write_text(HAND)
    code, text = answer("new-robot", "hand", "--urdf", "hand.urdf")
    assert code == 0, text
    assert "the base is guessed, since neither two wheels nor two limbs reach down" in text
    assert "2 links state no <inertial>" in text
    assert "1 joints state no effort limit" in text
