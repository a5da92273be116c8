"""`inspect` on the command line: for our robots, for a user's own, and for other environments."""

import json

import pytest
from PIL import Image

QUICK = ("--seconds", "0.1")


def test_a_robot_is_shown_with_its_joints_rewards_and_ends(answer):
    code, text = answer("inspect", "env=cartpole_bullet", *QUICK)
    assert code == 0, text
    for part in (
        "robots/CartPoleBalance-v0", "slider_to_cart", "prismatic", "driven", "torque",
        "500 steps, 10 s", "alive", "0.5", "pole_fell", "steps/s", "1.1 kg",
    ):  # fmt: skip
        assert part in text


def test_the_overrides_are_those_of_train(answer):
    words = ("env=cartpole_bullet", "env.kwargs.force_n=3", "env.kwargs.reward={effort: 0.5}")
    code, text = answer("inspect", *words, "--json", *QUICK)
    data = json.loads(text)
    assert code == 0
    assert data["robot"]["joints"][0]["scale"] == 3
    assert data["robot"]["weights"]["effort"] == 0.5


def test_the_json_holds_what_the_table_shows(answer):
    data = json.loads(answer("inspect", "env=cartpole_bullet", "--json", *QUICK)[1])
    assert data["env"] == "robots/CartPoleBalance-v0"
    assert data["robot"]["action_mode"] == "torque"
    assert set(data["random_play"]["reward_terms"]) == {"alive", "centred", "effort"}
    assert data["random_play"]["steps_per_s"] > 0
    assert data["notes"] == []


def test_an_environment_of_others_is_shown_by_its_spaces_and_its_speed(answer):
    code, text = answer("inspect", "env=cartpole", *QUICK)
    assert code == 0, text
    assert "Discrete(2)" in text
    assert "steps/s" in text
    assert "joint" not in text


def test_the_picture_holds_the_start_and_what_came_of_it(answer, tmp_path):
    code, text = answer("inspect", "env=cartpole_bullet", "--picture", "new/a.png", *QUICK)
    assert code == 0, text
    with Image.open(tmp_path / "new" / "a.png") as image:
        assert image.size == (960, 320)
        halves = [image.crop((x, 0, x + 480, 290)).tobytes() for x in (0, 480)]
    assert halves[0] != halves[1]


def test_a_robot_of_the_users_own_is_inspected_where_it_was_written(answer, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert answer("new-robot", "inspected_robot", "--urdf", "r2d2.urdf")[0] == 0
    code, text = answer("inspect", "--config-dir", "conf", "env=inspected_robot", *QUICK)
    assert code == 0, text
    assert "inspected_robot/InspectedRobot-v0" in text
    assert "head_swivel" in text
    assert "above the ground" in text


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["env=cartpole_bulet"], "'cartpole_bullet'"),
        (["env=cartpole_bullet", "env.kwargs.forc_n=1"], "forc_n"),
        (["env=cartpole_bullet", "env.packages=[no_such_package]"], "no_such_package"),
        (["env=cartpole_bullet", "--picture", "a.gif"], "--picture a.gif"),
        (["env=cartpole_bullet", "--picture", "file/a.png"], "cannot be written"),
    ],
)
def test_a_mistake_gets_one_line(answer, tmp_path, words, part):
    (tmp_path / "file").touch()
    code, text = answer("inspect", *words, *QUICK)
    assert code == 2
    assert "Traceback" not in text
    assert part in text
    assert text.splitlines()[-1].startswith("error: ")


def test_no_time_is_refused(answer):
    code, text = answer("inspect", "env=cartpole_bullet", "--seconds", "0")
    assert code == 2
    assert "--seconds" in text
