"""Robots are identified from logs, and a log that cannot tell says so."""

import hashlib
import json
import zipfile
from contextlib import closing
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from numpy.lib import format as npy

from benchmarks.identification import Twin, record
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE
from rlzoo_plus.drivers import log_table
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.identify import fitting, logs
from rlzoo_plus.identify.parameters import Parameter
from rlzoo_plus.identify.worlds import Worlds
from rlzoo_plus.policies.episode import Episode
from rlzoo_plus.runs.load import load

SWINGUP = ("env=cartpole_swingup", "env.kwargs.engine=mujoco")
HIDDEN = {
    "mass": 1.2,
    "motor_strength": 0.7,
    "joint_damping": {"joints": {"slider_to_cart": 0.5, "cart_to_pole": 0.01}},
}
TWIN = Twin(0, "cartpole_swingup", "mujoco", HIDDEN, 2, [])
# What is not looked for in the quick tests.
FIXED = ("--known", "joint_friction=0", "--known", "armature=0")


@pytest.fixture(scope="module")
def minute(tmp_path_factory):
    """Return the log of a twin: a third of a minute."""
    path = tmp_path_factory.mktemp("logs") / "log.csv"
    record(TWIN, 20.0, path)
    return path


@pytest.fixture(scope="module")
def worlds():
    with Worlds(load(list(SWINGUP)).env, count=4) as made:
        yield made


@pytest.mark.parametrize(("rows", "latency"), [(3, 4), (3, 3), (3, 1), (1, 4)])
def test_commands_arrive_late_also_in_a_stretch_shorter_than_the_latency(worlds, rows, latency):
    commands = np.arange(1.0, rows + 1).reshape(-1, 1)
    arrived = worlds.arrivals(commands, latency, True)
    assert arrived[:, 0].tolist() == [max(row - latency, 0.0) for row in range(1, rows + 1)]


def rows_of(path):
    head, *lines = path.read_text().splitlines()
    return head.split(","), [line.split(",") for line in lines]


def write(path, names, rows):
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
    return path


def by_name(text):
    found = json.loads(text)
    return found, {(one["name"], one["joint"]): one for one in found["parameters"]}


class TestOfTwins:
    """What is found about twins whose values are known here."""

    @pytest.mark.slow
    def test_a_weighed_robot_tells_its_motor_damping_and_latency(self, answer, minute, tmp_path):
        words = ("identify", str(minute), *SWINGUP, *FIXED, "--known", "mass=1.2", "--json")
        code, text = answer(*words)
        found, values = by_name(text)
        assert code == 0
        assert found["latency"] == {"values": [2], "status": "told"}
        for name, joint, true in (
            ("motor_strength", None, 0.7),
            ("joint_damping", "slider_to_cart", 0.5),
            ("joint_damping", "cart_to_pole", 0.01),
        ):
            one = values[name, joint]
            assert one["status"] == "told"
            assert one["relative_to"] == []
            assert one["value"] == pytest.approx(true, rel=0.1)
            assert one["low"] < true < one["high"]
        assert (tmp_path / "experiment" / "identified.png").stat().st_size > 10_000
        config = load(["--config-dir", str(tmp_path), "experiment=identified", *SWINGUP])
        drawn = config.env.kwargs["randomization"]
        low, high = drawn["motor_strength"]["uniform"]
        assert low < 0.7 < high
        assert drawn["mass"] == 1.2
        assert drawn["latency"] == 2
        assert answer(*words) == (code, text), "the same log gives the same numbers"

    @pytest.mark.slow
    def test_without_its_mass_a_log_tells_ratios_and_says_so(self, answer, minute):
        code, text = answer("identify", str(minute), *SWINGUP, *FIXED)
        assert code == 0
        assert "the log tells only their ratio, so motor_strength stays nominal" in text
        print(text)
        (line,) = (line for line in text.splitlines() if line.startswith("mass"))
        assert float(line.split()[1]) == pytest.approx(1.2 / 0.7, rel=0.1)
        assert "told if motor_strength is nominal" in line

    @pytest.mark.slow
    def test_a_robot_that_is_never_driven_tells_neither_motor_nor_latency(
        self, answer, minute, tmp_path
    ):
        names, _ = rows_of(minute)
        with Worlds(load(list(SWINGUP)).env, count=1) as made:
            start = np.array([[0.0, np.pi - 0.8, 0.0, 0.0]])
            still = np.zeros((1, 400, 1))
            states = made.follow([], np.zeros((1, 0)), start, still, False)[0]
        rng = np.random.default_rng(0)
        states = states + 1e-3 * rng.standard_normal(states.shape)
        rows = [[0.04 * i, 0.0, *state] for i, state in enumerate(states)]
        path = write(tmp_path / "still.csv", names, rows)
        code, text = answer("identify", str(path), *SWINGUP, *FIXED)
        assert code == 0, text
        assert "the log does not tell" in text
        # The table comes first.
        line = next(line for line in text.splitlines() if line.startswith("motor_strength"))
        assert "not told" in line or "held" in line
        assert "the log does not tell the latency" in text
        assert (
            "motor_strength"
            not in (tmp_path / "experiment/identified.yaml").read_text().split("\n\n")[1]
        )


