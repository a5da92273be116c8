"""Worlds stepped by the plugin read what they read when Python steps them, bit for bit."""

import itertools
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import pybullet
import pytest
from continuing import KUKA, husky
from support.native import needs_plugin

import robots
from robots.drives import PositionDrive
from robots.engines import compiling
from robots.engines.bullet import native, plugin
from robots.engines.bullet.native import NativeWorlds, stepper
from robots.engines.bullet.plugin import get_plugin
from robots.engines.compiling import PluginError, require_private
from robots.ranges import RangeSensor
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec
from robots.threads import THREADS
from robots.vec_env import RobotVecEnv
from robots.world import ObjectSpec, World, WorldSpec, step_worlds

GRIPPER = "lbr_iiwa_link_7"
TURNED = (0.0, 1.0, 0.0, 0.0)
GROUND = WorldSpec(ground_friction=0.8)
BALL = ObjectSpec("sphere", (0.1, 0.0, 0.0), position=(0.5, 0.0, 0.1))
POST = ObjectSpec("cylinder", (0.1, 1.0, 0.0), mass_kg=0.0, position=(-1.0, 0.3, 0.9))
HUSKY = husky(
    base_position=(0.0, 0.0, 0.15),
    sensors=SensorSpec(base=True, efforts=True, links=".*wheel.*", contacts=".*wheel.*"),
)
ARM = partial(RobotSpec, KUKA, action_scale=0.1)
CONTROLLED = partial(
    ARM, action_mode=ActionMode.PD, position_gain=50.0, velocity_gain=1.0, max_force=20.0
)
R2D2 = partial(
    RobotSpec, "r2d2.urdf", action_scale=3.0, fixed_base=False, base_position=(0.0, 0.0, 0.5)
)
WORLDS = {
    "torques": (ARM(sensors=SensorSpec(efforts=True)), WorldSpec()),
    "velocities": (HUSKY, GROUND),
    "positions": (ARM(action_mode=ActionMode.POSITION, position_gain=0.2), WorldSpec()),
    "controller": (CONTROLLED(), WorldSpec(substeps=3)),
    "limited torques": (
        ARM(max_velocity=0.05, sensors=SensorSpec(efforts=True)),
        WorldSpec(gravity_m_s2=0.0),
    ),
    "limited positions": (
        ARM(action_mode=ActionMode.POSITION, max_velocity=(0.2, 0.4) * 3 + (0.1,)),
        WorldSpec(),
    ),
    "limited controller": (CONTROLLED(max_velocity=0.3), WorldSpec(substeps=3)),
    "reaching": (
        ARM(
            action_mode=ActionMode.END_EFFECTOR,
            end_effector=GRIPPER,
            max_velocity=0.5,
            ik_workspace=((-0.5, -0.5, 0.2), (0.7, 0.5, 1.2)),
            sensors=SensorSpec(links=".*link_[37]", links_as_left=True),
        ),
        WorldSpec(),
    ),
    "reaching, turned": (
        ARM(action_mode=ActionMode.END_EFFECTOR, end_effector=GRIPPER, ik_orientation=TURNED),
        WorldSpec(objects=(BALL,), ground_friction=0.5),
    ),
    "reaching, with turns": (
        ARM(action_mode=ActionMode.END_EFFECTOR, end_effector=GRIPPER, ik_turns=True),
        WorldSpec(),
    ),
    "all links": (
        R2D2(sensors=SensorSpec(base=True, links=".*", contacts=".*")),
        WorldSpec(ground_friction=0.9, objects=(BALL, BALL)),
    ),
    "ranges": (
        R2D2(
            sensors=SensorSpec(
                contacts=".*wheel.*",
                ranges=RangeSensor(n_rays=9, min_m=0.1, max_m=3.0, position=(0.1, 0.0, 0.4)),
            )
        ),
        WorldSpec(ground_friction=0.9, objects=(BALL, POST)),
    ),
    "partners": (
        ARM(action_mode=ActionMode.DELTA_POSITION),
        WorldSpec(ground_friction=0.8, objects=(BALL,), partners=(HUSKY,)),
    ),
    "mixed": (
        RobotSpec(
            "racecar/racecar.urdf",
            action_scale=(20.0, 20.0, 0.5, 0.5),
            action_mode=ActionMode.VELOCITY,
            actuated=".*rear_wheel_joint|.*steering_hinge_joint",
            positioned=".*steering_hinge_joint",
            mixing=((1, 0), (1, 0), (0, 1), (0, 1)),
            max_velocity=(15.0, 15.0, 6.0, 6.0),
            fixed_base=False,
            base_position=(0.0, 0.0, 0.1),
        ),
        GROUND,
    ),
}


