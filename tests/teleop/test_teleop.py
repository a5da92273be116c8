"""`collect --teleop`: what keys and sticks make of an action, the page, and the episodes kept."""

import http.client
import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from gymnasium import spaces

from rlzoo_plus.commands import dispatch
from rlzoo_plus.demonstrations.minari_format import read_dataset
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load
from rlzoo_plus.teleop.controls import Controls

TASK = "env=cartpole_bullet"


@pytest.mark.parametrize(
    ("space", "values", "action"),
    [
        (spaces.Box(-1, 1, (2,)), [1, -0.5], [1, -0.5]),
        (spaces.Box(-1, 1, (2,)), [7, -7], [1, -1]),
        (spaces.Box(np.array([0, -4]), np.array([2, 0])), [0, 0.5], [1, -1]),
        (spaces.Box(0, 255, (3,), np.uint8), [-1, 0, 1], [0, 128, 255]),
        (spaces.Discrete(3, start=-1), [2], 1),
    ],
    ids=str,
)
def test_controls_span_the_bounds_of_the_space(space, values, action):
    controls = Controls(space)
    found = controls.action(controls.checked(values))
    assert space.contains(found if isinstance(space, spaces.Box) else int(found))
    assert np.array_equal(found, action)
    assert found.dtype == space.dtype


def test_no_key_moves_two_entries():
    for size in range(1, 10):
        controls = Controls(spaces.Box(-1, 1, (size,)))
        keys = [key for one in controls.of_entries for key in (*one.more, *one.less)]
        assert len(controls.of_entries) == size
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(-1, 1, (12,)),
        spaces.Discrete(11),
        spaces.MultiDiscrete([2, 2]),
    ],
    ids=str,
)
def test_actions_that_hands_cannot_give_are_refused(space):
    with pytest.raises(ConfigError, match="cannot be played by hand"):
        Controls(space)


@pytest.mark.parametrize("values", [[0.0], [0, 0, 0], [0, float("nan")], [0, True], "no", None])
def test_values_that_are_none_of_the_controls_are_refused(values):
    with pytest.raises(ValueError, match="value"):
        Controls(spaces.Box(-1, 1, (2,))).checked(values)


@pytest.mark.parametrize("values", [[3], [-1], [0.5]])
def test_a_choice_that_there_is_not_is_refused(values):
    with pytest.raises(ValueError, match="no such choice"):
        Controls(spaces.Discrete(3)).checked(values)


class Person:
    """Plays on the page of a command that runs beside the test."""

    def __init__(self, *words):
        command = [sys.executable, "-m", "rlzoo_plus", "collect", "--teleop", "--port", "0", *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        port = int(re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())[1])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.page, self.fields = self.get("/")
        self.token = re.search(rb'name="token" content="([^"]+)"', self.page)[1].decode()
        self.play(0.0, lambda shown: shown["state"] == "ready")

    def get(self, path, **fields):
        self.connection.request("GET", path, headers=fields)
        answer = self.connection.getresponse()
        self.status = answer.status
        return answer.read(), answer.headers

    def post(self, path, data, **fields):
        headers = {"X-Token": self.token, **{k.replace("_", "-"): v for k, v in fields.items()}}
        self.connection.request("POST", path, json.dumps(data), headers)
        answer = self.connection.getresponse()
        self.status = answer.status
        return json.loads(answer.read())

    def play(self, value, until):
        """Hold a control until the page shows something; return what it shows."""
        for _ in range(1000):
            shown = self.post("/values", [value])
            if until(shown):
                return shown
            if shown["state"] == "paused":
                # This machine was too busy to hold the control.
                self.post("/request", "play")
            time.sleep(0.02)
        raise AssertionError(shown)

    def ask(self, word, state):
        """Ask for something, and wait until the page shows this state."""
        self.post("/request", word)
        return self.play(0.0, lambda shown: shown["state"] == state)