class _Linear:
    """Segments of a linear robot: states are ``a @ u + b @ start`` and noise."""

    def __init__(self, rng, u, count=60, n_steps=8, n_errors=2):
        self.shape = (count, n_steps + 1, n_errors)
        self.n_errors, self.scale = n_errors, np.full(n_errors, 0.3)
        self.a = rng.standard_normal((*self.shape, len(u)))
        self.a[:, 0] = 0.0
        self.b = np.broadcast_to(np.eye(n_errors), (count, n_steps + 1, n_errors, n_errors))
        noise = np.array([0.05, 0.2]) * rng.standard_normal(self.shape)
        self.measured_errors = self.a @ u + noise

    def __len__(self):
        return self.shape[0]

    def residuals(self, parameters, u, changes):
        return self.a @ u + np.einsum("stij,sj->sti", self.b, changes) - self.measured_errors

    def by_parameters(self, parameters, u, changes, free):
        return self.a[..., list(free)]

    def by_starts(self, parameters, u, changes):
        return self.b


class TestIntervals:
    """Intervals of 95% hold the true value about as often."""

    def test_they_cover_the_true_values(self):
        rng, parameters = np.random.default_rng(0), [Parameter("mass", None, 0.5)] * 2
        true, inside = np.array([0.3, -0.2]), []
        for _ in range(200):
            problem = fitting._Problem(_Linear(rng, true), parameters, [0, 1])
            found = problem.solve(np.zeros(2))
            covariance, _ = problem.covariance(found)
            inside += (np.abs(found.u - true) < 2 * np.sqrt(np.diag(covariance))).tolist()
        assert 0.91 < np.mean(inside) < 0.985

    def test_what_changes_nothing_keeps_the_width_it_had(self):
        rng = np.random.default_rng(1)
        segments = _Linear(rng, np.array([0.3, 0.0]))
        segments.a[..., 1] = 0.0
        problem = fitting._Problem(segments, [Parameter("mass", None, 0.5)] * 2, [0, 1])
        covariance, _ = problem.covariance(problem.solve(np.zeros(2)))
        assert covariance[1, 1] == pytest.approx(1.0)
        assert fitting._estimate(Parameter("mass", None, 0.5), 0.0, 1.0, ()).status == "not told"

    @pytest.mark.parametrize(
        ("known", "held"),
        [
            ({}, [1]),
            ({"mass": 1.2}, []),
            ({"joint_damping/a": 0.1}, []),
            ({"armature/a": 0.0}, [1]),
        ],
    )
    def test_the_motor_is_held_unless_something_sets_the_scale_of_forces(self, known, held):
        names = [
            ("mass", None),
            ("motor_strength", None),
            ("joint_damping", "a"),
            ("armature", "a"),
        ]
        parameters = [Parameter(name, joint, 0.5) for name, joint in names]
        u = np.array([p.u_of(known.get(str(p), p.nominal)) for p in parameters])
        free = [i for i, p in enumerate(parameters) if str(p) not in known]
        assert fitting._scale(parameters, u, free) == held

    def test_what_is_added_does_not_become_negative(self):
        rng = np.random.default_rng(2)
        segments = _Linear(rng, np.array([-0.5]))
        problem = fitting._Problem(segments, [Parameter("joint_damping", "hinge", 1.0)], [0])
        assert problem.solve(np.zeros(1)).u[0] == 0.0