@pytest.fixture
def cartpoles():
    """Return two equal worlds that have not been stepped."""
    spec = RobotSpec("cartpole.urdf", action_scale=10.0, actuated="slider_to_cart")
    worlds = [World(WorldSpec(), spec) for _ in range(2)]
    yield worlds
    for world in worlds:
        world.simulation.close()


@pytest.fixture
def fresh(monkeypatch, tmp_path, cartpoles):
    """Return an empty folder of plugins, for a process that has not looked for one yet.

    The worlds come first: connecting them looks for the plugin, too.
    """
    monkeypatch.setattr(compiling, "_SAID", set())
    monkeypatch.setattr(native, "_SAME", {})
    monkeypatch.delenv(compiling.SWITCH, raising=False)
    folder = tmp_path / "plugins"
    monkeypatch.setenv(compiling.FOLDER, str(folder))
    plugin._compiled_once.cache_clear()
    yield folder
    plugin._compiled_once.cache_clear()


def is_native(step):
    return isinstance(getattr(step, "__self__", None), NativeWorlds)


def stepper_on(threads, worlds):
    """Return the native function that steps worlds on so many threads."""
    with mock.patch.dict(os.environ, {THREADS: str(threads)}):
        step = stepper(worlds)
    assert is_native(step)
    return step


def made(kind, count):
    """Return worlds of a kind at the start of their episodes."""
    robot, spec = WORLDS[kind]
    worlds = [World(spec, robot) for _ in range(count)]
    for world in worlds:
        world.save()
        world.start(world.robot.at_rest)
    return worlds


@needs_plugin
@pytest.mark.parametrize("kind", WORLDS)
def test_every_drive_and_sensor_gives_the_same_numbers(kind):
    by_python, natively = made(kind, 2), made(kind, 2)
    step = stepper_on(2, natively)
    rng = np.random.default_rng(0)
    drive = by_python[0].robot.drive
    rows = np.array([world.sensors.read() for world in by_python])
    for number in range(60):
        state = by_python[0].sensors.state(rows)
        targets = drive.targets(rng.uniform(-1.0, 1.0, (2, drive.n_actions)), state)
        if number == 30:
            for pair in zip(by_python, natively, strict=True):
                strength = rng.uniform(0.5, 1.0)
                for world in pair:
                    world.robot.drive.set_strength(strength)
        rows = step_worlds(by_python, targets)
        assert step(targets).tobytes() == rows.tobytes()
    for world in by_python + natively:
        world.simulation.close()


def plain(seen):
    """Return what was seen with lists in place of arrays of objects, which do not compare."""
    if isinstance(seen, dict):
        return {key: plain(value) for key, value in seen.items()}
    if isinstance(seen, tuple) or (isinstance(seen, np.ndarray) and seen.dtype.kind == "O"):
        return [plain(value) for value in seen]
    return seen


def play_both_ways(env_id, threads, n_steps):
    """Compare all that is seen of an environment; return how many episodes ended."""
    with mock.patch.dict(os.environ, {THREADS: str(threads)}):
        both = [
            RobotVecEnv([gymnasium.make(env_id, episode_s=0.8).unwrapped for _ in range(3)])
            for _ in range(2)
        ]
    by_python, natively = both
    assert is_native(natively._step_physics)
    by_python._step_physics = partial(step_worlds, by_python._worlds)
    seen = [venv.reset(seed=4)[0] for venv in both]
    np.testing.assert_equal(*seen)
    by_python.action_space.seed(1)
    ends = 0
    for _ in range(n_steps):
        actions = by_python.action_space.sample()
        expected, found = (venv.step(actions) for venv in both)
        np.testing.assert_equal(plain(found), plain(expected))
        assert natively._rows.tobytes() == by_python._rows.tobytes()
        ends += int((expected[2] | expected[3]).sum())
    for venv in both:
        venv.close()
    return ends


