"""A gamepad that takes a robot over: its records, and what `override --gamepad` does with them."""

import os
import struct
import threading
import time

import pytest

from rlzoo_plus.commands import override
from rlzoo_plus.control.attention import Attention
from rlzoo_plus.control.faults import Overridden
from rlzoo_plus.control.gamepad import presses
from rlzoo_plus.errors import ConfigError, RunError

PRESS, RELEASED, AXIS, INITIAL = (1, 1, 0), (0, 1, 0), (12_000, 2, 1), (1, 0x81, 3)


def record(value, kind, number):
    """Return what the system writes for an event."""
    return struct.pack("<IhBB", 4711, value, kind, number)


@pytest.fixture
def loop(tmp_path):
    """A loop that obeys, and what it was asked for."""
    attention, taken, over = Attention(tmp_path, ("hold", "stop")), [], threading.Event()

    def run():
        while not over.wait(0.002):
            try:
                attention()
            except Overridden as asked:
                taken.append(asked.action)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield taken
    over.set()
    thread.join()


def test_presses_count_and_nothing_else(tmp_path):
    path = tmp_path / "js0"
    events = [INITIAL, AXIS, RELEASED, PRESS, AXIS, RELEASED, (1, 1, 7)]
    path.write_bytes(b"".join(record(*one) for one in events))
    assert list(presses(path)) == ["button 0", "button 7", "the gamepad is gone"]


def test_a_torn_record_is_a_gamepad_that_is_gone(tmp_path):
    path = tmp_path / "js0"
    path.write_bytes(record(*PRESS) + b"\0\0")
    assert list(presses(path)) == ["button 0", "the gamepad is gone"]


def test_presses_and_unplugging_take_the_robot_over(loop, tmp_path):
    device = tmp_path / "js0"
    os.mkfifo(device)
    # For reading too, so that opening does not wait for a reader.
    plug = os.open(device, os.O_RDWR)
    words = [str(tmp_path), "stop", "--gamepad", str(device)]
    thread = threading.Thread(target=override.main, args=(words,), daemon=True)
    thread.start()
    for event, count in ((AXIS, 0), (INITIAL, 0), (PRESS, 1), (RELEASED, 1), (PRESS, 2)):
        os.write(plug, record(*event))
        assert asked_for(loop, count) == count * ["stop"]
    os.close(plug)
    thread.join(10)
    assert asked_for(loop, 3) == 3 * ["stop"]


def asked_for(loop, count):
    """Return what a loop was asked for, as soon as it is this many: it answers before it tells."""
    end = time.monotonic() + 10
    while len(loop) < count:
        assert time.monotonic() < end
        time.sleep(0.01)
    return loop


def test_without_a_loop_a_press_is_told(tmp_path):
    device = tmp_path / "js0"
    device.write_bytes(record(*PRESS))
    with pytest.raises(RunError, match="no loop has taken it"):
        override.main([str(tmp_path), "stop", "--gamepad", str(device)])


def test_a_missing_gamepad_and_wrong_words_are_one_line(tmp_path, capsys):
    with pytest.raises(ConfigError, match="Plug it in"):
        override.main([str(tmp_path), "stop", "--gamepad", str(tmp_path / "js7")])
    with pytest.raises(ConfigError, match="no such session"):
        override.main([str(tmp_path / "none"), "stop", "--gamepad", str(tmp_path / "js7")])
    with pytest.raises(SystemExit):
        override.main([str(tmp_path), "release", "--gamepad"])
    assert "does not release" in capsys.readouterr().err