class TestOfLogs:
    """How a log is read."""

    def test_joints_are_matched_by_name_and_never_by_order(self, minute, worlds, tmp_path):
        names, rows = rows_of(minute)
        order = np.random.default_rng(0).permutation(len(names))
        other = write(
            tmp_path / "other.csv", [names[i] for i in order], [[r[i] for i in order] for r in rows]
        )
        (one,), (two,) = (logs.read_csv(path, worlds.env).stretches for path in (minute, other))
        assert one.states.tobytes() == two.states.tobytes()
        assert one.commands.tobytes() == two.commands.tobytes()

    def test_a_gap_and_another_episode_begin_a_stretch(self, minute, worlds, tmp_path):
        names, rows = rows_of(minute)
        rows = [[*row, int(i >= 300)] for i, row in enumerate(rows) if not 100 <= i < 110]
        log = logs.read_csv(write(tmp_path / "a.csv", [*names, "episode"], rows), worlds.env)
        assert [len(one.states) for one in log.stretches] == [100, 190, 200]

    def test_targets_in_units_are_what_the_actions_stand_for(self, minute, worlds, tmp_path):
        names, rows = rows_of(minute)
        names[1] = "target/slider_to_cart"
        scaled = [[row[0], 10.0 * float(row[1]), *row[2:]] for row in rows]
        targets = logs.read_csv(write(tmp_path / "a.csv", names, scaled), worlds.env)
        actions = logs.read_csv(minute, worlds.env)
        assert targets.are_targets
        start, states = actions.stretches[0].states[:1], []
        for log in (actions, targets):
            commands = log.stretches[0].commands[None, :10]
            states.append(worlds.follow([], np.zeros((1, 0)), start, commands, log.are_targets)[0])
        np.testing.assert_allclose(states[0], states[1], atol=1e-12)

    def test_columns_of_nothing_known_are_named(self, minute, worlds, tmp_path):
        names, rows = rows_of(minute)
        path = write(tmp_path / "a.csv", [*names, "heat"], [[*row, 20] for row in rows])
        assert logs.read_csv(path, worlds.env).notes == ["columns that were not used: heat"]


class TestOfEpisodes:
    """Saved episodes hold actions alone: what joints did comes from playing them again."""

    @pytest.fixture
    def played(self):
        """Return the environment of an episode, the episode, and what its joints did."""
        spec = load([*SWINGUP, "env.kwargs.motor_strength=0.7", "env.kwargs.episode_s=1"]).env
        with closing(make_env(spec)) as env:
            env.reset(seed=7)
            env.action_space.seed(7)
            actions, rewards, states = [], [], []
            for _ in range(25):
                actions.append(env.action_space.sample())
                states.append(logs.state_of(env.unwrapped))
                rewards.append(env.step(actions[-1])[1])
        episode = Episode(
            seed=7,
            actions=np.array(actions),
            rewards=np.array(rewards),
            terms={},
            values=None,
            digests=np.zeros(25, np.uint64),
            value_kind=None,
            last_observation=np.zeros(5),
            end_reason="time_limit",
            terminated=False,
            success=None,
        )
        return spec, episode, np.array(states)

    def test_they_are_played_again_for_their_states(self, played, worlds):
        spec, episode, states = played
        (found,), are_targets = logs.log_of_episodes(spec, [episode], worlds.env)
        assert found.states.tobytes() == states.tobytes()
        np.testing.assert_array_equal(found.commands, episode.actions)
        assert not are_targets

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"rewards": np.zeros(25)}, "is played otherwise here, from step 1 on"),
            ({"actions": np.zeros((25, 3))}, "are none of robots/CartPoleSwingUp-v0"),
        ],
    )
    def test_others_are_refused(self, changes, message, played, worlds):
        spec, episode, _ = played
        with pytest.raises(ConfigError, match=message):
            logs.log_of_episodes(spec, [replace(episode, **changes)], worlds.env)

    def test_those_of_another_robot_are_refused(self, played, worlds):
        spec = load(["env=double_pendulum", SWINGUP[1]]).env
        with pytest.raises(ConfigError, match="which has other joints than"):
            logs.log_of_episodes(spec, [played[1]], worlds.env)