@needs_plugin
@pytest.mark.parametrize("env_id", robots.ROBOT_IDS)
def test_every_robot_does_the_same(env_id):
    assert play_both_ways(env_id, threads=2, n_steps=55) >= 3


@needs_plugin
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("env_id", robots.ROBOT_IDS)
def test_every_robot_does_the_same_for_long(env_id, threads):
    assert play_both_ways(env_id, threads, n_steps=2000) >= 100


@needs_plugin
def test_a_drive_of_ones_own_commands_in_python(cartpoles):
    class Halved(PositionDrive):
        def command(self, targets):
            super().command([target / 2 for target in targets])

    for world in cartpoles:
        world.robot.drive = Halved(world.robot.drive.motors)
    step = stepper(cartpoles[:1])
    assert is_native(step)
    for target in (0.4, -0.2, 0.3):
        targets = np.array([[target]])
        assert step(targets).tobytes() == step_worlds(cartpoles[1:], targets).tobytes()


def test_worlds_that_it_does_not_know_stay_with_python(cartpoles):
    class Twice(PositionDrive):
        def advance(self, targets):
            super().advance(targets)
            super().advance(targets)

    cartpoles[0].robot.drive = Twice(cartpoles[0].robot.drive.motors)
    assert not is_native(stepper(cartpoles))


@needs_plugin
def test_a_closed_world_is_an_error_and_not_a_crash(cartpoles):
    step = stepper(cartpoles)
    targets = np.zeros((2, 1))
    step(targets)
    cartpoles[1].simulation.close()
    with pytest.raises(pybullet.error, match="world 1 is closed"):
        step(targets)


@needs_plugin
def test_a_forked_process_continues_on_two_threads(cartpoles):
    step = stepper_on(2, cartpoles)
    targets = np.array([[1.0], [-1.0]])
    step(targets)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, step(targets).tobytes())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as end:
        found = end.read()
    os.waitpid(child, 0)
    assert found == step(targets).tobytes()


@needs_plugin
def test_threads_of_python_may_step_worlds_at_the_same_time():
    """The helpers take part in one step at a time; the other is taken without them."""
    kind, n_steps = "torques", 150
    worlds = [made(kind, 3) for _ in range(3)]
    steps = [stepper_on(3, three) for three in worlds]
    found: list[list[bytes]] = [[] for _ in steps]

    def play(number):
        rng = np.random.default_rng(0)
        for _ in range(n_steps):
            targets = rng.uniform(-0.1, 0.1, (3, worlds[0][0].robot.drive.n_targets))
            found[number].append(steps[number](targets).tobytes())

    threads = [threading.Thread(target=play, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    play(0)
    assert found[0] == found[1] == found[2]
    for world in itertools.chain(*worlds):
        world.simulation.close()


def no_compiler(patch, folder):
    patch.setenv("PATH", "")
    patch.delenv("CC", raising=False)


def writable_by_others(patch, folder):
    folder.mkdir()
    folder.chmod(0o775)


def a_file_in_the_way(patch, folder):
    folder.touch()
    patch.setenv(compiling.FOLDER, str(folder / "below"))


def homeless(patch, folder):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in (compiling.FOLDER, "XDG_CACHE_HOME"):
        patch.delenv(name, raising=False)
    patch.setattr(Path, "home", no_home)


def other_numbers(patch, folder):
    real = native.program_of

    def once_more(world):
        commands, rest = real(world)
        return commands, [*native.part(native.STEP, 1), *rest]

    patch.setattr(native, "program_of", once_more)


NO_FALSE = pytest.mark.skipif(shutil.which("false") is None, reason="no command `false`")


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (no_compiler, "there is no C compiler (cc, gcc, clang). Install one"),
        pytest.param(
            lambda patch, _: patch.setenv("CC", "false"),
            "cannot compile worlds.c: exit code 1",
            marks=NO_FALSE,
        ),
        (lambda patch, _: patch.setattr(pybullet, "getAPIVersion", lambda: 7), "and this is 7"),
        (writable_by_others, "others can write "),
        (a_file_in_the_way, "cannot be made (Not a directory). Set ROBOTS_NATIVE_FOLDER"),
        (homeless, "Could not determine home directory"),
        pytest.param(other_numbers, "to other numbers than Python does", marks=needs_plugin),
    ],
)
def test_worlds_are_stepped_in_python_and_one_warning_says_why(
    fresh, monkeypatch, caplog, cartpoles, prepare, reason
):
    prepare(monkeypatch, fresh)
    with caplog.at_level(logging.WARNING):
        step = stepper(cartpoles)
        stepper(cartpoles)
    assert not is_native(step)
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert "same numbers" in record.getMessage()
    assert step(np.zeros((2, 1))).shape == (2, 4)


