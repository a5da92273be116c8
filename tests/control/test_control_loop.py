"""A policy acts on a robot behind a driver, and whatever fails ends in the safe action, named."""

import json
import os
import signal
import stat
from contextlib import closing

import numpy as np
import pytest
from support.world_driver import FakeClock, WorldDriver

from rlzoo_plus.control import faults
from rlzoo_plus.control.attention import Attention, override
from rlzoo_plus.control.control_loop import ControlLoop, for_robot, report
from rlzoo_plus.control.faults import Rules
from rlzoo_plus.control.session import Session
from rlzoo_plus.drivers.driver import Signal
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.identify.logs import read_csv
from rlzoo_plus.runs.load import load
from rlzoo_plus.training.evaluation import evaluate

CARTPOLE = ("env=cartpole_bullet", "env.kwargs.engine=mujoco", "env.kwargs.discrete=false")
KUKA = ("env=kuka_reach", "env.kwargs.engine=mujoco")
PERIOD_S = 0.02
N_STEPS = 40


class Balance:
    """A policy that keeps the pole up for a while, and fails when it is told to."""

    maskable = False

    def __init__(self, action_space):
        self.action_space = action_space
        self.n_calls, self.fails = 0, None

    def predict(self, observation, state, starts, deterministic, masks):
        self.n_calls += 1
        if isinstance(observation, dict):
            push = np.tanh(observation["observation"][:, :7] * 3.0)
        else:
            position, velocity, sine, _, turn = observation.T[-5:]
            push = 3 * sine + 0.4 * turn + 0.1 * position + 0.2 * velocity
            push = np.clip(push, -1, 1)[:, None]
        return (push if self.fails is None else self.fails(push)).astype(np.float32), state


class Stage:
    """An environment, its twin behind a driver, and what it takes to run a session."""

    def __init__(self, folder, overrides=CARTPOLE, kind="joint_torque", order=None, **rules):
        spec = load(list(overrides)).env
        self.venv = make_eval_env(spec, 1)
        self.env = self.venv.get_attr("unwrapped")[0]
        self.twin = make_env(spec).unwrapped
        self.clock = FakeClock()
        self.driver = WorldDriver(self.twin, kind, self.clock, order)
        self.driver.connect()
        self.policy = Balance(self.venv.action_space)
        self.folder, self.rules, self.told = folder, rules, []

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.venv.close()
        self.twin.close()

    def loop(self, ask=lambda: None):
        self.session = Session(self.folder)
        attention = Attention(self.folder, ("hold", "damp", "stop"))
        rules = Rules("damp", PERIOD_S, **self.rules)
        return ControlLoop(
            self.policy, self.venv, self.driver, rules, self.session, attention,
            clock=self.clock, ask=ask, tell=self.told.append,
        )  # fmt: skip

    def run(self, episodes=1, seconds=N_STEPS * PERIOD_S, **options):
        return self.loop(**options).run(episodes, seconds, 0, {})

    def events(self):
        return [json.loads(line) for line in (self.folder / "events.jsonl").open()]


@pytest.fixture
def stage(tmp_path):
    with Stage(tmp_path / "session") as made:
        yield made


def test_an_episode_on_the_robot_is_that_of_an_evaluation(stage):
    outcome = stage.run(2, None)
    assert (outcome.cause, outcome.code) == ("as planned", 0)
    stage.policy.n_calls = 0
    with closing(make_eval_env(load(list(CARTPOLE)).env, 1)) as venv:
        found = evaluate(stage.policy, venv, held_out_seeds(2))
    assert [one["return"] for one in outcome.episodes] == found.returns
    assert [one["length"] for one in outcome.episodes] == found.episode_lengths
    assert stage.driver.resets == held_out_seeds(2)
    # Before each episode, after the last, and as it is let go.
    assert [action for _, action in stage.driver.stops] == ["damp"] * 4
    assert not stage.driver.is_connected


