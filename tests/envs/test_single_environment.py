"""One environment from its specification, and what a user reads when it cannot be made."""

import sys

import gymnasium as gym
import numpy as np
import pytest
from support.tiny_envs import Doubled
from support.training import tiny_config

from rlzoo_plus.envs import single
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from robots.simulation import RendererError


def _spec(*overrides, env="tests/TinyReach-v0"):
    return tiny_config("ppo", env, *overrides).env


MISSING = "is not in its module|there is no module"
MISTAKES = [
    (["env.id=Pendullum-v1"], "Did you mean 'Pendulum-v1'"),
    (["env.id=SomethingQuiteDifferent-v7"], r"env\.packages"),
    (["env.packages=[no_such_robots]"], r"no module no_such_robots.*PYTHONPATH"),
    (["env.kwargs.wheels=4"], r"env\.kwargs=.*wheels"),
    (["env.id=FrozenLake-v1", "env.kwargs={map_name: none_such}"], r"env\.kwargs"),
    (["env.wrappers=[support.tiny_envs.Tripled]"], f"Tripled.*({MISSING})"),
    (["env.wrappers=[no_such_module.Wrapper]"], f"no_such_module.Wrapper.*({MISSING})"),
    (["env.wrappers=[support.tiny_envs.no.Deep]"], f"no.Deep.*({MISSING})"),
    (["env.wrappers=[{mask_observation: {colour: red}}]"], r"wrappers: mask_observation.*colour"),
    (["env.wrappers=[{mask_observation: {hidden: [99]}}]"], r"env\.wrappers: mask_observation"),
]


@pytest.mark.parametrize(("overrides", "told"), MISTAKES)
def test_a_mistake_is_named_with_what_would_mend_it(overrides, told):
    with pytest.raises(ConfigError, match=told):
        make_env(_spec(*overrides))


@pytest.mark.parametrize(
    ("package", "extra"), [("panda_gym", "panda"), ("pybullet_envs_gymnasium", "bullet")]
)
def test_a_missing_shipped_package_names_its_extra(monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install 'rlzoo-plus\[{extra}\]'"):
        make_env(_spec(f"env.packages=[{package}]"))


def test_a_package_that_misses_another_says_which(tmp_path, monkeypatch):
    (tmp_path / "robot_with_hole.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"robot_with_hole cannot be imported.*not_there_at_all"):
        make_env(_spec("env.packages=[robot_with_hole]"))


def test_a_time_limit_ends_the_episode():
    env = make_env(_spec("env.time_limit=3"))
    env.reset(seed=0)
    assert [env.step(env.action_space.sample())[3] for _ in range(3)] == [False, False, True]


def test_wrappers_are_applied_innermost_first():
    env = make_env(_spec("env.wrappers=[time_feature,{mask_observation: {hidden: [2]}}]"))
    names = [type(layer).__name__ for layer in _layers(env)]
    assert names.index("MaskObservation") < names.index("TimeFeatureWrapper")


def test_every_environment_is_reproducible_without_asking_for_it():
    env = make_env(_spec())
    first = [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
    np.testing.assert_array_equal(first, again)


def test_a_dotted_wrapper_of_the_user_gets_its_arguments():
    env = make_env(_spec("env.wrappers=[{support.tiny_envs.Doubled: {factor: 5}}]"))
    doubled = next(layer for layer in _layers(env) if isinstance(layer, Doubled))
    assert doubled.factor == 5


def test_what_compiled_modules_print_on_import_is_hidden(tmp_path, monkeypatch, capfd):
    (tmp_path / "loud_module.py").write_text("import os; os.write(1, b'build time')\n")
    monkeypatch.syspath_prepend(tmp_path)
    single.import_packages(_spec("env.packages=[loud_module]"))
    assert "build time" not in capfd.readouterr().out


def _layers(env):
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


@pytest.mark.parametrize("path", ["os.system", "pathlib.Path", "collections.OrderedDict"])
def test_what_is_no_wrapper_is_refused_before_it_is_called(path, monkeypatch):
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("called"))
    with pytest.raises(ConfigError, match=f"{path} is not a Wrapper"):
        make_env(_spec(f"env.wrappers=[{path}]"))


def test_a_list_is_a_tuple_or_an_array_where_a_wrapper_wants_one():
    reshape = "{gymnasium.wrappers.ReshapeObservation: {shape: [3, 1]}}"
    scale = "{rescale_action: {min_action: [-3.0], max_action: [3.0]}}"
    env = make_env(_spec(f"env.wrappers=[{reshape},{scale}]", env="Pendulum-v1"))
    assert env.observation_space.shape == (3, 1)
    assert env.action_space.high == [3]


def test_pictures_can_be_resized():
    pytest.importorskip("cv2", reason="resize_observation needs OpenCV")
    wrappers = "env.wrappers=[{resize_observation: {shape: [6, 8]}}]"
    assert make_env(_spec(wrappers, env="tests/TinyImage-v0")).observation_space.shape[:2] == (6, 8)


class Sized(gym.Env):
    """Wants a tuple."""

    def __init__(self, size: tuple[int, int] = (2, 2)) -> None:
        self.size = size
        assert type(size) is tuple
        self.observation_space = gym.spaces.Box(0, 1, size)
        self.action_space = gym.spaces.Discrete(2)


@pytest.mark.parametrize("entry_point", [Sized, f"{__name__}:Sized"])
def test_a_list_is_a_tuple_where_an_environment_wants_one(entry_point):
    gym.register("tests/Sized-v0", entry_point=entry_point)
    try:
        env = make_env(_spec("env.kwargs={size: [3, 4]}", env="tests/Sized-v0"))
    finally:
        del gym.registry["tests/Sized-v0"]
    assert env.unwrapped.size == (3, 4)


class Drawn(gym.Env):
    """An environment that offers a window alone."""

    metadata = {"render_modes": ["human", "ansi"]}  # noqa: RUF012
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode


class NeverDrawn(Drawn):
    """An environment that lists no render modes, and takes none."""

    metadata = {}  # noqa: RUF012

    def __init__(self):
        super().__init__()


@pytest.mark.parametrize(
    ("kind", "mode", "told"),
    [
        (Drawn, "rgb_array", r"has no render_mode rgb_array: it offers human, ansi\. Add"),
        (NeverDrawn, "rgb_array", "takes no render_mode, so it cannot be drawn"),
        (NeverDrawn, "human", "takes no render_mode, so it cannot be drawn"),
    ],
)
def test_an_environment_that_cannot_be_drawn_says_what_it_offers(kind, mode, told):
    gym.register("tests/Drawn-v0", entry_point=kind)
    try:
        make_env(_spec(env="tests/Drawn-v0")).close()
        with pytest.raises(ConfigError, match=told) as refused:
            make_env(_spec(env="tests/Drawn-v0"), mode)
    finally:
        del gym.registry["tests/Drawn-v0"]
    assert str(refused.value).count("env.id=") == 1
    assert "\n" not in str(refused.value)


def test_a_machine_that_cannot_draw_says_so_in_a_line(monkeypatch):
    def cannot_draw(*args, **kwargs):
        raise RendererError("MuJoCo cannot draw here. Install libegl1.")

    monkeypatch.setattr(single.gym, "make", cannot_draw)
    config = tiny_config("ppo", "robots/CartPoleCamera-v0", "env.packages=[robots]")
    with pytest.raises(ConfigError, match="cannot be made: MuJoCo cannot draw here"):
        make_env(config.env)
