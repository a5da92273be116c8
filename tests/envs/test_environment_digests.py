"""What a shipped environment does stays as it is under its id."""

import importlib.util
import runpy
import sys
from importlib import metadata
from pathlib import Path

import pytest
from gymnasium.envs.registration import load_env_creator
from support import environment_digests
from support.environment_digests import difference, digest, explain, load, names, package_of

STORED = load()
OURS = [name for name in names() if name.startswith("robots/")]
FOREIGN = [name for name in names() if not name.startswith("robots/")]


def _check(name):
    if difference(STORED[name], digest(name, once=True)) is not None:
        problem = explain(name, STORED[name], digest(name))
        assert problem is None, problem


def _skip_without(name):
    package = package_of(name)
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def test_every_shipped_environment_has_a_digest():
    assert sorted(STORED) == sorted(names()), (
        "Run python scripts/renew_environment_digests.py after a new environment or version."
    )


@pytest.mark.parametrize("name", OURS)
def test_a_robot_of_ours_does_what_it_did(name):
    _skip_without(name)
    package, version = STORED[name]["package"].split(" ")
    if package == "mujoco" and metadata.version(package) != version:
        pytest.skip(f"the numbers are of {package} {version}, and each of its versions has its own")
    _check(name)


@pytest.mark.training
@pytest.mark.parametrize("name", FOREIGN)
def test_an_environment_of_a_package_does_what_it_did(name):
    _skip_without(name)
    _check(name)


@pytest.mark.parametrize("engine", ["", " mujoco"])
@pytest.mark.parametrize("key", ["step", "reset"])
def test_a_changed_robot_is_seen(monkeypatch, key, engine):
    env_class = load_env_creator("robots.cartpole:SimpleRobotEnv")
    real = getattr(env_class, key)

    def slightly_other(self, *args, **kwargs):
        observation, *rest = real(self, *args, **kwargs)
        if key == "step":
            rest[0] *= 1.001
        return (observation if key == "step" else observation + 1e-4), *rest

    monkeypatch.setattr(env_class, key, slightly_other)
    name = f"robots/CartPoleBalance-v0{engine}"
    assert difference(STORED[name], digest(name)) is not None


def test_the_text_names_the_id_to_register_and_the_package_that_changed():
    numbers = [[0, 0, 1.0, 0.0]]
    other = [[0, 0, 1.5, 0.0]]
    ours = explain(
        "robots/A1Walk-v1 constrained",
        {"package": None, "numbers": numbers},
        {"package": None, "numbers": other},
    )
    assert "robots/A1Walk-v2" in ours
    foreign = explain(
        "HopperBulletEnv-v0 (hopper_bullet)",
        {"package": "pybullet_envs_gymnasium 0.6.0", "numbers": numbers},
        {"package": "pybullet_envs_gymnasium 0.7.0", "numbers": other},
    )
    assert "pybullet_envs_gymnasium 0.7.0" in foreign


@pytest.fixture
def renew(monkeypatch, tmp_path):
    """Return a function: runs the script over two environments that behave as told."""
    monkeypatch.setattr(environment_digests, "FILE", tmp_path / "digests.json")
    monkeypatch.setattr(environment_digests, "VERSIONS", tmp_path / "versions.json")
    script = Path(__file__).parents[2] / "scripts" / "renew_environment_digests.py"

    def renew_it(found, *options):
        monkeypatch.setattr(environment_digests, "names", lambda: list(found))
        monkeypatch.setattr(environment_digests, "digest", found.__getitem__)
        monkeypatch.setattr(sys, "argv", [str(script), *options])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(script), run_name="__main__")
        return end.value.code, load()

    return renew_it


def _told(value, package="pybullet 1"):
    return {"package": package, "numbers": [[0, 0, value, 0.0]]}


def test_renewing_refuses_new_numbers_under_an_old_id(renew, capsys):
    assert renew({"robots/A-v0": _told(1.0)}) == (0, {"robots/A-v0": _told(1.0)})
    code, stored = renew({"robots/A-v0": _told(2.0), "robots/B-v0": _told(3.0)})
    assert code == 1
    assert stored == {"robots/A-v0": _told(1.0), "robots/B-v0": _told(3.0)}
    assert "robots/A-v1" in capsys.readouterr().err
    code, stored = renew({"robots/A-v0": _told(2.0)}, "--changed", "robots/A-v0")
    assert (code, stored) == (0, {"robots/A-v0": _told(2.0)})


def test_renewing_takes_a_new_version_and_a_new_release_of_a_package(renew):
    renew({"robots/A-v0": _told(1.0), "Hopper-v0 (hopper)": _told(1.0, "lib 1")})
    found = {"robots/A-v1": _told(2.0), "Hopper-v0 (hopper)": _told(2.0, "lib 2")}
    assert renew(found) == (0, found)