@pytest.fixture
def person():
    """Return what starts a person at a command; commands that still run are ended."""
    started = []

    def start(*words):
        started.append(Person(*map(str, words)))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_episodes_by_hand_come_out_the_same_when_they_are_played_again(person, tmp_path):
    out = tmp_path / "demos"
    at = person(TASK, "--episodes", 2, "--out", out)
    picture, fields = at.get("/picture/1")
    assert (fields["Content-Type"], picture[:2]) == ("image/jpeg", b"\xff\xd8")
    # Nothing moves before it is asked for.
    time.sleep(0.3)
    assert at.post("/values", [1.0])["steps"] == 0
    at.post("/request", "play")
    at.play(0.3, lambda shown: shown["steps"] >= 3)
    # Nobody holds the controls for longer than half a second.
    time.sleep(0.8)
    shown = at.post("/values", [0.3])
    assert shown["state"] == "paused" or shown["end"] == "pole_fell"
    at.post("/request", "discard")
    at.play(0.0, lambda shown: shown["state"] == "ready" and shown["steps"] == 0)
    at.post("/request", "play")
    at.play(0.5, lambda shown: shown["steps"] >= 4)
    at.post("/request", "keep")
    at.play(0.0, lambda shown: shown["kept"] == 1)
    assert len(read_dataset(out).episodes) == 1
    at.ask("play", "playing")
    shown = at.play(1.0, lambda shown: shown["state"] == "ended")
    assert shown["end"] == "pole_fell"
    at.post("/request", "keep")
    told, _ = at.process.communicate(timeout=30)
    assert at.process.returncode == 0
    assert "2 episodes" in told

    dataset = read_dataset(out)
    assert [one.terminated for one in dataset.episodes] == [False, True]
    env = make_env(load([TASK]).env)
    for episode in dataset.episodes:
        seen, _ = env.reset(seed=episode.seed)
        for step, action in enumerate(episode.actions):
            assert np.array_equal(seen, episode.observations[step])
            seen, reward, terminated, _, _ = env.step(action)
            assert np.float32(reward) == episode.rewards[step]
        assert np.array_equal(seen, episode.observations[-1])
        assert terminated == episode.terminated
    env.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demos"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_was_kept_is_there_after_the_end_of_the_command(person, tmp_path, how):
    at = person(TASK, "--out", tmp_path / "demos", "--format", "minari")
    at.ask("play", "playing")
    at.play(0.1, lambda shown: shown["steps"] >= 2)
    at.post("/request", "keep")
    at.play(0.0, lambda shown: shown["kept"] == 1)
    at.ask("play", "playing")
    at.process.send_signal(how)
    told, _ = at.process.communicate(timeout=30)
    assert ("1 episode, " in told) == (how == signal.SIGINT)
    assert len(read_dataset(tmp_path / "demos").episodes) == 1


def test_without_a_kept_episode_nothing_is_written(person, tmp_path):
    at = person("trained/cartpole_bullet", "--out", tmp_path / "demos")
    at.process.send_signal(signal.SIGINT)
    _, told = at.process.communicate(timeout=30)
    assert at.process.returncode == 2
    assert "no episode was kept" in told
    assert list(tmp_path.iterdir()) == []


def test_episodes_that_a_kill_left_beside_are_not_written_over(tmp_path, capsys):
    (tmp_path / ".demos.new").mkdir()
    out = str(tmp_path / "demos")
    assert dispatch.run("collect", ["--teleop", TASK, "--out", out]) == 2
    assert "Rename it to keep them" in capsys.readouterr().err
    assert (tmp_path / ".demos.new").exists()


def test_other_sites_cannot_play_and_what_is_no_value_moves_nothing(person, tmp_path):
    at = person(TASK, "--out", tmp_path / "demos")
    assert "script-src 'sha256-" in at.fields["Content-Security-Policy"]
    refused = [
        ("/values", [0.0], {"X_Token": "guessed"}),
        ("/values", [0.0], {"Origin": "http://elsewhere.example"}),
        ("/request", "play", {"X_Token": ""}),
        ("/values", [0.0, 1.0], {}),
        ("/values", {"a": 1}, {}),
        ("/request", "quit", {}),
        ("/request", ["play"], {}),
        ("/else", 1, {}),
    ]
    for path, data, fields in refused:
        assert "error" in at.post(path, data, **fields)
        assert at.status in (400, 403, 404)
        at.connection.close()
    assert at.post("/values", [0.0])["state"] == "ready"
    at.get("/", Host="elsewhere.example")
    assert at.status == 403


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--teleop"], "name a run, a log"),
        (["--teleop", TASK, "--stochastic"], "--stochastic is not for --teleop"),
        (["--teleop", TASK, "--run", "x"], "--run is not for --teleop"),
        (["trained/cartpole_bullet", "--speed", "2"], "--speed is for --teleop"),
        (["trained/cartpole_bullet", TASK], "Overrides are for --teleop"),
        (["--teleop", "trained/cartpole_bullet", TASK], "whose task cannot be changed"),
        (["--teleop", "env=a1_walk_free"], "cannot be played by hand"),
        (["--teleop", TASK, "--port", "70000"], "--port 70000"),
        (["--teleop", "env=cartpole_bulet"], "cartpole_bullet"),
    ],
    ids=str,
)
def test_what_cannot_be_played_is_refused_in_a_sentence(words, told, tmp_path, capsys):
    assert dispatch.run("collect", [*words, "--out", str(tmp_path / "demos")]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
