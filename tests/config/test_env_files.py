"""The environment files of conf/env."""

from pathlib import Path

import gymnasium
import pytest
import yaml

from rlzoo_plus.config.overrides import prepare_overrides
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.config.unused_keys import WHOLE
from rlzoo_plus.runs.load import load

ENV_DIR = Path(__file__).resolve().parents[2] / "conf" / "env"
KEYS = [
    *(
        "id",
        "packages",
        "python",
        "worlds_per_process",
        "groups",
        "kwargs",
        "wrappers",
        "frame_stack",
        "time_limit",
        "warmup_resets",
    ),
    *("max_return", "solved_return", "opponents", "credit"),
]
FILES = sorted(ENV_DIR.glob("[!_]*.yaml"))
BASE = yaml.safe_load((ENV_DIR / "_base.yaml").read_text(encoding="utf-8"))
PACKAGED = ("pybullet_envs_gymnasium", "panda_gym")
# Their asset, a texture, is missing from the wheel of panda-gym 3.0.7.
BROKEN = ("PandaFlip",)
CLASSIC = {
    "cartpole": "CartPole-v1",
    "pendulum": "Pendulum-v1",
    "mountain_car": "MountainCar-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
    "acrobot": "Acrobot-v1",
}


def stated(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def values_of(path):
    return {**BASE, **stated(path)}


def third_party_files():
    names = {path: values_of(path) for path in FILES}
    found = [p for p, env in names.items() if set(env["packages"]) <= set(PACKAGED)]
    return [path for path in found if not names[path]["id"].startswith("robots.")]


def spec_of(env):
    for package in env["packages"]:
        pytest.importorskip(package)
    return gymnasium.spec(env["id"])


def test_the_base_of_all_environment_files_has_every_key():
    assert list(BASE) == KEYS
    assert set(EnvConfig.model_fields) == {*KEYS, "name"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_environment_file_states_only_what_differs_from_the_base(path):
    keys = [key for key in KEYS if key in stated(path)]
    assert list(stated(path)) == keys
    # An empty kwargs is there for the comments below it.
    assert not [key for key in keys if stated(path)[key] == BASE[key] not in ("???", {})]


def test_an_environment_file_of_two_lines_is_complete(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "my_pole.yaml").write_text("id: CartPole-v1\nframe_stack: 2\n")
    env = load(["env=my_pole", f"--config-dir={tmp_path}"]).env
    own = {"id": "CartPole-v1", "name": "my_pole", "frame_stack": 2}
    assert env.model_dump(context=WHOLE) == {**BASE, **own}


def test_keys_that_came_later_change_no_stored_environment_that_lacks_them():
    env = load(["env=cartpole"]).env
    assert not {"python", "worlds_per_process"} & env.model_dump().keys()
    other = load(["env=cartpole", "env.python=python3", "env.worlds_per_process=2"]).env
    assert other.model_dump()["python"] == "python3"


GLOBS = ("*", "[*pendulum,_*]", "*,exclude=gym", "*,exclude=[gym,a*]")


@pytest.mark.parametrize("word", [f"env=glob({pattern})" for pattern in GLOBS])
def test_a_glob_never_chooses_the_base(word):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(prepare_overrides([word])[0])
    names = [path.stem for path in ENV_DIR.glob("*.yaml")]
    chosen = override.value().filter(names)
    assert "_base" not in chosen
    assert "pendulum" in chosen
    assert ("gym" in chosen) == (word == "env=glob(*)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_environment_file_opens_with_comments_and_comments_each_key(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert "env=" in "".join(lines[:5])
    assert all("#" in line for line in lines if line.split(":")[0] in KEYS)


@pytest.mark.parametrize("path", third_party_files(), ids=lambda path: path.stem)
def test_the_solved_return_is_the_registered_threshold(path):
    env = values_of(path)
    if path.stem in ("gym", "pettingzoo", "unity"):
        pytest.skip("it leaves the id to the user")
    assert env["solved_return"] == spec_of(env).reward_threshold


def test_the_neutral_file_demands_an_id():
    assert values_of(ENV_DIR / "gym.yaml")["id"] == "???"


def test_every_working_id_of_the_robot_packages_has_a_file():
    for package in PACKAGED:
        pytest.importorskip(package)
    have = {values_of(path)["id"] for path in FILES}
    registered = {
        env_id
        for env_id, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith(PACKAGED) and not env_id.startswith(BROKEN)
    }
    assert registered
    assert registered <= have


def test_classic_control_keeps_its_names():
    assert {name: values_of(ENV_DIR / f"{name}.yaml")["id"] for name in CLASSIC} == CLASSIC


@pytest.mark.parametrize("path", third_party_files(), ids=lambda path: path.stem)
def test_panda_resets_are_reproducible_and_bullet_resets_are_warmed_up(path):
    env = values_of(path)
    assert ("reproducible_resets" in env["wrappers"]) == ("panda_gym" in env["packages"])
    assert env["warmup_resets"] == int("pybullet_envs_gymnasium" in env["packages"])


@pytest.mark.parametrize(
    "value", ["CartPole-v1", "ALE/Pong-v5", "my_env:PointEnv", "my_env.PointEnv", "A-v0,B-v1"]
)
def test_an_id_may_be_written_as_the_environment(value):
    assert prepare_overrides([f"env={value}"]) == prepare_overrides([f"env.id={value}"])


@pytest.mark.parametrize(
    "value", ["cartpole", "cartpole,CartPole-v1", "cart-pole", "${oc.env:E}", "glob(*)", "./mine"]
)
def test_other_texts_name_environment_files(value):
    assert prepare_overrides([f"env={value}"])[-1].startswith("env=")


def test_a_file_that_is_named_like_an_id_is_that_file(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "Mine-v1.yaml").write_text("id: CartPole-v1\n")
    option = f"--config-dir={tmp_path}"
    assert prepare_overrides(["env=Mine-v1", option]) == [option, "env=Mine-v1"]
    assert load(["env=Mine-v1", option]).env.id == "CartPole-v1"
