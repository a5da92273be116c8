"""Worlds without the memory that they only fill with zeros."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pybullet
import pytest
from support.native import WHY_NOT

from robots.engines.bullet import memory
from robots.engines.bullet.plugin import get_plugin
from robots.half_cheetah import HalfCheetahEnv

LINUX = Path("/proc/self/maps").exists()
needs_plugin = pytest.mark.skipif(bool(WHY_NOT) or not LINUX, reason="needs Linux and the plugin")


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@needs_plugin
def test_worlds_take_half_of_the_memory_or_less():
    taken = """
        import pybullet
        from pathlib import Path
        from robots.engines.bullet import memory
        def resident():
            return int(Path("/proc/self/statm").read_text().split()[1])
        connect()  # the first one loads libraries
        before = resident()
        connect(), connect(), connect()
        print(resident() - before)
    """
    small, large = (
        int(run(taken.replace("connect()", f"{name}(pybullet.DIRECT)"))[-1])
        for name in ("memory.connect", "pybullet.connect")
    )
    assert small < large / 2


@needs_plugin
def test_worlds_of_other_packages_are_small_too():
    found = run("""
        from rlzoo_plus.envs.single import make_env
        from rlzoo_plus.runs.load import load
        make_env(load(["env=hopper_bullet"]).env)
        import pybullet
        from pybullet_utils.bullet_client import BulletClient
        from robots.engines.bullet import memory
        print(pybullet.connect is memory.connect, BulletClient(pybullet.DIRECT)._client)
    """)
    assert found[-2:] == ["True", "0"]


@needs_plugin
def test_only_whole_pages_of_zeros_are_given_back():
    give_back = get_plugin().functions.give_back_zeros
    size = 4096 * 300
    numbers = np.zeros(size + 4096, np.uint8)
    start = -numbers.ctypes.data % 4096
    pages = numbers[start : start + size]
    pages[4096 * 7] = 1  # the first byte of a page
    pages[4096 * 200 - 1] = 2  # the last one of a page
    expected = pages.copy()
    address = pages.ctypes.data
    assert give_back(address, address + size) == 298
    assert np.array_equal(pages, expected)
    pages[:] = 3
    assert give_back(address, address + size) == 0
    assert (pages == 3).all()


@needs_plugin
def test_a_part_of_a_page_is_left_alone():
    give_back = get_plugin().functions.give_back_zeros
    numbers = np.zeros(4096 * 3, np.uint8)
    address = numbers.ctypes.data + (-numbers.ctypes.data % 4096)
    assert give_back(address, address + 4095) == 0
    assert give_back(address, address) == 0


@needs_plugin
def test_nothing_is_given_back_if_another_thread_ran(monkeypatch):
    given = []
    monkeypatch.setattr(memory, "_last", None)
    functions = get_plugin().functions
    monkeypatch.setattr(functions, "give_back_zeros", lambda *ends: given.append(ends))
    counts = iter([{"7": [b"1", b"0"]}, {"7": [b"2", b"0"]}])
    monkeypatch.setattr(memory, "_switches", lambda: next(counts))
    pybullet.disconnect(memory.connect(pybullet.DIRECT))
    assert not given


STATES = {
    "no count of switches": "State:\tS (sleeping)\n",
    "a thread that runs": "State:\tR (running)\nvoluntary_ctxt_switches:\t1\n",
}


@pytest.mark.parametrize("kind", ["no plugin", "no Linux", *STATES])
def test_a_world_is_connected_where_its_memory_cannot_be_seen(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(memory, "_last", None)
    monkeypatch.setattr(memory, "_THREADS", tmp_path)
    if kind == "no plugin":
        monkeypatch.setenv("ROBOTS_NATIVE", "0")
    elif kind == "no Linux":
        monkeypatch.setattr(memory, "_MAPS", tmp_path / "absent")
    else:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "status").write_text(STATES[kind])
        monkeypatch.setattr(memory, "_shrink", lambda _: pytest.fail("it may be in use"))
    client = memory.connect(pybullet.DIRECT)
    assert pybullet.isConnected(client)
    pybullet.disconnect(client)


def test_ranges_that_are_new():
    known = [(10, 20), (30, 40), (50, 60)]
    found = list(memory._new([(5, 25), (30, 40), (45, 70), (80, 90)], known))
    assert found == [(5, 10), (20, 25), (45, 50), (60, 70), (80, 90)]


def test_a_robot_behaves_the_same_in_a_small_world(monkeypatch):
    def play():
        env = HalfCheetahEnv()
        env.reset(seed=3)
        draw = np.random.default_rng(0)
        seen = [env.step(draw.uniform(-1, 1, env.action_space.shape))[0] for _ in range(50)]
        return np.array(seen)

    small = play()
    monkeypatch.setattr(memory, "_look", lambda: None)
    assert np.array_equal(play(), small)