def test_frames_are_stacked_and_wrappers_wrap_as_in_the_run(tmp_path):
    overrides = [*CARTPOLE, "env.frame_stack=3", "env.wrappers=[{clip_reward: {max_reward: 0.5}}]"]
    with Stage(tmp_path / "stacked", overrides) as made:
        outcome = made.run(1, None)
        with closing(make_eval_env(load(overrides).env, 1)) as venv:
            found = evaluate(made.policy, venv, held_out_seeds(1))
        assert [one["return"] for one in outcome.episodes] == found.returns
        head = (made.folder / "log.csv").open().readline()
        assert "observation/cart (2 steps ago)" in head


def test_joints_in_another_order_are_matched_by_name(tmp_path):
    returns = []
    for order in ([0, 1, 2, 3, 4, 5, 6], [3, 6, 0, 5, 1, 4, 2]):
        with Stage(tmp_path / str(order[0]), KUKA, "joint_position", order) as made:
            returns.append([one["return"] for one in made.run(1, None).episodes])
    assert returns[0] == returns[1]
    with closing(make_eval_env(load(list(KUKA)).env, 1)) as venv:
        found = evaluate(Balance(venv.action_space), venv, held_out_seeds(1))
    assert returns[0] == found.returns


def numb(push):
    return np.full_like(push, np.nan)


def far(push):
    return np.full_like(push, 1.5)


def broken(push):
    raise IndexError("there is no such leg")


def test_what_fails_in_the_driver_is_safe_within_two_periods(tmp_path):
    expected = {
        "stale": (faults.STALE, "ms old"),
        "nan": (faults.SENSOR, "joint_velocity cart_to_pole is nan"),
        "joint": (faults.JOINT, "slider_to_cart is 1000"),
        "read": (faults.CONNECTION, "the cable is out"),
        "write": (faults.CONNECTION, "the cable is out"),
    }
    for kind, (cause, detail) in expected.items():
        with Stage(tmp_path / kind) as made:
            made.driver.fault, made.driver.fault_at = kind, 10
            check_safe(made, made.run(), cause, detail)


def check_safe(made, outcome, cause, detail=""):
    """Check that the robot was told to be safe within two periods of the fault, and why."""
    assert outcome.cause.startswith(f"{cause}: ")
    assert detail in outcome.cause
    assert outcome.code != 0
    after = [time_s for time_s, _ in made.driver.stops if time_s >= made.driver.fault_s]
    assert after[0] - made.driver.fault_s <= 2 * PERIOD_S + 1e-9
    assert {action for _, action in made.driver.stops} == {"damp"}
    assert cause in [event["kind"] for event in made.events()]
    assert made.events()[-1] == {**made.events()[-1], "kind": "end", "text": outcome.cause}
    assert outcome.cause in (made.folder / "report.txt").read_text()
    assert not made.driver.is_connected
    n_written = len(made.driver.written)
    assert 10 <= n_written < N_STEPS
    assert len(made.driver.written) == n_written


def test_what_fails_in_the_policy_is_safe_within_two_periods(tmp_path):
    def late(push):
        made.clock.time_s += 2.1 * PERIOD_S
        return push

    def often_late(push):
        made.clock.time_s += 1.2 * PERIOD_S
        return push

    for answer, cause, detail in (
        (numb, faults.ACTION, "nan"),
        (far, faults.OUTSIDE, "1.5"),
        (broken, faults.POLICY, "IndexError: there is no such leg"),
        (late, faults.DEADLINES, "late"),
        (often_late, faults.DEADLINES, "and the robot waits for 40 ms"),
        (often_late, faults.DEADLINES, "3 in a row"),
    ):
        with Stage(tmp_path / detail[:5]) as made:
            made.driver.watchdog_s = None if detail == "3 in a row" else 0.04
            made.driver.fault_at = 10
            made.driver.fault = lambda made=made, answer=answer: setattr(
                made.policy, "fails", answer
            )
            outcome = made.run()
            # The decision that fails begins a period later, and is late when deadlines are over.
            made.driver.fault_s += {"late": 3, "3 in a row": 4}.get(detail, 1) * PERIOD_S
            check_safe(made, outcome, cause, detail)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 75), ("SIGINT", 130), ("SIGHUP", 75)])
def test_a_signal_makes_the_robot_safe(stage, name, code):
    stage.driver.fault_at = 10
    stage.driver.fault = lambda: os.kill(os.getpid(), getattr(signal, name))
    outcome = stage.run()
    check_safe(stage, outcome, faults.SIGNAL, name)
    assert outcome.code == code


