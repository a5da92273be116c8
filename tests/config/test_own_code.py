"""What a configuration imports that is not ours is known without importing it."""

import sys

import pytest
from support.training import make_config, tiny_config

from rlzoo_plus.config.own_code import own_code, own_modules, packages_of
from rlzoo_plus.config.resolve import config_hash


@pytest.fixture(autouse=True)
def _modules_are_forgotten():
    known = set(sys.modules)
    yield
    for name in [name for name in sys.modules if name.startswith("mine_") and name not in known]:
        del sys.modules[name]


OWN = {
    "env": {"packages": ["my_robots"], "wrappers": ["clip_reward", {"my.Wrapper": {"a": 1}}]},
    "algo": {
        "name": "my.Algorithm",
        "packages": ["my_algorithms"],
        "action_noise": {"type": "my.Noise", "std": 0.1},
        "replay_buffer": "my.Buffer",
    },
    "network": {"features_extractor": "my.Extractor", "activation": "my.Act", "optimizer": "my.O"},
    "infra": {"name": "my.Launcher"},
    "packages": ["my_package"],
    "callbacks": ["my.Callback", {"my.Other": {}}],
    "tracker": {"name": "my.Tracker", "project": "p", "offline": True, "kwargs": {}},
}
TO_ACT = {"my.Algorithm", "my.Extractor", "my.Act", "my.O", "my_package", "my_algorithms"}
TO_PLAY = {*TO_ACT, "my_robots", "my.Wrapper"}
TO_TRAIN = {*TO_PLAY, "my.Noise", "my.Buffer", "my.Callback", "my.Other", "my.Tracker"}


@pytest.fixture(scope="module")
def own_config():
    """Return a stored configuration in which everything is somebody's own."""
    from rlzoo_plus.config.schema import RunConfig

    values = tiny_config("ppo", "Pendulum-v1").model_dump()
    for key, value in OWN.items():
        is_section = isinstance(value, dict) and isinstance(values[key], dict)
        values[key] = {**values[key], **value} if is_section else value
    return RunConfig.model_validate(values)


@pytest.mark.parametrize(
    ("use", "names"), [("act", TO_ACT), ("play", TO_PLAY), ("train", TO_TRAIN)]
)
def test_every_name_that_imports_is_told_for_what_it_is_needed(own_config, use, names):
    found = own_code(own_config, use)
    assert set(found) == names
    assert len(found) == len(names)


def test_the_modules_of_own_code_are_its_first_names(own_config):
    assert set(own_modules(own_config)) == {"my", "my_robots", "my_package", "my_algorithms"}


def test_shipped_code_is_not_own():
    assert own_code(make_config("env=panda_reach", "algo=her", "tracker=wandb")) == []


def test_a_module_named_in_the_id_is_own():
    # gymnasium.make imports what stands before the colon.
    config = make_config("env=pendulum")
    env = config.env.model_copy(update={"id": "some_module:Robot-v0"})
    assert own_code(config.model_copy(update={"env": env})) == ["some_module"]


def test_packages_are_imported_when_a_configuration_is_checked(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_registers.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:PendulumEnv')\n"
    )
    config = make_config("env=pendulum", "packages=[mine_registers]")
    assert "mine_registers" in sys.modules
    assert packages_of(config) == ["mine_registers"]
    assert own_code(config) == ["mine_registers"]


def test_packages_do_not_change_the_hash_of_a_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_unhashed.py").write_text("")
    plain = make_config("env=pendulum")
    assert config_hash(make_config("env=pendulum", "packages=[mine_unhashed]")) == config_hash(
        plain
    )