@pytest.fixture(scope="module")
def walker():
    with Worlds(load(["env=a1_walk", "env.kwargs.engine=mujoco"]).env, count=2) as made:
        yield made


class TestFreeRobots:
    """A free base is part of the state."""

    def test_errors_are_the_opposite_of_changes(self, walker):
        rng = np.random.default_rng(0)
        states = rng.standard_normal((5, 24 + 13))
        states[:, 27:31] /= np.linalg.norm(states[:, 27:31], axis=1, keepdims=True)
        changes = 1e-3 * rng.standard_normal((5, 36))
        found = walker.errors(walker.moved(states, changes), states)
        np.testing.assert_allclose(found, changes, atol=1e-6)

    def test_a_segment_goes_on_as_the_episode_did(self, walker):
        env, states, targets = walker.env, [], []
        env.reset(seed=0)
        for action in np.random.default_rng(0).uniform(-0.5, 0.5, (8, env.robot.drive.n_actions)):
            states.append(logs.state_of(env))
            targets.append(env.robot.drive.targets(action, env.state))
            env.step(action)
        states.append(logs.state_of(env))
        given = np.array(targets)[None, 3:]
        found = walker.follow([], np.zeros((1, 0)), states[3][None], given, True)[0]
        np.testing.assert_allclose(found, states[4:], atol=2e-3)

    def test_a_log_of_actions_that_depend_on_earlier_ones_is_refused(self, walker, tmp_path):
        env = walker.env
        joints = [joint.name for joint in env.robot.joints]
        names = [f"{what}/{joint}" for what in ("position", "velocity") for joint in joints]
        with pytest.raises(ConfigError, match="lacks the column 'base/position/x'"):
            logs.read_csv(write(tmp_path / "a.csv", names, np.zeros((3, 24)).tolist()), env)
        names += [*logs._BASE, *(f"action/{i}" for i in range(env.robot.drive.n_actions))]
        rows = np.zeros((3, len(names))).tolist()
        with pytest.raises(ConfigError, match="Log the targets of the joints"):
            logs.read_csv(write(tmp_path / "b.csv", names, rows), env)


def changed(change):
    """Return what writes a changed log: a function of its names and rows."""

    def make(minute, path):
        names, rows = rows_of(minute)
        return write(path / "bad.csv", *change(names, rows))

    return make


def of_text(content):
    def make(minute, path):
        (path / "bad.csv").write_bytes(content)
        return path / "bad.csv"

    return make


def replaced(names, old, new):
    return [new if name == old else name for name in names]