def test_commands_beyond_the_limits_of_the_robot_are_not_sent(stage):
    stage.driver.limit = 0.5
    outcome = stage.run()
    assert outcome.cause.startswith(faults.COMMAND)
    assert max(abs(row[0]) for row in [*stage.driver.written, [0.0]]) <= 0.5


def test_an_override_takes_the_next_decision_and_is_released(stage):
    def ask():
        (stage.folder / "override").write_text("stop\n")

    stage.driver.fault_at, stage.driver.fault = 10, ask

    def tell(text):
        stage.told.append(text)
        if "override" in text:
            assert len(stage.driver.written) == 10
            (stage.folder / "override").write_text("release\n")

    loop = stage.loop()
    loop._tell = tell
    outcome = loop.run(2, None, 0, {})
    assert outcome.code == 0
    assert [one["end_reason"] for one in outcome.episodes] == ["cut: override: stop", "time_limit"]
    assert "stop" in [action for _, action in stage.driver.stops]
    kinds = [(event["kind"], event["text"]) for event in stage.events()]
    assert ("override", "stop") in kinds
    assert ("override", "released") in kinds


def test_a_signal_after_an_override_does_not_undo_it(stage):
    stage.driver.fault_at = 10
    stage.driver.fault = lambda: (stage.folder / "override").write_text("stop")
    loop = stage.loop()
    loop._tell = lambda text: os.kill(os.getpid(), signal.SIGTERM) if "override" in text else None
    outcome = loop.run(1, None, 0, {})
    assert outcome.cause == "signal: SIGTERM"
    assert [action for _, action in stage.driver.stops][1:] == ["stop"] * 3


def test_a_robot_that_does_not_answer_is_left_to_its_watchdog(stage):
    def stop(action):
        if len(stage.driver.written) >= 10:
            raise OSError("no route")
        stage.driver.stops.append((stage.clock.now(), action))

    stage.driver.stop = stop
    stage.driver.fault, stage.driver.fault_at = "read", 10
    outcome = stage.run()
    assert outcome.cause == "lost connection: the cable is out"
    assert "the robot does not answer; its watchdog: 0.04 s" in stage.told


def test_a_dry_run_decides_and_never_commands(tmp_path):
    with Stage(tmp_path / "dry", dry_run=True) as made:
        outcome = made.run()
        assert outcome.code == 0
        assert made.policy.n_calls > N_STEPS
        assert (made.driver.written, made.driver.stops, made.driver.resets) == ([], [], [])


def test_enter_is_asked_for_before_each_episode(stage):
    asked = []
    stage.run(2, None, ask=lambda: asked.append(len(stage.driver.resets)))
    assert asked == [0, 1]


def test_it_moves_slowly_to_the_start_pose_and_stays_there(tmp_path):
    with Stage(tmp_path / "slow", KUKA, "joint_position") as made:
        made.driver.can_reset = False
        started = []
        made.loop().body._idle = lambda: started.append(len(made.driver.written))
        made.folder = tmp_path / "again"
        first = made.twin.world.start(made.twin.robot.at_rest._replace(joint_position=[0.4] * 7))
        made.driver.row = first
        outcome = made.run(1, 12.0)
        told = [text for text in made.told if text.startswith("moving")]
        assert len(told) == 1
        changes = np.abs(np.diff(made.driver.written[:100], axis=0))
        assert changes.max() <= 0.3 * PERIOD_S + 1e-9
        assert outcome.episodes[0]["end_reason"] == "time_limit"


def test_a_start_pose_that_cannot_be_reached_is_named(tmp_path):
    with Stage(tmp_path / "far", KUKA, "joint_position") as made:
        made.driver.can_reset = False
        made.driver.row = made.twin.world.start(
            made.twin.robot.at_rest._replace(joint_position=[0.4] * 7)
        )
        made.driver.write = lambda commands: None
        outcome = made.run(1, None)
        assert outcome.cause.startswith("start pose not reached: lbr_iiwa_joint_")


