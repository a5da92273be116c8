"""The log of transitions: whole after a death, and refused when it is another's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.learner.transition_log import Layout, LogReader, LogWriter, Transition

ACTIONS = spaces.Box(-1.0, 1.0, (2,), np.float32)
FLAT = spaces.Box(-np.inf, np.inf, (3,), np.float32)
GOALS = spaces.Dict({"goal": spaces.Box(-1.0, 1.0, (1,), np.float64), "seen": FLAT})


def transition(number, space=FLAT, info=None):
    rng = np.random.default_rng(number)

    def seen():
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        found = {k: rng.normal(size=p.shape).astype(p.dtype) for k, p in parts.items()}
        return found if isinstance(space, spaces.Dict) else found[""]

    return Transition(
        number=number,
        weights_step=number // 2,
        is_first=number % 5 == 0,
        terminated=number % 5 == 4,
        truncated=False,
        reward=float(rng.normal()),
        observation=seen(),
        next_observation=seen(),
        action=rng.normal(size=2).astype(np.float32),
        info=info or {},
    )


def written(path, count, space=FLAT):
    writer = LogWriter(path, Layout(space, ACTIONS))
    for number in range(writer.count, count):
        writer.add(transition(number, space))
    writer.close()
    return path


@pytest.mark.parametrize("space", [FLAT, GOALS])
def test_what_was_written_is_read_while_more_is_appended(space, tmp_path):
    path, layout = tmp_path / "log", Layout(space, ACTIONS)
    writer = LogWriter(path, layout)
    reader = LogReader(path, layout)
    assert reader.row(0) is None
    info = {"is_success": np.bool_(True), "episode_terms": {"a": np.float32(0.5)}}
    for number in range(4):
        writer.add(transition(number, space, info))
        read, wanted = reader.row(number), transition(number, space)
        assert (read.number, read.weights_step, read.reward) == (number, number // 2, wanted.reward)
        assert (read.is_first, read.terminated, read.done) == (number == 0, False, False)
        for name in ("observation", "next_observation"):
            np.testing.assert_equal(getattr(read, name), getattr(wanted, name))
        np.testing.assert_array_equal(read.action, wanted.action)
        assert read.info == {"is_success": True, "episode_terms": {"a": 0.5}}
    # Also those of before, as after a resume from an earlier checkpoint.
    assert reader.row(1).reward == transition(1, space).reward
    assert reader.row(4) is None
    assert reader.count() == 4


def test_zeros_that_a_lost_power_left_at_the_end_are_cut_off(tmp_path):
    path = written(tmp_path / "log", 2)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(500))
    written(path, 2)
    assert path.read_bytes() == whole
    path.write_bytes(whole + bytes(500) + b"\x01")
    with pytest.raises(ConfigError, match="transition 2 is damaged"):
        written(path, 3)


def test_an_incomplete_end_is_cut_off_and_nothing_else(tmp_path):
    path = written(tmp_path / "log", 3)
    whole = path.read_bytes()
    for cut in (1, 10, 40):
        path.write_bytes(whole[:-cut])
        reader = LogReader(path, Layout(FLAT, ACTIONS))
        assert reader.row(1).number == 1
        assert reader.row(2) is None
        written(path, 3)
        assert path.read_bytes() == whole


def test_damage_within_is_told_and_not_cut_off(tmp_path):
    path = written(tmp_path / "log", 3)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"transition \d is damaged. Start again"):
        LogWriter(path, Layout(FLAT, ACTIONS))
    assert path.read_bytes() == data


def test_a_log_of_another_task_or_of_nothing_is_refused(tmp_path):
    path = written(tmp_path / "log", 1)
    with pytest.raises(ConfigError, match="is of other observations or actions"):
        LogWriter(path, Layout(GOALS, ACTIONS))
    path.write_bytes(b"import os\n")
    with pytest.raises(ConfigError, match="is no log of transitions"):
        LogWriter(path, Layout(FLAT, ACTIONS))
    path.write_bytes(b'{"format": 7}\n')
    with pytest.raises(ConfigError, match="is of format 7"):
        LogWriter(path, Layout(FLAT, ACTIONS))
    link = tmp_path / "link"
    link.symlink_to("/etc/passwd")
    with pytest.raises((ConfigError, ValueError)):
        LogWriter(link, Layout(FLAT, ACTIONS))


# Says how many there are once that is certain.
_WRITE = """
import sys
from pathlib import Path
from test_transition_log import *
writer = LogWriter(Path(sys.argv[1]), Layout(FLAT, ACTIONS))
while True:
    writer.add(transition(writer.count))
    print(writer.count, flush=True)
"""


@pytest.mark.slow
def test_each_transition_that_was_confirmed_outlasts_a_kill(tmp_path):
    path, count = tmp_path / "log", 0
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITE, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": places},
        )
        assert int(process.stdout.readline()) == count + 1
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        # The last line may have been cut.
        lines = process.stdout.read().split("\n")[:-1]
        process.wait()
        reader = LogReader(path, Layout(FLAT, ACTIONS))
        count = LogReader(path, Layout(FLAT, ACTIONS)).count()
        assert count >= max([int(line) for line in lines], default=1)
        rewards = [reader.row(number).reward for number in range(count)]
        assert rewards == [transition(number).reward for number in range(count)]