def test_the_plugin_can_be_switched_off(monkeypatch, caplog, cartpoles):
    monkeypatch.setenv(compiling.SWITCH, "0")
    assert not is_native(stepper(cartpoles))
    assert not caplog.records
    with pytest.raises(PluginError, match="ROBOTS_NATIVE=0"):
        get_plugin()


class TestLibrary:
    """Where the compiled plugin is kept."""

    @needs_plugin
    def test_is_compiled_once_for_the_user_alone(self, fresh):
        path = get_plugin().path
        assert path.parent == fresh
        assert [path] == list(fresh.iterdir())
        assert stat.S_IMODE(fresh.stat().st_mode) == 0o700
        before = path.stat()
        plugin._compiled_once.cache_clear()
        assert get_plugin().path.stat().st_ino == before.st_ino

    @needs_plugin
    def test_what_a_crash_left_is_compiled_again(self, fresh):
        fresh.mkdir(mode=0o700)
        path = fresh / f"worlds-{compiling.library_key(plugin._SOURCE)}.so"
        path.write_bytes(b"torn")
        assert get_plugin().path == path
        assert path.stat().st_size > 4

    def test_has_a_name_that_changes_with_the_source(self, monkeypatch, tmp_path):
        before = compiling.library_key(plugin._SOURCE)
        other = tmp_path / "worlds.c"
        other.write_text("// other")
        monkeypatch.setattr(plugin, "_SOURCE", other)
        assert compiling.library_key(plugin._SOURCE) != before

    @needs_plugin
    def test_a_library_that_others_can_write_is_not_loaded(self, fresh):
        path = get_plugin().path
        path.chmod(0o777)
        plugin._compiled_once.cache_clear()
        with pytest.raises(PluginError, match="others can write"):
            get_plugin()

    def test_a_folder_above_counts_unless_it_is_sticky(self, tmp_path):
        below = tmp_path / "above" / "below"
        below.mkdir(parents=True, mode=0o700)
        require_private(below)
        below.parent.chmod(0o777)
        with pytest.raises(PluginError, match="above"):
            require_private(below)
        below.parent.chmod(0o1777)
        require_private(below)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_a_folder_of_another_user_is_refused(self, tmp_path):
        os.chown(tmp_path, 12345, 12345)
        with pytest.raises(PluginError, match="others can write"):
            require_private(tmp_path)

    @needs_plugin
    def test_the_command_says_where_it_is_or_why_there_is_none(self, tmp_path):
        def run(**variables):
            command = [sys.executable, "-m", "robots.engines.bullet.plugin"]
            environ = os.environ | variables
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            return done.stdout

        assert f"stepped by {tmp_path}" in run(ROBOTS_NATIVE_FOLDER=str(tmp_path / "new"))
        assert "in Python: ROBOTS_NATIVE=0" in run(ROBOTS_NATIVE="0")