def test_a_robot_that_cannot_be_moved_there_is_waited_for(stage):
    stage.driver.can_reset = False
    standing = stage.driver.row
    stage.driver.row = [0.0, 3.1, 0.0, 0.0]

    def tell(text):
        assert "cart_to_pole is at 3.10" in text
        stage.driver.row = standing

    loop = stage.loop()
    loop.body._tell = tell
    assert loop.run(1, 1.0, 0, {}).episodes[0]["length"] > 10


def test_what_the_robot_lacks_is_named(tmp_path):
    def without(*names):
        return lambda sensors: {k: one for k, one in sensors.items() if k not in names}

    with Stage(tmp_path / "x") as made:
        made.driver.sensors = without("joint_velocity")
        with pytest.raises(ConfigError, match="twin does not sense joint_velocity, which this"):
            made.loop()
    with Stage(tmp_path / "y") as made:
        made.driver.kind = "joint_position"
        with pytest.raises(ConfigError, match=r"does not take joint_torque.*has: joint_position"):
            made.loop()
    with Stage(tmp_path / "z") as made:
        made.driver.sensors = lambda sensors: {
            **sensors,
            "joint_position": Signal(("pole", "slider_to_cart"), "rad,m"),
        }
        with pytest.raises(ConfigError, match="joint_position: the robot has no cart_to_pole"):
            made.loop()
    with Stage(tmp_path / "u") as made:
        made.driver.sensors = lambda sensors: {
            **sensors,
            "joint_velocity": Signal(sensors["joint_velocity"].names, "deg/s"),
        }
        with pytest.raises(ConfigError, match="in deg/s, and they must be in m/s and rad/s"):
            made.loop()


def test_links_that_are_not_sensed_follow_from_the_joints_of_a_bolted_robot(tmp_path):
    with Stage(tmp_path / "known", KUKA, "joint_position") as made:
        known = made.run(1, None).episodes
    with Stage(tmp_path / "derived", KUKA, "joint_position") as made:
        made.driver.sensors = lambda sensors: {
            name: one for name, one in sensors.items() if name.startswith("joint")
        }
        derived = made.run(1, None).episodes
    assert derived[0]["return"] == pytest.approx(known[0]["return"], rel=1e-3)


def test_the_log_is_one_for_identification(stage):
    stage.run(2, None)
    log = read_csv(stage.folder / "log.csv", stage.twin)
    assert log.are_targets
    assert len(log.stretches) == 2
    assert log.n_rows == len(stage.driver.written)
    assert log.stretches[0].commands[5, 0] == stage.driver.written[5][0]
    names = (stage.folder / "log.csv").open().readline()
    for name in ("observation/sin angle", "policy/0", "command/joint_torque/", "reward/alive"):
        assert name in names


def test_the_report_says_what_happened(stage):
    stage.driver.limit = 1000.0
    text = report(stage.run(1, None))
    assert "periods         500 of 20.0 ms, mean 20.00, 99% within 0.00 ms, 0 missed" in text
    assert "limits touched  none" in text
    assert "episode 0       return" in text
    found = json.loads((stage.folder / "report.json").read_text())
    assert found["episodes"][0]["length"] == 500


def test_a_session_is_its_owners_alone_and_is_not_overwritten(stage):
    stage.run()
    assert stat.S_IMODE(stage.folder.stat().st_mode) == 0o700
    with pytest.raises(ConfigError, match="holds files"):
        Session(stage.folder)


def test_an_override_without_a_loop_fails(stage, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.control.attention._PATIENCE_S", 0.05)
    stage.run()
    with pytest.raises(RunError, match="no loop has taken it"):
        override(stage.folder, "stop")
    assert not (stage.folder / "override").exists()
    with pytest.raises(ConfigError, match=r"unknown override 'sotp'. Did you mean 'stop'"):
        override(stage.folder, "sotp")


def test_conditions_of_a_simulation_are_left_out():
    config = load([*CARTPOLE, "+env.kwargs.latency=2", "+env.kwargs.max_action_rate=0.5"])
    found, left_out = for_robot(config)
    assert left_out == ["latency"]
    assert found.env.kwargs["max_action_rate"] == 0.5
    assert "latency" not in found.env.kwargs