MISTAKES = {
    "NaN": (
        changed(lambda n, r: (n, [*r[:7], [*r[7][:-1], "nan"], *r[8:]])),
        "line 9, column 'velocity/cart_to_pole' is nan",
    ),
    "a missing column": (
        changed(lambda n, r: (n[:-1], [row[:-1] for row in r])),
        "lacks the column 'velocity/cart_to_pole', which the state",
    ),
    "a wrong name": (
        changed(lambda n, r: (replaced(n, "action/0", "actoin/0"), r)),
        "lacks the column 'action/0', which the state of this robot needs. Did you mean",
    ),
    "another robot": (
        changed(lambda n, r: (replaced(n, "position/cart_to_pole", "position/hip"), r)),
        "column 'position/hip' is of no joint of robots/CartPoleSwingUp-v0",
    ),
    "a column twice": (
        changed(lambda n, r: ([*n, n[-1]], [[*row, row[-1]] for row in r])),
        "has the column 'velocity/cart_to_pole' twice",
    ),
    "too short": (changed(lambda n, r: (n, r[:60])), "5 segments of 10 control steps; 12 are"),
    "no rows": (changed(lambda n, r: (n, [])), "is no CSV of numbers|no columns of numbers"),
    "words": (changed(lambda n, r: (n, [["x", *r[0][1:]], *r[1:]])), "is no CSV of numbers"),
    "forces as actions": (
        changed(lambda n, r: (n, [[row[0], 10.0, *row[2:]] for row in r])),
        "action/0 is 10 in row 1, and actions are in",
    ),
    "another rate": (
        changed(lambda n, r: (n, [[0.01 * i, *row[1:]] for i, row in enumerate(r)])),
        "rows are 0.01 s apart, and a control step is 0.04 s",
    ),
    "both kinds of commands": (
        changed(lambda n, r: ([*n, "target/slider_to_cart"], [[*row, 0] for row in r])),
        "leave one kind",
    ),
    "bytes": (of_text(b"\xff\xfe\x00\x01"), "is no text"),
    "nothing": (of_text(b""), "bad.csv"),
    "another motion": (
        changed(
            lambda n, r: (
                n,
                [[*row[:2], *np.random.default_rng(i).normal(size=4)] for i, row in enumerate(r)],
            )
        ),
        "no values make the simulation follow the log",
    ),
}


class TestMistakes:
    """A user's mistake is one line, and exit code 2."""

    @pytest.mark.parametrize("name", MISTAKES)
    def test_a_log_that_is_none_is_refused(self, name, answer, minute, tmp_path, monkeypatch):
        make, message = MISTAKES[name]
        monkeypatch.setattr(fitting, "LATENCIES", 1)
        code, text = answer("identify", str(make(minute, tmp_path)), *SWINGUP, *FIXED)
        assert code == 2, text
        assert any(part in text for part in message.split("|")), text
        assert len(text.strip().splitlines()) == 1, text
        assert len(text) < LONGEST_LINE
        assert not (tmp_path / "experiment").exists()

    def test_a_huge_log_is_not_read(self, answer, minute, monkeypatch):
        monkeypatch.setattr(log_table, "_LARGEST_BYTES", 1000)
        code, text = answer("identify", str(minute), *SWINGUP)
        assert code == 2
        assert "bytes, more than 1000" in text

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "name a log and its robot"),
            (["env=cartpole"], "is no robot of this package"),
            ([*SWINGUP, "--known", "mas=1"], "'mas' is no parameter of this robot. Did you mean"),
            ([*SWINGUP, "--known", "mass=heavy"], "needs a number, above 0 for a factor"),
            ([*SWINGUP, "--known", "latency=0.5"], "whole for the latency"),
            ([*SWINGUP, "--out", "a.png"], "end it in .yaml"),
            ([*SWINGUP, "env.kwargs.force=3"], "force"),
        ],
    )
    def test_a_wrong_word_is_refused(self, words, message, answer, minute):
        code, text = answer("identify", str(minute), *words)
        assert code == 2, text
        assert message in text
        assert len(text.strip().splitlines()) == 1, text

    def test_a_log_that_is_not_there_is_named(self, answer):
        code, text = answer("identify", "none.csv", *SWINGUP)
        assert (code, "none.csv: no such file" in text) == (2, True), text

    def test_a_zip_bomb_is_refused_by_its_size(self, answer, tmp_path):
        data, content = BytesIO(), BytesIO()
        npy.write_array(content, np.zeros(1), allow_pickle=False)
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("actions", "rewards"):
                archive.writestr(f"{name}.npy", content.getvalue() + bytes(2**28))
        (tmp_path / "episode-0000.npz").write_bytes(data.getvalue())
        facts = {"format": 1, "sha256": hashlib.sha256(data.getvalue()).hexdigest(), "about": {}}
        (tmp_path / "episode-0000.json").write_text(json.dumps(facts))
        code, text = answer("identify", str(tmp_path / "episode-0000.npz"), *SWINGUP)
        assert code == 2
        assert "its arrays are too many or too large" in text
